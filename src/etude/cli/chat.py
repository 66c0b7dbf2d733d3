"""`etude chat SOURCE`: a conversation, one line at a time."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from etude.cli.ask import AskSteps, ask_question, print_asked_answer, print_similar_questions
from etude.cli.options import open_app_for, progress_delay
from etude.cli.output import write_result_output
from etude.cli.printable import printable
from etude.cli.progress import Progress
from etude.cli.sql_prompt import EXIT, PromptCommands, prompt_options, read_prompt_line

if TYPE_CHECKING:
    from etude.app import App

ABOUT = "Ask in plain words, one question per line. `SQL: ...` runs SQL, `PYTHON: ...` runs Python in a session."
EXAMPLES = (
    "etude chat shop.duckdb",
    "etude chat sales.csv --model openai:gpt-5",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("--model", help="the model: `offline` (rules only) or for example `openai:gpt-5`")
    parser.add_argument("--thread", metavar="T", help="the conversation to continue")


def run(options: argparse.Namespace) -> None:
    """Read questions and answer them until the end of input."""
    with open_app_for(options.source) as app:
        with Progress(f"opening {options.source}", patience_s=progress_delay(options.source)) as progress:
            app.source(options.source).mount(progress)
        name = options.model or app.settings.model
        about = printable(options.source)
        sys.stdout.write(
            f"`{name}` answers questions about `{about}`. `SQL: ...` runs SQL, `/help` says more, Ctrl-D ends it.\n"
        )
        _converse(app, options.source, options.model, options.thread)


def _converse(app: App, source: str, model: str | None, thread: str | None) -> None:
    import contextlib

    from etude.cli.main import report_main_error
    from etude.errors import EtudeError

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives `input` its line editing
    waiting: str | None = None
    commands = PromptCommands(app, source, ABOUT)
    while (text := read_prompt_line("… " if waiting else "? ")) is not None and text.strip().lower() not in EXIT:
        if not text.strip():
            continue
        try:
            if commands.run(text):
                continue
            steps = AskSteps(sys.stderr)
            with steps.progress:
                answer = ask_question(app, source, text, model, thread, waiting, steps)
            thread, waiting = answer.thread_id, answer.run_id if answer.question else None
            print_similar_questions(answer, sys.stderr)
            if commands.vertical and answer.result is not None:
                write_result_output(answer.result, prompt_options(commands))
            else:
                charts, said = app.settings.home / "charts", steps.said(answer)
                print_asked_answer(answer.require(), sys.stdout, charts, said=said, source=source, prompts=True)
        except EtudeError as error:
            report_main_error(error, argparse.Namespace())
        except KeyboardInterrupt:
            sys.stdout.write("\n")
