"""`etude sql SOURCE QUERY`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from etude.cli.output import add_query_arguments, chosen_format, progress, write_result

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("query", help="the SQL, in the source's own dialect; - reads standard input")
    add_query_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Run the query and print the result."""
    chosen_format(options)
    query = sys.stdin.read() if options.query == "-" else options.query
    with open_app(options) as app, progress("running") as on_progress:
        result = app.sql(options.source, query, limits=limits_of(app, options), on_progress=on_progress)
        write_result(result, options)


def open_app(options: argparse.Namespace) -> App:
    """An app whose first engine starts while the rest of this process loads."""
    from etude.app import App

    app = App(record=False if options.no_record else None)
    app.pool.warm()
    return app


def limits_of(app: App, options: argparse.Namespace) -> Limits:
    """The settings' limits with those of the command line over them."""
    from etude.limits import change_limits

    changes: dict[str, Any] = {}
    if options.limit_rows is not None:
        changes["rows"] = options.limit_rows
        # Who asks for a number of rows means rows: the cap on bytes steps back where there is no limit at all.
        if options.limit_rows == 0:
            changes["bytes"] = 0
    if options.timeout is not None:
        changes["timeout_s"] = options.timeout
    return change_limits(app.settings.limits, changes)
