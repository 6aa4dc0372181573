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

_TOKEN = re.compile(
    r"""
      (?P<blank> (?: \s+ | --[^\n]* )+ )
    | (?P<word> [^\W\d] [\w$]* )
    | (?P<number> (?: [0-9]+ (?: \. [0-9]* )? | \. [0-9]+ ) (?: [eE] [+-]? [0-9]+ )? )
    | (?P<string> ' (?: [^'\n] | '' )* ' )
    | (?P<quoted> " (?: [^"\n] | "" )* " )
    | (?P<comment> /\* )
    | (?P<sign> <> | != | <= | >= | \|\| | :: | [()\[\],.;*+\-/%=<>] )
    """,
    re.VERBOSE,
)
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
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        kind = match.lastgroup if match is not None else None
        if match is None or kind is None:
            raise _unreadable(source, position)
        start, position = position, match.end()
        if kind == "blank":
            continue
        if kind == "comment":
            position = _end_of_comment(source, start)
            if text.startswith("/*+", start) and tokens and tokens[-1].text.upper() == "SELECT":
                tokens.append(_token(TokenType.HINT, text[start + 3 : position - 2].strip(), start, position))
        else:
            tokens.append(_of_kind(source, kind, match.group(), start))
    return tokens


def _token(type_: TokenType, text: str, start: int, after: int) -> Token:
    return Token(type_, text, start=start, end=after - 1)


def _of_kind(source: Text, kind: str, text: str, start: int) -> Token:
    after = start + len(text)
    match kind:
        case "word":
            return _token(TokenType.VAR, text, start, after)
        case "number":
            return _token(TokenType.NUMBER, text, start, after)
        case "string":
            return _token(TokenType.STRING, text[1:-1].replace("''", "'"), start, after)
        case "quoted":
            if text == '""':
                raise source.error_at("a name cannot be empty", start, after - 1, "texts stand in 'quotes'")
            return _token(TokenType.IDENTIFIER, text[1:-1].replace('""', '"'), start, after)
    return _token(_SIGNS[text], text, start, after)


def _end_of_comment(source: Text, start: int) -> int:
    """The offset behind a comment; comments may hold comments."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(source.text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise source.error_at("this comment is not closed", start, start + 1, "close it with */")


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
