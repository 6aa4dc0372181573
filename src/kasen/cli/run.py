"""`kasen run`: runs an app to the end of its input, or until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kasen import stops
from kasen.cli.app_file import AppFile, Python, load, warn
from kasen.errors import DataError
from kasen.spark.place import OperatorPlace

if TYPE_CHECKING:
    from kasen.cli.terminal import Screen
    from kasen.plan.physical import Plan
    from kasen.runtime.local import LocalRun
    from kasen.runtime.pipeline import Answer
    from kasen.spark.pipeline import SparkRun


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
    from kasen.connect.files import is_address

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
        conf=dict(map(_setting, conf or ())),
    )
    refused = run_app(file, job)
    if refused and strict:
        raise DataError(f"{refused} rows were refused; see the dead letter")


def run_app(file: Path, job: Job) -> int:
    """Runs an app; returns how many rows were refused."""
    from kasen.cli.terminal import Screen
    from kasen.plan.physical import plan_app
    from kasen.runtime.memory import keep_freed_memory, own_process

    keep_freed_memory()  # before there are threads
    bound = load(file, job.python)
    warn(bound)
    plan = plan_app(bound)
    with Screen(bound, tables=job.out is None) as screen:
        running = _start(plan, file.parent, job, screen)
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


def _start(plan: Plan, base: Path, job: Job, screen: Screen) -> LocalRun | SparkRun:
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
        from kasen.spark.options import SparkOptions
        from kasen.spark.pipeline import SparkRun

        on_spark = SparkOptions(
            base,
            job.out,
            job.master,
            job.checkpoint,
            job.files_per_epoch,
            job.flush,
            job.place,
            job.shards,
            control=job.control,
            conf=job.conf,
        )
        running = SparkRun(plan, on_spark, screen.progress, show)
        if address := running.spark.sparkContext.uiWebUrl:
            screen.note(f"Spark's UI: {address}")
    return running


def _setting(text: str) -> tuple[str, str]:
    """A setting of Spark's, as spark-submit takes it."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise DataError(f"--conf {text}: write KEY=VALUE, for example spark.ui.enabled=true")
    return key.strip(), value
