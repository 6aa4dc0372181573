"""How much the live queries of a pipeline may have together. Where a limit is reached, none may come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kasen.errors import ResourceError
from kasen.plan.changes import CatalogChange, Register
from kasen.plan.physical import App


@dataclass(frozen=True, slots=True)
class StateSize:
    """What queries remember."""

    groups: int = 0
    bytes: int = 0


def check_limits(
    app: App, change: CatalogChange, live: int, groups: Callable[[], int], state_bytes: Callable[[], int]
) -> None:
    """Refuses a change that brings queries where a limit is reached. Those that are live go on."""
    coming = sum(isinstance(action, Register) and not action.replaces for action in change.actions)
    if not coming:
        return
    most = int(app.setting("max_queries", "100000"))
    if live + coming > most:
        raise ResourceError(f"{live} queries are live and {most} is the most: SET max_queries")
    limit = app.setting("max_groups")
    if limit and (found := groups()) >= int(limit):
        raise ResourceError(f"the live queries have {found} groups and {limit} is the most: SET max_groups")
    # Measuring may take as long as a snapshot, so it is done only where there is a limit.
    limit = app.setting("max_state_bytes")
    if limit and (found := state_bytes()) >= int(limit):
        raise ResourceError(
            f"the live queries remember {found} bytes and {limit} is the most: SET max_state_bytes"
        )
