"""Parsing of expressions, from OR down to constants and names.

Comparisons do not chain, and one predicate takes no other without parentheses: dialects disagree about
what that would mean. Every function is a plain call by name; the binder knows the list.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from kasen.cql.parse.cursor import Cursor, spanned
from kasen.cql.parse.type_name import data_type, interval
from kasen.cql.parse.words import REFUSED, RESERVED

_COMPARISONS: dict[TokenType, type[exp.Binary]] = {
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
    TokenType.GT: exp.GT,
    TokenType.GTE: exp.GTE,
}

# Operator: how tightly it binds, and its node.
_ARITHMETIC: dict[TokenType, tuple[int, type[exp.Binary]]] = {
    TokenType.DPIPE: (1, exp.DPipe),
    TokenType.PLUS: (2, exp.Add),
    TokenType.DASH: (2, exp.Sub),
    TokenType.STAR: (3, exp.Mul),
    TokenType.SLASH: (3, exp.Div),
    TokenType.MOD: (3, exp.Mod),
}

_CONNECTIVES: dict[str, tuple[int, type[exp.Connector]]] = {"OR": (1, exp.Or), "AND": (2, exp.And)}

_QUANTIFIERS: dict[str, type[exp.Expr]] = {"ALL": exp.All, "ANY": exp.Any, "SOME": exp.Any}
_CONSTANTS = ("NULL", "TRUE", "FALSE")


def expression(c: Cursor, wanted: str, least: int = 1) -> exp.Expr:
    """An expression; `wanted` says what it is for, such as "a condition after WHERE".

    `least` is how tightly AND and OR must bind to be taken here.
    """
    c.wanted = wanted
    first = c.current
    if c.accept("NOT"):
        c.enter()
        node: exp.Expr = exp.Not(this=expression(c, "a condition after NOT", least=3))
        c.leave()
        spanned(node, first, c.previous)
    else:
        node = _predicate(c)
    while (connective := _CONNECTIVES.get(c.word)) is not None and connective[0] >= least:
        strength, kind = connective
        right = expression(c, f"a condition after {c.take().text.upper()}", strength + 1)
        node = kind(this=node, expression=right)
    return node


# ---------------------------------------------------------------- predicates


def _predicate(c: Cursor) -> exp.Expr:
    node = _operand(c)
    if c.type in _COMPARISONS:
        node = _comparison(c, node)
    elif c.word in ("IN", "BETWEEN", "LIKE"):
        node = _test(c, node)
    elif c.word == "NOT":
        c.take()
        if c.word not in ("IN", "BETWEEN", "LIKE"):
            raise c.fail("IN, BETWEEN or LIKE after NOT")
        node = exp.Not(this=_test(c, node))
    while c.word == "IS":
        # Printed, NOT would reach over IS.
        node = _is(c, exp.Paren(this=node) if isinstance(node, exp.Not) else node)
    if c.type in _COMPARISONS or c.word in ("IN", "BETWEEN", "LIKE"):
        raise c.error(
            f"a condition cannot go on with {c.current.text.upper()}",
            "put parentheses around what belongs together, such as (a = b) = c; a < b AND b < c for a range",
        )
    return node


def _comparison(c: Cursor, left: exp.Expr) -> exp.Expr:
    sign = c.take()
    if sign.text == "=" and c.at(TokenType.EQ):
        raise c.error("== is not CQL", "write a single =", first=sign)
    c.wanted = f"a value after {sign.text}"
    quantifier = _QUANTIFIERS.get(c.word)
    if quantifier is None or not c.next_is(TokenType.L_PAREN):
        return _COMPARISONS[sign.token_type](this=left, expression=_operand(c))
    word = c.take()
    query = _query_in_parentheses(c, f"a query in parentheses after {word.text.upper()}")
    right = spanned(quantifier(this=query.this), word, c.previous)
    return _COMPARISONS[sign.token_type](this=left, expression=right)


def _test(c: Cursor, left: exp.Expr) -> exp.Expr:
    word = c.take().text.upper()
    if word == "LIKE":
        c.wanted = "a pattern after LIKE"
        return exp.Like(this=left, expression=_operand(c))
    if word == "BETWEEN":
        c.wanted = "a value after BETWEEN"
        low = _operand(c)
        c.expect("AND", "AND and the upper bound of BETWEEN")
        c.wanted = "the upper bound of BETWEEN"
        return exp.Between(this=left, low=low, high=_operand(c))
    return _in(c, left)


def _in(c: Cursor, left: exp.Expr) -> exp.Expr:
    opening = c.expect_type(TokenType.L_PAREN, "( after IN", "write IN (1, 2, 3) or IN (SELECT ...)")
    c.enter()
    node: exp.Expr
    if c.at_query():
        node = exp.In(this=left, query=_closed_query(c, opening))
    else:
        values = comma_list(c, lambda: expression(c, "a value in the list after IN"))
        _close(c, "IN")
        node = exp.In(this=left, expressions=values)
    c.leave()
    return node


def _is(c: Cursor, left: exp.Expr) -> exp.Expr:
    c.take()
    negated = c.accept("NOT")
    node: exp.Expr
    if c.accept("DISTINCT", "FROM"):
        c.wanted = "a value after IS DISTINCT FROM"
        kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
        return kind(this=left, expression=_operand(c))
    if c.word not in _CONSTANTS:
        raise c.fail("NULL, TRUE, FALSE or DISTINCT FROM after IS", "compare values with =")
    node = exp.Is(this=left, expression=_constant(c))
    return exp.Not(this=node) if negated else node


# ---------------------------------------------------------------- operators


def _operand(c: Cursor, least: int = 1) -> exp.Expr:
    """What predicates stand on: arithmetic and ||, by how tightly the operators bind."""
    node = _unary(c)
    while (operator := _ARITHMETIC.get(c.type)) is not None and operator[0] >= least:
        strength, kind = operator
        c.wanted = f"a value after {c.take().text}"
        node = kind(this=node, expression=_operand(c, strength + 1))
    return node


def _unary(c: Cursor) -> exp.Expr:
    first = c.current
    if c.at(TokenType.DASH) or c.at(TokenType.PLUS):
        c.take()
        c.enter()
        c.wanted = f"a value after {first.text}"
        inner = _unary(c)
        c.leave()
        return spanned(exp.Neg(this=inner), first, c.previous) if first.text == "-" else inner
    node = _word(c) if c.at(TokenType.VAR) else _primary(c)
    while c.accept_type(TokenType.DCOLON):
        node = spanned(exp.Cast(this=node, to=data_type(c, "a type after ::")), first, c.previous)
    return node


def _primary(c: Cursor) -> exp.Expr:
    match c.type:
        case TokenType.IDENTIFIER:
            return _column(c)
        case TokenType.NUMBER:
            token = c.take()
            return spanned(exp.Literal.number(token.text), token)
        case TokenType.STRING:
            token = c.take()
            if c.at(TokenType.STRING):
                raise c.error("two texts follow each other", "join them with ||", first=c.take())
            return spanned(exp.Literal.string(token.text), token)
        case TokenType.L_PAREN:
            return _parentheses(c)
    raise c.fail(c.wanted)


def _word(c: Cursor) -> exp.Expr:
    """A word in an expression: a constant, CASE, EXISTS, a function, or a column's name."""
    special = _SPECIAL.get(c.word)
    if special is not None and (node := special(c)) is not None:
        return node
    if c.word in RESERVED:
        after_comma = c.previous.token_type is TokenType.COMMA
        raise c.fail(c.wanted, "take the comma before it out" if after_comma else "")
    if c.next_is(TokenType.L_PAREN):
        return _call(c)
    return _column(c)


