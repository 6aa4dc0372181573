"""Durable state of a local run: checkpoints, checksums, the lock on a folder, arrays at rest."""
