"""Routes for search by words and by meaning, and for rows that match a text or another row."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import MatchRequest, SearchRequest
from etude.api.sql_requests import charge_sql_request_time
from etude.search.search_results import MatchPage, SearchPage

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall
    from etude.cancellation import Cancellation

router = APIRouter(tags=["gateway"], route_class=JsonRoute)


@router.post("/search", response_model=SearchPage)
async def search(call: ReaderCall, body: SearchRequest) -> SearchPage:
    """Find rows, values, tables, columns, documents, playbooks and past questions; each hit tells why it was found."""
    return await call.run_in_thread(search_documents, call, body)


def search_documents(call: ApiCall, body: SearchRequest) -> SearchPage:
    """Search one dataset, or all of the tenant."""
    name = call.dataset(body.dataset) if body.dataset is not None else None
    with charge_sql_request_time(call):
        return call.app.search(
            body.query,
            name,
            kinds=body.kinds,
            tables=body.filter.tables if body.filter is not None else None,
            k=body.k,
            offset=body.offset,
            mode=body.mode,
        )


@router.post("/match", response_model=MatchPage)
async def match(call: AnalystCall, body: MatchRequest) -> MatchPage:
    """Return the rows of a table that pass a filter, most similar first to a text or to another row."""
    return await call.run_large_while_connected(partial(search_matches, call, body))


def search_matches(call: ApiCall, body: MatchRequest, cancel: Cancellation | None = None) -> MatchPage:
    """Filter and rank the rows of a table."""
    call.server.access_control.check_budget(call.caller)
    with charge_sql_request_time(call):
        return call.app.match(
            call.dataset(body.dataset),
            body.table,
            body.like,
            body.where,
            columns=body.columns,
            k=body.k,
            offset=body.offset,
            facets=body.facets,
            cancel=cancel,
        )
