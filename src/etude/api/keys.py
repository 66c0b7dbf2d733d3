"""Routes for keys, what they spent, and the audit log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from etude.api.api_call import AdminCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.responses import mark_response_secret
from etude.api.schemas import KeyRequest, Listing, NewKey
from etude.store.identity import ApiKey, AuditEntry, Spent

router = APIRouter(tags=["keys"], route_class=JsonRoute)


@router.get("/keys", response_model=Listing[ApiKey])
async def list_keys(call: AdminCall) -> Listing[ApiKey]:
    """List the keys of the tenant, without their secrets."""
    return Listing(items=await call.access_store(call.server.identity.keys, call.caller.tenant))


@router.post("/keys", status_code=201, response_model=NewKey)
async def create_key(call: AdminCall, body: KeyRequest, request: Request) -> NewKey:
    """Create a key for the tenant, with limits and an end that are not above those of the caller's own key.

    Its secret is shown only once, not even again for a repeated Idempotency-Key.
    """
    mark_response_secret(request.scope)
    expires = datetime.now(UTC) + timedelta(days=body.days) if body.days else None
    limits, creator = body.limits, call.caller.key
    if creator is not None:
        limits = limits.within(creator.limits, call.server.app.settings.server)
        expires = min(filter(None, (expires, creator.expires_at)), default=None)
    make = call.server.identity.create_key
    key, secret = await call.access_store(make, body.name, body.role, call.caller.tenant, limits, expires)
    return NewKey(id=key.id, tenant=key.tenant, name=key.name, role=key.role, key=secret)


@router.delete("/keys/{key_id}", status_code=204, response_class=Response)
async def revoke_key(call: AdminCall, key_id: str) -> Response:
    """Revoke a key of the tenant."""
    await call.access_store(call.server.identity.revoke_key, key_id, call.caller.tenant)
    call.server.access_control.forget()
    return Response(status_code=204)


@router.get("/audit", response_model=Listing[AuditEntry])
async def list_key_acts(
    call: AdminCall, limit: Annotated[int, Query(ge=1, le=500)] = 50, cursor: str | None = None
) -> Listing[AuditEntry]:
    """List the audit log of the tenant, newest first."""
    await call.access_store(call.server.identity.write_down)
    page = await call.access_store(call.server.identity.acts, call.caller.tenant, limit, cursor)
    return Listing(items=page.items, next=page.next)


@router.get("/spending", response_model=Spent)
async def show_key_spending(call: ReaderCall) -> Spent:
    """Return what the caller's key has used today (UTC); without keys, what all callers have used."""
    return await call.access_store(call.server.identity.spent, call.caller.name)
