"""The join of two windows when only what enters counts: rows in rings, matched in blocks of arrivals.

`pair_join` is the operator, `counted_join` its form on shards; `rows` says where rows lie, `match` finds
pairs, `output` writes them, and `stages` runs the two halves on two cores.
"""
