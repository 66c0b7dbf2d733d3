"""Find the profile of a source in the local cache or the latest catalog, or make it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from etude.catalog.model import SourceProfile, from_json, profile_to_line
from etude.catalog.storage.annotations import annotate, get_annotations
from etude.catalog.storage.catalog_folder import catalog_folder, open_catalog_root_folder
from etude.catalog.storage.catalog_store import CATALOG, CatalogStore
from etude.db import Database
from etude.entities import Catalog, Limits
from etude.errors import EtudeError
from etude.limits import change_limits
from etude.sources.catalog_facts import once_per_catalog
from etude.sources.cost_estimate import Size
from etude.store.objects import write_object_file

QUICK = ".quick"
"""The ending of a quick profile, which says less than a profile and is never used in its place."""

if TYPE_CHECKING:
    from etude.app import App
    from etude.cancellation import Cancellation
    from etude.catalog.measure.profile import Progress
    from etude.catalog.measure.quick_look import QuickLook
    from etude.result import Result
    from etude.sources.query_parameters import Params
    from etude.sources.source import Source


def load_stored_or_measure_profile(
    app: App, source: Source, on_progress: Progress | None = None, cancel: Cancellation | None = None
) -> SourceProfile:
    """Return the profile of a source with annotations: the stored one if the data is unchanged, else a new one.

    `cancel` ends the measurement before its next query.
    """
    from etude.catalog.measure.profile import profile_source

    known = find_stored_profile(app, source)
    if known is not None:
        return known
    catalog = app.catalog(source)
    made = profile_source(_HostDatabase(app, source, cancel), on_progress=on_progress)
    store_profile(app, source, catalog, made)
    return annotate(made, get_annotations(app, source))


def profile_at_once_or_stored(app: App, source: Source, seconds: float, order: Sequence[str]) -> SourceProfile | None:
    """Return a profile for a first question, made within a time in seconds; None if a profile is known already."""
    if has_stored_profile(app, source, app.catalog(source)):
        return None
    began, look = time.monotonic(), begin_look_unless_stored(app, source, order)
    look.start(seconds)
    look.measure(seconds - (time.monotonic() - began))
    return store_profile_of_look(app, source, look)


def begin_look_unless_stored(app: App, source: Source, order: Sequence[str]) -> QuickLook:
    """Return a quick profile of a source that measures the tables in this order."""
    from etude.catalog.measure.quick_look import QuickLook

    return QuickLook(_HostDatabase(app, source), order)


def store_profile_of_look(app: App, source: Source, look: QuickLook) -> SourceProfile:
    """Cache what a quick profile has measured. If it has measured nothing, the next question tries again."""
    made = look.profile()
    if made.tables:
        write_object_file(_place(app, source, app.catalog(source)).with_suffix(QUICK), profile_to_line(made))
    return made


def has_stored_profile(app: App, source: Source, catalog: Catalog) -> bool:
    """Return whether a profile of the source is known, be it a quick one."""
    place = _place(app, source, catalog)
    if place.exists() or place.with_suffix(QUICK).exists():
        return True
    return _stored_profile(app, source, catalog) is not None


def find_any_stored_profile(app: App, source: Source) -> SourceProfile | None:
    """Return the stored profile of a source, or else the quick one for its current data."""
    catalog = app.catalog(source)
    place = _place(app, source, catalog)
    found = _kept_profile(place) or _stored_profile(app, source, catalog) or _kept_profile(place.with_suffix(QUICK))
    return annotate(found, get_annotations(app, source)) if found is not None else None


def find_stored_profile(app: App, source: Source) -> SourceProfile | None:
    """Return the stored profile of a source with annotations; None if there is none for its current data."""
    catalog = app.catalog(source)
    found = _kept_profile(_place(app, source, catalog)) or _stored_profile(app, source, catalog)
    return annotate(found, get_annotations(app, source)) if found is not None else None


def find_stored_profile_sizes(app: App, source: Source) -> dict[str, Size]:
    """Return rows and bytes of the tables from the locally cached profile; empty if none fits the current data."""
    profile = None
    with suppress(EtudeError):  # never fail a query because an estimate failed
        # Without a profile, which is usual, skip reading the source's catalog.
        if any(_folder(app, source).glob("*.json")):
            profile = _kept_profile(_place(app, source, app.catalog(source)))
    tables = profile.tables if profile is not None else ()
    return {t.name: Size(t.rows, t.bytes) for t in tables if t.kind == "table" and t.rows is not None}


def store_profile(app: App, source: Source, catalog: Catalog, profile: SourceProfile) -> None:
    """Cache a profile locally, replacing the previous one of the source."""
    place = _place(app, source, catalog)
    write_object_file(place, profile_to_line(profile))
    for old in place.parent.glob("*"):
        if old != place and old.suffix in (".json", QUICK):
            old.unlink(missing_ok=True)
    source.forget_sizes()


def _kept_profile(place: Path) -> SourceProfile | None:
    try:
        return from_json(place.read_bytes())
    except (OSError, ValidationError):
        return None


def _stored_profile(app: App, source: Source, catalog: Catalog) -> SourceProfile | None:
    """Return the profile of the latest catalog in its default location if the data is unchanged."""
    objects, root = open_catalog_root_folder(app)
    catalog_store = CatalogStore(objects, catalog_folder(app, source), root)
    # If the store is unavailable, the caller can still make the profile.
    with suppress(EtudeError, ValidationError):
        latest = catalog_store.latest()
        if latest is not None and latest.tables is None and latest.data == profiled_data_fingerprint(catalog):
            profile = from_json(catalog_store.read(latest, CATALOG))
            store_profile(app, source, catalog, profile)
            return profile
    return None


@once_per_catalog
def profiled_data_fingerprint(catalog: Catalog) -> str:
    """Return a hash that changes with the schema, and with the data if the source reports its changes cheaply."""
    tables = [(t.name, t.fingerprint, t.row_count if t.row_count_exact else None) for t in catalog.tables]
    return hashlib.sha256(json.dumps([catalog.fingerprint, tables]).encode()).hexdigest()[:32]


def _place(app: App, source: Source, catalog: Catalog) -> Path:
    return _folder(app, source) / f"{profiled_data_fingerprint(catalog)}.json"


def _folder(app: App, source: Source) -> Path:
    return app.settings.home / "profiles" / app.tenant / catalog_folder(app, source)


# Annotations.


class _HostDatabase(Database):
    """A source as seen by the host, to profile it without a session. Its queries are not recorded."""

    def __init__(self, app: App, source: Source, cancel: Cancellation | None = None) -> None:
        self._app = app
        self._source = source
        self._cancel = cancel

    def sql(
        self,
        query: str,
        params: Params | None = None,
        *,
        record: bool | None = None,
        limits: Limits | None = None,
        **limit: Any,
    ) -> Result:
        if self._cancel is not None:
            self._cancel.check()
        base = limits or self._app.settings.limits
        return self._app.sql(self._source, query, params, limits=change_limits(base, limit), record=False)

    def catalog(self) -> Catalog:
        return self._app.catalog(self._source)
