"""`etude index SOURCE`."""

from __future__ import annotations

import argparse
import sys

from etude.cli.printable import printable

EXAMPLES = (
    "etude index shop.duckdb",
    "etude index shop.duckdb --columns products.name,products.description",
    "etude index shop.duckdb --remove",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", nargs="?", help="a name, a path or a URL")
    parser.add_argument("--columns", metavar="A,B", help="only these columns, as TABLE.COLUMN; text columns by default")
    parser.add_argument("--rebuild", action="store_true", help="make all vectors again, not only those of new texts")
    parser.add_argument("--remove", action="store_true", help="remove the index")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(options: argparse.Namespace) -> None:
    """Make the index, or bring it up to date, and print what changed."""
    import os

    from etude.app import App, require_app_source
    from etude.cli.progress import Progress

    source = require_app_source(options.source, os.environ)
    columns = [name.strip() for name in (options.columns or "").split(",") if name.strip()]
    with App() as app:
        if options.remove:
            app.indexes.remove(source)
            sys.stdout.write(f"The index of {printable(source)} is removed.\n")
            return
        with Progress(f"indexing {source}") as progress:

            def tell(what: str, share: float) -> None:
                progress.label = what
                progress(share)

            made = app.indexes.build(source, columns=columns, rebuild=options.rebuild, on_progress=tell)
    if options.json:
        sys.stdout.write(made.model_dump_json() + "\n")
        return
    kinds = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in made.kinds.items())
    how = made.embeddings or "words only: no embeddings are installed (pip install 'etude[search]')"
    sys.stdout.write(f"{made.documents:,} documents: {kinds}\n{printable(how)}, {made.backend} index\n")
    if made.published:
        changes = f"{made.new:,} new, {made.changed:,} changed, {made.deleted:,} deleted, {made.unchanged:,} as before"
        sys.stdout.write(f"{changes}; {made.seconds:.1f} s\n")
    else:
        sys.stdout.write("Nothing has changed since the last time.\n")
    for note in made.notes:
        sys.stderr.write(f"note: {printable(note)}\n")
