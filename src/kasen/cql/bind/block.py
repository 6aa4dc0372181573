"""Binding of SELECT blocks: star, aliases, GROUP BY, HAVING, and what may stand where."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.bind.expr.aggregates import AGGREGATE_NAMES
from kasen.cql.bind.expr.coerce import cast, with_items
from kasen.cql.bind.expr.expression import Aliases, ExprBinder
from kasen.cql.bind.expr.names import output_names
from kasen.cql.bind.expr.predicate import bind_where
from kasen.cql.bind.expr.scope import Item, Scope, UnknownSchema
from kasen.cql.bind.from_clause import bind_from
from kasen.cql.bound import From, Select
from kasen.cql.expr import Column, Expr, GroupKey, WindowBound, map_children, walk
from kasen.types import MAX_COLUMNS, VARCHAR, Field, Kind, Schema

if TYPE_CHECKING:
    from kasen.cql.bind.query import QueryBinder


def bind_block(
    node: exp.Select, projections: list[exp.Expr], parent: Scope | None, queries: QueryBinder
) -> Select:
    """A block with the given SELECT list; `parent` is the block around a sub-query in WHERE."""
    scope = Scope(queries.text, queries.catalog.time, parent=parent, user=queries.catalog.user)
    from_ = bind_from(node, scope, queries)
    block = _Block(node, _expand_stars(projections, scope), scope, queries)
    where: Expr | None = None
    with suppress(UnknownSchema):
        # In a loop it may read what is not known yet. The columns do not depend on it, and it is bound again.
        where = bind_where(node.args.get("where"), scope, queries)
    bound = block.aggregated(from_, where) if block.is_aggregated() else block.plain(from_, where)
    types = (VARCHAR if item.type.is_null else item.type for item in bound.items)
    names = output_names(block.projections)
    schema = Schema(tuple(Field(name, type_) for name, type_ in zip(names, types, strict=True)))
    items = tuple(cast(item, field.type) for item, field in zip(bound.items, schema, strict=True))
    return with_items(bound, schema, items)


class _Block:
    """A block while it is bound."""

    def __init__(
        self, node: exp.Select, projections: list[exp.Expr], scope: Scope, queries: QueryBinder
    ) -> None:
        self.node = node
        self.projections = projections
        self.scope = scope
        self.queries = queries
        self.text = queries.text
        hint = node.args.get("hint")
        self.hint = hint.expressions[0].name.upper() if hint is not None else ""
        self.distinct = node.args.get("distinct") is not None
        self._check_width(projections, "the SELECT list")

    def is_aggregated(self) -> bool:
        if self.node.args.get("group") is not None or self.node.args.get("having") is not None:
            return True
        names = AGGREGATE_NAMES | self.scope.user.keys()
        return any(_has_aggregate(item, names) for item in self.projections)

    def plain(self, from_: From, where: Expr | None) -> Select:
        binder = ExprBinder(self.scope, subquery=self.queries.scalar)
        items = tuple(self._item(item, binder) for item in self.projections)
        return Select(Schema(()), from_, where, None, (), None, items, self.distinct, self.hint)

    def aggregated(self, from_: From, where: Expr | None) -> Select:
        if where is not None and any(getattr(part, "outer", 0) for part in walk(where)):
            fault = "columns of the query around can only be used in a sub-query without aggregates"
            raise self.text.error(fault, self.node, "join with a sub-query in FROM instead")
        aliases = self._aliases()
        groups = self._groups(aliases)
        binder = ExprBinder(self.scope, {}, self.queries.scalar)
        items = tuple(self._grouped(item, groups, binder) for item in self.projections)
        having = None
        if self.node.args.get("having") is not None:
            binder.aliases = aliases
            having = self._grouped(self.node.args["having"].this, groups, binder, condition=True)
        self._check_bounds(items, having, groups)
        aggregates = tuple(binder.aggregates or ())
        return Select(Schema(()), from_, where, groups, aggregates, having, items, self.distinct, self.hint)

    def _item(self, node: exp.Expr, binder: ExprBinder) -> Expr:
        inner = node.this if isinstance(node, exp.Alias) else node
        bound = binder.bind(inner)
        if bound.type.kind is Kind.INTERVAL:
            raise self.text.error("an INTERVAL cannot be a column", inner, "add it to a TIMESTAMP")
        return bound

    def _aliases(self) -> Aliases:
        """The names that the SELECT list gives and FROM does not have: GROUP BY and HAVING know them."""
        found: Aliases = {}
        for item in self.projections:
            name = item.alias.lower() if isinstance(item, exp.Alias) else ""
            if name and all(each.schema.find(name) is None for each in self.scope.items):
                found[name] = None if name in found else item.this
        return found

    # ------------------------------------------------------------ GROUP BY

    def _groups(self, aliases: Aliases) -> tuple[Expr, ...]:
        group = self.node.args.get("group")
        bound: dict[Expr, None] = {}
        keys = group.expressions if group is not None else []
        self._check_width(keys, "GROUP BY")
        for each in keys:
            binder = ExprBinder(self.scope, place="in GROUP BY", aliases=aliases)
            key = binder.bind(self._group_target(each))
            if key.type.kind is Kind.INTERVAL:
                raise self.text.error("GROUP BY does not take an INTERVAL", each, "add it to a TIMESTAMP")
            if key.type.is_null:
                key = cast(key, VARCHAR)
            bound[key] = None
        return tuple(bound)

    def _check_width(self, columns: list[exp.Expr], what: str) -> None:
        """A row has no room for more."""
        if len(columns) > MAX_COLUMNS:
            fault = f"{what} has {len(columns)} columns, and {MAX_COLUMNS} is the most"
            raise self.text.error(fault, columns[MAX_COLUMNS], "split it into several queries")

    def _group_target(self, node: exp.Expr) -> exp.Expr:
        """GROUP BY 2 is the second column of the SELECT list."""
        number = node.this if isinstance(node, exp.Neg) else node
        if not isinstance(number, exp.Literal) or number.is_string:
            return node
        position = f"-{number.this}" if isinstance(node, exp.Neg) else str(number.this)
        if not position.isdigit() or not 1 <= int(position[:9]) <= len(self.projections):
            columns = len(self.projections)
            fault = f"GROUP BY {position[:20]}: the SELECT list has {columns} column{'s' * (columns > 1)}"
            remedy = "name a column, or its position in the SELECT list from 1 on"
            raise self.text.error(fault, node, remedy)
        chosen = self.projections[int(position) - 1]
        return chosen.this if isinstance(chosen, exp.Alias) else chosen

    def _grouped(
        self, node: exp.Expr, groups: tuple[Expr, ...], binder: ExprBinder, condition: bool = False
    ) -> Expr:
        """An expression over the groups: GROUP BY's own expressions and aggregates are known there."""
        binder.columns = {}
        bound = binder.condition(node) if condition else self._item(node, binder)

        def over_groups(expr: Expr) -> Expr:
            if expr in groups:
                return GroupKey(expr.type, groups.index(expr))
            if isinstance(expr, Column):
                return self._ungrouped(expr, binder.columns[expr])
            return map_children(expr, over_groups)

        return over_groups(bound)

    def _ungrouped(self, column: Column, node: exp.Expr) -> Expr:
        """A column that is not grouped by: the time column of a SLIDE window means the window's end."""
        item = self.scope.items[column.source]
        if self.scope.slide_item() == column.source and column.index == item.timestamp:
            return WindowBound(self.scope.time, column.source, end=True)
        name = node.sql()
        raise self.text.error(
            f"column {name!r} must be in GROUP BY or inside an aggregate",
            node,
            f"write GROUP BY {name}, or an aggregate such as MAX({name})",
        )

    def _check_bounds(self, items: tuple[Expr, ...], having: Expr | None, groups: tuple[Expr, ...]) -> None:
        """Without GROUP BY there is a row even if the join is empty, and no window to tell its bounds."""
        if groups or len(self.scope.items) == 1:
            return
        roots = [*items, *([having] if having is not None else [])]
        if any(isinstance(part, WindowBound) for root in roots for part in walk(root)):
            fault = "the bounds of a window beside aggregates of a join need GROUP BY"
            remedy = "aggregate the SLIDE window in a query of its own and join with that"
            raise self.text.error(fault, self.node, remedy)


