"""From characters to tokens.

sqlglot's own tokenizer knows the quotes, comments and operators of dozens of dialects, and takes an
unclosed comment for the end of the text. CQL's is one pattern, and says where something is not closed.
Every word is a plain word here; the parser knows which ones mean something where.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

from kasen.cql.text import Text
from kasen.errors import QueryError

# Blanks are taken for good (?>): giving some of them back would never help, and could take for ever.
_TOKEN = re.compile(
    r"""
    (?> (?: \s+ | --[^\n]* )* )
    (?: ( [^\W\d] [\w$]* )
      | ( (?: [0-9]+ (?: \. [0-9]* )? | \. [0-9]+ ) (?: [eE] [+-]? [0-9]+ )? )
      | ( ' (?: [^'\n] | '' )* ' )
      | ( " (?: [^"\n] | "" )* " )
      | ( /\* )
      | ( <> | != | <= | >= | \|\| | :: | [()\[\],.;*+\-/%=<>] )
      | \Z
    )?
    """,
    re.VERBOSE,
)
# What no text can hold: half of a surrogate pair has no encoding, and C takes NUL for a text's end.
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_WORD, _NUMBER, _STRING, _QUOTED, _COMMENT = range(1, 6)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_SIGNS: dict[str, TokenType] = {
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "||": TokenType.DPIPE,
    "::": TokenType.DCOLON,
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    "[": TokenType.L_BRACKET,
    "]": TokenType.R_BRACKET,
    ",": TokenType.COMMA,
    ".": TokenType.DOT,
    ";": TokenType.SEMICOLON,
    "*": TokenType.STAR,
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
    "=": TokenType.EQ,
    "<": TokenType.LT,
    ">": TokenType.GT,
}

# What a character that CQL does not use probably stands for.
_REMEDIES = {
    "`": 'write names that need it in double quotes: "name"',
    "?": "there are no parameters: write the value",
    ":": "there are no parameters: write the value",
    "@": "there are no parameters: write the value",
    "&": "write AND",
    "|": "write OR, or || to join texts",
    "!": "write NOT, or <> for unequal",
    "^": "there is no power operator",
    "#": "comments start with --",
    "\u201c": "write plain quotes: 'text'",
    "\u201d": "write plain quotes: 'text'",
    "\u2018": "write plain quotes: 'text'",
    "\u2019": "write plain quotes: 'text'",
}


def tokenize(source: Text) -> list[Token]:
    """The tokens of a text; QueryError where it has none."""
    text = source.text
    if (bad := _NO_CHARACTER.search(text)) is not None:
        fault = f"U+{ord(bad.group()):04X} is not a character"
        raise source.error_at(fault, bad.start(), bad.start(), "remove it: no text can hold it")
    tokens: list[Token] = []
    position = 1 if text.startswith("\ufeff") else 0  # the mark that some editors put before a text
    while (match := _TOKEN.match(text, position)) is not None:
        kind = match.lastindex
        position = match.end()
        if kind is None:
            if position < len(text):
                raise _unreadable(source, position)
            break
        start = match.start(kind)
        word = match.group(kind)
        if kind == _WORD:
            tokens.append(Token(TokenType.VAR, word, 1, 1, start, position - 1))
        elif kind == _NUMBER:
            tokens.append(Token(TokenType.NUMBER, word, 1, 1, start, position - 1))
        elif kind == _STRING:
            tokens.append(Token(TokenType.STRING, word[1:-1].replace("''", "'"), 1, 1, start, position - 1))
        elif kind == _QUOTED:
            tokens.append(_quoted_name(source, word, start))
        elif kind == _COMMENT:
            position = _end_of_comment(source, start)
            if text.startswith("/*+", start) and tokens and tokens[-1].text.upper() == "SELECT":
                hint = text[start + 3 : position - 2].strip()
                tokens.append(Token(TokenType.HINT, hint, 1, 1, start, position - 1))
        else:
            tokens.append(Token(_SIGNS[word], word, 1, 1, start, position - 1))
    return tokens


def _quoted_name(source: Text, text: str, start: int) -> Token:
    end = start + len(text) - 1
    if text == '""':
        raise source.error_at("a name cannot be empty", start, end, "texts stand in 'quotes'")
    return Token(TokenType.IDENTIFIER, text[1:-1].replace('""', '"'), 1, 1, start, end)


def _end_of_comment(source: Text, start: int) -> int:
    """The offset behind a comment; comments may hold comments."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(source.text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise source.error_at("this comment is not closed", start, start + 1, "end it with a star and a slash")


def _unreadable(source: Text, position: int) -> QueryError:
    character = source.text[position]
    if character in "'\"":
        end = source.text.find("\n", position)
        end = (len(source.text) if end < 0 else end) - 1
        what = "text" if character == "'" else "name"
        remedy = f"close it with {character} on the same line"
        return source.error_at(f"this quoted {what} is not closed", position, end, remedy)
    shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
    remedy = _REMEDIES.get(character, "outside quotes, CQL uses letters, digits and the usual signs")
    return source.error_at(f"the character {shown} cannot stand here", position, position, remedy)
