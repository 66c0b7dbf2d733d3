"""`etude sql SOURCE QUERY`."""

from __future__ import annotations

import argparse
import sys

from etude.cli.options import add_query_arguments, limits_of, open_app, read_files
from etude.cli.output import chosen_format, write_result
from etude.cli.progress import Progress

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
    with open_app(options.source, False if options.no_record else None) as app:
        with Progress("running the query") as progress:
            read_files(app, options, progress)
            result = app.sql(options.source, query, limits=limits_of(app, options), on_progress=progress)
        write_result(result, options)
