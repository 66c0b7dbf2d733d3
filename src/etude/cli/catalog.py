"""`etude catalog SOURCE`."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from etude.cli.printable import printable
from etude.errors import Cancelled, Invalid

if TYPE_CHECKING:
    from etude.app import App
    from etude.catalog.cataloger import CatalogMetrics, CatalogResult
    from etude.catalog.drift.change import Change

PAGE = "catalog.html"
SHOWN = 10
WIDTH = 100
CANCELLED = "The catalog was cancelled; nothing of it is stored."
EXAMPLES = (
    "etude catalog shop.duckdb",
    "etude catalog shop.duckdb --tables orders,customers",
)
LEVELS = ("high", "medium", "low")
CHANGED = 8
"""The exit code of `--fail-on`."""


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
    parser.add_argument("--output", metavar="FOLDER", help="also write the files of the catalog to this folder")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--fail-on",
        choices=LEVELS,
        metavar="LEVEL",
        help=f"exit with {CHANGED} if a change of this level or above (high, medium, low) is new or still open",
    )
    parser.add_argument(
        "--acknowledge",
        metavar="CHANGE",
        action="append",
        help="do not make a catalog, but mark a change of the latest one as known: orders.amount:scale, or all changes "
        "of orders.amount or of orders; can be repeated",
    )
    parser.add_argument("--why", metavar="TEXT", help="why the change is as it is, with --acknowledge")
    parser.add_argument("--by", metavar="WHO", help="who acknowledges it; your user name by default")


def run(options: argparse.Namespace) -> int:
    """Create the catalog and show the progress on standard error, or acknowledge changes; return the exit code."""
    from etude.app import App, require_app_source

    if options.source and options.db_conn:
        raise Invalid("The source is given twice.", hint="Leave out --db-conn.")
    source = require_app_source(options.source or options.db_conn, os.environ)
    store, prefix = split_catalog_place(options.store or "", options.prefix or "")
    _check_options(options)
    if options.acknowledge:
        with App() as app:
            return _acknowledge(app, source, store, prefix, options)
    folder = _writable(options.output) if options.output else None
    tables = [name.strip() for name in options.tables.split(",") if name.strip()] if options.tables else None
    try:
        with App() as app, _Progress(sys.stderr) as show:
            app.pool.warm()
            made = app.cataloger.run(
                source, tables=tables, store=store, prefix=prefix, model=options.model, on_progress=show.line
            )
            page = _write_files(made, folder or app.settings.home / "pages" / made.run_id, options)
    except (KeyboardInterrupt, Cancelled):
        raise Cancelled(CANCELLED, hint="Run the command again.") from None
    if options.json:
        body = {"run_id": made.run_id, "url": made.url} | made.metrics.model_dump(mode="json")
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        print_catalog(made, sys.stdout, page)
    if options.open and page is not None:
        _open(page)
    return _exit_code(made, options.fail_on)


def _check_options(options: argparse.Namespace) -> None:
    given = [f"--{n}" for n in ("why", "by") if getattr(options, n)]
    if given and not options.acknowledge:
        raise Invalid(f"{given[0]} needs --acknowledge.", hint="Name the change: --acknowledge orders.amount:scale.")
    if options.acknowledge and not (options.why or "").strip():
        raise Invalid("--acknowledge needs a reason.", hint='Add --why "prices are in cents since March".')
    others = [
        f"--{n.replace('_', '-')}" for n in ("output", "open", "fail_on", "tables", "model") if getattr(options, n)
    ]
    if options.acknowledge and others:
        raise Invalid(f"{others[0]} does not go with --acknowledge, which makes no catalog.", hint="Leave it out.")


def _acknowledge(app: App, source: str, store: str, prefix: str, options: argparse.Namespace) -> int:
    by = options.by or getpass.getuser()
    known = app.cataloger.catalog_store(source, store, prefix).acknowledge(options.acknowledge, by, options.why)
    if options.json:
        sys.stdout.write(json.dumps([c.model_dump(mode="json") | {"name": c.name} for c in known]) + "\n")
        return 0
    for change in known:
        sys.stdout.write(f"known  {printable(change.name)}: {printable(change.text)}\n")
    sys.stdout.write(f"Acknowledged by {printable(by)}. Later catalogs show this as known until the data recovers.\n")
    return 0


def _writable(name: str) -> Path:
    """Return the folder, created if it is missing: a mistake is reported before the work, not after it."""
    folder = Path(name).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise Invalid(f"`{name}` cannot be written to: {error.strerror}.", hint="Give another folder.") from None
    return folder


def _write_files(made: CatalogResult, folder: Path, options: argparse.Namespace) -> Path | None:
    """Write the files of the catalog to a folder; return the path of its page, or None if it is not a local file."""
    from etude.catalog.storage.catalog_store import METRICS

    stored = Path(made.url.removeprefix("file://")) / PAGE
    if not options.output and (not options.open or stored.is_file()):
        return stored if stored.is_file() else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in {**made.files, METRICS: made.metrics.model_dump_json().encode()}.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        text = f"The catalog is stored in {made.url}, but `{folder}` cannot be written to: {error.strerror}."
        raise Invalid(text, hint="Give another folder.") from None
    return (folder / PAGE).resolve()


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.as_uri()):
        sys.stderr.write(f"No browser could be started. Open this file: {printable(str(page))}\n")


def _exit_code(made: CatalogResult, level: str | None) -> int:
    if made.metrics.stored.failed:
        return 1
    counted = LEVELS[: LEVELS.index(level) + 1] if level else ()
    return CHANGED if any(c.pending and c.severity in counted for c in made.changes) else 0


def split_catalog_place(store: str, prefix: str) -> tuple[str, str]:
    """Return the store and the prefix; a prefix may be a whole URL, such as s3://bucket/customer/orders."""
    scheme, separator, rest = prefix.partition("://")
    if not separator:
        return store, prefix
    if store:
        raise Invalid(f"The store is given twice: `{store}` and in `{prefix}`.", hint="Leave out --store.")
    bucket, _, below = rest.partition("/")
    return f"{scheme}://{bucket}", below


