"""A place in a list of tokens, and what the parser asks there."""

from __future__ import annotations

import difflib
from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from kasen.cql.parse.words import CLAUSES, REFUSED, RESERVED
from kasen.cql.text import Text
from kasen.errors import QueryError

Node = TypeVar("Node", bound=exp.Expr)

# What may follow a column's name in an expression, or where a column is declared.
_BEHIND_NAMES = (
    TokenType.COMMA,
    TokenType.DOT,
    TokenType.R_PAREN,
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
    TokenType.PLUS,
    TokenType.SLASH,
)
_WORDS_BEHIND_NAMES = frozenset(
    {"FROM", "AS", "IS", "IN", "BETWEEN", "LIKE", "AND", "OR", "INTEGER", "INT", "BIGINT", "DOUBLE"}
    | {"DECIMAL", "VARCHAR", "BOOLEAN", "TIMESTAMP", "ROWS"}
)

STREAM_KINDS = ("ISTREAM", "DSTREAM", "RSTREAM")

MAX_NESTING = 50

TOO_DEEP = "the statement is nested too deeply"
SPLIT_IT = "split it: give parts of it names with REGISTER QUERY or WITH"


class Cursor:
    """Walks over the tokens of a text. `type` and `word` are the current token's.

    `word` is the upper-case text of an unquoted word and empty otherwise, so a quoted name is never
    taken for a word of the language. `wanted` says what an expression here is for, for errors.
    """

    __slots__ = ("_alias", "_depth", "_index", "_tokens", "_words", "text", "type", "wanted", "word")

    def __init__(self, text: Text, tokens: list[Token]) -> None:
        end = max(0, len(text.text.rstrip()) - 1)
        last = tokens[-1].end if tokens else end
        self.text = text
        self.wanted = "an expression"
        self._tokens = [*tokens, Token(TokenType.SENTINEL, "", start=last, end=last)]
        self._words = [t.text.upper() if t.token_type is TokenType.VAR else "" for t in self._tokens]
        self._depth = 0
        self._alias: Token | None = None
        self._index = 0
        self.type = self._tokens[0].token_type
        self.word = self._words[0]

    # ------------------------------------------------------------ looking

    @property
    def current(self) -> Token:
        return self._tokens[self._index]

    @property
    def previous(self) -> Token:
        return self._tokens[max(0, self._index - 1)]

    @property
    def at_end(self) -> bool:
        return self.type is TokenType.SENTINEL or self.type is TokenType.SEMICOLON

    def at(self, type_: TokenType) -> bool:
        return self.type is type_

    def next_is(self, *types: TokenType) -> bool:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)].token_type in types

    def next_word(self) -> str:
        return self._words[min(self._index + 1, len(self._words) - 1)]

    def at_streamify(self) -> bool:
        """Whether a streamify operator starts here (a column may still be called `istream`)."""
        return self.word in STREAM_KINDS and self.next_is(TokenType.L_PAREN, TokenType.L_BRACKET)

    def at_query(self) -> bool:
        """Whether a query starts here, behind any opening parentheses."""
        index = self._index
        while self._tokens[index].token_type is TokenType.L_PAREN:
            index += 1
        if self._words[index] in STREAM_KINDS:
            return self._tokens[index + 1].token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        return self._words[index] in ("SELECT", "WITH")

    # ------------------------------------------------------------ taking

    def take(self) -> Token:
        token = self._tokens[self._index]
        if token.token_type is not TokenType.SENTINEL:
            self._index += 1
            self.type = self._tokens[self._index].token_type
            self.word = self._words[self._index]
        return token

    def accept(self, *words: str) -> bool:
        """Takes these words if they all come next."""
        if self.word != words[0]:
            return False
        if len(words) > 1 and self._words[self._index : self._index + len(words)] != list(words):
            return False
        for _ in words:
            self.take()
        return True

    def accept_type(self, type_: TokenType) -> bool:
        if self.type is not type_:
            return False
        self.take()
        return True

    def expect(self, word: str, expected: str = "", remedy: str = "") -> Token:
        if self.word != word:
            raise self.fail(expected or word, remedy)
        return self.take()

    def expect_type(self, type_: TokenType, expected: str, remedy: str = "") -> Token:
        if self.type is not type_:
            raise self.fail(expected, remedy)
        return self.take()

    def at_name(self, reserved: frozenset[str] = RESERVED) -> bool:
        return self.type is TokenType.IDENTIFIER or (self.type is TokenType.VAR and self.word not in reserved)

    def name(self, expected: str, remedy: str = "") -> exp.Identifier:
        """A name: a word that is not reserved, or anything in double quotes."""
        if not self.at_name():
            raise self.fail(expected, remedy)
        return self.take_name()

    def take_name(self) -> exp.Identifier:
        """The current token as a name."""
        token = self.take()
        quoted = token.token_type is TokenType.IDENTIFIER
        return spanned(exp.Identifier(this=token.text, quoted=quoted), token)

    def alias_name(self, reserved: frozenset[str]) -> exp.Identifier | None:
        """[AS] name, if one comes."""
        if self.accept("AS"):
            return self.name("a name after AS")
        if not self.at_name(reserved):
            return None
        self._alias = self.current
        return self.take_name()

    # ------------------------------------------------------------ nesting

    def enter(self) -> None:
        """Notes a further level of nesting; the stack is not endless."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            token = self.current
            raise self.text.error_at(TOO_DEEP, token.start, token.end, SPLIT_IT)

    def leave(self) -> None:
        self._depth -= 1

    # ------------------------------------------------------------ errors

    def fail(self, expected: str, remedy: str = "") -> QueryError:
        """The error that something else stands here than what is expected."""
        token = self.current
        if self.at_end:
            previous = self.previous
            fault = f"expected {expected}, but the statement ends here"
            return self.text.error_at(fault, previous.start, previous.end, remedy or self._misspelt())
        if self.word in RESERVED and self._used_as_name():
            remedy = f'as a name, {self.word} needs quotes: "{token.text}"'
        elif self.word in REFUSED:
            fault, remedy = REFUSED[self.word]
            return self.text.error_at(fault, token.start, token.end, remedy)
        source = self.text.text[token.start : token.end + 1]
        fault = f"expected {expected}, but found {source[:40]}"
        return self.text.error_at(fault, token.start, token.end, remedy or self._misspelt())

    def _used_as_name(self) -> bool:
        """Whether what follows the current word would follow a name."""
        return self.next_is(*_BEHIND_NAMES) or self.next_word() in _WORDS_BEHIND_NAMES

    def _misspelt(self) -> str:
        """If a name was just given without AS, it may have been meant as a word of the language."""
        alias = self._alias
        if alias is None or alias is not self.previous:
            return ""
        near = difflib.get_close_matches(alias.text.upper(), CLAUSES, 1, 0.6)
        return f"did you mean {near[0]} instead of {alias.text}?" if near else ""

    def error(self, fault: str, remedy: str = "", first: Token | None = None) -> QueryError:
        """An error about the tokens from `first` (or the current one) to the last one taken."""
        start = first or self.current
        end = self.previous if first is not None else self.current
        return self.text.error_at(fault, start.start, max(start.end, end.end), remedy)


def spanned(node: Node, first: Token, last: Token | None = None) -> Node:
    """The node, with the place of its tokens."""
    node.meta.update(start=first.start, end=(last or first).end)
    return node
