"""Parsing of statements: REGISTER, REPLACE, DROP, PREPARE, ACTIVATE, SET; AT says when one takes effect.

A semicolon ends a statement; before REGISTER it may be left out, as the published apps do.
"""

from __future__ import annotations

import difflib
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from kasen.cql import nodes
from kasen.cql.parse.cursor import Cursor, spanned
from kasen.cql.parse.expression import comma_list
from kasen.cql.parse.query import parse_query
from kasen.cql.parse.type_name import data_type, duration
from kasen.cql.parse.words import FOREIGN_STATEMENTS, RESERVED

_CHANGES = ("REGISTER", "REPLACE", "DROP", "PREPARE", "ACTIVATE")
_VERBS = (*_CHANGES, "AT", "SET")
#: Clauses of inputs whose names are two words.
_CLAUSES = {"timestamp": "TIMESTAMP BY", "tick": "TICK BY", "pressure": "ON PRESSURE"}
_STATEMENTS = "REGISTER STREAM|RELATION|QUERY, REPLACE QUERY, DROP QUERY, PREPARE QUERY, ACTIVATE or SET"


def parse_statements(c: Cursor) -> list[nodes.Statement]:
    """All statements of a text."""
    statements: list[nodes.Statement] = []
    while not c.at(TokenType.SENTINEL):
        if not c.accept_type(TokenType.SEMICOLON):
            statements.append(_statement(c))
            if not c.at_end and c.word != "REGISTER":
                remedy = "end the statement before it with ;" if c.word in _VERBS else ""
                raise c.fail("the end of the statement", remedy)
    return statements


def _statement(c: Cursor) -> nodes.Statement:
    if c.accept("AT"):
        at = _time(c)
        if c.word not in _CHANGES or c.next_word() in ("STREAM", "RELATION"):
            raise c.fail("a change of queries after AT and the time", f"such as AT {at.sql()} DROP QUERY q")
        statement = _change(c)
        statement.set("at", at)
        return statement
    if c.accept("SET"):
        return _setting(c)
    if c.word == "REGISTER" and c.next_word() in ("STREAM", "RELATION"):
        c.take()
        return _register_input(c, c.take().text.upper())
    return _change(c)


def _change(c: Cursor) -> nodes.RegisterQuery | nodes.DropQuery | nodes.Activate:
    """A statement that changes which queries run."""
    if c.accept("REGISTER"):
        c.expect("QUERY", "STREAM, RELATION or QUERY after REGISTER")
        return _register_query(c)
    if c.accept("REPLACE"):
        c.expect("QUERY", "QUERY after REPLACE", "only queries can be replaced")
        return _register_query(c, replace=True)
    if c.accept("PREPARE"):
        c.expect("QUERY", "QUERY after PREPARE", "only queries can be prepared")
        return _register_query(c, prepare=True)
    if c.accept("DROP"):
        c.expect("QUERY", "QUERY after DROP", "only queries can be dropped")
        name = c.name("the query's name")
        return nodes.DropQuery(this=name, cascade=bool(c.accept("CASCADE")) or None)
    if c.accept("ACTIVATE"):
        first, *others = comma_list(c, lambda: c.name("a prepared query's name"))
        return nodes.Activate(this=first, expressions=others)
    raise _no_statement(c)


def _time(c: Cursor) -> exp.Expr:
    """A time of the app: a whole number, or a timestamp in quotes."""
    first = c.current
    minus = c.accept_type(TokenType.DASH)
    if c.type is TokenType.NUMBER:
        token = c.take()
        # Not Literal.number, which makes a negative number Neg(Literal): whoever reads it loses the sign.
        digits = f"-{token.text}" if minus else token.text
        return spanned(exp.Literal(this=digits, is_string=False), first, token)
    c.accept("TIMESTAMP")
    if minus or c.type is not TokenType.STRING:
        raise c.fail("a time after AT", "such as AT 100, or AT '2026-01-31 23:59:59'")
    token = c.take()
    return spanned(exp.Literal.string(token.text), token)


def _no_statement(c: Cursor) -> Exception:
    remedy = FOREIGN_STATEMENTS.get(c.word, "")
    if not remedy:
        near = difflib.get_close_matches(c.word, _VERBS, 1, 0.6)
        remedy = f"did you mean {near[0]}?" if near else f"write {_STATEMENTS}"
    return c.error(f"expected a statement, but found {c.current.text[:40]}", remedy)


def _new_name(c: Cursor, expected: str) -> exp.Identifier:
    quotes = f'as a name, {c.word} needs quotes: "{c.current.text}"' if c.word in RESERVED else ""
    return c.name(expected, quotes)


# ---------------------------------------------------------------- inputs


def _register_input(c: Cursor, kind: str) -> nodes.RegisterInput:
    what = kind.lower()
    name = _new_name(c, f"the {what}'s name")
    c.expect_type(
        TokenType.L_PAREN, f"the {what}'s columns in parentheses", "such as (id INTEGER, price DOUBLE)"
    )
    columns = comma_list(c, lambda: _column(c))
    c.expect_type(TokenType.R_PAREN, ", or the closing ) of the columns")
    args: dict[str, Any] = {"kind": kind, "this": name, "columns": columns}
    while not c.at_end and c.word != "FROM":
        _input_clause(c, args)
    if not c.accept("FROM"):
        raise c.fail("FROM and the format", "such as FROM 'csv' OPTIONS (path 'data.csv')")
    args["connector"] = _connector(c, "FROM")
    return nodes.RegisterInput(**args)


