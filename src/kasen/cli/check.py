"""`kasen check`: binds an app without running it."""

from __future__ import annotations

import typer

from kasen.cli.app_file import AppFile, Python, load, warn


def check(file: AppFile, python: Python = None) -> None:
    """Bind an app and say what is wrong with it, without running anything."""
    bound = load(file, python)
    warn(bound)
    typer.echo(f"{file}: {len(bound.inputs)} inputs, {len(bound.queries)} queries: all right")
