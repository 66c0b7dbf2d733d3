"""`etude py SOURCE FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from etude.cli.plan import read_text

if TYPE_CHECKING:
    from etude.sessions.base import Cell, Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("file", help="the Python; - reads standard input")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop the code after S seconds")
    parser.add_argument("--isolation", type=int, choices=(2, 3), default=2, help="the least isolation to accept (2)")
    add_network(parser)
    parser.add_argument("--no-record", action="store_true", help="do not record the run")
    parser.add_argument("--json", action="store_true", help="print the cell as JSON instead of its output")


def add_network(parser: argparse.ArgumentParser) -> None:
    """The places that the code may connect to."""
    parser.add_argument(
        "--network",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a place that the code may connect to, none by default; can be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Run the code in a session on the source; exit code 1 where it failed."""
    from etude.app import App
    from etude.runtime.notebook import describe_cell

    code = read_text(options.file)
    record = False if options.no_record else None
    with (
        App(record=record) as app,
        app.open_session(options.source, isolation=options.isolation, network=options.network) as session,
    ):
        cell = session.execute(code, wall_s=options.timeout, on_output=None if options.json else print_output)
    if options.json:
        sys.stdout.write(json.dumps(describe_cell(cell)) + "\n")
    else:
        print_end(cell)
    return 0 if cell.ok else 1


def print_output(output: Output) -> None:
    """A piece of output where it belongs, as it comes."""
    stream = sys.stdout if output.stream == "stdout" else sys.stderr
    stream.write(output.text)
    stream.flush()


def print_end(cell: Cell) -> None:
    """The value of a cell, or why there is none."""
    if cell.ok and cell.text:
        sys.stdout.write(cell.text + "\n")
    if cell.error:
        text = cell.error.get("traceback") or f"{cell.error.get('type')}: {cell.error.get('message')}"
        sys.stderr.write(text.rstrip() + "\n")
    for note in cell.notes:
        sys.stderr.write(f"note: {note}\n")
