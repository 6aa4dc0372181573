"""Operators on executors: fragments run in Python workers, driven by the clock in the driver."""
