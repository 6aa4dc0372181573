"""The running operators of a pipeline: how a stretch of instants passes through them, also in loops
and on two cores.
"""
