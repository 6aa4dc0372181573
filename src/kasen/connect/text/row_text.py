"""The text of a row that has none of its own, for the dead letter."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kasen.connect.values import cell_text


def row_text(cells: Mapping[str, object]) -> str:
    """JSON where JSON has such values, else Python's text of them."""
    try:
        text = json.dumps(dict(cells), default=cell_text, ensure_ascii=False)
    except Exception:  # a cell or a name that JSON fails on, such as a number of thousands of digits
        text = json.dumps(_texts(cells), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _texts(cells: Mapping[str, object]) -> dict[str, str]:
    try:
        return {cell_text(name): cell_text(cell) for name, cell in cells.items()}
    except Exception:  # a mapping of a program's own, which fails itself
        return {}
