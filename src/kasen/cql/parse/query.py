"""Parsing of queries: WITH, set operations, streamify operators and SELECT blocks."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from kasen.cql import nodes
from kasen.cql.parse.cursor import STREAM_KINDS, Cursor, spanned
from kasen.cql.parse.expression import comma_list, expression
from kasen.cql.parse.from_clause import from_items
from kasen.cql.parse.type_name import duration
from kasen.cql.parse.words import NOT_ALIASES

_SET_OPERATIONS: dict[str, type[exp.SetOperation]] = {
    "UNION": exp.Union,
    "EXCEPT": exp.Except,
    "INTERSECT": exp.Intersect,
}
_GROUPINGS = ("CUBE", "ROLLUP", "GROUPING")


def parse_query(c: Cursor) -> exp.Expr:
    """A query, from WITH to its last operand."""
    with_ = _with(c) if c.word == "WITH" else None
    node = _operand(c)
    while c.word in ("UNION", "EXCEPT"):
        node = _set_operation(c, node, _operand)
    if with_ is not None:
        node.set("with_", with_)
    return node


def _with(c: Cursor) -> exp.Expr:
    first = c.take()
    if c.word == "RECURSIVE":
        remedy = "register the queries of the loop by name, with a delay: ISTREAM(...)<Now>"
        raise c.error("WITH RECURSIVE is not CQL", remedy)
    ctes = comma_list(c, lambda: _cte(c))
    return spanned(exp.With(expressions=ctes), first, c.previous)


def _cte(c: Cursor) -> exp.Expr:
    name = c.name("a query's name after WITH")
    if c.at(TokenType.L_PAREN):
        raise c.error("WITH name (columns) is not CQL", "name the columns with AS in its SELECT")
    c.expect("AS", "AS and a query in parentheses", "write WITH name AS (SELECT ...) SELECT ...")
    c.expect_type(TokenType.L_PAREN, "a query in parentheses after AS")
    c.enter()
    node = parse_query(c)
    c.leave()
    c.expect_type(TokenType.R_PAREN, ") after the query")
    return exp.CTE(this=node, alias=exp.TableAlias(this=name))


def _operand(c: Cursor) -> exp.Expr:
    """What UNION and EXCEPT join: INTERSECT binds tighter."""
    node = _term(c)
    while c.word == "INTERSECT":
        node = _set_operation(c, node, _term)
    return node


def _set_operation(c: Cursor, left: exp.Expr, operand: Callable[[Cursor], exp.Expr]) -> exp.Expr:
    word = c.take().text.upper()
    distinct = not c.accept("ALL")
    if distinct:
        c.accept("DISTINCT")
    if c.word == "BY":
        raise c.error(f"{word} BY NAME is not CQL", "list the columns in the same order on both sides")
    return _SET_OPERATIONS[word](this=left, expression=operand(c), distinct=distinct)


def _term(c: Cursor) -> exp.Expr:
    if c.word == "SELECT":
        return _select(c)
    if c.at_streamify():
        return streamify(c)
    if c.word in STREAM_KINDS:
        raise c.fail(f"a query in parentheses after {c.take().text.upper()}")
    if not c.at(TokenType.L_PAREN):
        raise c.fail("a query: SELECT, ISTREAM(...), DSTREAM(...) or RSTREAM(...)")
    opening = c.take()
    c.enter()
    node = parse_query(c)
    c.leave()
    c.expect_type(TokenType.R_PAREN, ") after the query")
    return spanned(exp.Subquery(this=node), opening, c.previous)


# ---------------------------------------------------------------- streamify


def streamify(c: Cursor) -> exp.Expr:
    """ISTREAM(query), DSTREAM(query), RSTREAM[every](query), each with an optional <delay>."""
    first = c.take()
    kind = first.text.upper()
    every = _every(c, kind)
    c.expect_type(TokenType.L_PAREN, f"a query in parentheses after {kind}")
    c.enter()
    node = parse_query(c)
    c.leave()
    c.expect_type(TokenType.R_PAREN, f") after the query in {kind}(")
    delay = _delay(c)
    return spanned(nodes.Streamify(kind=kind, this=node, every=every, delay=delay), first, c.previous)


def _every(c: Cursor, kind: str) -> nodes.Duration | None:
    if not c.at(TokenType.L_BRACKET):
        return None
    if kind != "RSTREAM":
        raise c.error(f"{kind} takes no interval, only RSTREAM does", f"write {kind}(...)")
    c.take()
    length = duration(c)
    c.expect_type(TokenType.R_BRACKET, "] after the interval of RSTREAM")
    return length


def _delay(c: Cursor) -> exp.Expr | None:
    first = c.current
    if not c.accept_type(TokenType.LT):
        return None
    length = None if c.accept("NOW") else duration(c, "write <Now>, <5 SECONDS>, or <3> where time is BIGINT")
    c.expect_type(TokenType.GT, "> after the delay")
    return spanned(nodes.DelaySpec(this=length), first, c.previous)


# ---------------------------------------------------------------- SELECT


def _select(c: Cursor) -> exp.Expr:
    first = c.take()
    node = exp.Select()
    if c.at(TokenType.HINT):
        node.set("hint", exp.Hint(expressions=[exp.Var(this=c.take().text)]))
    _distinct(c, node)
    node.set("expressions", _projections(c))
    if not c.accept("FROM"):
        raise _no_from(c)
    item, joins = from_items(c)
    node.set("from_", exp.From(this=item))
    if joins:
        node.set("joins", joins)
    if c.accept("WHERE"):
        node.set("where", exp.Where(this=expression(c, "a condition after WHERE")))
    if c.accept("GROUP"):
        node.set("group", _group(c))
    if c.accept("HAVING"):
        node.set("having", exp.Having(this=expression(c, "a condition after HAVING")))
    return spanned(node, first, c.previous)


def _distinct(c: Cursor, node: exp.Select) -> None:
    if c.accept("ALL"):
        return
    if c.accept("DISTINCT"):
        if c.word == "ON":
            raise c.error("DISTINCT ON is not CQL", "use [PARTITION BY ... ROWS 1]")
        node.set("distinct", exp.Distinct())


def _projections(c: Cursor) -> list[exp.Expr]:
    if not c.at_streamify():
        return comma_list(c, lambda: _projection(c))
    first = c.take()
    kind = first.text.upper()
    every = _every(c, kind)
    c.expect_type(TokenType.L_PAREN, f"the SELECT list in parentheses after {kind}")
    items = comma_list(c, lambda: _projection(c))
    c.expect_type(TokenType.R_PAREN, f", or the closing ) of {kind}(")
    if c.at(TokenType.LT):
        remedy = f"put the whole query into {kind}: {kind}(SELECT ... FROM ...)<Now>"
        raise c.error("a delay cannot stand in the SELECT list", remedy)
    if c.at(TokenType.COMMA) or c.word == "AS":
        raise c.error(f"{kind}(...) must hold the whole SELECT list", f"write SELECT {kind}(a, b) FROM ...")
    return [spanned(nodes.StreamItems(kind=kind, expressions=items, every=every), first, c.previous)]


def _projection(c: Cursor) -> exp.Expr:
    if c.at(TokenType.STAR):
        return spanned(exp.Star(), c.take())
    value = expression(c, "a column or an expression in the SELECT list")
    last = c.previous
    if last.token_type is TokenType.NUMBER and c.at(TokenType.VAR) and c.current.start == last.end + 1:
        c.take()
        raise c.error("a name cannot start with a digit", "write a blank between number and name", first=last)
    alias = c.alias_name(NOT_ALIASES)
    return value if alias is None else exp.Alias(this=value, alias=alias)


def _no_from(c: Cursor) -> Exception:
    if c.at_end or c.at(TokenType.R_PAREN) or c.word in _SET_OPERATIONS or c.word == "WHERE":
        return c.fail("FROM after the SELECT list", "a query reads streams or relations: SELECT ... FROM s")
    return c.fail(", or FROM after the SELECT list")


def _group(c: Cursor) -> exp.Expr:
    c.expect("BY", "BY after GROUP")
    if c.word == "ALL" or (
        c.word in _GROUPINGS and (c.next_is(TokenType.L_PAREN) or c.next_word() == "SETS")
    ):
        shown = "GROUPING SETS" if c.word == "GROUPING" else c.word
        raise c.error(f"GROUP BY {shown} is not CQL", "list the columns; write one query for each grouping")
    return exp.Group(expressions=comma_list(c, lambda: expression(c, "a column after GROUP BY")))
