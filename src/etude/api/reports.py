"""Routes of `/log`: reports of what was asked, what was done, and whether it worked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Listing, ReportRequest
from etude.store.identity import Report

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall


router = APIRouter(tags=["gateway"], route_class=JsonRoute)


@router.post("/log", status_code=201, response_model=Report)
async def log_report(call: AnalystCall, body: ReportRequest) -> Report:
    """Report what was asked, what was done, and whether it worked."""
    return await call.access_store(add_report, call, body)


def add_report(call: ApiCall, body: ReportRequest) -> Report:
    """Store a report; raise if the dataset or the run that it names does not exist."""
    if body.dataset is not None:
        call.dataset(body.dataset)
    if body.run_id is not None:
        call.app.store.run(body.run_id)
    return call.server.identity.add_report(call.caller.tenant, body.model_dump())


@router.get("/log", response_model=Listing[Report])
async def list_reports(
    call: ReaderCall, limit: Annotated[int, Query(ge=1, le=500)] = 50, cursor: str | None = None
) -> Listing[Report]:
    """List reports, newest first.

    A page has about 1 MiB, so it may be shorter than `limit`.
    """
    page = await call.access_store(call.server.identity.reports, call.caller.tenant, limit, cursor)
    return Listing(items=page.items, next=page.next)
