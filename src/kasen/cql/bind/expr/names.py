"""Names of output columns: the alias, else the column's or function's name, else its position."""

from __future__ import annotations

from sqlglot import exp


def output_names(projections: list[exp.Expr]) -> list[str]:
    """One name a projection; a name met again gets _1, _2, ... so that every column can be named.

    Names that the user gave stay: others make way for them.
    """
    given = [item.alias.lower() for item in projections if isinstance(item, exp.Alias)]
    names: list[str] = []
    taken: set[str] = set()
    for position, item in enumerate(projections, 1):
        base = _base_name(item) or f"column{position}"
        own = isinstance(item, exp.Alias)
        name, suffix = base, 0
        while name.lower() in taken or (name.lower() in given and not (own and not suffix)):
            suffix += 1
            name = f"{base}_{suffix}"
        taken.add(name.lower())
        names.append(name)
    return names


def _base_name(item: exp.Expr) -> str:
    match item:
        case exp.Alias() | exp.Column():
            return str(item.alias_or_name)
        case exp.Paren() | exp.Cast() | exp.WithinGroup():
            return _base_name(item.this)
        case exp.Anonymous():
            return str(item.name).lower()
        case exp.Extract():
            return "extract"
        case exp.Case():
            return "case"
    return ""
