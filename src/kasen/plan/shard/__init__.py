"""How a plan runs on shards: how rows may lie, where they must move, and the fragments in between."""
