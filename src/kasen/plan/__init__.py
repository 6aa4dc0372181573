"""From bound queries to plans: logical nodes, rewrites, sharding, EXPLAIN."""
