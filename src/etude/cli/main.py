"""The command line: a table of commands, each in its own module that is imported only when it runs."""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from etude import __version__

COMMANDS = {
    "ask": "ask a question in plain words and see how it is answered",
    "chat": "hold a conversation about a source",
    "threads": "list, show, fork, export and delete conversations",
    "sql": "run a query on a source",
    "plan": "run a QueryPlan, a query as typed JSON",
    "py": "run Python in a sandboxed session on a source",
    "shell": "open a Python or SQL prompt on a source",
    "catalog": "profile a source and store its catalog: pages, scripts, what changed",
    "index": "index a source for search, or bring its index up to date",
    "search": "find rows, tables, columns, documents and past questions by words and by meaning",
    "match": "find rows that pass a filter, most similar first to a text or to another row",
    "sources": "add, list, show and remove named sources",
    "runs": "list, show, export, replay and compare recorded runs, their results and their scripts",
    "agents": "create, watch, steer, pause and end durable agents",
    "log": "report what worked or failed, for others to learn from",
    "observe": "watch operations: failures grouped, diagnosed and explained",
    "playbooks": "list, add, pin and retire lessons, each with its measured effect",
    "learn": "improve code by edits that its tests prove, and take back what turns bad",
    "worker": "run the agents of the store, next to other workers",
    "serve": "serve the HTTP API, for people, programs and agents",
    "mcp": "serve an MCP client over standard input and output",
    "actions": "list, show, cancel and retry actions in the queue of agents",
    "events": "print the events of agents, and follow them",
    "status": "show the health of the installation, and exit with 1 if something is wrong",
    "prune": "delete what is past its retention period",
    "backup": "copy store, results and catalogs to a folder or a bucket",
    "restore": "make a new store from a backup",
    "migrate": "bring the store to the schema of this version",
    "keys": "create, list and revoke keys of the server",
    "config": "print the effective settings and where each comes from",
    "eval": "ask questions with known answers, and measure precision, coverage, time and cost",
    "check": "check that a store, a source, a sandbox or a model works as required",
    "init": "write a commented etude.toml for the data files in this folder",
    "completion": "print a script that completes commands in bash, zsh or fish",
    "demo": "create a small shop, ask it, query it, and show what was recorded",
}


WITHOUT_NUMPY = frozenset({"sql", "plan", "ask", "chat", "sources", "runs", "threads"})
"""Commands that use Arrow but neither numpy nor pandas."""
PROMPTS = frozenset({"chat", "shell"})
"""Commands in which Ctrl-C ends one answer or query, not the command."""


TEXT_LAST = frozenset({"etude ask", "etude sql", "etude search"})
"""Commands whose last argument is a text."""


_HOME_HINT = "Check the path; ETUDE_HOME names the folder where etude keeps its files, and must be a folder."
_OF_THE_MACHINE = {
    errno.ENOSPC: "Free space on that disk, or write to another one.",
    errno.EDQUOT: "Free space, or write to another disk.",
    errno.EFBIG: "The shell or the file system limits the size of files; see `ulimit -f`.",
    errno.EROFS: _HOME_HINT,
    errno.EACCES: _HOME_HINT,
    errno.EPERM: _HOME_HINT,
    errno.ENOTDIR: _HOME_HINT,
    errno.EEXIST: _HOME_HINT,
}
"""Errors that are not defects of etude, and what to do about them."""


class MainParser(argparse.ArgumentParser):
    """A parser whose errors look like all other errors of etude."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the arguments and exit with 2."""
        self.print_usage(sys.stderr)
        hint = f"`{self.prog} --help` shows what can be given."
        if self.prog in TEXT_LAST and message.startswith("unrecognized arguments: "):
            hint = "Put a question or a query of several words in quotes."
        sys.stderr.write(f"error: {_shown(message)}\n  hint: {hint}\n")
        raise SystemExit(2)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in WITHOUT_NUMPY:
        from etude.lean_imports import import_without_numpy

        import_without_numpy()
    # Loading libraries makes many objects that live until the end; searching them for cycles takes time and frees none.
    gc.set_threshold(50_000)
    raise SystemExit(run_command(arguments))


OTHER_NAMES = {
    **dict.fromkeys(
        ("profile", "describe", "summarize"),
        "`etude catalog SOURCE` profiles a source; `etude sources show SOURCE` lists its columns.",
    ),
    **dict.fromkeys(("tables", "schema", "columns"), "`etude sources show SOURCE` lists tables and columns."),
    **dict.fromkeys(("query", "select"), '`etude sql SOURCE "SELECT ..."` runs a query.'),
    **dict.fromkeys(
        ("import", "load", "connect"), "`etude sources add NAME PATH` names a source; a path works without that."
    ),
}
"""Hints for commands that other programs have."""


