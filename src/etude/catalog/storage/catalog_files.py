"""The files that catalog scripts read and write: this catalog, the earlier ones, and the pages made from them.

In a session the files are exchanged with the host; a standalone script uses the working folder. `earlier.jsonl` holds
the `catalog.json` of earlier runs, oldest first, one per line: `cat */catalog.json`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

import etude
from etude.catalog.drift.compare import Change, compare
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import SourceProfile, TableProfile, from_json, profile_to_line
from etude.catalog.page.report import render_catalog
from etude.catalog.page.summary import render_summary
from etude.catalog.storage.annotations import annotate
from etude.catalog.storage.catalog_store import CATALOG, CHANGES
from etude.db import Database
from etude.errors import NotFound

EARLIER = "earlier.jsonl"
PAGE = "catalog.html"
SUMMARY = "recent_summary.html"
CHANGE_LIST: TypeAdapter[tuple[Change, ...]] = TypeAdapter(tuple[Change, ...])


def load_catalog(db: Database) -> SourceProfile:
    """Load the catalog that was just made, or make it if there is none."""
    try:
        return from_json(etude.load(CATALOG))
    except NotFound:
        return annotate(profile_source(db), db.annotations())


def load_catalog_history() -> list[SourceProfile]:
    """Load the catalogs of earlier runs, oldest first."""
    try:
        return parse_catalog_history(etude.load(EARLIER))
    except NotFound:
        return []


def parse_catalog_history(lines: bytes) -> list[SourceProfile]:
    """Parse the lines of `earlier.jsonl`."""
    return [from_json(line) for line in lines.splitlines() if line.strip()]


def find_catalog_changes(profile: SourceProfile, history: Sequence[SourceProfile]) -> tuple[Change, ...]:
    """Return the changes since the last run; empty for the first run."""
    return compare(history[-1], profile, history) if history else ()


def put_catalog_tables(profile: SourceProfile, *tables: TableProfile) -> SourceProfile:
    """Return the profile with some tables replaced, or added at the end."""
    new = {t.name: t for t in tables}
    kept = tuple(new.pop(t.name, t) for t in profile.tables)
    return profile.model_copy(update={"tables": (*kept, *new.values())})


def save_catalog(profile: SourceProfile) -> None:
    """Save `catalog.json` and its page."""
    history = load_catalog_history()
    etude.save(CATALOG, profile_to_line(profile))
    etude.save(PAGE, render_catalog(profile, find_catalog_changes(profile, history), history))


def save_catalog_summary(profile: SourceProfile, changes: Sequence[Change], history: Sequence[SourceProfile]) -> None:
    """Save the changes and the summary page."""
    etude.save(CHANGES, CHANGE_LIST.dump_json(tuple(changes)))
    etude.save(SUMMARY, render_summary(profile, changes, history))
