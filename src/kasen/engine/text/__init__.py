"""Strings: the dictionary that gives each a number, and the order of these numbers.

`kernels` reads and writes text itself: it finds the fields of csv and JSON, parses cells, renders rows.
"""
