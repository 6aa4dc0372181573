"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kasen import ctl, stops
from kasen.aggregates import load_python
from kasen.connect.files import is_address
from kasen.connect.sniff import sniffer
from kasen.cql.bind.app import bind_file
from kasen.cql.bound import App
from kasen.errors import DataError, KasenError
from kasen.ha.commands import cluster
from kasen.spark.place import OperatorPlace

# Engines are loaded when they are first used: `kasen check` needs neither Spark nor compiled kernels.
if TYPE_CHECKING:
    from kasen.plan.physical import Plan
    from kasen.runtime.local import LocalRun
    from kasen.runtime.pipeline import Answer
    from kasen.spark.pipeline import SparkRun
    from kasen.terminal import Screen

app = typer.Typer(
    help="Continuous queries over streams, on Spark or in one process.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(cluster, name="cluster")

app.add_typer(ctl.app, name="ctl")

AppFile = Annotated[Path, typer.Argument(help="The app: a CQL file.", metavar="APP.cql")]
Python = Annotated[
    list[Path] | None,
    typer.Option(
        "--python", help="A Python file with aggregates; may be given several times.", metavar="FILE"
    ),
]


class Engine(StrEnum):
    """Where an app runs."""

    spark = "spark"
    local = "local"


@dataclass(frozen=True, slots=True)
class Job:
    """What `kasen run` was asked to do."""

    engine: Engine = Engine.spark
    out: Path | None = None
    batch: int | None = None
    checkpoint: str | None = None
    flush: bool = False
    master: str | None = None
    files_per_epoch: int | None = None
    python: list[Path] | None = None
    place: OperatorPlace | None = None
    shards: int | None = None
    control: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@app.command()
def check(file: AppFile, python: Python = None) -> None:
    """Bind an app and say what is wrong with it, without running anything."""
    bound = load(file, python)
    warn(bound)
    typer.echo(f"{file}: {len(bound.inputs)} inputs, {len(bound.queries)} queries: all right")


@app.command()
def explain(
    file: AppFile,
    python: Python = None,
    config: Annotated[
        str | None, typer.Option(help="Print the steps and configuration tuples of this query instead.")
    ] = None,
) -> None:
    """Print the plan: shared parts, shard keys, expected state, loops, exchanges, what Spark does itself."""
    from kasen.plan.explain.explain import explain as explain_app
    from kasen.plan.explain.fragments import explain_fragments
    from kasen.plan.explain.native import explain_native
    from kasen.plan.physical import plan_app
    from kasen.plan.shard.fragments import cut

    bound = load(file, python)
    if config is not None:
        from kasen.runtime.control.requests import explain_live
        from kasen.runtime.pipeline import RunningPipeline

        typer.echo(explain_live(RunningPipeline(plan_app(bound)), config))
        return
    typer.echo(explain_app(bound))
    plan = plan_app(bound)
    typer.echo(explain_fragments(cut(bound)))
    typer.echo(explain_native(plan), nl=False)


@app.command()
def run(
    file: AppFile,
    engine: Annotated[Engine, typer.Option(help="Where to run.")] = Engine.spark,
    out: Annotated[Path | None, typer.Option(help="Write DIR/<query>.csv instead of showing tables.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Epochs of at least that many tuples (local engine).")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Go on from here after a crash: a folder, or on Spark an address.", metavar="<path>"
        ),
    ] = None,
    flush: Annotated[bool, typer.Option(help="Let windows expire after the end of the input.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 3 if any row was refused.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master; embedded local[*] if none.")] = None,
    control: Annotated[
        Path | None, typer.Option(help="Listen at this socket for `kasen ctl` (on Spark: in the driver).")
    ] = None,
    python: Python = None,
    place: Annotated[
        OperatorPlace | None,
        typer.Option(help="Where Spark runs operators; executors unless the master is local."),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="On executors: how many shards; as many as cores if none.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(help="A setting of Spark's; may be given several times.", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Run an app to the end of its input, or until it is stopped."""
    if engine is Engine.local and (place is not None or shards is not None or conf):
        raise DataError("--place, --shards and --conf are for --engine spark, not for the local engine")
    if engine is Engine.local and checkpoint is not None and is_address(checkpoint):
        raise DataError("with --engine local, --checkpoint is a folder of this machine, not an address")
    if shards is not None and place is OperatorPlace.driver:
        raise DataError("--shards is for --place executors; in the driver there is one")
    job = Job(
        engine,
        out,
        batch,
        checkpoint,
        flush,
        master,
        python=python,
        place=place,
        shards=shards,
        control=control,
        conf=dict(map(setting, conf or ())),
    )
    refused = run_app(file, job)
    if refused and strict:
        raise DataError(f"{refused} rows were refused; see the dead letter")


@app.command()
def demo(engine: Annotated[Engine, typer.Option(help="Where to run.")] = Engine.spark) -> None:
    """Run two example apps on fresh data, and show their answers as they come."""
    from rich.console import Console

    from kasen.demo import demo as run_demo

    def run_one(file: Path) -> None:
        run_app(file, Job(engine, files_per_epoch=1))

    run_demo(run_one, Console())


@app.command()
def node(
    file: Annotated[Path, typer.Argument(help="The node: a TOML file.", metavar="NODE.toml")],
    role: Annotated[
        str | None, typer.Option(help="primary or secondary, instead of what the file says.")
    ] = None,
) -> None:
    """Run one node of a distributed pipeline; see docs/high-availability.md."""
    from kasen.ha.run import run_node
    from kasen.plan.physical import plan_app

    def load_plan(app_file: Path) -> Plan:
        bound = load(app_file)
        warn(bound)
        return plan_app(bound)

    raise typer.Exit(run_node(file, load_plan, role))


def run_app(file: Path, job: Job) -> int:
    """Runs an app; returns how many rows were refused."""
    from kasen.plan.physical import plan_app
    from kasen.runtime.memory import keep_freed_memory, own_process
    from kasen.terminal import Screen

    keep_freed_memory()  # before there are threads
    bound = load(file, job.python)
    warn(bound)
    plan = plan_app(bound)
    with Screen(bound, tables=job.out is None) as screen:
        running = start(plan, file.parent, job, screen)
        # A program that uses the Python API decides for itself.
        own_process()
        stops.finish_first(running.stop)
        progress = running.run()
    for note in running.pipeline.failures.notes:
        typer.echo(f"warning: {note}", err=True)
    if running.pipeline.stopped:
        for error in running.pipeline.stopped:
            typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1)
    # A stream that is followed ends by being stopped. What was cut short must not pass for done.
    if not progress.done and not running.follows:
        stops.leave_if_asked()
    return progress.dead


def start(plan: Plan, base: Path, job: Job, screen: Screen) -> LocalRun | SparkRun:
    """A run that is ready to go, on the engine that was asked for."""

    def show(answer: Answer) -> None:
        screen.answer(answer.changes, running.pipeline.dictionary)

    running: LocalRun | SparkRun
    if job.engine is Engine.local:
        from kasen.runtime.local import DEFAULT_BATCH, LocalRun, Options

        options = Options(
            base,
            job.out,
            job.batch or DEFAULT_BATCH,
            Path(job.checkpoint) if job.checkpoint is not None else None,
            flush=job.flush,
            control=job.control,
        )
        running = LocalRun(plan, options, screen.progress, show)
    else:
        from kasen.spark.pipeline import SparkRun

        running = SparkRun(
            plan,
            base,
            job.out,
            job.master,
            job.checkpoint,
            job.files_per_epoch,
            job.flush,
            screen.progress,
            show,
            job.place,
            job.shards,
            control=job.control,
            conf=job.conf,
        )
        if address := running.spark.sparkContext.uiWebUrl:
            screen.note(f"Spark's UI: {address}")
    return running


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark's, as spark-submit takes it."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise DataError(f"--conf {text}: write KEY=VALUE, for example spark.ui.enabled=true")
    return key.strip(), value


def load(file: Path, python: list[Path] | None = None) -> App:
    """The bound app of a file, which may call the aggregates of Python files."""
    if not file.is_file():
        raise DataError(f"no file {str(file)!r}")
    return bind_file(
        file, sniffer(file.parent), [each for path in python or () for each in load_python(path)]
    )


def warn(bound: App) -> None:
    for warning in bound.warnings:
        typer.echo(f"warning: {warning}", err=True)


def fail(error: KasenError) -> NoReturn:
    """Print an error as its user should see it, and exit with its code."""
    text = str(error)
    typer.echo(text if text.startswith("error:") else f"error: {text}", err=True)
    sys.exit(error.exit_code)


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