def print_catalog(made: CatalogResult, out: IO[str], page: Path | None = None) -> None:
    """Print where the catalog is, what changed, and what could not be read."""
    metrics, pending = made.metrics, [c for c in made.changes if c.pending]
    tables = len(made.profile.tables)
    out.write(
        f"{tables:,} table{'' if tables == 1 else 's'} in {metrics.seconds:.1f} s, "
        f"{catalog_change_counts(made.changes)}\n"
    )
    for change in pending[:SHOWN]:
        word = "" if change.status == "new" else f" (open since {change.since:%Y-%m-%d})" if change.since else " (open)"
        out.write(f"  {change.severity:<7}{printable(change.name)}: {printable(change.text)}{word}\n")
    if len(pending) > SHOWN:
        out.write(f"  and {len(pending) - SHOWN} more\n")
    for line in _row_counts(metrics):
        out.write(f"  rows   {printable(line)}\n")
    for error in metrics.errors:
        out.write(f"  failed  {printable(error)}\n")
    for name in (n for n in made.files if n.endswith(".diff")):
        lineage = metrics.lineage[f"{name.removesuffix('.diff')}.py"]
        by = f" by {lineage.improved_by}" if lineage.improved_by else ""
        lines = [line for line in made.files[name].decode().splitlines() if not line.startswith(("+++", "---", "#"))]
        counts = [sum(line.startswith(sign) for line in lines) for sign in "+-"]
        out.write(f"  {name}: {counts[0]} lines added, {counts[1]} removed{printable(by)}\n")
    if any(c.status == "open" for c in pending):
        out.write('  An open change is repeated until it recovers, or until --acknowledge CHANGE --why "...".\n')
    out.write(f"\n{printable(str(page) if page else made.url + '/' + PAGE)}\n{made.run_id}\n")


def _row_counts(metrics: CatalogMetrics) -> Iterator[str]:
    """Yield the row count of each table now and in the previous run; tables whose count changed most come first."""
    now, before = metrics.rows, metrics.rows_before
    changed = {name for name in now if name in before and before[name] != now[name]}

    def order(name: str) -> tuple[bool, int]:
        return name not in changed, -abs((now[name] or 0) - (before.get(name) or 0) if changed else now[name] or 0)

    names = sorted(now, key=order)
    # A line that says that one more is left out takes as much space as that one.
    most = SHOWN if len(names) > SHOWN + 1 else SHOWN + 1
    for name in names[:most]:
        rows, former = (("unknown" if n is None else f"{n:,}") for n in (now[name], before.get(name)))
        told = f"; before: {former}" if name in changed else ", as before" if name in before else ""
        yield f"{name}: {rows}{told}" + ("; the table is new" if before and name not in before else "")
    if left := names[most:]:
        others = len(changed.intersection(left))
        yield f"{len(left):,} more tables" + (f", {others:,} of them with other counts than before" if others else "")


def catalog_change_counts(changes: Sequence[Change]) -> str:
    """Count the changes by status, such as `2 new changes, 1 still open`."""
    counts = Counter[str](c.status for c in changes)
    new = counts["new"]
    parts = [f"{new} {'new ' if len(counts) > bool(new) else ''}change{'' if new == 1 else 's'}"]
    words = (("open", "still open"), ("known", "known"), ("recovered", "recovered"))
    return ", ".join([*parts, *(f"{counts[status]} {word}" for status, word in words if counts[status])])


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
