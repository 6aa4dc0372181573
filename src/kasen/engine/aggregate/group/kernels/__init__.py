"""The kernel of GROUP BY."""
