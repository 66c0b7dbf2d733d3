"""Where the catalogs of a tenant and of a source are kept."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from etude.catalog.storage.catalog_store import TENANTS
from etude.store.base import MAIN
from etude.store.objects import Objects

if TYPE_CHECKING:
    from etude.app import App
    from etude.sources.source import Source

CATALOGS = "catalogs"


def open_catalog_root_folder(app: App, store: str = "") -> tuple[Objects, str]:
    """Return the object store of catalogs and the root folder in it: a separate store, or a folder of the app's."""
    chosen = store or app.settings.catalog.store
    if chosen:
        options = app.settings.catalog.store_options or app.settings.objects_options
        objects = Objects(chosen, **options)
        return objects, "" if app.tenant == MAIN else f"{TENANTS}/{app.tenant}"
    return app.objects, CATALOGS if app.tenant == MAIN else f"{CATALOGS}/{TENANTS}/{app.tenant}"


def catalog_folder(app: App, source: Source) -> str:
    """Return the folder name of a source in the catalog store; two files with the same name get different ones."""
    name = catalog_folder_by_name(source.name)
    if app.sources().get(source.name) == source.spec:
        return name
    parts = urlsplit(source.url)
    address = (
        source.url.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1) if "@" in parts.netloc else source.url
    )
    return f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


def catalog_folder_by_name(name: str) -> str:
    """Return the folder name of a registered source."""
    # A prefix must not equal one of etude's own folders; the names of sources have no hyphen.
    return f"source-{name}" if name.startswith("_") or name == TENANTS else name
