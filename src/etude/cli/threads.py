"""`etude threads`: conversations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from etude.cli.output import print_output_table, replace_output_file
from etude.cli.printable import printable_lines

if TYPE_CHECKING:
    from etude.app import App

EXAMPLES = (
    "etude threads list",
    "etude threads show thread_...",
    "etude threads fork thread_... --at 2",
    "etude threads export thread_... --output talk.json",
    "etude threads script thread_... --output talk.py",
    "etude threads delete thread_...",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list the latest conversations")
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="how many (20)")
    show = commands.add_parser("show", help="show the messages")
    show.add_argument("thread")
    fork = commands.add_parser("fork", help="copy a conversation to continue it differently")
    fork.add_argument("thread")
    fork.add_argument("--at", type=int, metavar="N", help="copy up to message N; all by default")
    export = commands.add_parser("export", help="print messages and runs as JSON")
    export.add_argument("thread")
    export.add_argument("--output", metavar="FILE", help="write here instead of standard output")
    script = commands.add_parser("script", help="print the cells and queries as a Python file that runs alone")
    script.add_argument("thread")
    script.add_argument("--output", metavar="FILE", help="write here instead of standard output")
    delete = commands.add_parser("delete", help="delete a conversation; its runs stay")
    delete.add_argument("thread")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from etude.app import App

    with App() as app:
        commands = {"list": _list, "show": _show, "fork": _fork, "export": _export, "script": _script}
        (commands | {"delete": _delete})[options.command](app, options)


def _list(app: App, options: argparse.Namespace) -> None:
    threads = app.store.threads(limit=options.limit).items
    rows = [(t.id, t.source or "", t.updated_at.isoformat(" ", "seconds")[:19], t.title) for t in threads]
    print_output_table(["thread", "source", "updated", "title"], rows, sys.stdout)


def _show(app: App, options: argparse.Namespace) -> None:
    for message in app.store.messages(options.thread):
        run = f"  ({message.run_id})" if message.run_id else ""
        sys.stdout.write(f"{message.seq} {message.role}{run}\n{printable_lines(message.text)}\n\n")


def _fork(app: App, options: argparse.Namespace) -> None:
    from etude.runtime.thread import fork_thread

    sys.stdout.write(fork_thread(app.store, options.thread, options.at).id + "\n")


def _export(app: App, options: argparse.Namespace) -> None:
    from etude.runtime.thread import write_thread

    parts = write_thread(app.store, app.store.thread(options.thread))
    if options.output:
        with replace_output_file(Path(options.output)) as file:
            file.writelines(part.encode() for part in parts)
            file.write(b"\n")
    else:
        sys.stdout.writelines(parts)
        sys.stdout.write("\n")


def _script(app: App, options: argparse.Namespace) -> None:
    text = app.thread_script(options.thread)
    if options.output:
        with replace_output_file(Path(options.output)) as file:
            file.write(text.encode())
    else:
        sys.stdout.write(text)


def _delete(app: App, options: argparse.Namespace) -> None:
    app.store.delete_thread(options.thread)