def run_command(arguments: list[str]) -> int:
    """Run a command and return its exit code; print errors as messages, never as tracebacks."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(commands_overview())
        return 0
    if arguments[0] == "help":
        # `etude help` is `etude --help`, and `etude help sql` is `etude sql --help`.
        return run_command([*arguments[1:2], "--help"])
    if arguments[0] in ("-V", "--version", "version"):
        sys.stdout.write(f"etude {__version__}\n")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `etude {near[0]}`?" if near else "`etude --help` lists the commands."
        hint = OTHER_NAMES.get(name.lower(), hint)
        sys.stderr.write(f"error: There is no command `{_shown(name)}`.\n  hint: {hint}\n")
        return 2
    return _run_command(name, arguments[1:])


def make_main_parser(name: str) -> MainParser:
    """Return the parser of a command."""
    text = COMMANDS[name][0].upper() + COMMANDS[name][1:] + "."
    parser = MainParser(prog=f"etude {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_main_command(parser, name)
    return parser


def add_main_command(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments of a command and its examples; each verb of it shows the examples that use it."""
    module = import_module(f"etude.cli.{name}")
    module.add_arguments(parser)
    parser.epilog = _examples(module.EXAMPLES)
    verbs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for verb, each in (item for action in verbs for item in action.choices.items()):
        each.formatter_class = argparse.RawDescriptionHelpFormatter
        each.epilog = _examples([e for e in module.EXAMPLES if e.startswith(f"etude {name} {verb}")])


def _examples(lines: Sequence[str]) -> str:
    title = "example" if len(lines) == 1 else "examples"
    return f"{title}:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _cancelled(name: str) -> Exception:
    """Return the error for Ctrl-C, in the words of the command if it has its own."""
    from etude.errors import Cancelled

    said = getattr(sys.modules.get(f"etude.cli.{name}"), "CANCELLED", f"`etude {name}` was cancelled.")
    return Cancelled(said)


def _run_command(name: str, arguments: list[str]) -> int:
    from etude.errors import Cancelled, EtudeError

    options = argparse.Namespace()
    interrupts: list[int] = []
    try:
        _note_interrupts(interrupts)
        # Arrow's own allocator keeps tens of megabytes for reuse, which does not help a command that exits.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        module = import_module(f"etude.cli.{name}")
        make_main_parser(name).parse_args(arguments, options)
        code: int = module.run(options) or 0
        sys.stdout.flush()
        return code
    except EtudeError as error:
        # Ctrl-C may surface as the failure of whatever it stopped, such as a script of a catalog.
        if interrupts and name not in PROMPTS and not isinstance(error, Cancelled):
            return report_main_error(_cancelled(name), options)
        return report_main_error(error, options)
    except KeyboardInterrupt:
        return report_main_error(_cancelled(name), options)
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does. That is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("ETUDE_DEBUG"):
            raise
        return report_main_error(_explained(error), options)
    finally:
        _note_interrupts(None)


def _explained(error: Exception) -> Exception:
    """Return the error of a disk or a folder as an error with the reason; any other error as it is."""
    from etude.errors import Unavailable

    if isinstance(error, FileNotFoundError) and _is_at_home(error.filename):
        # No folder can be made there, as in /proc.
        return Unavailable(f"`{error.filename}` cannot be written: {error.strerror}.", hint=_HOME_HINT)
    if not isinstance(error, OSError) or error.errno not in _OF_THE_MACHINE:
        return error
    place = f"`{error.filename}`" if isinstance(error.filename, str) else "The output"
    if error.filename is None:
        # The rest of the buffer cannot be written either, and would fail again at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Unavailable(f"{place} cannot be written: {error.strerror}.", hint=_OF_THE_MACHINE[error.errno])


def _is_at_home(path: object) -> bool:
    """Return whether a path is the folder where etude keeps its files, or above or below it."""
    from pathlib import Path

    from etude.defaults import default_home

    if not isinstance(path, str):
        return False
    home, given = Path(os.environ.get("ETUDE_HOME") or default_home()).absolute(), Path(path).absolute()
    return given.is_relative_to(home) or home.is_relative_to(given)


def _note_interrupts(seen: list[int] | None) -> None:
    """Add every Ctrl-C to a list before it raises KeyboardInterrupt; None stops that."""

    def note(number: int, frame: object) -> None:
        if seen is not None:
            seen.append(number)
        raise KeyboardInterrupt

    # Only the main thread may set a handler; elsewhere no signal arrives. A handler of someone else stays.
    with contextlib.suppress(ValueError):
        if seen is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, note)
        elif seen is None and getattr(signal.getsignal(signal.SIGINT), "__name__", "") == note.__name__:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def report_main_error(error: BaseException, options: argparse.Namespace) -> int:
    """Print an error on standard error and return its exit code."""
    from etude.errors import as_etude_error, problem

    known = as_etude_error(error)
    body = problem(known)
    if getattr(options, "format", "") == "json" or getattr(options, "json", False):
        import json

        sys.stderr.write(json.dumps(body) + "\n")
    else:
        place = f" (line {body['line']}" if "line" in body else ""
        place += f", column {body['column']})" if "column" in body else ")" if place else ""
        sys.stderr.write(f"error: {_shown(body['detail'])}{place}\n")
        if body.get("hint"):
            sys.stderr.write(f"  hint: {_shown(body['hint'])}\n")
        if known.code == "internal":
            sys.stderr.write("  Set ETUDE_DEBUG=1 to see where it happened.\n")
    return known.exit_code


def _shown(text: str) -> str:
    from etude.cli.printable import printable

    return printable(text)


def commands_overview() -> str:
    """Return the help text of `etude` itself."""
    width = max(map(len, COMMANDS)) + 2
    lines = "".join(f"  {name:<{width}}{text}\n" for name, text in COMMANDS.items())
    return (
        "usage: etude COMMAND ...\n\n"
        "A platform for data agents that practise: query your data safely and record every run.\n\n"
        f"commands:\n{lines}\n"
        "A SOURCE is a name, a path (file, folder or glob) or a URL.\n"
        "`etude COMMAND --help` says more. Settings: etude.toml or ETUDE_* variables; `etude config` shows them.\n"
    )
