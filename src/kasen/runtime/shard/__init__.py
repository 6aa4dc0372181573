"""A pipeline on shards: the clock that decides once for all of them, a shard, and what travels between."""
