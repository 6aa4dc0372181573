"""Durable state of a local run: checkpoints, the lock on a folder, arrays at rest."""
