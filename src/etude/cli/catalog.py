"""`etude catalog SOURCE`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import IO, TYPE_CHECKING

from etude.cli.table import printable
from etude.errors import Invalid

if TYPE_CHECKING:
    from etude.catalog.workflow import CatalogResult

SHOWN = 10
WIDTH = 100
EXAMPLES = (
    "etude catalog shop.duckdb",
    "etude catalog shop.duckdb --tables orders,customers",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", nargs="?", help="a name, a path or a URL")
    parser.add_argument("--db-conn", metavar="SOURCE", help="the source, given as an option")
    parser.add_argument("--tables", metavar="A,B", help="only these tables; all by default")
    parser.add_argument("--store", metavar="URL", help="where to store it: a folder, s3://bucket, gs://, az://")
    parser.add_argument(
        "--prefix", "--s3-prefix", metavar="P", help="the path below the store; the name of the source by default"
    )
    parser.add_argument(
        "--model", help="the model that improves the script if something failed or changed; none by default"
    )
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON")


def run(options: argparse.Namespace) -> int:
    """Create the catalog and show the progress on standard error; exit with 1 if a table failed."""
    from etude.app import App, require_source

    if options.source and options.db_conn:
        raise Invalid("The source is given twice.", hint="Leave out --db-conn.")
    import os

    source = require_source(options.source or options.db_conn, os.environ)
    tables = [name.strip() for name in options.tables.split(",") if name.strip()] if options.tables else None
    store, prefix = split_place(options.store or "", options.prefix or "")
    with App() as app, _Progress(sys.stderr) as show:
        app.pool.warm()
        made = app.cataloger.run(
            source, tables=tables, store=store, prefix=prefix, model=options.model, on_progress=show.line
        )
    if options.json:
        body = {"run_id": made.run_id, "url": made.url} | made.metrics.model_dump(mode="json")
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        print_catalog(made, sys.stdout)
    return 1 if made.metrics.stored.failed else 0


def split_place(store: str, prefix: str) -> tuple[str, str]:
    """Return the store and the prefix; a prefix may be a whole URL, such as s3://bucket/customer/orders."""
    scheme, separator, rest = prefix.partition("://")
    if not separator:
        return store, prefix
    if store:
        raise Invalid(f"The store is given twice: `{store}` and in `{prefix}`.", hint="Leave out --store.")
    bucket, _, below = rest.partition("/")
    return f"{scheme}://{bucket}", below


def print_catalog(made: CatalogResult, out: IO[str]) -> None:
    """Print where the catalog is, what changed, and what could not be read."""
    metrics = made.metrics
    out.write(f"{len(made.profile.tables)} tables in {metrics.seconds:.1f} s, {len(made.changes)} changes\n")
    for change in made.changes[:SHOWN]:
        where = f"{change.table}.{change.column}" if change.column else change.table
        out.write(f"  {change.severity:<7}{printable(where)}: {printable(change.text)}\n")
    if len(made.changes) > SHOWN:
        out.write(f"  and {len(made.changes) - SHOWN} more\n")
    for error in metrics.errors:
        out.write(f"  failed  {printable(error)}\n")
    out.write(f"\n{printable(made.url)}/catalog.html\n{made.run_id}\n")


class _Progress:
    """Shows the current step: on one line of a terminal, as separate lines elsewhere."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._in_place = out.isatty()

    def line(self, text: str) -> None:
        shown = printable(text)[:WIDTH]
        self._out.write(f"\r\x1b[K{shown}" if self._in_place else f"{shown}\n")
        self._out.flush()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_place:
            self._out.write("\r\x1b[K")
            self._out.flush()
