"""What the scripts of a catalog read and hand out: this catalog, the earlier ones, the pages made of them.

In a session the files come from the host and go to it; in a script that runs alone they are those of the working
folder. `earlier.jsonl` holds the `catalog.json` of earlier runs, oldest first, one on a line: `cat */catalog.json`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

import etude
from etude.catalog.drift.compare import Change, compare
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import SourceProfile, TableProfile, from_json, to_line
from etude.catalog.page.report import render_catalog
from etude.catalog.page.summary import render_summary
from etude.catalog.storage.annotations import annotate
from etude.catalog.storage.catalog_store import CATALOG
from etude.database import Database
from etude.errors import NotFound

EARLIER = "earlier.jsonl"
CHANGES = "changes.json"
PAGE = "catalog.html"
SUMMARY = "recent_summary.html"
CHANGE_LIST: TypeAdapter[tuple[Change, ...]] = TypeAdapter(tuple[Change, ...])


def load_catalog(db: Database) -> SourceProfile:
    """The catalog that was made just now; where there is none, it is made."""
    try:
        return from_json(etude.load(CATALOG))
    except NotFound:
        return annotate(profile_source(db), db.annotations())


def load_history() -> list[SourceProfile]:
    """The catalogs of earlier runs, oldest first."""
    try:
        return read_history(etude.load(EARLIER))
    except NotFound:
        return []


def read_history(lines: bytes) -> list[SourceProfile]:
    """The catalogs in the lines of `earlier.jsonl`."""
    return [from_json(line) for line in lines.splitlines() if line.strip()]


def find_changes(profile: SourceProfile, history: Sequence[SourceProfile]) -> tuple[Change, ...]:
    """What changed since the last run; nothing where there was none."""
    return compare(history[-1], profile, history) if history else ()


def put_tables(profile: SourceProfile, *tables: TableProfile) -> SourceProfile:
    """The profile with some tables replaced, or added at the end."""
    new = {t.name: t for t in tables}
    kept = tuple(new.pop(t.name, t) for t in profile.tables)
    return profile.model_copy(update={"tables": (*kept, *new.values())})


def save_catalog(profile: SourceProfile) -> None:
    """Hand out `catalog.json` and the page."""
    history = load_history()
    etude.save(CATALOG, to_line(profile))
    etude.save(PAGE, render_catalog(profile, find_changes(profile, history), history))


def save_summary(profile: SourceProfile, changes: Sequence[Change], history: Sequence[SourceProfile]) -> None:
    """Hand out what changed, and the page of what is recent."""
    etude.save(CHANGES, CHANGE_LIST.dump_json(tuple(changes)))
    etude.save(SUMMARY, render_summary(profile, changes, history))
