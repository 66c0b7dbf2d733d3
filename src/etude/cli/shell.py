"""`etude shell SOURCE`: a prompt on a session, with history and completion; with `--sql` a prompt for queries."""

from __future__ import annotations

import argparse
import ast
import codeop
import contextlib
import sys
from typing import TYPE_CHECKING

from etude.cli.printable import printable
from etude.cli.progress import Progress
from etude.cli.py import add_py_network_argument, print_py_cell_end, print_py_cell_output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etude.runtime.notebook import Notebook

PREAMBLE = "import etude\ndb = etude.connect()"
EXAMPLES = ("etude shell shop.duckdb", "etude shell shop.duckdb --sql")
_EXIT_WORDS = ("exit", "exit()", "quit", "quit()")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("--isolation", type=int, choices=(2, 3), default=2, help="the least isolation to accept (2)")
    parser.add_argument("--sql", action="store_true", help="a prompt for SQL instead of Python")
    add_py_network_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Read cells and run them until the end of input."""
    from etude.app import App
    from etude.cli.options import open_app_for
    from etude.cli.sql_prompt import prompt_sql

    if options.sql:
        with open_app_for(options.source) as app:
            prompt_sql(app, options.source)
        return
    with contextlib.ExitStack() as stack:
        app = stack.enter_context(App())
        with Progress(f"opening {options.source}") as progress:
            app.pool.on_load = progress
            opened = app.open_session(options.source, isolation=options.isolation, network=options.network)
            session = stack.enter_context(opened)
            session.execute(PREAMBLE)
        level = session.isolation["level"]
        sys.stdout.write(
            f"Python on `{printable(options.source)}` as `db`, isolated at level {level}. Ctrl-D ends it.\n"
        )
        with _line_editing(session, app.settings.home / "shell_history"):
            while (code := _read_cell()) is not None and code.strip() not in _EXIT_WORDS:
                _run_cell(session, code)


def _run_cell(session: Notebook, code: str) -> None:
    if not code.strip():
        return
    with _interrupting(session):
        print_py_cell_end(session.execute(code, on_output=print_py_cell_output))
        if not session.alive:
            session.execute(PREAMBLE)  # the new session needs `db` as well


@contextlib.contextmanager
def _interrupting(session: Notebook) -> Iterator[None]:
    """Make Ctrl-C stop the running cell instead of this program."""
    import signal

    before = signal.signal(signal.SIGINT, lambda *_: session.interrupt())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _read_cell() -> str | None:
    """Read lines until they form a complete statement; None at the end of input."""
    lines: list[str] = []
    compiles = codeop.CommandCompiler()
    compiles.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as a session does
    while True:
        try:
            lines.append(input("... " if lines else ">>> "))
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            return ""
        text = "\n".join(lines)
        try:
            if compiles(text) is not None:
                return text
        except (SyntaxError, ValueError, OverflowError):
            return text  # the session reports the error


@contextlib.contextmanager
def _line_editing(session: Notebook, history: Path) -> Iterator[None]:
    try:
        import readline
    except ImportError:
        yield
        return
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            with _interrupting(session):
                found[:] = session.complete(text)
        return found[state] if state < len(found) else None

    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(history)
