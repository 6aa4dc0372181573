"""What all kernels share: compiled loops over arrays, without Python objects.

State records, hashing, groups, multimaps, ordered sets, exact sums and the order of instants. numba is
imported in folders named `kernels` and nowhere else. `python -m kasen.engine.kernels` compiles every kernel.
"""
