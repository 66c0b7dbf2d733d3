"""Routes of the login of the page: a key becomes a cookie."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from etude.api.access_control import COOKIE, access_csrf_token
from etude.api.api_call import AnyCall
from etude.api.api_caller import ApiCaller
from etude.api.json_route import JsonRoute
from etude.api.responses import mark_response_secret
from etude.api.schemas import Login, LoginRequest
from etude.store.identity import LOGIN_S

router = APIRouter(tags=["keys"], route_class=JsonRoute)


@router.get("/session", response_model=Login)
async def show_login(call: AnyCall) -> Login:
    """Return the caller's session; its role is null if there is none."""
    caller = call.caller
    return Login(
        tenant=caller.tenant,
        role=caller.role,
        key=caller.key.name if caller.key else None,
        csrf=access_csrf_token(caller.cookie) if caller.cookie else None,
        keys=call.server.access_control.keys,
    )


@router.post("/session", response_model=Login)
async def log_in(call: AnyCall, body: LoginRequest, request: Request, response: Response) -> Login:
    """Open a browser session with a key; scripts cannot read its cookie."""
    mark_response_secret(request.scope)
    identity = call.server.identity
    key = await call.access_store(identity.authenticate, body.key)
    # The key is in the body, so the request had no caller until now.
    caller = ApiCaller(key.tenant, key.role, key)
    call.server.access_control.check_rate(caller)
    cookie = await call.access_store(identity.log_in, key)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, cookie, max_age=LOGIN_S, httponly=True, samesite="lax", secure=secure)
    return Login(
        tenant=key.tenant,
        role=key.role,
        key=key.name,
        csrf=access_csrf_token(cookie),
        keys=call.server.access_control.keys,
    )


@router.delete("/session", status_code=204, response_class=Response)
async def log_out(call: AnyCall) -> Response:
    """End the session."""
    response = Response(status_code=204)
    if call.caller.cookie is not None:
        await call.access_store(call.server.identity.log_out, call.caller.cookie)
        call.server.access_control.forget()
        response.delete_cookie(COOKIE)
    return response
