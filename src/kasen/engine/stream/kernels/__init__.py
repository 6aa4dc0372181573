"""Kernels of RSTREAM, netting and value order."""
