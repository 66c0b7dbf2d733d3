"""`etude migrate`: bring the store to the schema of this version."""

from __future__ import annotations

import argparse
import json
import sys

EXAMPLES = (
    "etude migrate --dry-run",
    "etude migrate",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Migrate the store, or say what is to be done. A store of a newer version is refused."""
    from pathlib import Path

    from etude import plugins
    from etude.app import App
    from etude.settings import load_settings
    from etude.sources.source_url import source_path
    from etude.store.schema import newer_store_schema_error, pending_store_migrations, store_schema_version

    settings = load_settings()
    url = settings.store_url
    scheme = url.partition("://")[0]
    kind = plugins.load_plugin("store", scheme)
    found = kind.find_schema(Path(source_path(url)) if scheme == "sqlite" else url)
    known = store_schema_version(kind.dialect)
    if found > known:
        raise newer_store_schema_error(found, known)
    pending = pending_store_migrations(kind.dialect, found)
    if not options.dry_run:
        with App(settings) as app:
            app.store.check()
    if options.json:
        body = {"found": found, "known": known, "pending": pending, "done": not options.dry_run}
        sys.stdout.write(json.dumps(body) + "\n")
        return
    if not pending:
        sys.stdout.write(f"The store has schema version {found}, which is the newest that this version knows.\n")
        return
    sys.stdout.write(f"The store has schema version {found}; this version knows {known}.\n")
    for name in pending:
        sys.stdout.write(f"  {'to do' if options.dry_run else 'done '}  {name}\n")
