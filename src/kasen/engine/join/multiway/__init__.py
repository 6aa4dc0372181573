"""Joins of N inputs: MJoin, which keeps nothing intermediate, its parallel form, and parallel join trees."""
