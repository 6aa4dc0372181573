"""GROUP BY over changes: each group's row, net at every instant."""
