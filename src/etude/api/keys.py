"""Routes for keys, what they spent, the log-in of browsers, and the audit log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from etude.api.access import COOKIE, csrf_token
from etude.api.call import AdminCall, AnyCall, ReaderCall, mark_response_secret
from etude.api.schemas import KeyRequest, Listing, Login, LoginRequest, NewKey
from etude.store.identity import LOGIN_S, ApiKey, AuditEntry, Spent

router = APIRouter(tags=["keys"])
sessions = APIRouter(tags=["keys"])


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
        limits = limits.within(creator.limits)
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
async def list_acts(
    call: AdminCall, limit: Annotated[int, Query(ge=1, le=500)] = 50, cursor: str | None = None
) -> Listing[AuditEntry]:
    """List the audit log of the tenant, newest first."""
    await call.access_store(call.server.identity.write_down)
    page = await call.access_store(call.server.identity.acts, call.caller.tenant, limit, cursor)
    return Listing(items=page.items, next=page.next)


@router.get("/spending", response_model=Spent)
async def show_spending(call: ReaderCall) -> Spent:
    """Return what the caller's key has used today (UTC); without keys, what all callers have used."""
    return await call.access_store(call.server.identity.spent, call.caller.name)


@sessions.get("/session", response_model=Login)
async def show_session(call: AnyCall) -> Login:
    """Return the caller's session; its role is null if there is none."""
    caller = call.caller
    return Login(
        tenant=caller.tenant,
        role=caller.role,
        key=caller.key.name if caller.key else None,
        csrf=csrf_token(caller.cookie) if caller.cookie else None,
        keys=call.server.access_control.keys,
    )


@sessions.post("/session", response_model=Login)
async def log_in(call: AnyCall, body: LoginRequest, request: Request, response: Response) -> Login:
    """Open a browser session with a key; scripts cannot read its cookie."""
    mark_response_secret(request.scope)
    identity = call.server.identity
    key = await call.access_store(identity.authenticate, body.key)
    cookie = await call.access_store(identity.log_in, key)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, cookie, max_age=LOGIN_S, httponly=True, samesite="lax", secure=secure)
    return Login(
        tenant=key.tenant, role=key.role, key=key.name, csrf=csrf_token(cookie), keys=call.server.access_control.keys
    )


@sessions.delete("/session", status_code=204, response_class=Response)
async def log_out(call: AnyCall) -> Response:
    """End the session."""
    response = Response(status_code=204)
    if call.caller.cookie is not None:
        await call.access_store(call.server.identity.log_out, call.caller.cookie)
        call.server.access_control.forget()
        response.delete_cookie(COOKIE)
    return response
