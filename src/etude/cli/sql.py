"""`etude sql SOURCE QUERY`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from etude.cli.options import (
    add_query_options,
    limits_from_options,
    open_app_for,
    progress_delay,
    read_source_files,
    start_engine_for,
)
from etude.cli.output import chosen_output_format, write_result_output
from etude.cli.plain_sql import run_plain_sql
from etude.cli.progress import Progress

if TYPE_CHECKING:
    from etude.result import Result
    from etude.sources.engine_client import EngineClient
    from etude.sources.query_parameters import Params

EXAMPLES = (
    'etude sql shop.duckdb "SELECT country, count(*) FROM customers GROUP BY ALL"',
    "etude sql sales.csv - < report.sql",
    'etude sql shop.duckdb "FROM orders" --output orders.parquet',
    'etude sql shop.duckdb "FROM orders" --vertical',
    'etude sql shop.duckdb "FROM orders WHERE status = ?" --param open',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("query", help="the SQL, in the source's own dialect; - reads standard input")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="VALUE",
        help="a value for the next ? or $1 of the query, or NAME=VALUE for $NAME or :NAME; numbers, true, false and "
        "null are read as such, other values as text",
    )
    add_query_options(parser)


def read_sql_params(query: str, given: list[str]) -> Params | None:
    """Return the values of the parameters: by name if the query has these names, else in their order."""
    from etude.errors import Invalid

    names = [name for name, separator, _ in (text.partition("=") for text in given) if separator]
    named = [n for n in names if re.search(rf"[$:]{re.escape(n)}\b", query)]
    if not named:
        return [_read_value(text) for text in given] or None
    if len(named) < len(given):
        raise Invalid(
            "Some parameters have a name and some have none.", hint="Write --param NAME=VALUE for all of them."
        )
    return {name: _read_value(value) for name, _, value in (text.partition("=") for text in given)}


def _read_value(text: str) -> Any:
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    if re.fullmatch(r"[+-]?(0|[1-9]\d*)", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]?\d+)", text) else text


def run(options: argparse.Namespace) -> None:
    """Run the query and print the result."""
    chosen_output_format(options)
    query = sys.stdin.read() if options.query == "-" else options.query
    engine = start_engine_for(options.source)
    try:
        with Progress("running the query", patience_s=progress_delay(options.source)) as progress:
            result = run_plain_sql(options, query, engine, progress) if engine and not options.param else None
            if result is None:
                result = run_sql_in_app(options, query, engine, progress)
    finally:
        if engine is not None:
            engine.kill()  # it has the file open, and a pager may show the result for long
    write_result_output(result, options)


def run_sql_in_app(
    options: argparse.Namespace, query: str, engine: EngineClient | None, on_progress: Callable[[float], None]
) -> Result:
    """Run the query in an app, with all settings."""
    with open_app_for(options.source, False if options.no_record else None, engine) as app:
        read_source_files(app, options, on_progress)
        params = read_sql_params(query, options.param)
        return app.sql(options.source, query, params, limits=limits_from_options(app, options), on_progress=on_progress)
