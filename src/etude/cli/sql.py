"""`etude sql SOURCE QUERY`."""

from __future__ import annotations

import argparse
import sys

from etude.cli.options import add_query_arguments, limits_of, open_app, read_files, start_engine
from etude.cli.output import chosen_format, write_result
from etude.cli.plain_sql import run_short
from etude.cli.progress import Progress
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
        with Progress("running the query") as progress:
            result = run_short(options, query, engine, progress) if engine is not None else None
        if result is None:
            run_long(options, query, engine)
        else:
            write_result(result, options)
    finally:
        if engine is not None:
            engine.kill()


def run_long(options: argparse.Namespace, query: str, engine: EngineClient | None) -> None:
    """Run the query in an app, with all settings, and print the result."""
    with open_app(options.source, False if options.no_record else None, engine) as app:
        with Progress("running the query") as progress:
            read_files(app, options, progress)
            result = app.sql(options.source, query, limits=limits_of(app, options), on_progress=progress)
        write_result(result, options)
