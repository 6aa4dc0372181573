"""Kernels of the join of two windows."""
