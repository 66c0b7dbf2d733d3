"""The command line: a table of commands, each in a module that is imported only when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import NoReturn

from etude import __version__

COMMANDS = {
    "ask": "ask a question in words and see how it is answered",
    "chat": "a conversation about a source",
    "threads": "list, show, fork, export and delete conversations",
    "sql": "run a query on a source",
    "plan": "run a QueryPlan, a query as typed JSON",
    "py": "run Python in a sandboxed session on a source",
    "shell": "a Python prompt on a source, in a sandboxed session",
    "catalog": "profile a source and keep its catalog: pages, scripts, what changed",
    "sources": "add, list, show and remove named sources",
    "runs": "list, show and export recorded runs",
    "agents": "create, watch, steer, pause and end durable agents",
    "worker": "run the agents of the store, beside other workers",
    "serve": "serve the HTTP API, for people, programs and agents",
    "mcp": "serve an MCP client over standard input and output",
    "keys": "create, list and revoke keys of the server",
    "config": "print the effective settings and where each comes from",
    "check": "prove that a store, a source, a sandbox or a model keeps its promises",
    "demo": "create a small shop, ask it, query it, and show what was recorded",
}


class Parser(argparse.ArgumentParser):
    """A parser whose complaints look like every other error of etude."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments and leave with exit code 2."""
        self.print_usage(sys.stderr)
        sys.stderr.write(f"error: {_shown(message)}\n  hint: `{self.prog} --help` shows what can be given.\n")
        raise SystemExit(2)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    raise SystemExit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run a command; errors become a message and an exit code, never a traceback."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        sys.stdout.write(f"etude {__version__}\n")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `etude {near[0]}`?" if near else "`etude --help` lists the commands."
        sys.stderr.write(f"error: There is no command `{_shown(name)}`.\n  hint: {hint}\n")
        return 2
    return _run_command(name, arguments[1:])


def make_parser(name: str) -> Parser:
    """The parser of a command."""
    parser = Parser(prog=f"etude {name}", description=COMMANDS[name].capitalize() + ".")
    import_module(f"etude.cli.{name}").add_arguments(parser)
    return parser


def _run_command(name: str, arguments: list[str]) -> int:
    from etude.errors import Cancelled, EtudeError

    options = argparse.Namespace()
    try:
        # Arrow's own allocator keeps tens of megabytes of what a result needed; a command gains nothing by that.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        module = import_module(f"etude.cli.{name}")
        make_parser(name).parse_args(arguments, options)
        code: int = module.run(options) or 0
        sys.stdout.flush()
        return code
    except EtudeError as error:
        return report(error, options)
    except KeyboardInterrupt:
        return report(Cancelled("Cancelled."), options)
    except BrokenPipeError:
        # The reader of our output left, as `head` does: no error, and nothing more to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("ETUDE_DEBUG"):
            raise
        return report(error, options)


def report(error: BaseException, options: argparse.Namespace) -> int:
    """Say what went wrong on standard error; the exit code for it."""
    from etude.errors import EtudeError, problem

    body = problem(error)
    if getattr(options, "format", "") == "json" or getattr(options, "json", False):
        import json

        sys.stderr.write(json.dumps(body) + "\n")
    else:
        place = f" (line {body['line']}" if "line" in body else ""
        place += f", column {body['column']})" if "column" in body else ")" if place else ""
        sys.stderr.write(f"error: {_shown(body['detail'])}{place}\n")
        if body.get("hint"):
            sys.stderr.write(f"  hint: {_shown(body['hint'])}\n")
        if not isinstance(error, EtudeError):
            sys.stderr.write("  Set ETUDE_DEBUG=1 to see where it happened.\n")
    return error.exit_code if isinstance(error, EtudeError) else 1


def _shown(text: str) -> str:
    from etude.cli.output import printable

    return printable(text)


def overview() -> str:
    """The help of the command itself."""
    width = max(map(len, COMMANDS)) + 2
    lines = "".join(f"  {name:<{width}}{text}\n" for name, text in COMMANDS.items())
    return (
        "usage: etude COMMAND ...\n\n"
        "A platform for data agents that practise: query your data safely, keep every run.\n\n"
        f"commands:\n{lines}\n"
        "A SOURCE is a name, a path (file, folder or glob) or a URL.\n"
        "`etude COMMAND --help` tells more. Settings: etude.toml or ETUDE_* variables; `etude config` shows them.\n"
    )
