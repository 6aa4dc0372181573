"""The loop machine: it runs the steps of a loop instant by instant inside one compiled call.

`loop_parts` says how each operator lends the machine its state.
"""
