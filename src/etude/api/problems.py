"""Errors over HTTP: every error becomes a problem+json body (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from etude.errors import EtudeError, Invalid, Unavailable, problem
from etude.redaction import redact
from etude.validation import explain_validation, find_field_validation_error

MEDIA = "application/problem+json"
_TITLES = {
    400: ("bad_request", "Bad request"),
    404: ("not_found", "Not found"),
    405: ("method_not_allowed", "Method not allowed"),
    406: ("not_acceptable", "Not acceptable"),
    408: ("timeout", "Request timeout"),
    413: ("too_large", "Too large"),
    415: ("unsupported_media", "Unsupported media"),
    431: ("request_header_fields_too_large", "Request header fields too large"),
}
_DOCUMENTED = {
    400: "The request is malformed.",
    401: "There is no valid key.",
    403: "The role of the key, or the guard, does not allow it.",
    404: "It does not exist, or it belongs to another tenant.",
    406: "None of the accepted media types is available.",
    408: "The body did not arrive in time.",
    409: "The current state does not allow it.",
    412: "It has changed since the caller read it.",
    413: "The body is too large.",
    422: "The input is not valid.",
    429: "A limit of requests, time, rows, tokens or money was reached.",
    499: "The run was cancelled.",
    500: "A defect in etude.",
    502: "A source, a sandbox or a model failed.",
    503: "A required part is not available now.",
}


class Problem(BaseModel):
    """The body of every error: what went wrong and what to do about it."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:etude:error:not_found"])
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    hint: str | None = None
    instance: str | None = None
    """The id of the request, as in the log."""
    run_id: str | None = None


def documented_problems() -> dict[int | str, dict[str, Any]]:
    """Return the error responses of every route, for the OpenAPI document."""
    body = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": text, "content": body} for status, text in _DOCUMENTED.items()}


class HttpError(Exception):
    """An error at the level of HTTP, such as 405 or 413."""

    def __init__(self, status: int, detail: str, hint: str = "") -> None:
        super().__init__(detail)
        code, title = _TITLES.get(status, ("http_error", "HTTP error"))
        self.body: dict[str, Any] = {
            "type": f"urn:etude:error:{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
            "retryable": status == 408,
        }
        if hint:
            self.body["hint"] = hint


def respond_with_problem(error: BaseException, request_id: str | None = None, path: str = "") -> Response:
    """Return the response for an error."""
    body = error.body if isinstance(error, HttpError) else problem(error)
    if request_id:
        body["instance"] = request_id
    if path.startswith("/v1/"):
        # Clients of OpenAI's API read the error here.
        body["error"] = {"message": body["detail"], "type": body["title"], "code": body["code"], "param": None}
    headers: dict[str, str] = {}
    if body["status"] in (429, 503) and (body.get("retryable", True) or "retry_after_s" in body):
        headers["Retry-After"] = str(max(1, round(float(body.get("retry_after_s", 5)))))
    if body["status"] == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(json.dumps(body), body["status"], headers, MEDIA)


def hide_outage_details(error: BaseException, known: bool) -> BaseException:
    """Return the error to show to a caller: if it is not known who calls, an outage reveals nothing of the server."""
    if known or not isinstance(error, Unavailable):
        return error
    return Unavailable("A part of the server is not available now.", hint="Try again later.")


def describe_for_log(error: BaseException) -> dict[str, str]:
    """Return the code of an error, its text without secrets and the run that it is of, for the log."""
    body = error.body if isinstance(error, HttpError) else problem(error)
    run = {"run_id": str(body["run_id"])} if body.get("run_id") else {}
    return {"code": str(body["code"]), "error": redact(str(body["detail"]))[:300], **run}


def explain_invalid_request(error: RequestValidationError, route: object = None) -> EtudeError:
    """Return an error that says in one sentence what is wrong with a request, and where."""
    if find_field_validation_error(error).type == "json_invalid":
        return Invalid("The body is not valid JSON.", hint="Send JSON with the content type application/json.")
    body = getattr(getattr(getattr(route, "body_field", None), "field_info", None), "annotation", None)
    return explain_validation(
        error,
        "the request",
        model=dict[str, body] if body is not None else None,  # type: ignore[valid-type]
        name=lambda place: f"`{place}`",
        hint="/openapi.json describes what can be sent.",
    )


def add_problem_handlers(api: FastAPI) -> None:
    """Register handlers that turn every error into a problem response."""

    async def known(request: Request, error: Exception) -> Response:
        call = request.scope.get("state", {}).get("call")
        if call is not None:
            call.noted.update(describe_for_log(error))
        shown = hide_outage_details(error, call is not None and call.caller.role is not None)
        return respond_with_problem(shown, _request_id(request), request.url.path)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
        return respond_with_problem(
            explain_invalid_request(error, request.scope.get("route")), _request_id(request), request.url.path
        )

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for this class
        status = error.status_code
        if status == 404:
            shown = HttpError(404, "There is no such route.", "/openapi.json lists the routes.")
        elif status == 405:
            shown = HttpError(405, f"This route does not allow `{request.method}`.", "/openapi.json lists the routes.")
        else:
            shown = HttpError(status, str(error.detail))
        response = respond_with_problem(shown, _request_id(request), request.url.path)
        if status == 405 and error.headers:
            response.headers.update(error.headers)
        return response

    api.add_exception_handler(EtudeError, known)
    api.add_exception_handler(HttpError, known)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(HTTPException, of_http)
    api.add_exception_handler(Exception, known)


def _request_id(request: Request) -> str | None:
    call = request.scope.get("state", {}).get("call")
    return call.request_id if call else None
