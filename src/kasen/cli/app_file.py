"""The app that a command is given: a CQL file, and Python files with the aggregates that it calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kasen.errors import DataError

if TYPE_CHECKING:
    from kasen.cql.bound import App

AppFile = Annotated[Path, typer.Argument(help="The app: a CQL file.", metavar="APP.cql")]
Python = Annotated[
    list[Path] | None,
    typer.Option(
        "--python", help="A Python file with aggregates; may be given several times.", metavar="FILE"
    ),
]


def load(file: Path, python: list[Path] | None = None) -> App:
    """The bound app of a file, which may call the aggregates of Python files."""
    from kasen.aggregates import load_python
    from kasen.connect.sniff import sniffer
    from kasen.cql.bind.app import bind_file

    if not file.is_file():
        raise DataError(f"no file {str(file)!r}")
    return bind_file(
        file, sniffer(file.parent), [each for path in python or () for each in load_python(path)]
    )


def warn(bound: App) -> None:
    """Prints what is allowed but looks wrong."""
    for warning in bound.warnings:
        typer.echo(f"warning: {warning}", err=True)
