"""Routes for catalogs: create them, and annotate tables and columns."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from etude.api.call import AnalystCall, ReaderCall
from etude.api.runs import check_capacity, state_of
from etude.api.schemas import RunState
from etude.catalog.storage.annotations import Annotations
from etude.entities import Entity

router = APIRouter(tags=["catalogs"])


class CatalogRequest(Entity):
    """A catalog to create. It is stored in the server's catalog store, below the prefix."""

    dataset: str | None = Field(default=None, max_length=200)
    tables: Annotated[list[Annotated[str, Field(max_length=500)]], Field(min_length=1, max_length=5000)] | None = None
    """All by default."""
    prefix: str = Field(default="", max_length=500, pattern=r"^([A-Za-z0-9][A-Za-z0-9._=-]*(/[A-Za-z0-9._=-]+)*)?$")
    """The name of the dataset by default."""
    model: str | None = Field(default=None, max_length=200)
    """The model that improves the script if something failed or changed; none by default."""


@router.post("/catalogs", status_code=202, response_model=RunState)
async def begin_catalog(call: AnalystCall, body: CatalogRequest, response: Response) -> RunState:
    """Start a catalog run and return at once; `/runs/{run_id}/events` streams its progress."""
    await call.access_store(check_capacity, call)

    def start() -> str:
        dataset, model = call.dataset(body.dataset), call.app.check_model(body.model)
        run_id = call.app.cataloger.start(dataset, tables=body.tables, prefix=body.prefix, model=model)
        call.charge_to_caller(run_id)
        return run_id

    run_id = await call.run_in_thread(start)
    response.headers["Location"] = f"/api/runs/{run_id}"
    return state_of(await call.access_store(call.app.store.run, run_id))


@router.get("/datasets/{dataset}/annotations", response_model=Annotations)
async def show_annotations(call: ReaderCall, dataset: str) -> Annotations:
    """Return the annotations of the tables and columns of a dataset."""
    return Annotations.model_validate(await call.run_in_thread(lambda: call.app.annotations(call.dataset(dataset))))


@router.patch("/datasets/{dataset}/annotations", response_model=Annotations)
async def add_annotations(call: AnalystCall, dataset: str, body: Annotations) -> Annotations:
    """Add descriptions, owners and tags of tables and columns; the others stay unchanged."""

    def add() -> Annotations:
        name = call.dataset(dataset)
        call.app.annotate(name, body)
        return Annotations.model_validate(call.app.annotations(name))

    return await call.run_in_thread(add)
