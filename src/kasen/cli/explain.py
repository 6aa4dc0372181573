"""`kasen explain`: prints the plan of an app."""

from __future__ import annotations

from typing import Annotated

import typer

from kasen.cli.app_file import AppFile, Python, load


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
