"""The command line: check, explain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kasen.connect.sniff import sniffer
from kasen.cql.bind import bind_file
from kasen.cql.bound import App
from kasen.errors import DataError, KasenError

app = typer.Typer(
    help="Continuous queries over streams, on Spark or in one process.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AppFile = Annotated[Path, typer.Argument(help="The app: a CQL file.", metavar="APP.cql")]


@app.command()
def check(file: AppFile) -> None:
    """Bind an app and say what is wrong with it, without running anything."""
    bound = load(file)
    for warning in bound.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"{file}: {len(bound.inputs)} inputs, {len(bound.queries)} queries: all right")


@app.command()
def explain(file: AppFile) -> None:
    """Print the plan: shared parts, shard keys, expected state, loops and where they are cut."""
    from kasen.plan.explain import explain as explain_app

    typer.echo(explain_app(load(file)), nl=False)


def load(file: Path) -> App:
    """The bound app of a file."""
    if not file.is_file():
        raise DataError(f"no file {str(file)!r}")
    return bind_file(file, sniffer(file.parent))


def fail(error: KasenError) -> NoReturn:
    """Print an error as its user should see it, and exit with its code."""
    text = str(error)
    typer.echo(text if text.startswith("error:") else f"error: {text}", err=True)
    sys.exit(error.exit_code)


def main() -> None:
    """Entry point: errors that a user caused are messages, never tracebacks."""
    try:
        app()
    except KasenError as error:
        fail(error)
