"""The command line: one module per command, and what a run shows in a terminal (`terminal`).

Modules of commands are light. Binder, engines and Spark are loaded by the command that needs them, when it
needs them.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from kasen import stops
from kasen.cli import check, cluster, ctl, demo, explain, node, run
from kasen.cli.app_file import load
from kasen.errors import DataError, KasenError

__all__ = ["app", "load", "main"]

app = typer.Typer(
    help="Continuous queries over streams, on Spark or in one process.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (check.check, explain.explain, run.run, demo.demo, node.node):
    app.command()(command)
app.add_typer(cluster.app, name="cluster")
app.add_typer(ctl.app, name="ctl")


def main() -> None:
    """Errors that a user caused are messages, never tracebacks."""
    stops.arm()
    try:
        app()
    except KasenError as error:
        fail(error)
    except OSError as error:
        # A full disk, a folder that may not be written to: the machine says no, and says why.
        fail(DataError(f"{error.filename or 'input or output'}: {error.strerror or error}"))


def fail(error: KasenError) -> NoReturn:
    """Prints an error as its user should see it, and exits with its code."""
    text = str(error)
    typer.echo(text if text.startswith("error:") else f"error: {text}", err=True)
    sys.exit(error.exit_code)
