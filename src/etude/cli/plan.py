"""`etude plan SOURCE FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from etude.cli.options import add_query_options, limits_from_options, open_app_for, progress_delay
from etude.cli.output import chosen_output_format, write_result_output
from etude.cli.progress import Progress

EXAMPLES = ("etude plan shop.duckdb plan.json", "etude plan shop.duckdb plan.json --sql")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("file", help="the plan as JSON; - reads standard input")
    parser.add_argument("--sql", action="store_true", help="print the SQL that the plan compiles to, and stop")
    add_query_options(parser)


def run(options: argparse.Namespace) -> None:
    """Compile the plan, run it and print the result."""
    chosen_output_format(options)
    text = read_plan_text(options.file)
    with open_app_for(options.source, False if options.no_record else None) as app:
        with Progress("running the plan", patience_s=progress_delay(options.source)) as progress:
            app.pool.on_load = progress
            if options.sql:
                compiled = app.compile(options.source, text)[1]
                progress.stop()
                sys.stdout.write(compiled + "\n")
                return
            result = app.plan(options.source, text, limits=limits_from_options(app, options), on_progress=progress)
        write_result_output(result, options)


def read_plan_text(name: str) -> str:
    """Return the text of a file; of standard input for `-`."""
    from etude.errors import Invalid, NotFound

    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"Cannot read `{name}`: {error.strerror}.", hint="Check the path.") from None
    except UnicodeDecodeError:
        raise Invalid(f"`{name}` is not text in UTF-8.", hint="A plan is a JSON file.") from None
