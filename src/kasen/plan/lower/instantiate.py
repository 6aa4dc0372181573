"""From lowered plan nodes to running operators: configuration, not compilation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kasen.cql import bound
from kasen.cql.bound import SetKind, StreamKind
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Column, Expr
from kasen.engine.aggregate.group.aggregate import Aggregate, AggregateSpec, DepartureOrder
from kasen.engine.aggregate.sliding.pane_reduction import PaneRequirements, wanted
from kasen.engine.aggregate.sliding.sharable import SharableSlidingAggregate
from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.aggregate.user.aggregate import UserAggregate
from kasen.engine.aggregate.user.call import UserCall
from kasen.engine.aggregate.user.group_state import BagCallState, PaneCallState
from kasen.engine.batch import ORDER_INTEGER, check_width, orderings
from kasen.engine.expr.block_program import DeferredProgram
from kasen.engine.failures import Failures
from kasen.engine.join.hash.hash_join import HashJoin
from kasen.engine.join.multiway import mjoin, parallel_trees, rings
from kasen.engine.join.multiway.mjoin import JoinInput, MJoin
from kasen.engine.join.multiway.parallel_mjoin import ParallelMJoin
from kasen.engine.join.pair.counted_join import CountedPairJoin
from kasen.engine.join.pair.pair_join import PairJoin
from kasen.engine.join.semi.semi_join import SemiJoin
from kasen.engine.operator import Operator
from kasen.engine.select.filter import Filter
from kasen.engine.select.network import NetworkFilter
from kasen.engine.select.pad import Pad
from kasen.engine.select.project import Project
from kasen.engine.sets.bag import Bag
from kasen.engine.sets.union import Union
from kasen.engine.stream.delay import Delay
from kasen.engine.stream.streamify import IStreamDStream, PeriodicRStream, RStream
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from kasen.engine.window import window as windows
from kasen.engine.window.activity import WindowActivity, WindowReports
from kasen.engine.window.ordinal_rows import OrdinalRowsWindow
from kasen.engine.window.partition import PartitionWindow
from kasen.plan import logical
from kasen.plan import physical_nodes as nodes
from kasen.plan.logical import Deletions, Node, SemiKind
from kasen.plan.lower import lower
from kasen.plan.lower.expr.block_program import block_program
from kasen.plan.lower.expr.vectors import compile_condition, compile_items, compiled_late
from kasen.plan.lower.joins import nothing_cancels
from kasen.plan.lower.selection import network_condition
from kasen.plan.physical_nodes import MultiJoin
from kasen.types import Kind, Schema


@dataclass(frozen=True, slots=True)
class Context:
    """What all operators of a pipeline share."""

    dictionary: Dictionary
    failures: Failures


def instantiate(node: Node, context: Context) -> Operator:
    """A fresh operator for one step."""
    check_width(node.schema, type(node).__name__)
    columns = len(node.schema)
    match node:
        case logical.Filter():
            return _filter(node, context)
        case logical.Project(items=items):
            programs = [None if isinstance(item, Column) else _late(item, context) for item in items]
            return Project(compile_items(items, context.dictionary, context.failures), programs)
        case logical.WindowNode(window=window):
            return _window(window, columns)
        case logical.WindowReports(window=window):
            return WindowReports(window.length, window.slide, with_bounds=True)
        case logical.WindowActivity(window=window):
            return _touches(window)
        case logical.InnerJoin():
            return _join(node, context)
        case MultiJoin():
            return _multi_join(node, context)
        case nodes.Numbered(number=number):
            return parallel_trees.InputNumbering(number)
        case nodes.Selected():
            return parallel_trees.TreeSelection(columns)
        case nodes.LeftJoined():
            return _left_joined(node, context)
        case logical.SemiJoin():
            return _semi(node, context)
        case nodes.Pad(child=child, before=before, after=after):
            return Pad(before, len(child.schema), after)
        case logical.Aggregate():
            return _aggregate(node, context)
        case nodes.SlidingAggregate():
            return _sliding_aggregate(node, context)
        case nodes.CountedJoin():
            return _counted_join(node)
        case nodes.OrdinalRows(window=window):
            return OrdinalRowsWindow(columns, window.count, window.slide)
        case logical.Distinct():
            return Bag("distinct", columns)
        case logical.SetOp(kind=SetKind.UNION, all=True):
            return Union(columns)
        case logical.SetOp(kind=kind, all=all_):
            return Bag(kind.value.lower() + (" all" if all_ else ""), columns)
        case logical.Streamify():
            return _streamify(node, context)
        case logical.Delay(length=length):
            return Delay(columns, length.length)
    raise AssertionError(f"no operator for {type(node).__name__}")


def _late(expr: Expr, context: Context) -> DeferredProgram:
    return DeferredProgram(partial(block_program, expr, context.dictionary))


def _filter(node: logical.Filter, context: Context) -> Operator:
    """Conditions on a stream from outside share its selection network."""
    compiled = partial(compile_condition, node.condition, context.dictionary, context.failures)
    alone = Filter(compiled_late(compiled, context.dictionary), _late(node.condition, context))
    condition = network_condition(node, context.dictionary)
    if condition is None:
        return alone
    doubles = [field.type.kind is Kind.DOUBLE for field in node.child.schema]
    return NetworkFilter(condition, alone, doubles, context.dictionary)


def _window(window: bound.Window, columns: int) -> Operator:
    match window:
        case bound.Unbounded():
            return windows.UnboundedWindow()
        case bound.Now():
            return windows.NowWindow(columns)
        case bound.Range(length):
            return windows.RangeWindow(columns, length)
        case bound.Slide(length, slide):
            return windows.SlideWindow(columns, length, slide)
        case bound.Rows(count, slide):
            return windows.RowsWindow(columns, count, slide)
        case bound.PartitionRows(keys, count):
            return PartitionWindow(columns, keys, count)
    raise AssertionError(f"no window {window}")


def _touches(window: bound.Window | None) -> Operator:
    match window:
        case bound.Slide(length, slide):
            return WindowReports(length, slide, with_bounds=False)
        case bound.Now():
            return WindowActivity(windows.NowWindow(0))
        case bound.Range(length):
            return WindowActivity(windows.RangeWindow(0, length))
        case bound.Rows(_, slide):
            # A row window moves when a slide is full; which tuple leaves does not matter here.
            return WindowActivity(windows.RowsWindow(0, slide, slide))
    # An arrival is all that moves the others: UNBOUNDED, PARTITION BY ROWS, an outside relation.
    return WindowActivity(windows.UnboundedWindow())


def _join(node: logical.InnerJoin, context: Context) -> Operator:
    left, right = node.inputs
    pairs = [(_index(each[0][1]), _index(each[1][1])) for each in node.classes]
    residual = None
    if node.residual is not None:
        residual = compile_condition(node.residual, context.dictionary, context.failures)
    return HashJoin(
        len(left.schema),
        len(right.schema),
        tuple(a for a, _ in pairs),
        tuple(b for _, b in pairs),
        residual,
    )


_MODES = {Deletions.ALL: mjoin.ALL, Deletions.MIXED: mjoin.MIXED, Deletions.NONE: mjoin.NETTED}


def _multi_join(node: MultiJoin, context: Context) -> Operator:
    inputs = [_seen(child, window) for child, window in zip(node.inputs, node.windows, strict=True)]
    classes = [dict(each) for each in node.classes]
    if node.is_pair:
        return PairJoin(inputs, classes, node.columns)
    residuals = [compile_condition(each, context.dictionary, context.failures) for each in node.residuals]
    make = ParallelMJoin if node.parallel else MJoin
    return make(inputs, classes, node.columns, residuals, _MODES[node.deletions])


def _counted_join(node: nodes.CountedJoin) -> Operator:
    join = node.join
    inputs = []
    for at, (child, window) in enumerate(zip(join.inputs, join.windows, strict=True)):
        if at in node.counted:
            assert isinstance(child, logical.WindowNode)
            assert isinstance(child.window, bound.Rows)
            inputs.append(JoinInput(len(child.schema) + 1, rings.COUNTED, child.window.count))
        else:
            inputs.append(_seen(child, window))
    # Ordinals stand before the other columns.
    classes = [{at: c + (at in node.counted) for at, c in each} for each in join.classes]
    return CountedPairJoin(inputs, classes, [(at, c + (at in node.counted)) for at, c in join.columns])


def _left_joined(node: nodes.LeftJoined, context: Context) -> Operator:
    left, right = node.inputs
    residual = None
    if node.residual is not None:
        residual = compile_condition(node.residual, context.dictionary, context.failures)
    keys = tuple(a for a, _ in node.keys), tuple(b for _, b in node.keys)
    return HashJoin(len(left.schema), len(right.schema), *keys, residual, left_only=True)


def _seen(child: Node, window: bound.Window | None) -> JoinInput:
    columns = len(child.schema)
    match window:
        case None:
            return JoinInput(columns, rings.BAG)
        case bound.Rows(count):
            return JoinInput(columns, rings.ROWS, count)
        case bound.Range(length):
            return JoinInput(columns, rings.RANGE, length)
        case bound.Now():
            return JoinInput(columns, rings.NOW)
    return JoinInput(columns, rings.UNBOUNDED)


def _semi(node: logical.SemiJoin, context: Context) -> Operator:
    residual = None
    if node.residual is not None:
        residual = compile_condition(node.residual, context.dictionary, context.failures)
    return SemiJoin(
        len(node.left.schema),
        len(node.right.schema),
        tuple(_index(a) for a, _ in node.keys),
        tuple(_index(b) for _, b in node.keys),
        residual,
        node.kind is SemiKind.ANTI,
    )


def _index(expr: Expr) -> int:
    assert isinstance(expr, Column), "lowering left a computed key"
    return expr.index


def leaving(node: logical.Aggregate) -> DepartureOrder:
    """In which order rows leave the groups: this says how MIN and MAX are kept."""
    if node.child.insert_only:
        return DepartureOrder.NEVER
    if lower.leaves_in_order(node.child, {_index(key) for key in node.keys}):
        return DepartureOrder.IN_ORDER
    return DepartureOrder.ANY


def _aggregate(node: logical.Aggregate, context: Context) -> Operator:
    keys = len(node.keys)
    own = Aggregate(keys, _specs(node.aggregates, node.child.schema), context.dictionary, leaving(node))
    users = [each for each in node.aggregates if each.user is not None]
    return _with_users(
        keys, own, node.aggregates, [BagCallState(_user_call(each, context)) for each in users]
    )


def _sliding_aggregate(node: nodes.SlidingAggregate, context: Context) -> Operator:
    length, slide = node.window.length, node.window.slide
    specs = _specs(node.aggregates, node.child.schema)
    make = partial(SlidingAggregate, node.keys, specs, length, slide, context.dictionary)
    kept = pane_requirements(node)
    if kept is None:
        users = [each for each in node.aggregates if each.user is not None]
        parts = [PaneCallState(_user_call(each, context), length, slide) for each in users]
        return _with_users(node.keys, make(), node.aggregates, parts)
    schema = node.child.schema
    order = ValueOrder(orderings(schema)[: node.keys], context.dictionary)
    return SharableSlidingAggregate(make, length, slide, kept, len(schema), order)


def pane_requirements(node: Node) -> PaneRequirements | None:
    """What a sliding aggregate needs of panes that it can share with others; None if it cannot."""
    if not isinstance(node, nodes.SlidingAggregate) or any(call.user is not None for call in node.aggregates):
        return None
    return wanted(node.keys, _specs(node.aggregates, node.child.schema))


def _specs(calls: tuple[AggregateCall, ...], schema: Schema) -> tuple[AggregateSpec, ...]:
    """CQL's own calls. Beside a user's there is COUNT(*) too, which tells the groups there are."""
    own = [_spec(call, schema) for call in calls if call.user is None]
    if len(own) < len(calls):
        own.append(AggregateSpec("count", -1, False, ORDER_INTEGER, 0, "bigint", None))
    return tuple(own)


def _with_users(
    keys: int,
    own: Operator,
    calls: tuple[AggregateCall, ...],
    parts: Sequence[BagCallState | PaneCallState],
) -> Operator:
    if not parts:
        return own
    order = []
    users = 0
    for place, call in enumerate(calls):
        users += call.user is not None
        order.append(place - users if call.user is None else -users)
    return UserAggregate(keys, own, tuple(parts), tuple(order))


def _user_call(call: AggregateCall, context: Context) -> UserCall:
    assert call.user is not None
    columns = tuple(_index(arg) for arg in call.args)
    types = tuple(arg.type for arg in call.args)
    return UserCall(call.user, columns, types, call.type, context.dictionary, context.failures)


def _spec(call: AggregateCall, schema: Schema) -> AggregateSpec:
    if not call.args:
        return AggregateSpec(call.function, -1, False, ORDER_INTEGER, 0, "bigint", None)
    index = _index(call.args[0])
    results = {Kind.DOUBLE: "double", Kind.DECIMAL: "decimal", Kind.BIGINT: "bigint"}
    exact = call.function in ("min", "max", "percentile_disc")
    return AggregateSpec(
        call.function,
        index,
        call.distinct,
        int(orderings(schema)[index]),
        schema[index].type.scale,
        "same" if exact else results[call.type.kind],
        call.parameter,
    )


def is_netted(node: logical.Streamify) -> bool:
    """Whether equal rows never enter and leave in one instant: ISTREAM and DSTREAM need not look for any."""
    return not node.needs_deletions or lower.is_net(node.child) or nothing_cancels(node.child)


def _streamify(node: logical.Streamify, context: Context) -> Operator:
    order = ValueOrder(orderings(node.schema), context.dictionary)
    columns = len(node.schema)
    if node.kind is not StreamKind.RSTREAM:
        sign = 1 if node.kind is StreamKind.ISTREAM else -1
        return IStreamDStream(order, sign, netted=is_netted(node))
    if node.every is not None:
        return PeriodicRStream(columns, order, node.every)
    return RStream(columns, order)
