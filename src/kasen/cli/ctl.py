"""`kasen ctl`: looks at a running pipeline and changes its queries, through its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kasen.errors import DataError

app = typer.Typer(help="Look at a running pipeline and change its queries.", no_args_is_help=True)

Socket = Annotated[
    Path,
    typer.Option("--socket", help="The socket that `kasen run --control` listens at.", envvar="KASEN_SOCKET"),
]
Text = Annotated[Path, typer.Argument(help="A file with CQL.", metavar="FILE.cql")]
Name = Annotated[str, typer.Argument(help="A query's name.")]

_COLUMNS = ("query", "since", "rows in/s", "rows out/s", "rows out", "delay", "state bytes", "shared with")


@app.command()
def ps(socket: Socket) -> None:
    """The live queries: since when, what they hear and say, how far behind they are, what they remember."""
    found = _ask(socket, {"verb": "ps"})
    rows = [_COLUMNS, *([str(one[column]) for column in _COLUMNS] for one in found["queries"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


@app.command()
def register(file: Text, socket: Socket) -> None:
    """Give a running pipeline the statements of a file: REGISTER, REPLACE, DROP, PREPARE, ACTIVATE."""
    _change(socket, _read(file))


@app.command()
def replace(file: Text, socket: Socket) -> None:
    """The same as register; the file says REPLACE QUERY."""
    _change(socket, _read(file))


@app.command()
def drop(
    query: Name,
    socket: Socket,
    cascade: Annotated[bool, typer.Option(help="Also those who read it.")] = False,
) -> None:
    """Drop a query."""
    quoted = query.replace('"', '""')
    _change(socket, f'DROP QUERY "{quoted}"{" CASCADE" if cascade else ""}')


@app.command()
def tail(query: Name, socket: Socket) -> None:
    """Follow the rows of a query, from now on."""
    from kasen.runtime.control.socket import ask

    answers = ask(socket, {"verb": "tail", "query": query})
    _checked(next(answers, {"error": "the pipeline has ended"}))
    for row in answers:
        typer.echo(row["row"])


@app.command()
def explain(query: Name, socket: Socket) -> None:
    """The steps of a query, since when each remembers, and the configuration tuples that set them up."""
    typer.echo(_ask(socket, {"verb": "explain", "query": query})["text"])


def _read(file: Path) -> str:
    if not file.is_file():
        raise DataError(f"no file {str(file)!r}")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(f"{file}:{line} is not a text in UTF-8: save it in that encoding") from None


def _change(socket: Path, text: str) -> None:
    for line in _ask(socket, {"verb": "execute", "text": text})["done"]:
        typer.echo(line)


def _ask(socket: Path, body: dict[str, Any]) -> dict[str, Any]:
    from kasen.runtime.control.socket import ask

    return _checked(next(ask(socket, body), {"error": "the pipeline has ended"}))


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise DataError(str(answer["error"]).removeprefix("error: "))
    found: dict[str, Any] = answer["ok"]
    return found
