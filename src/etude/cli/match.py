"""`etude match SOURCE TABLE --like TEXT`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from etude.cli.options import parse_whole_number_option
from etude.cli.printable import printable
from etude.cli.search import split_search_list
from etude.errors import Invalid

if TYPE_CHECKING:
    from etude.search.search_results import MatchPage

EXAMPLES = (
    'etude match jobs.duckdb workers --where "state = \'IL\'" --like "drives a forklift"',
    "etude match jobs.duckdb workers --key id=17 --facets state",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("table", help="the table whose rows are compared")
    parser.add_argument("--like", metavar="TEXT", help="what the rows should be similar to")
    parser.add_argument("--key", metavar="COLUMN=VALUE", action="append", help="the row that they should be similar to")
    parser.add_argument("--where", metavar="SQL", help="a condition that every row passes, in the source's SQL")
    parser.add_argument("--columns", metavar="A,B", help="the columns to compare; text columns by default")
    parser.add_argument("--facets", metavar="A,B", help="count the values of these columns")
    parser.add_argument(
        "-k", type=parse_whole_number_option, default=10, metavar="N", help="how many rows to show (10)"
    )
    parser.add_argument(
        "--offset", type=parse_whole_number_option, default=0, metavar="N", help="how many rows to skip"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Print the rows, most similar first, each with the reason."""
    from etude.app import App
    from etude.cli.progress import Progress

    if (options.like is None) == (options.key is None):
        raise Invalid("Give either --like or --key.", hint='Such as --like "drives a forklift", or --key id=17.')
    like = options.like if options.like is not None else dict(_pair(text) for text in options.key)
    with App() as app, Progress("matching"):
        page = app.match(
            options.source,
            options.table,
            like,
            options.where,
            columns=split_search_list(options.columns) or (),
            k=options.k,
            offset=options.offset,
            facets=split_search_list(options.facets) or (),
        )
    if options.json:
        sys.stdout.write(page.model_dump_json() + "\n")
        return
    _print(page, options.offset)


def _pair(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise Invalid(f"`{text}` is not a key.", hint="Write COLUMN=VALUE.")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


def _print(page: MatchPage, offset: int) -> None:
    shown = f"{page.total:,} row{'' if page.total == 1 else 's'}"
    sys.stdout.write(f"{shown} in {printable(page.table)} pass the filter\n" if page.where else f"{shown}\n")
    for number, each in enumerate(page.rows, offset + 1):
        values = ", ".join(f"{name}={value}" for name, value in each.row.items() if value is not None)
        sys.stdout.write(f"{number:>3}  {printable(values)[:300]}\n     {printable(each.because)}\n")
    for name, values_ in page.facets.items():
        counts = ", ".join(f"{v.value} {v.count:,}" for v in values_[:10])
        sys.stdout.write(f"{printable(name)}: {printable(counts)}\n")
    for note in page.notes:
        sys.stderr.write(f"note: {printable(note)}\n")
