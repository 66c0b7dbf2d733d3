"""Options that several commands share, and what they set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from etude.cli.output import FORMATS

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Limits


def add_query_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that runs a query."""
    parser.add_argument("--format", choices=FORMATS, help="how to print the result (table)")
    parser.add_argument("--output", metavar="FILE", help="write the result to this file; its extension sets the format")
    parser.add_argument("--limit-rows", type=int, metavar="N", help="only the first N rows; 0 for all, however many")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop the query after S seconds")
    parser.add_argument("--no-record", action="store_true", help="do not record the run")


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
        changes |= {"limit": options.limit_rows} if options.limit_rows else {"rows": 0, "bytes": 0}
    if options.timeout is not None:
        changes["timeout_s"] = options.timeout
    return change_limits(app.settings.limits, changes)
