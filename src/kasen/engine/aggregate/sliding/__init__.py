"""GROUP BY over sliding windows: each tuple is reduced once into its pane, and windows combine panes.

`sliding_aggregate` is the operator, `sharable` the form in which queries share panes (`shared_panes`) and
the reduction of rows to panes (`pane_reduction`).
"""
