"""The text of a row that has none of its own, for the dead letter."""

from __future__ import annotations

import json
from collections.abc import Mapping


def row_text(cells: Mapping[str, object]) -> str:
    """JSON where JSON has such values, else Python's text of them."""
    text = json.dumps(dict(cells), default=str, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
