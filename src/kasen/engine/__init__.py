"""Operators: each turns batches of changes into batches of changes. One operator a file."""