def _column(c: Cursor) -> exp.Expr:
    name = _new_name(c, "a column's name")
    return nodes.ColumnSpec(this=name, kind=data_type(c, f"the type of column {name.name!r}"))


def _input_clause(c: Cursor, args: dict[str, Any]) -> None:
    first = c.current
    value: exp.Expr
    if c.accept("TIMESTAMP"):
        c.expect("BY", "BY after TIMESTAMP")
        clause, value = "timestamp", c.name("the timestamp column")
    elif c.accept("TICK"):
        c.expect("BY", "BY after TICK")
        if c.word not in ("TUPLE", "TIME"):
            raise c.fail("TUPLE or TIME after TICK BY")
        token = c.take()
        clause, value = "tick", spanned(exp.Var(this=token.text.upper()), token)
    elif c.word in ("SLACK", "IDLE", "RETAIN"):
        clause = c.take().text.lower()
        value = duration(c)
    elif c.accept("ON"):
        c.expect("PRESSURE", "PRESSURE after ON")
        clause, value = "pressure", _pressure(c)
    else:
        raise c.fail("TIMESTAMP BY, SLACK, IDLE, RETAIN, TICK BY, ON PRESSURE or FROM")
    if clause in args:
        shown = _CLAUSES.get(clause, clause.upper())
        raise c.error(f"{shown} is given twice", "take one of them out", first=first)
    args[clause] = value


def _pressure(c: Cursor) -> exp.Expr:
    """BLOCK, SHED NEWEST, SHED OLDEST or SHED SAMPLE p."""
    if c.accept("BLOCK"):
        return spanned(nodes.PressureSpec(kind="BLOCK"), c.previous)
    first = c.expect("SHED", "BLOCK, SHED NEWEST, SHED OLDEST or SHED SAMPLE after ON PRESSURE")
    if c.word not in ("NEWEST", "OLDEST", "SAMPLE"):
        raise c.fail("NEWEST, OLDEST or SAMPLE after SHED")
    kind = c.take().text.upper()
    share = None
    if kind == "SAMPLE":
        token = c.expect_type(TokenType.NUMBER, "the share to keep after SAMPLE", "such as SAMPLE 0.1")
        share = spanned(exp.Literal.number(token.text), token)
    return spanned(nodes.PressureSpec(kind=kind, this=share), first, c.previous)


# ---------------------------------------------------------------- connectors


def _connector(c: Cursor, behind: str) -> exp.Expr:
    token = c.expect_type(TokenType.STRING, f"a format in quotes after {behind}", "such as 'csv'")
    form = spanned(exp.Literal.string(token.text), token)
    options: list[exp.Expr] = []
    if c.accept("OPTIONS"):
        c.expect_type(TokenType.L_PAREN, "( after OPTIONS", "such as OPTIONS (path 'data.csv')")
        options = comma_list(c, lambda: _option(c))
        c.expect_type(TokenType.R_PAREN, ", or the closing ) of OPTIONS")
    return nodes.ConnectorSpec(this=form, expressions=options)


def _option(c: Cursor) -> exp.Expr:
    """key 'value'. Keys of Spark's formats have dots: they stand as they are, or in quotes."""
    first = c.current
    if c.at(TokenType.STRING):
        key = exp.Identifier(this=c.take().text, quoted=True)
    else:
        key = c.name("an option's name")
        while c.accept_type(TokenType.DOT):
            key = exp.Identifier(this=f"{key.name}.{c.name('the rest of the name').name}", quoted=True)
    spanned(key, first, c.previous)
    c.accept_type(TokenType.EQ)
    if c.type not in (TokenType.STRING, TokenType.NUMBER) and c.word not in ("TRUE", "FALSE"):
        raise c.fail(f"the value of option {key.name!r} in quotes")
    token = c.take()
    text = token.text.lower() if token.token_type is TokenType.VAR else token.text
    return nodes.Option(this=key, value=spanned(exp.Literal.string(text), token))


# ---------------------------------------------------------------- queries and settings


def _register_query(c: Cursor, *, replace: bool = False, prepare: bool = False) -> nodes.RegisterQuery:
    name = _new_name(c, "the query's name")
    backfill = c.accept("BACKFILL")
    c.accept("AS")
    begin = c.current.start
    query = parse_query(c)
    written = c.text.text[begin : c.previous.end + 1]
    connector = _connector(c, "INTO") if c.accept("INTO") else None
    node = nodes.RegisterQuery(
        this=name,
        query=query,
        connector=connector,
        replace=replace or None,
        prepare=prepare or None,
        backfill=bool(backfill) or None,
    )
    node.meta["written"] = written
    return node


def _setting(c: Cursor) -> nodes.Setting:
    name = c.name("a setting's name")
    c.expect_type(TokenType.EQ, f"= after {name.name}", f"write SET {name.name} = value")
    if c.type not in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER):
        raise c.fail(f"the value of {name.name}")
    token = c.take()
    return nodes.Setting(this=name, value=spanned(exp.Literal.string(token.text.lower()), token))
