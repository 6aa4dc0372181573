"""Steps that remember nothing: conditions, SELECT lists, padding with NULLs, and the selection network
that decides the conditions of all queries on a stream in one pass.
"""
