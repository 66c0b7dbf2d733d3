"""`etude search SOURCE QUERY`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from etude.cli.options import parse_whole_number_option
from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.search.search_results import SearchHit

EXAMPLES = (
    'etude search shop.duckdb "warm clothes for winter"',
    'etude search shop.duckdb "where do customers live" --kinds table,column',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL; - searches all named sources")
    parser.add_argument("query", help="words, in any language")
    parser.add_argument("--kinds", metavar="A,B", help="only these: row, value, table, column, file, playbook, run")
    parser.add_argument("--tables", metavar="A,B", help="only in these tables")
    parser.add_argument(
        "--mode", choices=("hybrid", "vector", "text"), default="hybrid", help="how to compare (hybrid)"
    )
    parser.add_argument("-k", type=parse_whole_number_option, default=10, metavar="N", help="how many to show (10)")
    parser.add_argument("--offset", type=parse_whole_number_option, default=0, metavar="N", help="how many to skip")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Search and print the hits."""
    from etude.app import App
    from etude.cli.progress import Progress

    with App() as app, Progress("searching"):
        page = app.search(
            options.query,
            None if options.source == "-" else options.source,
            kinds=split_search_list(options.kinds),
            tables=split_search_list(options.tables),
            k=options.k,
            offset=options.offset,
            mode=options.mode,
        )
    if options.json:
        sys.stdout.write(page.model_dump_json() + "\n")
        return
    for number, hit in enumerate(page.hits, options.offset + 1):
        _print(number, hit)
    if not page.hits:
        sys.stdout.write("Nothing was found.\n")
    for note in page.notes:
        sys.stderr.write(f"note: {printable(note)}\n")


def split_search_list(text: str | None) -> list[str] | None:
    """Return the parts of a list that is written with commas; None if nothing was given."""
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def _print(number: int, hit: SearchHit) -> None:
    place = ".".join(part for part in (hit.table, hit.column) if part)
    key = ", ".join(f"{name} = {value}" for name, value in hit.key.items())
    head = " ".join(part for part in (hit.kind, place, f"({key})" if key else "") if part)
    parts = [
        f"words {hit.why.text.rank}" if hit.why.text else "",
        f"meaning {hit.why.vector.rank}" if hit.why.vector else "",
    ]
    why = ", ".join(part for part in parts if part)
    sys.stdout.write(f"{number:>3}  {printable(head)}  [{why}]\n")
    shown = _marked(hit) if sys.stdout.isatty() else _shown(hit.snippet)
    sys.stdout.write("".join(f"     {line}\n" for line in shown.split("\n")[:4] if line.strip()))


def _shown(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _marked(hit: SearchHit) -> str:
    """Return the snippet with its terms in bold."""
    parts, last = [], 0
    for start, end in hit.marks:
        parts += [_shown(hit.snippet[last:start]), f"\x1b[1m{_shown(hit.snippet[start:end])}\x1b[0m"]
        last = end
    return "".join([*parts, _shown(hit.snippet[last:])])
