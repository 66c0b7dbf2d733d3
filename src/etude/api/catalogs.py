"""Catalogs: have one made, and say what tables and columns mean."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from etude.api.call import AnalystCall, ReaderCall
from etude.api.runs import check_room, state_of
from etude.api.schemas import RunState
from etude.catalog.storage.annotations import Annotations
from etude.entities import Entity

router = APIRouter(tags=["catalogs"])


class CatalogRequest(Entity):
    """A catalog to be made. It is kept in the server's own place for catalogs, below the prefix."""

    dataset: str | None = Field(default=None, max_length=200)
    tables: Annotated[list[Annotated[str, Field(max_length=500)]], Field(min_length=1, max_length=5000)] | None = None
    """All by default."""
    prefix: str = Field(default="", max_length=500, pattern=r"^([A-Za-z0-9][A-Za-z0-9._=-]*(/[A-Za-z0-9._=-]+)*)?$")
    """The name of the dataset by default."""
    model: str | None = Field(default=None, max_length=200)
    """Who improves the script where something failed or changed; nobody by default."""


@router.post("/catalogs", status_code=202, response_model=RunState)
async def begin_catalog(call: AnalystCall, body: CatalogRequest, response: Response) -> RunState:
    """Begin to make a catalog and return at once; `/runs/{run_id}/events` tells how it goes."""
    await call.look(check_room, call)

    def start() -> str:
        dataset, model = call.dataset(body.dataset), call.app.check_model(body.model)
        run_id = call.app.cataloger.start(dataset, tables=body.tables, prefix=body.prefix, model=model)
        call.own(run_id)
        return run_id

    run_id = await call.do(start)
    response.headers["Location"] = f"/api/runs/{run_id}"
    return state_of(await call.look(call.app.store.run, run_id))


@router.get("/datasets/{dataset}/annotations", response_model=Annotations)
async def show_annotations(call: ReaderCall, dataset: str) -> Annotations:
    """What people say of the tables and columns of a dataset."""
    return Annotations.model_validate(await call.do(lambda: call.app.annotations(call.dataset(dataset))))


@router.patch("/datasets/{dataset}/annotations", response_model=Annotations)
async def add_annotations(call: AnalystCall, dataset: str, body: Annotations) -> Annotations:
    """Say what tables and columns mean and whose they are; what is not mentioned stays as it is."""

    def add() -> Annotations:
        name = call.dataset(dataset)
        call.app.annotate(name, body)
        return Annotations.model_validate(call.app.annotations(name))

    return await call.do(add)
