"""Who leads a node: pings, claims, takeover, and snapshots for the other replica."""
