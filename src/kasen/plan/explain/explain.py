"""EXPLAIN: the plan that runs, as text, for the engine and placement asked for.

One line is one step, named by its algorithm; what it reads stands further in. The trees are printed from the
very plans that the engines run, so nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kasen.cql.bound import App, Drop, Input, Tick
from kasen.cql.check.loops import show as show_loop
from kasen.plan.explain.fragments import fragment_lines
from kasen.plan.explain.show import show_instant, show_length
from kasen.plan.explain.tree import Forest
from kasen.plan.native.lower import NativePlan, is_foreign, lower
from kasen.plan.physical import Plan, plan_app
from kasen.plan.shard.fragments import cut_plan, plan_shards
from kasen.types import TIMESTAMP, Pressure, Schema, Type


def explain(app: App) -> str:
    """In one process: `--engine local`."""
    plan = plan_app(app)
    return _text("local", app, _inputs(app, None), _queries(plan))


def explain_in_driver(app: App, *, panes: bool) -> str:
    """On Spark, with the operators in the driver; with `panes`, Spark may reduce rows to panes first."""
    native = lower(plan_app(app), partials=panes)
    return _text("Spark, operators in the driver", app, _inputs(app, native), _queries(native.plan))


def explain_on_executors(app: App) -> str:
    """On Spark, with the operators on executors."""
    native = lower(plan_shards(app), partials=False)
    body = ["\n".join([*fragment_lines(cut_plan(native.plan), native.names), *_loops(app)])]
    return _text("Spark, operators on executors", app, _inputs(app, native), body)


def _text(engine: str, app: App, inputs: Iterator[str], body: list[str]) -> str:
    blocks = ["\n".join([f"engine: {engine}", f"time: {app.time}", *inputs]), *body]
    if app.changes:
        blocks.append("\n".join(_changes(app)))
    if app.warnings:
        blocks.append("\n".join(f"warning: {text}" for text in app.warnings))
    return "\n\n".join(blocks) + "\n"


def explain_forest(app: App, forest: Forest, schemas: Mapping[str, Schema]) -> str:
    """In one process, with the queries that are live now."""
    return _text("local", app, _inputs(app, None), _trees(forest, schemas, forest.loop_lines()))


def _queries(plan: Plan) -> list[str]:
    forest = Forest.of(plan)
    schemas = {query.name: query.schema for query in plan.app.queries}
    return _trees(forest, schemas, [*_loops(plan.app), *forest.loop_lines()])


def _trees(forest: Forest, schemas: Mapping[str, Schema], loops: list[str]) -> list[str]:
    blocks = ["\n".join(forest.query(name, schemas[name])) for name in forest.queries]
    return [*blocks, "\n".join(loops)] if loops else blocks


# ---------------------------------------------------------------- inputs


def _inputs(app: App, native: NativePlan | None) -> Iterator[str]:
    for input_ in app.inputs:
        kind = "relation" if input_.is_relation else "stream"
        on_spark = native is not None
        notes = "; ".join(_order(input_, app.time, on_spark=on_spark))
        yield f"{kind} {input_.name} {input_.schema} from {input_.connector.format}; {notes}"
        if native is not None:
            yield from (f"  {note}" for note in native.scan(input_).notes)


def _order(input_: Input, time: Type, *, on_spark: bool) -> Iterator[str]:
    """How the input's tuples are ordered."""
    if input_.is_static:
        yield "static table, holds from the beginning"
        return
    by = input_.schema[input_.timestamp].name if input_.timestamp is not None else "arrival"
    then = "value" if on_spark and is_foreign(input_) else "position in the source"
    yield f"order: {by}, then {then}"
    if input_.tick is Tick.TUPLE:
        yield "every tuple an instant"
    # IDLE waits by the clock, whatever the stream's own time is.
    lengths = (
        ("slack", input_.slack, time),
        ("idle", input_.idle, TIMESTAMP),
        ("retain", input_.retain, time),
    )
    yield from (f"{name}: {show_length(length, unit)}" for name, length, unit in lengths if length)
    if input_.pressure.policy is not Pressure.BLOCK:
        yield f"on pressure: {str(input_.pressure).lower()}"


# ---------------------------------------------------------------- loops and changes


def _loops(app: App) -> Iterator[str]:
    cut = {query.name for query in app.queries if getattr(query.query, "delay", None) is not None}
    for loop in app.loops:
        cuts = [name for name in loop if name in cut]
        where = f"at the delay of {', '.join(cuts)}" if cuts else "at a delay inside"
        yield f"loop {show_loop(loop)}: cut {where}"


def _changes(app: App) -> Iterator[str]:
    """The queries that come and go later; their plans are made then."""
    for change in app.changes:
        at = "at the beginning" if change.at is None else f"at {show_instant(change.at, app.time)}"
        for action in change.actions:
            if isinstance(action, Drop):
                yield f"{at}: query {action.name} goes"
            else:
                yield f"{at}: query {action.query.name} {'is replaced' if action.replaces else 'comes'}"
