"""MCP tools for the stored catalogs of a dataset: list, show and compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from etude.catalog.drift.change import Change
from etude.entities import Entity
from etude.errors import NotFound
from etude.mcp_server.caller import Dataset, McpCaller, Tool
from etude.similar_names import similar_names

if TYPE_CHECKING:
    from etude.catalog.model import SourceProfile, TableProfile
    from etude.catalog.storage.catalog_store import CatalogStore, StoredCatalog


LISTED = 200
"""The most tables of a catalog that one answer lists."""
CatalogName = Annotated[str, Field(max_length=100, description="A name from catalogs_list, or `latest`.")]


class CatalogEntry(Entity):
    """A stored catalog in the list; names sort by time."""

    name: str
    dataset: str
    run_id: str | None = None
    failed: list[str] = []
    """Tables that could not be profiled."""


class CatalogPage(Entity):
    """Stored catalogs of a dataset, newest first; pass `next` as `before` for the next page."""

    catalogs: list[CatalogEntry]
    next: str | None = None


class NamedChange(Change):
    """A change with the name by which it is acknowledged."""

    id: str


class ProfiledTable(Entity):
    """What a catalog knows of a table, in short."""

    name: str
    rows: int | None = None
    columns: list[str] = []
    key: list[str] = []
    references: list[str] = []
    """Columns that refer to other tables, such as `customer_id -> customers.id`."""


class CatalogView(Entity):
    """A catalog with its changes and tables; `profile` is all that is known of the table that was asked for."""

    catalog: CatalogEntry
    changes: list[NamedChange]
    tables: list[ProfiledTable] = []
    table_count: int = 0
    profile: dict[str, Any] | None = None


class CatalogComparison(Entity):
    """What changed from one catalog to another, the most important first."""

    before: str
    after: str
    changes: list[NamedChange]


def catalogs_list(
    caller: McpCaller,
    dataset: Dataset = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
    before: Annotated[str | None, Field(max_length=100, description="`next` of the page before.")] = None,
) -> CatalogPage:
    """List the stored catalogs of a dataset, newest first. `etude catalog` and `POST /catalogs` make them."""
    name, store = _catalogs_of(caller, dataset)
    names = [n for n in store.names() if before is None or n < before]
    entries = [_catalog_entry(name, store.run(n)) for n in names[:limit]]
    return CatalogPage(catalogs=entries, next=names[limit - 1] if len(names) > limit else None)


def catalogs_show(
    caller: McpCaller,
    dataset: Dataset = None,
    catalog: CatalogName = "latest",
    table: Annotated[str | None, Field(max_length=500, description="A table to return the whole profile of.")] = None,
) -> CatalogView:
    """Return a catalog: its changes, and the keys and references of its tables; with `table`, all statistics of one."""
    from etude.catalog.storage.catalog_store import with_stored_acknowledgements

    name, store = _catalogs_of(caller, dataset)
    stored = store.run(catalog)
    followed, profile = store.changes_of(stored), _profile_of(store, stored)
    changes = with_stored_acknowledgements(followed.changes, store.acknowledgements()) if followed else ()
    found = profile.table(table) if table is not None else None
    if table is not None and found is None:
        near = similar_names(table, [t.name for t in profile.tables], n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "Call `catalogs_show` without `table` for the list."
        raise NotFound(f"The catalog has no table `{table[:100]}`.", hint=hint)
    return CatalogView(
        catalog=_catalog_entry(name, stored),
        changes=[_named_change(c) for c in changes if table is None or c.table == (found and found.name)],
        tables=[_profiled(t) for t in profile.tables[:LISTED]] if found is None else [],
        table_count=len(profile.tables),
        profile=found.model_dump(mode="json", exclude_none=True) if found is not None else None,
    )


def catalogs_compare(
    caller: McpCaller, before: CatalogName, after: CatalogName = "latest", dataset: Dataset = None
) -> CatalogComparison:
    """Return what changed from one catalog of a dataset to another, the most important first."""
    from etude.catalog.drift.compare import compare

    _, store = _catalogs_of(caller, dataset)
    first, second = store.run(before), store.run(after)
    changes = compare(_profile_of(store, first), _profile_of(store, second))
    return CatalogComparison(before=first.name, after=second.name, changes=[_named_change(c) for c in changes])


def _catalogs_of(caller: McpCaller, dataset: str | None) -> tuple[str, CatalogStore]:
    name = caller.app.source_name(dataset)
    return name, caller.app.cataloger.catalog_store(name)


def _profile_of(store: CatalogStore, stored: StoredCatalog) -> SourceProfile:
    from etude.catalog.model import from_json
    from etude.catalog.storage.catalog_store import CATALOG

    return from_json(store.read(stored, CATALOG))


def _catalog_entry(dataset: str, stored: StoredCatalog) -> CatalogEntry:
    return CatalogEntry(name=stored.name, dataset=dataset, run_id=stored.run_id, failed=sorted(stored.failed))


def _named_change(change: Change) -> NamedChange:
    return NamedChange(**dict(change), id=change.name)


def _profiled(table: TableProfile) -> ProfiledTable:
    key = table.keys[0].columns if table.keys else ()
    return ProfiledTable(
        name=table.name,
        rows=table.rows,
        columns=[c.name for c in table.columns],
        key=list(key),
        references=[f"{', '.join(k.columns)} -> {k.to_table}.{', '.join(k.to_columns)}" for k in table.foreign_keys],
    )


# Clients see the docstrings of these functions, and the annotations of all arguments except the first.
TOOLS: tuple[Tool, ...] = (
    (catalogs_list, "reader", True),
    (catalogs_show, "reader", True),
    (catalogs_compare, "reader", True),
)
