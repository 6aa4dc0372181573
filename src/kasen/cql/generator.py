"""From syntax tree to CQL text: prints CQL's own nodes; SQL's are sqlglot's business."""

from __future__ import annotations

from sqlglot import exp, generator

from kasen.cql import nodes

Generator = generator.Generator


def _from_item(gen: Generator, node: nodes.FromItem) -> str:
    this = gen.sql(node, "this")
    if isinstance(node.this, nodes.Streamify) or (
        isinstance(node.this, exp.Query) and not isinstance(node.this, exp.Subquery)
    ):
        this = f"({this})"
    window = gen.sql(node, "window")
    alias = gen.sql(node, "alias")
    return this + (f" {window}" if window else "") + (f" AS {alias}" if alias else "")


def _window_spec(gen: Generator, node: nodes.WindowSpec) -> str:
    parts = []
    if keys := node.args.get("partition"):
        parts.append("PARTITION BY " + ", ".join(gen.sql(key) for key in keys))
    parts.append(node.args["kind"])
    for word, key in (("", "this"), ("SLIDE ", "slide"), ("WATTR ", "wattr")):
        if node.args.get(key) is not None:
            parts.append(word + gen.sql(node, key))
    return f"[{' '.join(parts)}]"


def _duration(gen: Generator, node: nodes.Duration) -> str:
    unit = node.args.get("unit")
    return gen.sql(node, "this") + (f" {unit}" if unit else "")


def _streamify(gen: Generator, node: nodes.Streamify) -> str:
    text = f"{_stream_head(gen, node)}({gen.sql(node, 'this')}){gen.sql(node, 'delay')}"
    return gen.prepend_ctes(node, text)


def _stream_head(gen: Generator, node: nodes.Streamify | nodes.StreamItems) -> str:
    every = gen.sql(node, "every")
    return f"{node.args['kind']}[{every}]" if every else str(node.args["kind"])


def _stream_items(gen: Generator, node: nodes.StreamItems) -> str:
    return f"{_stream_head(gen, node)}({gen.expressions(node, flat=True)})"


def _delay_spec(gen: Generator, node: nodes.DelaySpec) -> str:
    return f"<{gen.sql(node, 'this') or 'Now'}>"


def _column_spec(gen: Generator, node: nodes.ColumnSpec) -> str:
    return f"{gen.sql(node, 'this')} {gen.sql(node, 'kind')}"


def _pressure_spec(gen: Generator, node: nodes.PressureSpec) -> str:
    kind = node.args["kind"]
    share = gen.sql(node, "this")
    return kind if kind == "BLOCK" else f"SHED {kind} {share}".rstrip()


def _option(gen: Generator, node: nodes.Option) -> str:
    return f"{gen.sql(node, 'this')} {gen.sql(node, 'value')}"


def _connector_spec(gen: Generator, node: nodes.ConnectorSpec) -> str:
    options = gen.expressions(node, flat=True)
    return gen.sql(node, "this") + (f" OPTIONS ({options})" if options else "")


def _register_input(gen: Generator, node: nodes.RegisterInput) -> str:
    columns = ", ".join(gen.sql(column) for column in node.args["columns"])
    parts = [f"REGISTER {node.args['kind']} {gen.sql(node, 'this')} ({columns})"]
    clauses = (("TIMESTAMP BY", "timestamp"), ("SLACK", "slack"), ("IDLE", "idle"), ("RETAIN", "retain"))
    for word, key in (*clauses, ("TICK BY", "tick"), ("ON PRESSURE", "pressure"), ("FROM", "connector")):
        if value := gen.sql(node, key):
            parts.append(f"{word} {value}")
    return " ".join(parts)


def _register_query(gen: Generator, node: nodes.RegisterQuery) -> str:
    verb = "REPLACE" if node.args.get("replace") else "PREPARE" if node.args.get("prepare") else "REGISTER"
    sink = gen.sql(node, "connector")
    backfill = " BACKFILL" if node.args.get("backfill") else ""
    head = f"{_at(gen, node)}{verb} QUERY {gen.sql(node, 'this')}{backfill} AS {gen.sql(node, 'query')}"
    return head + (f" INTO {sink}" if sink else "")


def _at(gen: Generator, node: exp.Expr) -> str:
    at = gen.sql(node, "at")
    return f"AT {at} " if at else ""


def _drop_query(gen: Generator, node: nodes.DropQuery) -> str:
    cascade = " CASCADE" if node.args.get("cascade") else ""
    return f"{_at(gen, node)}DROP QUERY {gen.sql(node, 'this')}{cascade}"


def _activate(gen: Generator, node: nodes.Activate) -> str:
    return f"{_at(gen, node)}ACTIVATE {', '.join(gen.sql(name) for name in node.names)}"


def _setting(gen: Generator, node: nodes.Setting) -> str:
    return f"SET {gen.sql(node, 'this')} = {gen.sql(node, 'value')}"


def _quantifier(gen: Generator, node: exp.All | exp.Any) -> str:
    return f"{type(node).__name__.upper()} ({gen.sql(node, 'this')})"


class CQLGenerator(generator.Generator):
    """sqlglot's generator with a printer for each of CQL's nodes."""

    TRANSFORMS = {  # noqa: RUF012 - sqlglot's own convention
        **generator.Generator.TRANSFORMS,
        exp.All: _quantifier,
        exp.Any: _quantifier,
        nodes.FromItem: _from_item,
        nodes.PressureSpec: _pressure_spec,
        nodes.WindowSpec: _window_spec,
        nodes.Duration: _duration,
        nodes.Streamify: _streamify,
        nodes.StreamItems: _stream_items,
        nodes.DelaySpec: _delay_spec,
        nodes.ColumnSpec: _column_spec,
        nodes.Option: _option,
        nodes.ConnectorSpec: _connector_spec,
        nodes.RegisterInput: _register_input,
        nodes.RegisterQuery: _register_query,
        nodes.DropQuery: _drop_query,
        nodes.Activate: _activate,
        nodes.Setting: _setting,
    }
