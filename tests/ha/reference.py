"""What leaves a chain of apps when nothing is disturbed: the same apps, one after the other, here."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kasen.connect.csv.sink import CsvSink
from kasen.connect.decode import decode
from kasen.ha.config import Neighbour
from kasen.ha.link.wire import BEGIN, LinkPiece
from kasen.ha.run import output_schemas
from kasen.ha.work.work import AppWork
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.pipeline import Answer
from tests.ha.warm import load_plan

__all__ = ["csv", "edge", "node", "output_schemas"]

Answers = dict[str, LinkPiece]


def edge(app: Path) -> Answers:
    """All that an edge puts out."""
    plan = load_plan(app)
    parts: dict[str, list[pa.RecordBatch]] = {query.name: [] for query in plan.app.queries}

    def keep(answer: Answer) -> None:
        for query in plan.app.queries:
            batch = answer.changes.get(query.name)
            if batch is not None and len(batch):
                table = decode(batch, query.schema, run.pipeline.dictionary, plan.app.time)
                parts[query.name] += table.to_batches()

    run = LocalRun(plan, Options(app.parent), on_answer=keep)
    run.run()
    upto = run.pipeline.upto
    return {
        name: LinkPiece(pa.concat_batches(all_) if all_ else None, BEGIN, upto, True)
        for name, all_ in parts.items()
    }


def node(app: Path, inputs: dict[str, LinkPiece]) -> Answers:
    """All that a node puts out."""
    links = {stream: Neighbour("any", "any", stream, ("127.0.0.1:1",)) for stream in inputs}
    work = AppWork(load_plan(app), app.parent, tuple(links.values()))
    for stream, piece in inputs.items():
        if piece.batch is not None:
            work.accept(links[stream], piece.batch.schema)
    result = work.process(list(inputs.items()))
    return {name: LinkPiece(result.answers.get(name), BEGIN, result.upto, True) for name in work.schemas}


def csv(piece: LinkPiece, schema: pa.Schema, path: Path) -> str:
    """The text of the file that a sink writes."""
    sink = CsvSink(path, schema)
    if piece.batch is not None:
        sink.write(pa.Table.from_batches([piece.batch]))
    sink.close()
    return path.read_text()
