"""The symmetric hash join of two relations."""
