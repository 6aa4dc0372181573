"""Names of output columns: the alias, else the column's or function's name, else its position."""

from __future__ import annotations

from sqlglot import exp


def output_names(projections: list[exp.Expr]) -> list[str]:
    """One name a projection; a name met again gets _1, _2, ... so that every column can be named."""
    names: list[str] = []
    taken: set[str] = set()
    for position, item in enumerate(projections, 1):
        base = _base_name(item) or f"column{position}"
        name, suffix = base, 0
        while name.lower() in taken:
            suffix += 1
            name = f"{base}_{suffix}"
        taken.add(name.lower())
        names.append(name)
    return names


def _base_name(item: exp.Expr) -> str:
    if isinstance(item, exp.Alias | exp.Column):
        return str(item.alias_or_name)
    if isinstance(item, exp.Paren | exp.Cast | exp.TryCast):
        return _base_name(item.this)
    if isinstance(item, exp.WithinGroup):
        return str(item.this.name).lower()
    if isinstance(item, exp.Anonymous):
        return str(item.name).lower()
    if isinstance(item, exp.Func):
        return item.sql_name().lower()
    return ""
