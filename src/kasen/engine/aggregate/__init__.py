"""Aggregates: `group` over any changes, `sliding` by panes, `user` for those written in Python.

`accumulators` lays out what a group remembers; the kernels here update it and read answers from it.
"""
