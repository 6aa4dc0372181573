"""What is new in a record since the one before it: so a record does not grow with the log it tells of."""

from __future__ import annotations

from typing import Any

_SAME, _MORE, _PARTS, _NEW = "same", "more", "parts", "new"


def shrink(new: Any, old: Any) -> dict[str, Any]:
    """The difference of two JSON values: nothing, items at a list's end, parts of an object, or all of it."""
    if new == old:
        return {_SAME: True}
    if isinstance(new, list) and isinstance(old, list) and old and new[: len(old)] == old:
        return {_MORE: new[len(old) :]}
    if isinstance(new, dict) and isinstance(old, dict):
        return {_PARTS: {key: shrink(value, old.get(key)) for key, value in new.items()}}
    return {_NEW: new}


def grow(delta: dict[str, Any], old: Any) -> Any:
    """The value that `shrink` was given, from its answer and the old value."""
    if _SAME in delta:
        return old
    if _MORE in delta:
        return [*old, *delta[_MORE]]
    if _PARTS in delta:
        return {key: grow(value, old.get(key)) for key, value in delta[_PARTS].items()}
    return delta[_NEW]


def files_in(record: Any) -> set[str]:
    """The files of state that a record names, wherever it does."""
    if isinstance(record, str):
        return {record} if record.startswith("files/") else set()
    if isinstance(record, dict):
        record = list(record.values())
    if isinstance(record, list | tuple):
        return {file for part in record for file in files_in(part)}
    return set()
