"""Routes for catalogs: create, list, read and compare them, acknowledge changes, annotate tables and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.runs import make_run_state
from etude.api.schemas import Listing, RunState
from etude.catalog.drift.change import Change
from etude.catalog.drift.compare import compare
from etude.catalog.model import SourceProfile, from_json
from etude.catalog.storage.annotations import Annotations, sign_annotations
from etude.catalog.storage.catalog_store import CATALOG, CatalogStore, StoredCatalog, with_stored_acknowledgements
from etude.entities import Entity
from etude.errors import NotFound

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

PREFIX = r"^([A-Za-z0-9][A-Za-z0-9._=-]*(/[A-Za-z0-9._=-]+)*)?$"
Prefix = Annotated[str, Query(max_length=500, pattern=PREFIX, description="The prefix that the catalog was made with.")]
FILE_TYPES = {"html": "text/html; charset=utf-8", "json": "application/json", "py": "text/plain; charset=utf-8"}
PAGE_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""A page shows values of the data: it gets an origin of its own, so that it cannot use the caller's key."""
router = APIRouter(tags=["catalogs"], route_class=JsonRoute)


class CatalogRequest(Entity):
    """A catalog to create. It is stored in the server's catalog store, below the prefix."""

    dataset: str | None = Field(default=None, max_length=200)
    tables: Annotated[list[Annotated[str, Field(max_length=500)]], Field(min_length=1, max_length=5000)] | None = None
    """All by default."""
    prefix: str = Field(default="", max_length=500, pattern=PREFIX)
    """The name of the dataset by default."""
    model: str | None = Field(default=None, max_length=200)
    """The model that improves the script if something failed or changed; none by default."""


@router.post("/catalogs", status_code=202, response_model=RunState)
async def begin_catalog(call: AnalystCall, body: CatalogRequest, response: Response) -> RunState:
    """Start a catalog run and return at once; `/runs/{run_id}/events` streams its progress."""
    await call.access_store(call.check_capacity)

    def start() -> str:
        dataset, model = call.dataset(body.dataset), call.app.check_model(body.model)
        run_id = call.app.cataloger.start(dataset, tables=body.tables, prefix=body.prefix, model=model)
        call.charge_to_caller(run_id)
        return run_id

    run_id = await call.run_in_thread(start)
    response.headers["Location"] = f"/api/runs/{run_id}"
    return make_run_state(await call.access_store(call.app.store.run, run_id))


class CatalogSummary(Entity):
    """A stored catalog in a list."""

    name: str
    """The name of the run below its dataset; names sort by time."""
    dataset: str
    run_id: str | None
    tables: list[str] | None
    """The requested tables; None for all."""
    failed: list[str]
    """Tables that could not be profiled."""
    files: list[str]


class CatalogChange(Change):
    """A change with the name by which it is acknowledged."""

    id: str


class CatalogDetail(CatalogSummary):
    """A stored catalog with its changes, those that are still open included."""

    changes: list[CatalogChange]


class AcknowledgeRequest(Entity):
    """Changes of the latest catalog that somebody knows of, and why they are as they are."""

    changes: Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(min_length=1, max_length=500)]
    """The ids of changes, or tables, or `table.column` for all changes of a column."""
    why: str = Field(min_length=1, max_length=2000)
    by: str | None = Field(default=None, min_length=1, max_length=200)
    """Who knows it, if the server has no keys; else it is the name of the key."""


