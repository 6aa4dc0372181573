"""Windows over streams: RANGE, NOW, ROWS, SLIDE and PARTITION BY ROWS.

`window` has those whose tuples leave in the order in which they came, `partition` the last n of each
partition, `ordinal_rows` ROWS on a shard, and `activity` the instants at which a window changes or reports,
which RSTREAM listens to.
"""
