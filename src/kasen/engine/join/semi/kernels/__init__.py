"""Kernels of semi and anti joins: by keys alone, and with a condition on pairs."""
