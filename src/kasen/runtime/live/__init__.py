"""Queries that are registered, replaced and dropped while data flows.

`live_queries` changes those of one process: `query_steps` and `shared_steps` know who has which steps,
`splice_builder` makes a change (`splice`) ready, `pending_splices` holds what waits for the next run.
`remote_queries` and `remote_generations` are the driver's part for queries on shards, and `dry_run` tries a
change there first; `runtime/shard/splice.py` is the shards' part. `contents` tells what a step holds now,
`contents_before` what a query sees of the time before it came. `retained` keeps the past of streams, `limits`
refuses queries beyond a limit.
"""
