"""From CQL text to a list of statements, and back."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from kasen.cql import nodes
from kasen.cql.dialect import CQL
from kasen.cql.parse.cursor import SPLIT_IT, TOO_DEEP, Cursor
from kasen.cql.parse.statement import parse_statements
from kasen.cql.parse.tokenizer import tokenize
from kasen.cql.text import Text

__all__ = ["Text", "parse", "render"]

# How many operators may stand on one another (a + b + c are two). What binds, plans and runs a query
# walks its tree by recursion, so a deeper one would end in a stack overflow somewhere.
MAX_DEPTH = 120
# How many tokens a statement may have. What is longer would be refused for its parts (see check/extent.py),
# but only after half a minute of binding.
MAX_TOKENS = 600_000
# Chains of these are one level however long they are: the binder makes them flat, or balances them.
_FLAT = (exp.Connector, exp.DPipe, exp.Union, exp.Intersect)


def parse(source: Text) -> list[nodes.Statement]:
    """All statements of a text. Anything wrong is a QueryError at its place."""
    tokens = tokenize(source)
    _check_length(source, tokens)
    statements = parse_statements(Cursor(source, tokens))
    if len(tokens) > MAX_DEPTH:
        for statement in statements:
            _check_depth(source, statement)
    return statements


def render(statement: exp.Expr) -> str:
    """The statement as CQL text; parsing it again gives an equal statement."""
    return statement.sql(dialect=CQL, comments=False, copy=False)


def _check_length(source: Text, tokens: Sequence[Token]) -> None:
    """Finds the first statement that is too long, before anything is made of it."""
    if len(tokens) <= MAX_TOKENS:
        return
    begin = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            begin = index + 1
        elif token.text.upper() == "REGISTER":
            begin = index
        elif index - begin > MAX_TOKENS:
            fault = f"this statement has more than {MAX_TOKENS:,} words and signs"
            raise source.error_at(fault, tokens[begin].start, tokens[begin].end, SPLIT_IT)


def _check_depth(source: Text, statement: exp.Expr) -> None:
    """Finds what is too deep, without recursion."""
    stack: list[tuple[exp.Expr, int]] = [(statement, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise source.error(TOO_DEEP, node, SPLIT_IT)
        kind = type(node) if isinstance(node, _FLAT) else None
        stack += [(child, depth + (type(child) is not kind)) for child in node.iter_expressions()]
