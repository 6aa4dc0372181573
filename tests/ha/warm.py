"""What the fork server of the tests loads once, so that a node starts in milliseconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kasen.cli import load
from kasen.ha.run import run_node
from kasen.plan.physical import Plan, plan_app


def load_plan(app: Path) -> Plan:
    return plan_app(load(app))


def run_member(file: str, log: str) -> None:
    """One node in a process group of its own, which is what is killed."""
    os.setsid()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.exit(run_node(Path(file), load_plan))
