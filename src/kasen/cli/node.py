"""`kasen node`: runs one node of a distributed pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kasen.cli.app_file import load, warn

if TYPE_CHECKING:
    from kasen.plan.physical import Plan


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
