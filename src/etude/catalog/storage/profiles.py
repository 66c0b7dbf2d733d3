"""Profiles for those who ask: the latest catalog's, the one kept at home, or one made now; and what people say."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from etude.catalog.model import SourceProfile, from_json, to_line
from etude.catalog.storage.annotations import SUFFIX, Annotations, annotate, merge, parse_annotations, read_annotations
from etude.catalog.storage.catalog_store import CATALOG, JSON, TENANTS, CatalogStore
from etude.database import Database
from etude.entities import Catalog, Limits
from etude.errors import EtudeError, NotFound
from etude.limits import change_limits
from etude.sources.cost import Size
from etude.store.base import MAIN
from etude.store.objects import Objects, write_whole

if TYPE_CHECKING:
    from etude.app import App
    from etude.catalog.measure.profile import Progress
    from etude.result import Result
    from etude.sources.source import Source

CATALOGS = "catalogs"
SAID = "annotations.json"


def open_root(app: App, store: str = "") -> tuple[Objects, str]:
    """The object store of catalogs and where in it they begin: a bucket of its own, or a corner of the app's."""
    chosen = store or app.settings.catalog.store
    if chosen:
        options = app.settings.catalog.store_options or app.settings.objects_options
        objects = Objects(chosen, **options)
        return objects, "" if app.tenant == MAIN else f"{TENANTS}/{app.tenant}"
    return app.objects, CATALOGS if app.tenant == MAIN else f"{CATALOGS}/{TENANTS}/{app.tenant}"


def place_of(app: App, source: Source) -> str:
    """What a source is called where its catalog is kept: two files of one name are two sources."""
    # A prefix may not be called like what etude itself keeps beside them; a name has no hyphen.
    name = f"source-{source.name}" if source.name.startswith("_") or source.name == TENANTS else source.name
    if app.sources().get(source.name) == source.spec:
        return name
    parts = urlsplit(source.url)
    address = (
        source.url.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1) if "@" in parts.netloc else source.url
    )
    return f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


def get_profile(app: App, source: Source, on_progress: Progress | None = None) -> SourceProfile:
    """The profile of a source: the one known for its data as it is, or one made now, with what people say of it."""
    from etude.catalog.measure.profile import profile_source

    known = find_profile(app, source)
    if known is not None:
        return known
    catalog = app.catalog(source)
    made = profile_source(_HostDatabase(app, source), on_progress=on_progress)
    keep_profile(app, source, catalog, made)
    return annotate(made, get_annotations(app, source))


def find_profile(app: App, source: Source) -> SourceProfile | None:
    """The profile known for the data of a source as it is, with what people say of it; None where it has to be made."""
    catalog = app.catalog(source)
    found = _kept_profile(_place(app, source, catalog)) or _stored_profile(app, source, catalog)
    return annotate(found, get_annotations(app, source)) if found is not None else None


def find_sizes(app: App, source: Source) -> dict[str, Size]:
    """Rows and bytes of the tables by the profile that is kept at home for the data as it is; none without one."""
    profile = None
    with suppress(EtudeError):  # for an estimate no query fails
        # Nearly always there is none: then the source is not asked what its data is.
        if any(_folder(app, source).glob("*.json")):
            profile = _kept_profile(_place(app, source, app.catalog(source)))
    tables = profile.tables if profile is not None else ()
    return {t.name: Size(t.rows, t.bytes) for t in tables if t.kind == "table" and t.rows is not None}


def keep_profile(app: App, source: Source, catalog: Catalog, profile: SourceProfile) -> None:
    """Keep a profile at home, in the place of the one that the source had there."""
    place = _place(app, source, catalog)
    write_whole(place, to_line(profile))
    for old in place.parent.glob("*.json"):
        if old != place:
            old.unlink(missing_ok=True)
    source.forget_sizes()


def _kept_profile(place: Path) -> SourceProfile | None:
    try:
        return from_json(place.read_bytes())
    except (OSError, ValidationError):
        return None


def _stored_profile(app: App, source: Source, catalog: Catalog) -> SourceProfile | None:
    """The profile of the latest catalog in its usual place, if the data is still as it was."""
    objects, root = open_root(app)
    catalog_store = CatalogStore(objects, place_of(app, source), root)
    # A store that cannot be reached is no reason to know nothing: the profile can be made.
    with suppress(EtudeError, ValidationError):
        latest = catalog_store.latest()
        if latest is not None and latest.tables is None and latest.data == data_mark_of(catalog):
            profile = from_json(catalog_store.read(latest, CATALOG))
            keep_profile(app, source, catalog, profile)
            return profile
    return None


def data_mark_of(catalog: Catalog) -> str:
    """Changes when the schema does, or the data as far as the source tells without reading it."""
    tables = [(t.name, t.fingerprint, t.row_count if t.row_count_exact else None) for t in catalog.tables]
    return hashlib.sha256(json.dumps([catalog.fingerprint, tables]).encode()).hexdigest()[:32]


def _place(app: App, source: Source, catalog: Catalog) -> Path:
    return _folder(app, source) / f"{data_mark_of(catalog)}.json"


def _folder(app: App, source: Source) -> Path:
    return app.settings.home / "profiles" / app.tenant / place_of(app, source)


# What people say.


def get_annotations(app: App, source: Source) -> Annotations:
    """What people say of a source: in the YAML beside it, in the folder of the settings, and by the API."""
    said = Annotations()
    for path in _files(app, source):
        found = read_annotations(path)
        said = merge(said, found) if found is not None else said
    objects, place = _said_place(app, source)
    try:
        told = parse_annotations(json.loads(objects.read(place)), f"`{place}`")
    except NotFound:
        return said
    return merge(said, told)


def put_annotations(app: App, source: Source, said: Annotations) -> Annotations:
    """Add what somebody says of a source; what was said of the same thing before gives way."""
    objects, place = _said_place(app, source)

    def change(current: bytes | None) -> bytes:
        before = parse_annotations(json.loads(current), f"`{place}`") if current else Annotations()
        return merge(before, said).model_dump_json(exclude_unset=True).encode()

    objects.update(place, change, JSON)
    return get_annotations(app, source)


def _said_place(app: App, source: Source) -> tuple[Objects, str]:
    objects, root = open_root(app)
    return objects, "/".join(part for part in (root, place_of(app, source), SAID) if part)


def _files(app: App, source: Source) -> list[Path]:
    """The YAML files that may tell of a source, the general ones first."""
    found = []
    if not source.network:
        path = Path(source.url.rstrip("/*"))
        found = [path.parent / f"{name}{SUFFIX}" for name in dict.fromkeys((path.stem, path.name, source.name))]
    if not app.settings.catalog.annotations:
        return found
    folder = Path(app.settings.catalog.annotations).expanduser()
    own = folder if app.tenant == MAIN else folder / TENANTS / app.tenant
    return [*found, own / f"{source.name}{SUFFIX}"]


class _HostDatabase(Database):
    """A source from the host's side, for what is measured without a session. Nothing of it is recorded."""

    def __init__(self, app: App, source: Source) -> None:
        self._app = app
        self._source = source

    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        base = limits or self._app.settings.limits
        return self._app.sql(self._source, query, limits=change_limits(base, limit), record=False)

    def catalog(self) -> Catalog:
        return self._app.catalog(self._source)
