"""Kernels of expressions: arithmetic, logic, decimals, the calendar, and the two program machines."""
