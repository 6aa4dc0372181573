"""Scalar operations on vectors: the closed list, a file a subject.

Each file has functions that make an operation for given types; what an operation needs beside its arguments
(the dictionary, the count of failures) is bound when it is made.
"""
