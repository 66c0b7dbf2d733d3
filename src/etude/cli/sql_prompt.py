"""A prompt for SQL, and the commands that every prompt on a source understands: `.tables`, `.schema`, `\\x`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from etude.cli.options import progress_delay
from etude.cli.output import print_output_table, write_result_output
from etude.cli.printable import printable
from etude.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etude.app import App

EXIT = frozenset({"exit", "quit", "exit()", "quit()", ".exit", ".quit", "/exit", "/quit", "\\q"})
HELP = frozenset({"help", "/help", ".help", "?", "\\?"})
HELP_TEXT = """.tables           list the tables
.schema [TABLE]   show the columns of all tables, or of one
\\x                show one line for each value, or a table again
exit, quit        end it; so does Ctrl-D
"""


class PromptCommands:
    """The commands of a prompt, and whether results are shown vertically."""

    def __init__(self, app: App, source: str, about: str) -> None:
        self._app = app
        self._source = source
        self._about = about
        self.vertical = False
        self.ends = False
        """Whether the person typed `exit`, perhaps below a last query without `;`."""

    def run(self, line: str) -> bool:
        """Run a line if it is a command; return whether it was one."""
        word, _, rest = line.strip().partition(" ")
        match word.lower().rstrip(";"):
            case found if found in HELP:
                sys.stdout.write(f"{self._about}\n{HELP_TEXT}")
            case ".tables" | "\\dt":
                self._print_tables()
            case ".schema" | "\\d":
                self._print_schema(rest.strip().rstrip(";"))
            case "\\x":
                self.vertical = not self.vertical
                sys.stdout.write(f"one line for each value: {'on' if self.vertical else 'off'}\n")
            case found if found.startswith((".", "\\", "/")) and len(found) > 1:
                sys.stdout.write(f"There is no command `{printable(word)}`; `/help` lists them.\n")
            case _:
                return False
        return True

    def _print_tables(self) -> None:
        tables = self._app.catalog(self._source).tables
        rows = [(t.name, t.kind, None if t.row_count is None else f"{t.row_count:,}", len(t.columns)) for t in tables]
        print_output_table(["table", "kind", "rows", "columns"], rows, sys.stdout, [False, False, True, True])

    def _print_schema(self, name: str) -> None:
        from etude.errors import NotFound

        tables = self._app.catalog(self._source).tables
        chosen = [t for t in tables if not name or t.name.lower() == name.strip('"`').lower()]
        if not chosen:
            raise NotFound(f"There is no table `{name}`.", hint="`.tables` lists the tables.")
        rows = [
            (t.name, c.name, c.type, "key" if c.name in t.primary_key else "" if c.nullable else "not null")
            for t in chosen
            for c in t.columns
        ]
        shown = 4 if any(row[-1] for row in rows) else 3
        print_output_table(["table", "column", "type", "key"][:shown], [row[:shown] for row in rows], sys.stdout)


def prompt_sql(app: App, source: str) -> None:
    """Read queries that end with `;` and run them, until the end of input."""
    from etude.cli.main import report_main_error
    from etude.errors import EtudeError

    commands = PromptCommands(app, source, "A query ends with `;` and may have several lines.")
    with Progress(f"opening {source}", patience_s=progress_delay(source)) as opening:
        app.source(source).mount(opening)
    sys.stdout.write(f"SQL on `{source}`. A query ends with `;`. `/help` lists commands, Ctrl-D ends it.\n")
    with prompt_history(app.settings.home / "sql_history"):
        while not commands.ends and (text := _read_query(commands)) is not None:
            try:
                if commands.run(text):
                    continue
                with Progress("running the query") as progress:
                    result = app.sql(source, text, on_progress=progress)
                write_result_output(result, prompt_options(commands))
            except EtudeError as error:
                report_main_error(error, argparse.Namespace())
            except KeyboardInterrupt:
                sys.stdout.write("\n")


def prompt_options(commands: PromptCommands) -> argparse.Namespace:
    """Return how a prompt shows results."""
    return argparse.Namespace(format=None, output=None, wide=False, vertical=commands.vertical)


def _read_query(commands: PromptCommands) -> str | None:
    """Read lines up to a `;` or a command; None at the end."""
    lines: list[str] = []
    while True:
        try:
            line = _input_line("sql> " if not lines else " ... ")
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            lines = []
            continue
        if line is None:
            # A last query without `;` runs as well if the input is a file; a person who leaves has not finished it.
            return "\n".join(lines) if "".join(lines).strip() and not sys.stdin.isatty() else None
        if line.strip().lower().rstrip(";") in EXIT:
            commands.ends = True
            return "\n".join(lines) if "".join(lines).strip() else None
        if not lines and (not line.strip() or line.strip()[0] in ".\\/?" or line.strip().lower() in HELP):
            if line.strip():
                return line
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            return "\n".join(lines)


def read_prompt_line(prompt: str) -> str | None:
    """Return a line, None at the end of input, or nothing after Ctrl-C."""
    try:
        return _input_line(prompt)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return ""


def _input_line(prompt: str) -> str | None:
    """Return a line, or None at the end of input."""
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except EOFError:
        sys.stdout.write("\n" if sys.stdin.isatty() else "")
        return None


@contextlib.contextmanager
def prompt_history(path: Path) -> Iterator[None]:
    """Give `input` line editing, and keep its history in a file."""
    readline: Any
    try:
        import readline
    except ImportError:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(path)