@router.get("/catalogs", response_model=Listing[CatalogSummary])
async def list_catalogs(
    call: ReaderCall,
    dataset: Annotated[str | None, Query(max_length=200, description="All datasets by default.")] = None,
    prefix: Prefix = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Listing[CatalogSummary]:
    """List the stored catalogs, newest first."""

    def read() -> Listing[CatalogSummary]:
        datasets = [call.dataset(dataset)] if dataset is not None else list(call.app.sources())
        stores = {name: call.app.cataloger.catalog_store(name, prefix=prefix) for name in datasets}
        if prefix and dataset is None:  # one place, whatever the dataset
            stores = dict([*stores.items()][:1])
        found = sorted(((n, name) for name, store in stores.items() for n in store.names()), reverse=True)
        found = [(n, name) for n, name in found if cursor is None or n < cursor]
        items = []
        for run, name in found[:limit]:
            try:
                items.append(_summary(name, stores[name].run(run)))
            except NotFound:  # deleted or damaged since it was listed
                continue
        return Listing(items=items, next=found[limit - 1][0] if len(found) > limit else None)

    return await call.run_in_thread(read)


@router.post("/catalogs/{dataset}/acknowledgements", response_model=Listing[CatalogChange])
async def acknowledge_catalog_changes(
    call: AnalystCall, dataset: str, body: AcknowledgeRequest, prefix: Prefix = ""
) -> Listing[CatalogChange]:
    """Mark changes of the latest catalog as known, until their state recovers."""

    def write() -> Listing[CatalogChange]:
        store = call.app.cataloger.catalog_store(call.dataset(dataset), prefix=prefix)
        by = call.caller.key.name if call.caller.key else body.by or "a local user"
        call.app.store.check_storage()
        return Listing(items=[_named(c) for c in store.acknowledge(body.changes, by, body.why)])

    return await call.run_in_thread(write)


@router.get("/catalogs/{dataset}/{catalog}", response_model=CatalogDetail)
async def show_catalog(call: ReaderCall, dataset: str, catalog: str, prefix: Prefix = "") -> CatalogDetail:
    """Return a catalog and its changes; `latest` is the name of the latest one."""

    def read() -> CatalogDetail:
        store, stored = _stored(call, dataset, catalog, prefix)
        followed = store.changes_of(stored)
        changes = with_stored_acknowledgements(followed.changes, store.acknowledgements()) if followed else ()
        about = _summary(call.dataset(dataset), stored)
        return CatalogDetail(**dict(about), changes=[_named(c) for c in changes])

    return await call.run_in_thread(read)


@router.get("/catalogs/{dataset}/{catalog}/compare/{other}", response_model=Listing[CatalogChange])
async def compare_catalogs(
    call: ReaderCall, dataset: str, catalog: str, other: str, prefix: Prefix = ""
) -> Listing[CatalogChange]:
    """Return what changed from one catalog to another, the most important first."""

    def read() -> Listing[CatalogChange]:
        before, after = (_profile(*_stored(call, dataset, name, prefix)) for name in (catalog, other))
        return Listing(items=[_named(c) for c in compare(before, after)])

    return await call.run_in_thread(read)


@router.get("/catalogs/{dataset}/{catalog}/{file}", response_class=Response)
async def read_catalog_file(call: ReaderCall, dataset: str, catalog: str, file: str, prefix: Prefix = "") -> Response:
    """Return a file of a catalog: `catalog.html`, `recent_summary.html`, `catalog.json`, `changes.json`, the scripts.

    Pages are served with a content security policy that gives them an origin of their own.
    """

    def read() -> bytes:
        store, stored = _stored(call, dataset, catalog, prefix)
        if file not in stored.files:
            names = ", ".join(f"`{n}`" for n in stored.files)
            raise NotFound(f"The catalog has no file `{file[:200]}`.", hint=f"Its files: {names}.")
        return store.read(stored, file)

    data = await call.run_in_thread(read)
    kind = file.rpartition(".")[2]
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": PAGE_POLICY}
    return Response(data, media_type=FILE_TYPES.get(kind, "application/octet-stream"), headers=headers)


def _stored(call: ApiCall, dataset: str, catalog: str, prefix: str) -> tuple[CatalogStore, StoredCatalog]:
    store = call.app.cataloger.catalog_store(call.dataset(dataset), prefix=prefix)
    return store, store.run(catalog)


def _profile(store: CatalogStore, stored: StoredCatalog) -> SourceProfile:
    return from_json(store.read(stored, CATALOG))


def _summary(dataset: str, stored: StoredCatalog) -> CatalogSummary:
    return CatalogSummary(
        name=stored.name,
        dataset=dataset,
        run_id=stored.run_id,
        tables=list(stored.tables) if stored.tables is not None else None,
        failed=sorted(stored.failed),
        files=sorted(stored.files),
    )


def _named(change: Change) -> CatalogChange:
    return CatalogChange(**dict(change), id=change.name)


@router.get("/datasets/{dataset}/annotations", response_model=Annotations)
async def show_catalog_annotations(call: ReaderCall, dataset: str) -> Annotations:
    """Return the annotations of the tables and columns of a dataset."""
    return Annotations.model_validate(await call.run_in_thread(lambda: call.app.annotations(call.dataset(dataset))))


@router.patch("/datasets/{dataset}/annotations", response_model=Annotations)
async def add_catalog_annotations(call: AnalystCall, dataset: str, body: Annotations) -> Annotations:
    """Add descriptions, owners and tags of tables and columns; the others stay unchanged.

    Each description keeps its author: the name of the key. The catalog shows it, and models and rules read it.
    """

    def add() -> Annotations:
        name = call.dataset(dataset)
        call.app.annotate(name, sign_annotations(body, call.caller.key.name if call.caller.key else "a local user"))
        return Annotations.model_validate(call.app.annotations(name))

    return await call.run_in_thread(add)
