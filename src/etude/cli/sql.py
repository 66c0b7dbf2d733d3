"""`etude sql SOURCE QUERY`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from etude.cli.options import add_query_arguments, limits_of, open_app, patience_for, read_files, start_engine
from etude.cli.output import chosen_format, write_result
from etude.cli.plain_sql import run_short
from etude.cli.progress import Progress

if TYPE_CHECKING:
    from etude.result import Result
    from etude.sources.pool import EngineClient

EXAMPLES = (
    'etude sql shop.duckdb "SELECT country, count(*) FROM customers GROUP BY ALL"',
    "etude sql sales.csv - < report.sql",
    'etude sql shop.duckdb "FROM orders" --output orders.parquet',
    'etude sql shop.duckdb "FROM orders" --vertical',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("query", help="the SQL, in the source's own dialect; - reads standard input")
    add_query_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Run the query and print the result."""
    chosen_format(options)
    query = sys.stdin.read() if options.query == "-" else options.query
    engine = start_engine(options.source)
    try:
        with Progress("running the query", patience_s=patience_for(options.source)) as progress:
            result = run_short(options, query, engine, progress) if engine is not None else None
            if result is None:
                result = run_long(options, query, engine, progress)
        write_result(result, options)
    finally:
        if engine is not None:
            engine.kill()


def run_long(
    options: argparse.Namespace, query: str, engine: EngineClient | None, on_progress: Callable[[float], None]
) -> Result:
    """Run the query in an app, with all settings."""
    with open_app(options.source, False if options.no_record else None, engine) as app:
        read_files(app, options, on_progress)
        return app.sql(options.source, query, limits=limits_of(app, options), on_progress=on_progress)
