"""CQL as a sqlglot dialect: SQL's SELECT with windows in FROM, streamify operators and delays.

The parser is sqlglot's with three changes: a FROM item may carry a window, a query may be streamified,
and every function call stays a plain call by name (sqlglot would rename some and drop others),
so that the binder's closed list of functions is the only place that knows them.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from kasen.cql import nodes
from kasen.cql.generator import CQLGenerator

STREAM_KINDS = ("ISTREAM", "DSTREAM", "RSTREAM")
_KEPT_FUNCTION_PARSERS = ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "POSITION")


class CQLParser(parser.Parser):
    """Parses one statement per chunk of tokens."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: parse
        for name, parse in parser.Parser.FUNCTION_PARSERS.items()
        if name in _KEPT_FUNCTION_PARSERS
    }
    NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
        "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"],
    }
    STRICT_CAST = True

    def fail(self, message: str) -> NoReturn:
        """Raise a parse error at the current token."""
        self.raise_error(message)
        raise AssertionError("unreachable: errors are raised at once")

    # ------------------------------------------------------------ statements

    def _parse_statement(self) -> exp.Expr | None:
        """One CQL statement; also what sqlglot calls after WITH, where only a query may follow."""
        if self._match_texts(("REGISTER",)):
            if self._match_texts(("STREAM", "RELATION")):
                return self._parse_register_input(self._prev.text.upper())
            if self._match_texts(("QUERY",)):
                return self._parse_register_query(replace=False)
            self.fail("Expected STREAM, RELATION or QUERY after REGISTER")
        if self._match_text_seq("REPLACE", "QUERY"):
            return self._parse_register_query(replace=True)
        if self._match_text_seq("DROP", "QUERY"):
            return self.expression(nodes.DropQuery(this=self._parse_name("the query's name")))
        if self._match_texts(("SET",)):
            return self._parse_setting()
        return self._parse_query()

    def _parse_register_input(self, kind: str) -> exp.Expr:
        args: dict[str, Any] = {"kind": kind, "this": self._parse_name(f"the {kind.lower()}'s name")}
        args["columns"] = self._parse_wrapped_csv(self._parse_column_spec)
        while self._curr and not self._match(TokenType.FROM, advance=False):
            self._parse_input_clause(args)
        if not self._match(TokenType.FROM):
            self.fail("Expected FROM 'format'")
        args["connector"] = self._parse_connector()
        return self.expression(nodes.RegisterInput(**args))

    def _parse_input_clause(self, args: dict[str, Any]) -> None:
        if self._match_text_seq("TIMESTAMP", "BY"):
            clause, value = "timestamp", self._parse_name("the timestamp column")
        elif self._match_text_seq("TICK", "BY"):
            if not self._match_texts(("TUPLE", "TIME")):
                self.fail("Expected TUPLE or TIME after TICK BY")
            clause, value = "tick", self.expression(exp.Var(this=self._prev.text.upper()), self._prev)
        elif self._match_texts(("SLACK", "IDLE", "RETAIN")):
            clause = self._prev.text.lower()
            value = self._parse_duration()
        else:
            self.fail("Expected TIMESTAMP BY, SLACK, IDLE, RETAIN, TICK BY or FROM")
        if clause in args:
            self.fail(f"{clause.upper()} is given twice")
        args[clause] = value

    def _parse_column_spec(self) -> exp.Expr:
        name = self._parse_name("a column's name")
        start = self._curr
        kind = self._parse_types(schema=True)
        if not isinstance(kind, exp.DataType):
            self.fail("Expected a column type")
        kind.meta.update({"start": start.start, "end": self._prev.end})
        return self.expression(nodes.ColumnSpec(this=name, kind=kind))

    def _parse_connector(self) -> exp.Expr:
        form = self._parse_string()
        if form is None:
            self.fail("Expected the format in quotes, such as 'csv'")
        options = (
            self._parse_wrapped_csv(self._parse_option, optional=False)
            if self._match_texts(("OPTIONS",))
            else None
        )
        return self.expression(nodes.ConnectorSpec(this=form, expressions=options))

    def _parse_option(self) -> exp.Expr:
        key = self._parse_name("an option's name")
        self._match(TokenType.EQ)
        value = self._parse_string() or self._parse_number()
        if value is None:
            self.fail("Expected the option's value in quotes")
        return self.expression(nodes.Option(this=key, value=value))

    def _parse_register_query(self, replace: bool) -> exp.Expr:
        name = self._parse_name("the query's name")
        self._match(TokenType.ALIAS)
        query = self._parse_query()
        if query is None:
            self.fail("Expected a query: SELECT, ISTREAM(...), DSTREAM(...) or RSTREAM(...)")
        connector = self._parse_connector() if self._match(TokenType.INTO) else None
        return self.expression(
            nodes.RegisterQuery(this=name, query=query, connector=connector, replace=replace or None)
        )

    def _parse_setting(self) -> exp.Expr:
        name = self._parse_name("a setting's name")
        if not self._match(TokenType.EQ):
            self.fail("Expected = after the setting's name")
        value = self._parse_string() or self._parse_number() or self._parse_id_var(any_token=True)
        if value is None:
            self.fail("Expected the setting's value")
        return self.expression(nodes.Setting(this=name, value=value))

    def _parse_name(self, what: str) -> exp.Expr:
        name = self._parse_id_var(any_token=False)
        if name is None:
            self.fail(f"Expected {what}")
        return name

    # ------------------------------------------------------------ queries

    def _at_streamify(self) -> bool:
        """Whether a streamify operator starts here (a column may still be called `istream`)."""
        return (
            self._curr.token_type is TokenType.VAR
            and self._curr.text.upper() in STREAM_KINDS
            and self._next.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        )

    def _parse_query(self) -> exp.Expr | None:
        """A query: a streamified one, or SELECTs joined by set operations."""
        if self._at_streamify():
            return self._parse_streamify()
        query = self._parse_select(nested=True, parse_subquery_alias=False)
        if isinstance(query, exp.Subquery):
            query = self._parse_set_operations(query)
            if isinstance(query, exp.Subquery):
                # ORDER BY and LIMIT behind a parenthesis: parsed, so that the binder can refuse them.
                return self._parse_query_modifiers(query)
        return query

    def _parse_streamify(self) -> exp.Expr:
        token = self._curr
        kind = token.text.upper()
        self._advance()
        every = None
        if self._match(TokenType.L_BRACKET):
            if kind != "RSTREAM":
                self.fail(f"Only RSTREAM takes an interval, {kind} does not")
            every = self._parse_duration()
            self._match_r_bracket()
        query = self._parse_wrapped(self._parse_query)
        if query is None:
            self.fail(f"Expected a query in {kind}(...)")
        node = nodes.Streamify(kind=kind, this=query, every=every, delay=self._parse_delay())
        return self.expression(node, token)

    def _match_r_bracket(self) -> None:
        if not self._match(TokenType.R_BRACKET):
            self.fail("Expected ]")

    def _parse_delay(self) -> exp.Expr | None:
        if not self._match(TokenType.LT):
            return None
        token = self._curr
        length = None if self._match_texts(("NOW",)) else self._parse_duration()
        if not self._match(TokenType.GT):
            self.fail("Expected > after the delay")
        return self.expression(nodes.DelaySpec(this=length), token)

    def _parse_duration(self) -> exp.Expr:
        token = self._curr
        number = self._parse_number()
        if number is None:
            self.fail("Expected a length of time, such as 5 MINUTES or 10")
        unit = (
            nodes.canonical_unit(self._curr.text) if self._curr.token_type is not TokenType.STRING else None
        )
        if unit is not None:
            self._advance()
        return self.expression(nodes.Duration(this=number, unit=unit), token)

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        if not self._at_streamify():
            return super()._parse_projections()
        token = self._curr
        self._advance()
        items = self._parse_wrapped_csv(self._parse_expression)
        return [self.expression(nodes.StreamItems(kind=token.text.upper(), expressions=items), token)], None

    # ------------------------------------------------------------ FROM items

    def _parse_table(self, *_: Any, alias_tokens: Any = None, **__: Any) -> exp.Expr | None:
        """A FROM item: a name or a query in parentheses, then a window, then an alias."""
        this: exp.Expr | None
        if self._at_streamify():
            this = self._parse_streamify()
        elif self._match(TokenType.L_PAREN):
            this = self._parse_query()
            if this is None:
                self.fail("Expected a query in parentheses")
            self._match_r_paren()
        else:
            name = self._parse_id_var(any_token=False)
            if name is None:
                self.fail("Expected a stream, a relation or a query in parentheses")
            this = exp.Table(this=name)
        item = nodes.FromItem(this=this, window=self._parse_stream_window())
        alias = self._parse_table_alias(alias_tokens=alias_tokens or self.TABLE_ALIAS_TOKENS)
        item.set("alias", alias)
        return self.expression(item)

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        """As sqlglot's, but an error behind a comma is reported where it is, not at the comma."""
        if self._match(TokenType.COMMA):
            return self.expression(exp.Join(this=self._parse_table(**kwargs)))
        return super()._parse_join(*args, **kwargs)

    def _parse_stream_window(self) -> exp.Expr | None:
        if not self._match(TokenType.L_BRACKET):
            return None
        token = self._curr
        spec = nodes.WindowSpec(**self._parse_window_body())
        self._match_r_bracket()
        return self.expression(spec, token)

    def _parse_window_body(self) -> dict[str, Any]:
        if self._match_texts(("UNBOUNDED", "NOW")):
            return {"kind": self._prev.text.upper()}
        if self._match_text_seq("ROWS", "UNBOUNDED") or self._match_text_seq("RANGE", "UNBOUNDED"):
            return {"kind": "UNBOUNDED"}
        partition = None
        if self._match(TokenType.PARTITION_BY):
            partition = self._parse_csv(self._parse_column)
        if self._match_texts(("ROWS",)):
            count = self._parse_count("ROWS")
            slide = self._parse_count("SLIDE") if self._match_texts(("SLIDE",)) else None
            return {"kind": "ROWS", "this": count, "slide": slide, "partition": partition}
        if self._match_texts(("RANGE",)):
            length = self._parse_duration()
            slide = self._parse_duration() if self._match_texts(("SLIDE",)) else None
            wattr = self._parse_name("the WATTR column") if self._match_texts(("WATTR",)) else None
            return {"kind": "RANGE", "this": length, "slide": slide, "partition": partition, "wattr": wattr}
        return self.fail("Expected a window: RANGE, ROWS, NOW, UNBOUNDED or PARTITION BY ... ROWS")

    def _parse_count(self, what: str) -> exp.Expr:
        number = self._parse_number()
        if number is None:
            self.fail(f"Expected a number after {what}")
        return number


class CQL(Dialect):
    """The dialect's front door for sqlglot."""

    # `5 / 2` means the same for the parser's constant folding as for the engines.
    TYPED_DIVISION = True
    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True

    class Tokenizer(tokens.Tokenizer):
        # Words at which sqlglot would swallow the rest of the statement as one string.
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = CQLParser
    Generator = CQLGenerator


def starts_statement(token: Token, following: Token) -> bool:
    """Whether a REGISTER here begins a new statement although no semicolon stands before it."""
    return token.text.upper() == "REGISTER" and following.text.upper() in ("STREAM", "RELATION", "QUERY")
