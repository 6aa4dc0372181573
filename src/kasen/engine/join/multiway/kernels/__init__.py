"""Kernels of joins of N inputs, and the rings in which their windows lie."""