def _constant(c: Cursor) -> exp.Expr:
    token = c.take()
    word = token.text.upper()
    node: exp.Expr = exp.Null() if word == "NULL" else exp.Boolean(this=word == "TRUE")
    return spanned(node, token)


def _column(c: Cursor) -> exp.Expr:
    first = c.take_name()
    if not c.accept_type(TokenType.DOT):
        return exp.Column(this=first)
    if c.at(TokenType.STAR):
        return exp.Column(this=spanned(exp.Star(), c.take()), table=first)
    column = exp.Column(this=c.name("a column's name after the dot"), table=first)
    if c.at(TokenType.DOT):
        raise c.error("a name has at most two parts", "write stream.column")
    return column


def _parentheses(c: Cursor) -> exp.Expr:
    """(expression), (query), or the (a, b) of (a, b) IN (query)."""
    opening = c.take()
    c.enter()
    if c.at_query():
        node: exp.Expr = _closed_query(c, opening)
    else:
        items = [expression(c, "an expression after (")]
        while c.accept_type(TokenType.COMMA):
            items.append(expression(c, "an expression after the comma"))
        _close(c, "(")
        inner = exp.Paren(this=items[0]) if len(items) == 1 else exp.Tuple(expressions=items)
        node = spanned(inner, opening, c.previous)
    c.leave()
    return node


