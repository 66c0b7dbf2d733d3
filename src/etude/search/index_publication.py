"""Versions of an index in a store: each is written beside the last one, and one small file names the valid one.

Whatever is killed while it writes a version leaves the last one valid. A reader keeps the version that it opened.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import ValidationError

from etude.entities import Entity
from etude.errors import EtudeError, Invalid, NotFound
from etude.ids import new_id
from etude.search import exact_index, lance_index
from etude.store.base import MAIN
from etude.store.objects import Objects

if TYPE_CHECKING:
    from etude.app import App
    from etude.sources.source import Source

ROOT = "search"
CURRENT = "current.json"
FORMAT = 1
ABANDONED_S = 86_400.0
"""A version that is this old and was never published is what a killed process left."""


class IndexManifest(Entity):
    """A published version of an index, and what it was made from."""

    format: int = FORMAT
    version: str
    backend: str
    embeddings: str | None = None
    """The name and version of the model; vectors of another one are never compared with these."""
    dimensions: int = 0
    documents: int
    kinds: dict[str, int] = {}
    digest: str
    """Changes with any document."""
    schema_fingerprint: str = ""
    data: str = ""
    """Changes with the data, if the source tells its changes cheaply."""
    named: tuple[str, ...] = ()
    """The columns that a person chose; empty if the catalog did."""
    texts: dict[str, tuple[str, ...]] = {}
    masked: dict[str, dict[str, str]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    read_at: datetime
    made_at: datetime
    previous: str | None = None
    notes: tuple[str, ...] = ()


class IndexPublication:
    """The versions of the index of one source."""

    def __init__(self, app: App, source: Source | str) -> None:
        """Open the index of a source, or the one in a folder, whose source may not exist any more."""
        self.objects, self.options = _open_store(app)
        folder = source if isinstance(source, str) else _folder_of(app, source)
        self.root = f"{_root_of(app)}/{folder}"

    def read(self) -> IndexManifest | None:
        """Return the valid version; None if there is none, or if it is from another version of etude."""
        try:
            return IndexManifest.model_validate_json(self.objects.read(f"{self.root}/{CURRENT}"))
        except (NotFound, ValidationError):
            return None

    def new_version(self) -> str:
        """Return the name of a version to write."""
        return new_id("index")

    def place(self, version: str) -> str:
        """Return where a version is."""
        return f"{self.root}/{version}"

    def publish(self, made: IndexManifest) -> IndexManifest:
        """Make a version the valid one, unless one that was read from newer data is valid already; remove old ones."""
        last: list[IndexManifest] = []

        def change(current: bytes | None) -> bytes | None:
            last[:] = [IndexManifest.model_validate_json(current)] if current is not None and _is_valid(current) else []
            if last and last[0].read_at > made.read_at:
                return None
            return made.model_copy(update={"previous": last[0].version if last else None}).model_dump_json().encode()

        self.objects.update(f"{self.root}/{CURRENT}", change, "application/json")
        if last and last[0].read_at > made.read_at:
            self.remove_version(made.version)
            return last[0]
        # A process may still read the version before this one, but hardly the one before that.
        if last and last[0].previous is not None:
            self.remove_version(last[0].previous)
        self._remove_abandoned({made.version, *(m.version for m in last)})
        return made

    def remove_version(self, version: str) -> None:
        """Remove one version, whichever backend wrote it."""
        exact_index.remove_exact_index(self.objects, self.place(version))
        lance_index.remove_lance_index(self.objects, self.place(version))

    def is_older(self, before: datetime) -> bool:
        """Return whether no version of it was made since a time."""
        made = self.read()
        start = index_publication_version(before.timestamp())
        return (made is None or made.made_at < before) and all(version < start for version in self._versions())

    def remove(self) -> None:
        """Remove the index with all its versions."""
        self.objects.remove(f"{self.root}/{CURRENT}")
        for version in self._versions():
            self.remove_version(version)

    def _versions(self) -> list[str]:
        names = (name.removeprefix(f"{self.root}/").split("/") for name in self.objects.names(self.root))
        return sorted({parts[0] for parts in names if len(parts) > 1})

    def _remove_abandoned(self, valid: set[str]) -> None:
        # The ids rise with time, so one that could have been made a day ago tells which are older.
        oldest = index_publication_version(time.time() - ABANDONED_S)
        for version in self._versions():
            if version not in valid and version < oldest:
                self.remove_version(version)


def remove_published_indexes(app: App, before: datetime, dry_run: bool = False) -> int:
    """Remove the indexes of a tenant that were built before a time and are of no registered source; return how many."""
    folders = _folders(app)
    kept = {folder for name in app.sources() for folder in _folders_of(app, name, folders)} if folders else set()
    unused = (IndexPublication(app, folder) for folder in sorted(folders - kept))
    old = [index for index in unused if index.is_older(before)]
    for index in old if not dry_run else ():
        index.remove()
    return len(old)


def _folders(app: App) -> set[str]:
    root, (objects, _) = _root_of(app), _open_store(app)
    names = (name.removeprefix(f"{root}/").partition("/")[0] for name in objects.names(root))
    # Not those of other tenants, which are in `tenants/`.
    return {name for name in names if name.startswith("source-")}


def _folders_of(app: App, name: str, folders: set[str]) -> set[str]:
    """Return the folder of a registered source; all that may be it if the source cannot be opened now."""
    try:
        return {_folder_of(app, app.source(name))}
    except EtudeError:
        return {folder for folder in folders if folder.startswith(f"source-{name}-")}


def _open_store(app: App) -> tuple[Objects, dict[str, str]]:
    settings = app.settings.search
    options = settings.store_options or app.settings.objects_options
    return Objects(settings.store, **options) if settings.store else app.objects, options


def _folder_of(app: App, source: Source) -> str:
    # Grants are part of the name: an index of tables that are no longer granted is not found.
    return f"source-{source.name}-{app.source_fingerprint(source)[:12]}"


def _root_of(app: App) -> str:
    return "/".join([ROOT, *([] if app.tenant == MAIN else ["tenants", app.tenant])])


def index_publication_version(seconds: float) -> str:
    """Return the beginning of the ids of versions that were made at a time."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    value = int(seconds * 1000) << 80
    return "index_" + "".join(alphabet[(value >> shift) & 31] for shift in range(125, -1, -5))


def _is_valid(current: bytes) -> bool:
    try:
        IndexManifest.model_validate_json(current)
    except ValidationError:
        return False
    return True


def check_publication_backend(name: str) -> str:
    """Return the backend of the settings; raise if it is not installed."""
    if name == "lance" and not lance_index.is_lance_installed():
        raise Invalid("`lancedb` is not installed.", hint="pip install 'etude[search]', or set `search.backend`.")
    return name
