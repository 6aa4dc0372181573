"""A pipeline on shards: the clock that decides once for all of them, a shard, and what travels between.

The `clock` gives orders for each epoch. A `shard` runs them: its `inputs` are what comes to it, its `steps`
are those of each `generation` of queries, a `splice` changes them. `shipment` packs changes for the way
between shards; `tuples` are an input's on their way.
"""
