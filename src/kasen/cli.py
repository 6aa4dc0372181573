"""The command line."""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from pathlib import Path
from types import FrameType
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


class Engine(StrEnum):
    """Where an app runs."""

    local = "local"


@app.command()
def check(file: AppFile) -> None:
    """Bind an app and say what is wrong with it, without running anything."""
    bound = load(file)
    warn(bound)
    typer.echo(f"{file}: {len(bound.inputs)} inputs, {len(bound.queries)} queries: all right")


@app.command()
def explain(file: AppFile) -> None:
    """Print the plan: shared parts, shard keys, expected state, loops and where they are cut."""
    from kasen.plan.explain import explain as explain_app

    typer.echo(explain_app(load(file)), nl=False)


@app.command()
def run(
    file: AppFile,
    engine: Annotated[Engine, typer.Option(help="Where to run.")] = Engine.local,
    out: Annotated[Path | None, typer.Option(help="Write DIR/<query>.csv instead of showing tables.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Epochs of at least that many tuples.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Go on from here after a crash.")] = None,
    flush: Annotated[bool, typer.Option(help="Let windows expire after the end of the input.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 3 if any row was refused.")] = False,
) -> None:
    """Run an app to the end of its input, or until it is stopped."""
    bound = load(file)
    warn(bound)
    refused = run_local(bound, file.parent, out, batch, checkpoint, flush)
    del engine
    if refused and strict:
        raise DataError(f"{refused} rows were refused; see the dead letter")


def run_local(
    bound: App, base: Path, out: Path | None, batch: int | None, checkpoint: Path | None, flush: bool
) -> int:
    """Runs an app in this process; returns how many rows were refused."""
    from kasen.plan.physical import plan_app
    from kasen.runtime.local import DEFAULT_BATCH, LocalRun, Options
    from kasen.terminal import Screen

    options = Options(base, out, batch or DEFAULT_BATCH, checkpoint, flush=flush)
    with Screen(bound, tables=out is None) as screen:
        job = LocalRun(
            plan_app(bound),
            options,
            screen.progress,
            lambda answer: screen.answer(answer.changes, job.pipeline.dictionary),
        )
        stop_on_signals(job)
        return job.run().dead


def stop_on_signals(job: object) -> None:
    """SIGINT and SIGTERM end the run after the epoch that is running; a second one ends it at once."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        job.stop()  # type: ignore[attr-defined]

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def load(file: Path) -> App:
    """The bound app of a file."""
    if not file.is_file():
        raise DataError(f"no file {str(file)!r}")
    return bind_file(file, sniffer(file.parent))


def warn(bound: App) -> None:
    for warning in bound.warnings:
        typer.echo(f"warning: {warning}", err=True)


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
