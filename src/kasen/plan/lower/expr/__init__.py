"""Compilers of bound expressions: to vectors, to programs over blocks, to programs over single rows."""
