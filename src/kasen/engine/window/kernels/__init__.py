"""Kernels of windows: which tuples enter and leave at which instant."""
