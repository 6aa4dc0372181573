"""CQL as a sqlglot dialect: its syntax trees are sqlglot's, with a few nodes of CQL's own.

The tokenizer and the parser are CQL's: sqlglot's accept the union of many dialects and let much pass
without a word (a missing parenthesis, NOT before LIKE as a flag), where a wrong query should be refused.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token

from kasen.cql.generator import CQLGenerator
from kasen.cql.parse.cursor import Cursor
from kasen.cql.parse.statement import parse_statements
from kasen.cql.parse.tokenizer import tokenize
from kasen.cql.text import Text


class CQLParser(parser.Parser):
    """Parses statements, each of which becomes a node of kasen.cql.nodes."""

    def parse(self, raw_tokens: list[Token], sql: str | None = None) -> list[Any]:
        statements: list[exp.Expr] = list(parse_statements(Cursor(Text(sql or ""), raw_tokens)))
        return statements


class CQL(Dialect):
    """The dialect's front door for sqlglot."""

    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True

    class Tokenizer(tokens.Tokenizer):
        def tokenize(self, sql: str) -> list[Token]:
            return tokenize(Text(sql))

    Parser = CQLParser
    Generator = CQLGenerator