def _closed_query(c: Cursor, opening: Token) -> exp.Expr:
    from kasen.cql.parse.query import parse_query  # queries hold expressions, expressions hold queries

    query = parse_query(c)
    c.expect_type(TokenType.R_PAREN, ") after the query")
    return spanned(exp.Subquery(this=query), opening, c.previous)


def _query_in_parentheses(c: Cursor, expected: str) -> exp.Expr:
    opening = c.expect_type(TokenType.L_PAREN, expected)
    if not c.at_query():
        raise c.fail(expected)
    c.enter()
    node = _closed_query(c, opening)
    c.leave()
    return node


def comma_list(c: Cursor, item: Callable[[], exp.Expr]) -> list[exp.Expr]:
    items = [item()]
    while c.accept_type(TokenType.COMMA):
        items.append(item())
    return items


def _close(c: Cursor, what: str, more: str = ", or ") -> None:
    """Takes the closing parenthesis of `what`; `more` is what else could have come."""
    shown = "" if what == "(" else f" of {what}"
    c.expect_type(TokenType.R_PAREN, f"{more}the closing ){shown}")


# ---------------------------------------------------------------- functions


def _call(c: Cursor) -> exp.Expr:
    token = c.take()
    name = token.text.upper()
    c.take()
    c.enter()
    args = [] if c.at(TokenType.R_PAREN) else _arguments(c, name)
    c.leave()
    _close(c, f"{name}(")
    if name == "POSITION":
        name = "STRPOS"
    node: exp.Expr = spanned(exp.Anonymous(this=name, expressions=args), token, c.previous)
    if c.accept("WITHIN"):
        node = _within_group(c, node, token)
    if c.word in ("OVER", "FILTER"):
        raise c.error(*REFUSED[c.word])
    return node


def _arguments(c: Cursor, name: str) -> list[exp.Expr]:
    if c.word == "DISTINCT":
        first = c.take()
        values = comma_list(c, lambda: _argument(c, name))
        return [spanned(exp.Distinct(expressions=values), first, c.previous)]
    if name in ("SUBSTRING", "SUBSTR"):
        return _substring_arguments(c, name)
    if name == "POSITION":
        return _position_arguments(c)
    args = [_argument(c, name)]
    while c.accept_type(TokenType.COMMA):
        args.append(_argument(c, name))
    return args


def _argument(c: Cursor, name: str) -> exp.Expr:
    if c.at(TokenType.STAR):
        return spanned(exp.Star(), c.take())
    return expression(c, f"an argument of {name}")


def _substring_arguments(c: Cursor, name: str) -> list[exp.Expr]:
    """SUBSTRING(s, start, length), or SUBSTRING(s FROM start FOR length)."""
    args = comma_list(c, lambda: _argument(c, name))
    if len(args) == 1 and c.accept("FROM"):
        args.append(expression(c, "where the substring starts, after FROM"))
        if c.accept("FOR"):
            args.append(expression(c, "the substring's length, after FOR"))
    return args


def _position_arguments(c: Cursor) -> list[exp.Expr]:
    """POSITION(part IN text) is STRPOS(text, part). What IN separates are operands, not a predicate."""
    c.wanted = "what to look for"
    part = _operand(c)
    c.expect("IN", "IN and the text to look in", "write POSITION('x' IN s)")
    c.wanted = "the text to look in, after IN"
    return [_operand(c), part]


