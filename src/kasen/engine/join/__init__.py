"""Joins: `hash` of two relations, `semi` for EXISTS and IN, `pair` for two windows of which only what
enters counts, and `multiway` for N inputs as one operator.
"""
