"""From CQL text to a list of statements, and back.

A semicolon ends a statement; before REGISTER it may be left out, as the published apps do.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from kasen.cql import nodes
from kasen.cql.dialect import CQL, CQLParser, starts_statement
from kasen.errors import Place, QueryError

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


@dataclass(frozen=True, slots=True)
class Text:
    """A CQL text with its file name: makes places and errors from offsets."""

    text: str
    file: str = ""

    def place(self, start: int, end: int | None = None) -> Place:
        """The place of the characters from `start` to `end` (inclusive)."""
        breaks = [i for i, char in enumerate(self.text) if char == "\n"]
        line = bisect.bisect_left(breaks, start)
        column = start - (breaks[line - 1] + 1 if line else 0)
        return Place(line + 1, column + 1, 1 if end is None else max(1, end - start + 1))

    def place_of(self, node: exp.Expr | None) -> Place | None:
        if node is None:
            return None
        start = nodes.start_of(node)
        return None if start is None else self.place(start, nodes.end_of(node))

    def error(self, fault: str, node: exp.Expr | None, remedy: str = "") -> QueryError:
        return QueryError(fault, remedy=remedy, place=self.place_of(node), text=self.text, file=self.file)


def parse(source: Text) -> list[nodes.Statement]:
    """All statements of a text. Anything wrong is a QueryError at its place."""
    return [_parse_one(source, chunk) for chunk in _chunks(_tokens(source))]


def render(statement: exp.Expr) -> str:
    """The statement as CQL text; parsing it again gives an equal statement."""
    return statement.sql(dialect=CQL, comments=False)


def _tokens(source: Text) -> list[Token]:
    try:
        return CQL().tokenize(source.text)
    except TokenError as error:
        message = str(error).split("\n", 1)[0].removesuffix(".")
        raise QueryError(
            f"cannot read the text: {message}",
            remedy="check that every quote and comment is closed",
            place=source.place(max(0, len(source.text.rstrip()) - 1)),
            text=source.text,
            file=source.file,
        ) from None


def _chunks(tokens: list[Token]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    depth = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            chunks.append([])
            depth = 0
            continue
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        following = tokens[min(index + 1, len(tokens) - 1)]
        if depth == 0 and chunks[-1] and starts_statement(token, following):
            chunks.append([])
        chunks[-1].append(token)
    return [chunk for chunk in chunks if chunk]


def _parse_one(source: Text, chunk: list[Token]) -> nodes.Statement:
    parser = CQLParser(error_level=ErrorLevel.IMMEDIATE, dialect=CQL())
    try:
        statement = parser.parse(chunk, source.text)[0]
    except ParseError as error:
        raise _syntax_error(source, chunk, error) from None
    except RecursionError:
        raise QueryError("the statement is nested too deeply", place=source.place(chunk[0].start)) from None
    except QueryError:
        raise
    except Exception as error:
        # sqlglot's parser has paths for dozens of dialects; on garbage some fail with errors of their own.
        fault = "cannot parse this statement"
        place = source.place(chunk[0].start, chunk[0].end)
        raise QueryError(fault, place=place, text=source.text, file=source.file) from error
    if not isinstance(statement, nodes.Statement):
        raise QueryError(
            "expected a statement",
            remedy="write REGISTER STREAM|RELATION|QUERY, REPLACE QUERY, DROP QUERY or SET; "
            "a query needs a name: REGISTER QUERY name AS SELECT ...",
            place=source.place(chunk[0].start, chunk[0].end),
            text=source.text,
            file=source.file,
        )
    return statement


def _syntax_error(source: Text, chunk: list[Token], error: ParseError) -> QueryError:
    detail = error.errors[0] if error.errors else {}
    message = str(detail.get("description") or error).rstrip(".")
    token = _token_at(chunk, detail)
    found = (
        "the statement ends here"
        if token is chunk[-1] and _at_end(chunk, detail)
        else f"found {token.text!r}"
    )
    if message == "Invalid expression / Unexpected token":
        message = f"cannot parse from {token.text!r} on"
    elif message.startswith(("Expected", "Expecting")):
        message = f"{message[0].lower()}{message[1:]}, but {found}"
    place = source.place(token.start, token.end)
    return QueryError(message, place=place, text=source.text, file=source.file)


def _token_at(chunk: list[Token], detail: dict[str, object]) -> Token:
    """The token an error was raised at: sqlglot reports the line and column of the token's end."""
    for token in chunk:
        if (token.line, token.col) == (detail.get("line"), detail.get("col")):
            return token
    return chunk[-1]


def _at_end(chunk: list[Token], detail: dict[str, object]) -> bool:
    return all((token.line, token.col) != (detail.get("line"), detail.get("col")) for token in chunk[:-1])
