"""`kasen explain`: prints the plan that would run."""

from __future__ import annotations

from typing import Annotated

import typer

from kasen.cli.app_file import AppFile, Python, load
from kasen.cli.run import Engine
from kasen.spark.place import OperatorPlace, reduces_panes


def explain(
    file: AppFile,
    python: Python = None,
    engine: Annotated[Engine, typer.Option(help="The engine that would run it.")] = Engine.spark,
    place: Annotated[
        OperatorPlace | None,
        typer.Option(help="Where Spark runs operators; executors unless the master is local."),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; embedded local[*] if none.")] = None,
    config: Annotated[
        str | None, typer.Option(help="Print the steps and configuration tuples of this query instead.")
    ] = None,
) -> None:
    """Print the plan that `kasen run` would run with the same options; nothing is started.

    One line is one step, named by its algorithm, with its arguments and what it remembers; what it reads
    stands further in. Steps that several queries share stand once.
    """
    from kasen.plan.explain import explain as plans

    bound = load(file, python)
    is_local = master is None or master.startswith("local")
    if config is not None:
        from kasen.plan.physical import plan_app
        from kasen.runtime.control.requests import explain_live
        from kasen.runtime.pipeline import RunningPipeline

        text = explain_live(RunningPipeline(plan_app(bound)), config) + "\n"
    elif engine is Engine.local:
        text = plans.explain(bound)
    elif place is OperatorPlace.executors or (place is None and not is_local):
        text = plans.explain_on_executors(bound)
    else:
        text = plans.explain_in_driver(bound, panes=reduces_panes(bound, is_local=is_local))
    typer.echo(text, nl=False)
