"""`etude chat SOURCE`: a conversation, one line at a time."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from etude.cli.ask import Steps, answer_question, print_answer

if TYPE_CHECKING:
    from etude.app import App


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("--model", help="the model: `offline` (rules only) or for example `openai:gpt-5`")
    parser.add_argument("--thread", metavar="T", help="the conversation to continue")


def run(options: argparse.Namespace) -> None:
    """Read questions and answer them until the end of input."""
    from etude.app import App

    with App() as app:
        app.pool.warm()
        app.source(options.source).mount()
        name = options.model or app.settings.model
        sys.stdout.write(f"`{name}` answers questions about `{options.source}`. `SQL: ...` runs SQL. Ctrl-D ends it.\n")
        _converse(app, options.source, options.model, options.thread)


def _converse(app: App, source: str, model: str | None, thread: str | None) -> None:
    import contextlib

    from etude.cli.main import report
    from etude.errors import EtudeError

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives `input` its line editing
    waiting: str | None = None
    while (text := _read_line("… " if waiting else "? ")) is not None:
        if not text.strip():
            continue
        try:
            answer = answer_question(app, source, text, model, thread, waiting, Steps(sys.stderr))
            thread, waiting = answer.thread_id, answer.run_id if answer.question else None
            print_answer(answer.require(), sys.stdout)
        except EtudeError as error:
            report(error, argparse.Namespace())
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def _read_line(prompt: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        sys.stdout.write("\n")
        return None
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return ""
