"""Kernels that all aggregates share: accumulators, candidates for extremes, and what a group reports."""
