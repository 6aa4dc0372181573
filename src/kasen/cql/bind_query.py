"""Binding of queries: FROM items and windows, blocks, set operations, streamify operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from kasen.cql import literals, nodes
from kasen.cql.aggregates import AGGREGATE_NAMES
from kasen.cql.bind_expr import ExprBinder, cast, outer_columns
from kasen.cql.bind_predicate import bind_where
from kasen.cql.bind_window import bind_window
from kasen.cql.bound import (
    Delay,
    From,
    Input,
    Join,
    JoinKind,
    Query,
    Select,
    SetKind,
    SetOperation,
    Source,
    Streamify,
    StreamKind,
    Unbounded,
    Window,
)
from kasen.cql.expr import Column, Expr
from kasen.cql.names import output_names
from kasen.cql.scope import Item, Scope, UnknownSchema, suggest
from kasen.cql.text import Text
from kasen.types import VARCHAR, Field, Schema, Type, common_type


class Catalog(Protocol):
    """What binding a query needs to know of the app around it."""

    @property
    def time(self) -> Type: ...

    def input(self, name: str) -> Input | None: ...

    def query(self, name: str) -> Query | None:
        """A registered query as bound so far, or None if there is no such name.

        Raises UnknownSchema while the query exists but its columns are not known yet.
        """
        ...

    def names(self) -> list[str]: ...


_REFUSED_MODIFIERS = {
    "order": ("ORDER BY is not CQL", "a stream's order is its instants; sort what you read"),
    "limit": ("LIMIT is not CQL", "use [ROWS n], or an aggregate"),
    "offset": ("OFFSET is not CQL", "use [ROWS n]"),
    "windows": ("WINDOW is not CQL", "use a window in FROM"),
    "qualify": ("QUALIFY is not CQL", "use HAVING"),
    "laterals": ("LATERAL is not CQL", "join with a sub-query"),
    "into": ("INTO stands behind the whole query", "REGISTER QUERY name AS query INTO 'csv' OPTIONS (...)"),
    "sample": ("TABLESAMPLE is not CQL", ""),
    "pivots": ("PIVOT is not CQL", ""),
    "locks": ("FOR UPDATE is not CQL", ""),
    "cluster": ("CLUSTER BY is not CQL", ""),
    "distribute": ("DISTRIBUTE BY is not CQL", ""),
    "sort": ("SORT BY is not CQL", ""),
    "connect": ("CONNECT BY is not CQL", ""),
    "match": ("MATCH_RECOGNIZE is not CQL", ""),
    "prewhere": ("PREWHERE is not CQL", "write WHERE"),
    "kind": ("SELECT AS STRUCT is not CQL", ""),
    "exclude": ("EXCLUDE is not CQL", "name the columns"),
}


@dataclass(slots=True)
class QueryBinder:
    """Binds queries against a catalog. `ctes` are the WITH names in sight."""

    catalog: Catalog
    text: Text
    infer: bool = False
    ctes: dict[str, exp.Expr] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    # ------------------------------------------------------------ queries

    def query(self, node: exp.Expr, parent: Scope | None = None) -> Query:
        """Any query. Only a top-level query or a FROM item may be a stream."""
        binder = self._with(node)
        if binder is not self:
            return binder.query(node, parent)
        match node:
            case nodes.Streamify():
                return self._streamify(node)
            case exp.Select():
                return self._select(node, parent)
            case exp.SetOperation():
                return self._set_operation(node, parent)
            case exp.Subquery():
                self._refuse_modifiers(node)
                return self.query(node.this, parent)
        raise self.text.error("expected a query", node)

    def relation(self, node: exp.Expr, parent: Scope | None = None) -> Query:
        """A query that must be a relation."""
        bound = self.query(node, parent)
        if isinstance(bound, Streamify):
            fault = f"{bound.kind.value} makes a stream, but a relation is needed here"
            raise self.text.error(fault, node, f"leave {bound.kind.value} out, or put a window on it in FROM")
        return bound

    def _with(self, node: exp.Expr) -> QueryBinder:
        with_ = node.args.get("with_")
        if with_ is None or all(cte.alias.lower() in self.ctes for cte in with_.expressions):
            return self
        if with_.args.get("recursive"):
            remedy = "register the queries of the loop by name, with a delay: ISTREAM(...)<Now>"
            raise self.text.error("WITH RECURSIVE is not CQL", with_, remedy)
        ctes = dict(self.ctes)
        for cte in with_.expressions:
            if cte.args["alias"].columns:
                raise self.text.error(
                    "WITH name (columns) is not CQL", cte, "name the columns with AS in its SELECT"
                )
            ctes[cte.alias.lower()] = cte.this
        return QueryBinder(self.catalog, self.text, self.infer, ctes, self.warnings)

    def _streamify(self, node: nodes.Streamify) -> Streamify:
        kind = StreamKind(node.args["kind"])
        every = node.args.get("every")
        interval = (
            literals.duration(every, self.catalog.time, self.text, least=1) if every is not None else None
        )
        return Streamify(kind, self.relation(node.this), interval, self._delay(node.args.get("delay")))

    def _delay(self, node: nodes.DelaySpec | None) -> Delay | None:
        if node is None:
            return None
        if node.args.get("this") is None:
            return Delay(None)
        return Delay(literals.duration(node.this, self.catalog.time, self.text, least=1))

    def _set_operation(self, node: exp.SetOperation, parent: Scope | None) -> Query:
        self._refuse_modifiers(node)
        if node.args.get("by_name") or node.args.get("on") or node.args.get("side"):
            raise self.text.error(
                "BY NAME is not CQL", node, "list the columns in the same order on both sides"
            )
        left, right = self._sides(node, parent)
        if left is None or right is None:
            known = left or right
            assert known is not None
            return known
        schema = self._common_schema(node, left, right)
        kind = SetKind(type(node).__name__.upper())
        all_ = not node.args.get("distinct", True)
        return SetOperation(schema, kind, all_, _as_types(left, schema), _as_types(right, schema))

    def _sides(self, node: exp.SetOperation, parent: Scope | None) -> tuple[Query | None, Query | None]:
        """Both operands; while schemas are being inferred, one may still be unknown."""
        sides: list[Query | None] = []
        for operand in (node.this, node.expression):
            try:
                sides.append(self.relation(operand, parent))
            except UnknownSchema:
                if not self.infer:
                    raise
                sides.append(None)
        if sides == [None, None]:
            raise UnknownSchema
        return sides[0], sides[1]

    def _common_schema(self, node: exp.SetOperation, left: Query, right: Query) -> Schema:
        word = type(node).__name__.upper()
        if len(left.schema) != len(right.schema):
            fault = f"{word} needs as many columns on both sides: {len(left.schema)} and {len(right.schema)}"
            raise self.text.error(fault, node.expression)
        fields = []
        for position, (one, other) in enumerate(zip(left.schema, right.schema, strict=True), 1):
            common = common_type(one.type, other.type)
            if common is None:
                fault = f"{word}: column {position} is {one.type} on one side and {other.type} on the other"
                raise self.text.error(fault, node.expression, "CAST one side")
            fields.append(Field(one.name, common))
        return Schema(tuple(fields))

    def _refuse_modifiers(self, node: exp.Expr) -> None:
        for key, (fault, remedy) in _REFUSED_MODIFIERS.items():
            value = node.args.get(key)
            if value:
                value = value[0] if isinstance(value, list) else value
                raise self.text.error(fault, value if isinstance(value, exp.Expr) else node, remedy)

    # ------------------------------------------------------------ blocks

    def _select(self, node: exp.Select, parent: Scope | None) -> Query:
        self._refuse_modifiers(node)
        stream = node.expressions[0] if node.expressions else None
        if isinstance(stream, nodes.StreamItems):
            if parent is not None:
                raise self.text.error(
                    f"{stream.args['kind']} makes a stream, but a relation is needed here", stream
                )
            block = self._block(node, list(stream.expressions), None)
            return Streamify(StreamKind(stream.args["kind"]), block)
        return self._block(node, list(node.expressions), parent)

    def _block(self, node: exp.Select, projections: list[exp.Expr], parent: Scope | None) -> Select:
        if node.args.get("from_") is None:
            raise self.text.error("SELECT needs FROM", node, "continuous queries read streams or relations")
        scope = Scope(self.text, self.catalog.time, parent=parent)
        from_ = self._from(node, scope)
        projections = self._expand_stars(projections, scope)
        where = bind_where(node.args.get("where"), scope, self)
        aliases = {item.alias.lower(): item.this for item in projections if isinstance(item, exp.Alias)}
        groups = self._groups(node, projections, scope, aliases)
        if groups is None and not self._is_aggregated(node, projections):
            binder = ExprBinder(scope, subquery=self._scalar, place="in this SELECT list")
            items = tuple(self._item(item, binder) for item in projections)
            bound = Select(Schema(()), from_, where, None, (), None, items, self._distinct(node), _hint(node))
        else:
            bound = self._aggregated(node, projections, scope, groups or (), from_, where, aliases)
        if parent is not None:
            self._check_correlation(bound, node)
        names = output_names(projections)
        types = (VARCHAR if item.type.is_null else item.type for item in bound.items)
        schema = Schema(tuple(Field(name, type_) for name, type_ in zip(names, types, strict=True)))
        items = tuple(cast(item, field_.type) for item, field_ in zip(bound.items, schema, strict=True))
        return _replace_items(bound, schema, items)

    def _aggregated(
        self,
        node: exp.Select,
        projections: list[exp.Expr],
        scope: Scope,
        groups: tuple[Expr, ...],
        from_: From,
        where: Expr | None,
        aliases: dict[str, exp.Expr],
    ) -> Select:
        binder = ExprBinder(scope, groups, [], self._scalar)
        items = tuple(self._item(item, binder) for item in projections)
        having = None
        if node.args.get("having") is not None:
            # A name that no FROM item has may be an alias of the SELECT list.
            visible = {field_.name.lower() for item in scope.items for field_ in item.schema}
            binder.aliases = {name: value for name, value in aliases.items() if name not in visible}
            having = binder.condition(node.args["having"].this)
        aggregates = tuple(binder.aggregates or ())
        return Select(
            Schema(()), from_, where, groups, aggregates, having, items, self._distinct(node), _hint(node)
        )

    def _item(self, node: exp.Expr, binder: ExprBinder) -> Expr:
        inner = node.this if isinstance(node, exp.Alias) else node
        bound = binder.bind(inner)
        if bound.type.kind.value == "INTERVAL":
            raise self.text.error("an INTERVAL cannot be a column", inner, "add it to a TIMESTAMP")
        return bound

    def _scalar(self, node: exp.Expr) -> Query:
        bound = self.relation(node)
        if not isinstance(bound, Select) or bound.group_by != () or bound.having is not None:
            raise self.text.error(
                "a query used as a value must always have exactly one row",
                node,
                "an aggregate without GROUP BY does, such as (SELECT MAX(a) FROM s [NOW]); else join in FROM",
            )
        return bound

    def _distinct(self, node: exp.Select) -> bool:
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise self.text.error("DISTINCT ON is not CQL", node, "use [PARTITION BY ... ROWS 1]")
        return distinct is not None

    def _is_aggregated(self, node: exp.Select, projections: list[exp.Expr]) -> bool:
        if node.args.get("having") is not None:
            return True
        return any(_has_aggregate(item) for item in projections)

    def _groups(
        self, node: exp.Select, projections: list[exp.Expr], scope: Scope, aliases: dict[str, exp.Expr]
    ) -> tuple[Expr, ...] | None:
        group = node.args.get("group")
        if group is None:
            return None
        for key in ("grouping_sets", "cube", "rollup", "totals", "all"):
            if group.args.get(key):
                raise self.text.error(
                    f"GROUP BY {key.upper()} is not CQL", group, "write one query a grouping"
                )
        bound: list[Expr] = []
        for each in group.expressions:
            target = self._group_target(each, projections, scope, aliases)
            key_expr = ExprBinder(scope, place="in GROUP BY").bind(target)
            if key_expr.type.is_null:
                key_expr = cast(key_expr, VARCHAR)
            if key_expr not in bound:
                bound.append(key_expr)
        return tuple(bound)

    def _group_target(
        self, node: exp.Expr, projections: list[exp.Expr], scope: Scope, aliases: dict[str, exp.Expr]
    ) -> exp.Expr:
        """GROUP BY 2 is the second column of the SELECT list; an alias of it is that column too."""
        if isinstance(node, exp.Literal) and not node.is_string:
            position = str(node.this)
            if not position.isdigit() or not 1 <= int(position) <= len(projections):
                raise self.text.error(f"GROUP BY {position} is not a column of the SELECT list", node)
            chosen = projections[int(position) - 1]
            return chosen.this if isinstance(chosen, exp.Alias) else chosen
        is_alias = isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases
        if is_alias and all(item.schema.find(node.name) is None for item in scope.items):
            return aliases[node.name.lower()]
        return node

    def _check_correlation(self, bound: Select, node: exp.Expr) -> None:
        """Columns of the block around may be used in the WHERE of a plain block only."""
        others = [*bound.items, *(bound.group_by or ())]
        others += [arg for aggregate in bound.aggregates for arg in aggregate.args]
        if bound.having is not None:
            others.append(bound.having)
        aggregated = bound.group_by is not None and bound.where is not None and outer_columns(bound.where)
        if aggregated or any(outer_columns(expr) for expr in others):
            fault = (
                "columns of the query around can only be used in the WHERE of a sub-query without aggregates"
            )
            raise self.text.error(fault, node, "join with a sub-query in FROM instead")

    def _expand_stars(self, projections: list[exp.Expr], scope: Scope) -> list[exp.Expr]:
        expanded: list[exp.Expr] = []
        for item in projections:
            if isinstance(item, exp.Star):
                self._refuse_star_options(item)
                if any(each.unknown for each in scope.items):
                    raise UnknownSchema
                targets = list(enumerate(scope.items))
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                self._refuse_star_options(item.this)
                wanted = item.table.lower()
                targets = [pair for pair in enumerate(scope.items) if pair[1].alias.lower() == wanted]
                if any(each.unknown for _, each in targets):
                    raise UnknownSchema
                if not targets:
                    raise self.text.error(f"no {item.table!r} in FROM", item)
            else:
                expanded.append(item)
                continue
            expanded += [
                _star_column(position, index, each, item)
                for position, each in targets
                for index in range(each.visible)
            ]
        return expanded

    def _refuse_star_options(self, star: exp.Expr) -> None:
        if any(value for value in star.args.values()):
            raise self.text.error("* with EXCEPT, REPLACE or RENAME is not CQL", star, "name the columns")

    # ------------------------------------------------------------ FROM

    def _from(self, node: exp.Select, scope: Scope) -> From:
        tree: From = self._source(node.args["from_"].this, scope)
        for join in node.args.get("joins") or ():
            tree = self._join(tree, join, scope)
        return tree

    def _join(self, left: From, node: exp.Join, scope: Scope) -> From:
        self._check_join(node)
        right = self._source(node.this, scope)
        side = str(node.args.get("side") or "").upper()
        on = node.args.get("on")
        if side:
            kind = JoinKind(side)
            if on is None:
                raise self.text.error(f"{side} JOIN needs ON", node.this, "write ON a.x = b.y")
        else:
            kind = JoinKind.INNER if on is not None else JoinKind.CROSS
            word = str(node.args.get("kind") or "").upper()
            if word == "INNER" and on is None:
                raise self.text.error("INNER JOIN needs ON", node.this, "write ON a.x = b.y")
        condition = ExprBinder(scope, place="in ON").condition(on) if on is not None else None
        return Join(kind, left, right, condition)

    def _check_join(self, node: exp.Join) -> None:
        if node.args.get("method"):
            raise self.text.error(
                f"{node.args['method']} JOIN is not CQL", node.this, "write JOIN ... ON a.x = b.x"
            )
        if node.args.get("using"):
            column = node.args["using"][0].name
            raise self.text.error("USING is not CQL", node.this, f"write ON a.{column} = b.{column}")
        if str(node.args.get("kind") or "").upper() not in ("", "INNER", "CROSS", "OUTER"):
            raise self.text.error(
                f"{node.args['kind']} JOIN is not CQL", node.this, "use IN or EXISTS in WHERE"
            )
        for key in ("match_condition", "expressions", "pivots"):
            if node.args.get(key):
                raise self.text.error("this kind of join is not CQL", node.this)

    def _source(self, node: nodes.FromItem, scope: Scope) -> Source:
        if not isinstance(node, nodes.FromItem):
            raise self.text.error("expected a stream, a relation or a query in parentheses", node)
        item = self._named(node) if isinstance(node.this, exp.Table) else self._derived(node)
        taken = [each for each in scope.items if each.alias.lower() == item.alias.lower()]
        if taken and item.alias:
            fault = f"{item.alias!r} stands in FROM twice"
            raise self.text.error(
                fault, node, f"give one of them another name: {item.alias} AS {item.alias}2"
            )
        scope.items.append(item)
        return item.source

    def _alias(self, node: nodes.FromItem, default: str) -> str:
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            raise self.text.error(
                "AS name (columns) is not CQL", node, "name the columns with AS in its SELECT"
            )
        return str(alias.name) if alias is not None and alias.name else default

    def _named(self, node: nodes.FromItem) -> Item:
        name = node.this.name
        cte = self.ctes.get(name.lower())
        alias = self._alias(node, name)
        if cte is not None:
            inner = {key: value for key, value in self.ctes.items() if key != name.lower()}
            binder = QueryBinder(self.catalog, self.text, self.infer, inner, self.warnings)
            return self._over_query(node, alias, binder.query(cte))
        input_ = self.catalog.input(name)
        if input_ is not None:
            return self._over_input(node, alias, input_)
        try:
            query = self.catalog.query(name)
        except UnknownSchema:
            if not self.infer:
                raise
            return Item(Source(alias, name, None, Schema(())), unknown=True)
        if query is None:
            remedy = suggest(name, self.catalog.names(), "registered are")
            raise self.text.error(f"unknown stream or query {name!r}", node.this, remedy)
        if isinstance(query, Streamify):
            window = self._window(node, (name, alias), query.schema, None)
            return Item(Source(alias, name, window or Unbounded(), query.schema))
        if node.args.get("window") is None:
            return Item(Source(alias, name, None, query.schema))
        self._require_monotone(query, node, name)
        # A window on a monotone select counts as one on its ISTREAM.
        columns = tuple(Column(f.type, 0, i, f.name) for i, f in enumerate(query.schema))
        inner_source = Source(name, name, None, query.schema)
        block = Select(query.schema, inner_source, None, None, (), None, columns, False)
        return self._over_stream(node, alias, Streamify(StreamKind.ISTREAM, block))

    def _over_input(self, node: nodes.FromItem, alias: str, input_: Input) -> Item:
        if input_.is_relation:
            if node.args.get("window") is not None:
                fault = f"{input_.name!r} is a relation, and a window goes on a stream"
                raise self.text.error(fault, node.args["window"], "leave the window out")
            return Item(Source(alias, input_.name, None, input_.schema), input_.hidden, input_.timestamp)
        window = self._window(node, (input_.name, alias), input_.schema, input_.timestamp)
        source = Source(alias, input_.name, window or Unbounded(), input_.schema)
        return Item(source, input_.hidden, input_.timestamp)

    def _derived(self, node: nodes.FromItem) -> Item:
        return self._over_query(node, self._alias(node, ""), self.query(node.this))

    def _over_query(self, node: nodes.FromItem, alias: str, query: Query) -> Item:
        if isinstance(query, Streamify):
            return self._over_stream(node, alias, query)
        if node.args.get("window") is None:
            return Item(Source(alias, query, None, query.schema))
        self._require_monotone(query, node, alias or "the sub-query")
        return self._over_stream(node, alias, Streamify(StreamKind.ISTREAM, query))

    def _over_stream(self, node: nodes.FromItem, alias: str, query: Streamify) -> Item:
        window = self._window(node, (alias,), query.schema, None)
        return Item(Source(alias, query, window or Unbounded(), query.schema))

    def _window(
        self, node: nodes.FromItem, names: tuple[str, ...], schema: Schema, timestamp: int | None
    ) -> Window | None:
        spec = node.args.get("window")
        if spec is None:
            return None
        return bind_window(spec, names, schema, timestamp, self.catalog.time, self.text)

    def _require_monotone(self, query: Query, node: nodes.FromItem, name: str) -> None:
        if not is_monotone_select(query):
            fault = f"{name!r} is a relation, and a window goes on a stream"
            remedy = "leave the window out, or make it a stream: ISTREAM(SELECT ...)"
            raise self.text.error(fault, node.args["window"], remedy)


def is_monotone_select(query: Query) -> bool:
    """Select and project over one unbounded stream: rows only ever enter, so it is as good as its ISTREAM."""
    if not isinstance(query, Select) or query.group_by is not None or query.distinct:
        return False
    return isinstance(query.from_, Source) and isinstance(query.from_.window, Unbounded)


def _has_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate is called here, not counting sub-queries' own."""
    if isinstance(node, exp.Query | nodes.Streamify):
        return False
    if isinstance(node, exp.WithinGroup):
        return True
    if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATE_NAMES:
        return True
    return any(_has_aggregate(child) for child in node.iter_expressions())


def _star_column(position: int, index: int, item: Item, star: exp.Expr) -> exp.Expr:
    """A column that `*` stands for; its spot is noted, as its name alone may be ambiguous."""
    column = exp.column(item.schema[index].name)
    column.meta.update(star.meta or getattr(star.this, "meta", {}))
    column.meta["spot"] = (position, index)
    return column


def _hint(node: exp.Select) -> str:
    hint = node.args.get("hint")
    return " ".join(each.sql() for each in hint.expressions).upper() if hint is not None else ""


def _replace_items(bound: Select, schema: Schema, items: tuple[Expr, ...]) -> Select:
    return Select(
        schema,
        bound.from_,
        bound.where,
        bound.group_by,
        bound.aggregates,
        bound.having,
        items,
        bound.distinct,
        bound.hint,
    )


def _as_types(query: Query, schema: Schema) -> Query:
    """The query with its columns cast to `schema`'s types."""
    if query.schema.types == schema.types:
        return query
    source = Source("", query, None, query.schema)
    columns = (Column(field_.type, 0, index, field_.name) for index, field_ in enumerate(query.schema))
    items = tuple(cast(column, field_.type) for column, field_ in zip(columns, schema, strict=True))
    return Select(schema, source, None, None, (), None, items, False)