def _has_aggregate(node: exp.Expr, names: frozenset[str]) -> bool:
    """Whether an aggregate is called here, not counting sub-queries' own."""
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, exp.WithinGroup):
            return True
        if isinstance(each, exp.Anonymous) and each.name.lower() in names:
            return True
        if not isinstance(each, exp.Query | nodes.Streamify):
            todo += each.iter_expressions()
    return False


# ---------------------------------------------------------------- star


def _expand_stars(projections: list[exp.Expr], scope: Scope) -> list[exp.Expr]:
    expanded: list[exp.Expr] = []
    for item in projections:
        if isinstance(item, exp.Star):
            targets = list(enumerate(scope.items))
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            wanted = item.table.lower()
            targets = [pair for pair in enumerate(scope.items) if pair[1].alias.lower() == wanted]
            if not targets:
                raise scope.text.error(
                    f"no {item.table!r} in FROM", item, scope.table_remedy(item.table, "*")
                )
        else:
            expanded.append(item)
            continue
        if any(each.unknown for _, each in targets):
            raise UnknownSchema
        expanded += [
            _star_column(position, index, each, item)
            for position, each in targets
            for index in range(each.visible)
        ]
    return expanded


def _star_column(position: int, index: int, item: Item, star: exp.Expr) -> exp.Expr:
    """A column that `*` stands for; its spot is noted, as its name alone may be ambiguous."""
    column = exp.column(item.schema[index].name)
    column.meta.update(star.meta or getattr(star.this, "meta", {}))
    column.meta["spot"] = (position, index)
    return column
