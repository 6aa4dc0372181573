"""Kernels of sliding aggregates: rows into panes, panes into windows, one sweep for many queries."""
