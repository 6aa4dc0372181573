"""Parsing of FROM: its items with their windows and names, and joins."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from kasen.cql import nodes
from kasen.cql.parse.cursor import Cursor, spanned
from kasen.cql.parse.expression import comma_list, expression
from kasen.cql.parse.type_name import duration
from kasen.cql.parse.words import NOT_ALIASES

_SIDES = ("LEFT", "RIGHT", "FULL")
_JOIN_WORDS = ("JOIN", "INNER", "CROSS", *_SIDES)
_KINDS = "RANGE, ROWS, NOW, UNBOUNDED or PARTITION BY ... ROWS"


def from_items(c: Cursor) -> tuple[exp.Expr, list[exp.Expr]]:
    """The first FROM item, and the joins of all others with it; a comma is a join without words."""
    first = _item(c, "FROM")
    joins: list[exp.Expr] = []
    while True:
        if c.accept_type(TokenType.COMMA):
            joins.append(exp.Join(this=_item(c, "the comma")))
        elif c.word in _JOIN_WORDS:
            joins.append(_join(c))
        else:
            return first, joins


def _join(c: Cursor) -> exp.Expr:
    side = c.take().text.upper() if c.word in _SIDES else None
    if side:
        c.accept("OUTER")
    kind = c.take().text.upper() if not side and c.word in ("INNER", "CROSS") else None
    words = " ".join(word for word in (side, kind, "JOIN") if word)
    c.expect("JOIN", f"JOIN after {side or kind}")
    item = _item(c, words)
    if kind == "CROSS":
        if c.word == "ON":
            raise c.error("CROSS JOIN takes no ON", "write JOIN ... ON, or put the condition into WHERE")
        return exp.Join(this=item, kind=kind)
    c.expect("ON", f"ON and a condition after {words}", "for all pairs of rows, write CROSS JOIN")
    on = expression(c, "a condition after ON")
    return exp.Join(this=item, side=side, kind=kind, on=on)


def _item(c: Cursor, behind: str) -> exp.Expr:
    """A name or a query, then a window, then an alias."""
    first = c.current
    this = _item_body(c, behind)
    window = _window(c) if c.at(TokenType.L_BRACKET) else None
    alias = c.alias_name(NOT_ALIASES)
    if c.at(TokenType.L_BRACKET) and alias is not None:
        shown = this.name if isinstance(this, exp.Table) else "(SELECT ...)"
        raise c.error("the window stands before the name", f"write {shown} [...] AS {alias.name}")
    if c.at(TokenType.L_BRACKET):
        raise c.error("a stream takes one window", "take one of them out")
    if c.at(TokenType.L_PAREN) and alias is not None:
        raise c.error("AS name (columns) is not CQL", "name the columns with AS in its SELECT")
    named = exp.TableAlias(this=alias) if alias is not None else None
    return spanned(nodes.FromItem(this=this, window=window, alias=named), first, c.previous)


def _item_body(c: Cursor, behind: str) -> exp.Expr:
    from kasen.cql.parse.query import parse_query, streamify  # FROM holds queries, queries hold FROM

    if c.at_streamify():
        return streamify(c)
    if c.at(TokenType.L_PAREN):
        if not c.at_query():
            c.take()
            raise c.fail("a query in parentheses", "names and joins stand in FROM without parentheses")
        c.take()
        c.enter()
        query = parse_query(c)
        c.leave()
        c.expect_type(TokenType.R_PAREN, ") after the query")
        return query
    if c.word in ("SELECT", "WITH"):
        raise c.error("a query in FROM needs parentheses", "write FROM (SELECT ...)")
    name = c.name(f"a stream, a relation or a query in parentheses after {behind}")
    if c.at(TokenType.DOT):
        raise c.error("the name of a stream has no dots", f'if the dot is part of it, write "{name.name}.…"')
    if c.at(TokenType.L_PAREN):
        raise c.error("a function cannot stand in FROM", "register a STREAM or RELATION and name it")
    return exp.Table(this=name)


# ---------------------------------------------------------------- windows


def _window(c: Cursor) -> exp.Expr:
    first = c.take()
    spec = nodes.WindowSpec(**_window_body(c))
    if not c.at(TokenType.R_BRACKET):
        raise _window_goes_on(c, spec.args["kind"])
    c.take()
    return spanned(spec, first, c.previous)


def _window_body(c: Cursor) -> dict[str, Any]:
    if c.word in ("UNBOUNDED", "NOW"):
        return {"kind": c.take().text.upper()}
    if c.accept("ROWS", "UNBOUNDED") or c.accept("RANGE", "UNBOUNDED"):
        return {"kind": "UNBOUNDED"}
    partition = None
    if c.accept("PARTITION"):
        c.expect("BY", "BY after PARTITION")
        partition = comma_list(c, lambda: expression(c, "a column after PARTITION BY"))
    if c.accept("ROWS"):
        count = _count(c, "ROWS")
        slide = _count(c, "SLIDE") if c.accept("SLIDE") else None
        return {"kind": "ROWS", "this": count, "slide": slide, "partition": partition}
    if c.accept("RANGE"):
        length = duration(c)
        slide = duration(c) if c.accept("SLIDE") else None
        wattr = c.name("the column of WATTR") if c.accept("WATTR") else None
        return {"kind": "RANGE", "this": length, "slide": slide, "partition": partition, "wattr": wattr}
    if partition:
        raise c.fail("ROWS after PARTITION BY", "write [PARTITION BY a ROWS 10]")
    raise c.fail(f"a window: {_KINDS}")


def _window_goes_on(c: Cursor, kind: str) -> Exception:
    if kind == "ROWS" and nodes.canonical_unit(c.word) is not None:
        return c.error("ROWS counts tuples", "for a length of time, write RANGE")
    if kind == "ROWS" and c.word == "WATTR":
        return c.error("WATTR goes with RANGE, not with ROWS", "leave WATTR out")
    return c.fail("] after the window")


def _count(c: Cursor, what: str) -> exp.Expr:
    token = c.expect_type(TokenType.NUMBER, f"a number of tuples after {what}")
    return spanned(exp.Literal.number(token.text), token)
