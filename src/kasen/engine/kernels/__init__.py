"""Compiled loops: arrays in, arrays out, no Python objects. numba lives here and nowhere else."""
