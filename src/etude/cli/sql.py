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
    """Add the arguments of the command."""
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
    """Open an app; its first engine starts while this process is still loading."""
    from etude.app import App

    app = App(record=False if options.no_record else None)
    app.pool.warm()
    return app


def limits_of(app: App, options: argparse.Namespace) -> Limits:
    """Return the limits of the settings, overridden by those of the command line."""
    from etude.limits import change_limits

    changes: dict[str, Any] = {}
    if options.limit_rows is not None:
        changes["rows"] = options.limit_rows
        # No limit on rows also means no limit on bytes.
        if options.limit_rows == 0:
            changes["bytes"] = 0
    if options.timeout is not None:
        changes["timeout_s"] = options.timeout
    return change_limits(app.settings.limits, changes)
