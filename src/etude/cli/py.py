"""`etude py SOURCE FILE`."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tokenize
from pathlib import Path
from typing import IO, TYPE_CHECKING

from etude.cli.printable import printable
from etude.cli.progress import Progress

if TYPE_CHECKING:
    from etude.sessions.base import Cell, Output

_CONTROL = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control sequences of a terminal: colours, which are allowed, and all others."""
EXAMPLES = (
    "etude py shop.duckdb analysis.py",
    "echo \"import etude; print(etude.connect().sql('SELECT 1').rows())\" | etude py shop.duckdb -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("file", help="the Python file; - reads standard input")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop the code after S seconds")
    parser.add_argument("--isolation", type=int, choices=(2, 3), default=2, help="the least isolation to accept (2)")
    add_py_network_argument(parser)
    parser.add_argument("--no-record", action="store_true", help="do not record the run")
    parser.add_argument("--json", action="store_true", help="print the cell as JSON instead of its output")


def add_py_network_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that allows network access."""
    parser.add_argument(
        "--network",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="an address that the code may connect to, none by default; can be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Run the code in a session on the source; exit with 1 if it failed."""
    from etude.app import App
    from etude.runtime.notebook import describe_notebook_cell

    code = read_py_code(options.file)
    record = False if options.no_record else None
    with App(record=record) as app, Progress(f"opening {options.source}") as progress:
        app.pool.on_load = progress
        with app.open_session(options.source, isolation=options.isolation, network=options.network) as session:
            progress.restart(f"running {options.file}")

            def show(output: Output) -> None:
                progress.stop()  # the code shows by itself that it runs
                print_py_cell_output(output)

            cell = session.execute(code, wall_s=options.timeout, on_output=None if options.json else show)
    if options.json:
        sys.stdout.write(json.dumps(describe_notebook_cell(cell)) + "\n")
    else:
        print_py_cell_end(cell)
    return 0 if cell.ok else 1


def read_py_code(name: str) -> str:
    """Return the code of a file, or of standard input for `-`, decoded as Python itself would decode it."""
    from etude.errors import Invalid, NotFound

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except OSError as error:
        raise NotFound(f"Cannot read `{name}`: {error.strerror}.", hint="Check the path.") from None
    except (SyntaxError, UnicodeDecodeError):
        raise Invalid(
            f"`{name}` is not text in UTF-8, and names no other encoding.",
            hint="Save it as UTF-8, or begin it with a line such as `# coding: latin-1`.",
        ) from None


def print_py_cell_output(output: Output) -> None:
    """Print a piece of output to standard output or standard error."""
    stream = sys.stdout if output.stream == "stdout" else sys.stderr
    _write(stream, output.text)
    stream.flush()


def _write(stream: IO[str], text: str) -> None:
    """Write text; escape control sequences on a terminal, because the text may contain data."""
    if stream.isatty():
        text = _CONTROL.sub(lambda found: found[0] if found[0].endswith("m") else printable(found[0]), text)
    stream.write(text)


def print_py_cell_end(cell: Cell) -> None:
    """Print the value of a cell or its error, and its notes."""
    if cell.ok and cell.text:
        _write(sys.stdout, cell.text + "\n")
    if cell.error:
        text = cell.error.get("traceback") or f"{cell.error.get('type')}: {cell.error.get('message')}"
        _write(sys.stderr, text.rstrip() + "\n")
        if cell.error.get("message") == "name 'db' is not defined":
            sys.stderr.write("  hint: `import etude; db = etude.connect()` connects to the source.\n")
    for note in cell.notes:
        _write(sys.stderr, f"note: {note}\n")
