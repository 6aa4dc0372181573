"""Kernels on text: fields of csv and JSON, cells to values, rows to text."""