def _within_group(c: Cursor, call: exp.Expr, first: Token) -> exp.Expr:
    """PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY x)."""
    usage = "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a)"
    c.expect("GROUP", "GROUP after WITHIN", usage)
    c.expect_type(TokenType.L_PAREN, "(ORDER BY ...) after WITHIN GROUP", usage)
    if not c.accept("ORDER", "BY"):
        raise c.error("WITHIN GROUP needs (ORDER BY a)", usage)
    value = expression(c, "what to order by")
    c.accept("ASC")
    if c.word in ("DESC", "NULLS"):
        raise c.error(f"WITHIN GROUP takes no {c.word}", "count the share from the other end: 1 - p")
    _close(c, "WITHIN GROUP", "")
    order = exp.Order(expressions=[value])
    return spanned(exp.WithinGroup(this=call, expression=order), first, c.previous)


def _case(c: Cursor) -> exp.Expr:
    first = c.take()
    c.enter()
    subject = None if c.word == "WHEN" else expression(c, "WHEN, or a value, after CASE")
    branches: list[exp.Expr] = []
    while c.accept("WHEN"):
        test = expression(c, "a condition after WHEN")
        c.expect("THEN", "THEN and a value")
        branches.append(exp.If(this=test, true=expression(c, "a value after THEN")))
    if not branches:
        raise c.fail("WHEN after CASE")
    default = expression(c, "a value after ELSE") if c.accept("ELSE") else None
    c.expect("END", "WHEN, ELSE or END of CASE")
    c.leave()
    return spanned(exp.Case(this=subject, ifs=branches, default=default), first, c.previous)


def _cast(c: Cursor) -> exp.Expr | None:
    if not c.next_is(TokenType.L_PAREN):
        return None
    first = c.take()
    name = first.text.upper()
    c.take()
    c.enter()
    value = expression(c, f"a value in {name}")
    c.leave()
    c.expect("AS", f"AS and a type in {name}", f"write {name}(a AS INTEGER)")
    kind = data_type(c, f"a type in {name}")
    _close(c, f"{name}(", "")
    node: exp.Expr = (exp.Cast if name == "CAST" else exp.TryCast)(this=value, to=kind)
    return spanned(node, first, c.previous)


def _extract(c: Cursor) -> exp.Expr | None:
    if not c.next_is(TokenType.L_PAREN):
        return None
    first = c.take()
    c.take()
    part = c.name("what to extract, such as HOUR")
    c.expect("FROM", "FROM in EXTRACT", "write EXTRACT(HOUR FROM t)")
    c.enter()
    value = expression(c, "a TIMESTAMP after FROM")
    c.leave()
    _close(c, "EXTRACT(", "")
    field = exp.Var(this=part.name.upper())
    return spanned(exp.Extract(this=field, expression=value), first, c.previous)


def _exists(c: Cursor) -> exp.Expr:
    first = c.take()
    query = _query_in_parentheses(c, "a query in parentheses after EXISTS")
    return spanned(exp.Exists(this=query.this), first, c.previous)


def _timestamp(c: Cursor) -> exp.Expr | None:
    """TIMESTAMP '2026-01-01 00:00:00'."""
    if not c.next_is(TokenType.STRING):
        return None
    first = c.current
    kind = data_type(c, "a type")
    value = c.take()
    text = spanned(exp.Literal.string(value.text), value)
    return spanned(exp.Cast(this=text, to=kind), first, value)


def _interval(c: Cursor) -> exp.Expr | None:
    if not c.next_is(TokenType.STRING, TokenType.NUMBER, TokenType.DASH):
        return None
    return interval(c)


_SPECIAL: dict[str, Callable[[Cursor], exp.Expr | None]] = {
    **dict.fromkeys(_CONSTANTS, _constant),
    "CASE": _case,
    "CAST": _cast,
    "TRY_CAST": _cast,
    "EXTRACT": _extract,
    "EXISTS": _exists,
    "TIMESTAMP": _timestamp,
    "DATE": _timestamp,
    "TIME": _timestamp,
    "INTERVAL": _interval,
}
