"""The middleware of every request: request id, caller, limits, body and idempotency; and headers of every response."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack, suppress
from typing import Any

from etude.api.access_control import SAFE, read_access_secrets
from etude.api.api_call import ApiCall
from etude.api.api_caller import ANONYMOUS, ApiCaller
from etude.api.problems import HttpError, describe_for_log, hide_outage_details, respond_with_problem
from etude.api.server_state import RETRY_S, ServerState
from etude.errors import Conflict, EtudeError, Forbidden, Invalid, LimitExceeded, Unauthorized, Unavailable, problem
from etude.ids import new_id
from etude.json_limits import check_json_body
from etude.store.identity import StoredResponse, key_of_another_request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset(
    {"/", "/health", "/healthz", "/readyz", "/openapi.json", "/api/session", "/favicon.ico", "/favicon.svg"}
)
"""Paths that need no key, as do the files of the page: they reveal nothing secret, or they are used to log in."""
PROBES = frozenset({"/health", "/healthz", "/readyz"})
"""Paths that are answered even if their sender had too many refusals: a proxy asks for them too."""
CLASSIC = frozenset(
    {"ask", "audit", "catalogs", "chat", "datasets", "events", "ingest", "keys", "log", "match", "playbooks", "profile"}
) | frozenset({"rows", "runs", "search", "spending", "sql", "threads", "vram"})
"""Routes below `/api` that also work at the root."""
UPLOADS = frozenset({"/api/datasets", "/api/ingest/file"})
"""Paths whose POST takes a body that may be large: the route reads it while it arrives."""
REPLACEABLE = "etude.replaceable"
"""An extension of the ASGI scope: whether a new connection may replace that of the request, at their limit."""
OPEN_BODY = 64 << 10
"""The largest body of a request without a valid key."""
KEPT_BODY = 64 << 10
"""The largest response that is kept for a request with an Idempotency-Key. Of a larger one, only the key is kept."""
SHORT_REPLY = 4000
"""Characters of a response that is kept even if the tenant has used up its storage."""
TRANSIENT = frozenset({401, 408, 429, 499})
"""Refusals that may end with another outcome if the request is repeated: they are not kept."""
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        b"connect-src 'self'; frame-src 'self' blob:; worker-src 'self'; manifest-src 'self'; base-uri 'none'; "
        b"form-action 'self'; frame-ancestors 'none'",
    ),
]
_KEY_OF_ROW = re.compile(r"(/api/rows/[^/]*/[^/]*/).+", re.DOTALL)
"""The key of a row in a path is a value of the data, such as an address or an account: no log shows it."""
_STOPS_WORK = re.compile(r"/api/(runs|agents|actions)/[^/]+/(cancel|pause|interrupt|destroy)|/api/session")
"""Paths whose POST begins no work: they are served during a shutdown too."""
LOGGED = 500
"""Characters of a method and path in the access log and the audit; a longer one is cut and says so."""
LONGEST_HEADER = 8 << 10
"""The most bytes of a header. Libraries parse some headers in quadratic time, on the event loop."""
LONGEST_HEADERS = {b"content-type": 256, b"cookie": 64 << 10}
"""Other limits. A browser sends the cookies of all applications on this host; they are read in linear time."""
SHORTEST_BOUNDARY = 8
"""A shorter boundary of a multipart body is hashed with the body: splitting a body at one character takes long."""
_BOUNDARY = re.compile(r""";[ \t]*boundary="?([\w'()+,./:=?-]{1,70})"?[ \t]*(?:;|$)""", re.ASCII | re.IGNORECASE)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("etude.http")


def _stopped_request() -> Unavailable:
    """Return the error of a request that was not finished before the server ended."""
    return Unavailable(
        "The server was shut down before the request was finished.", hint="Send it again.", retry_after_s=RETRY_S
    )


def _cut_for_log(text: str) -> str:
    """Return the text, cut to `LOGGED` characters if it is longer: anyone can send a long path."""
    if len(text) <= LOGGED:
        return text
    mark = f"… [{len(text):,} characters]"
    return text[: LOGGED - len(mark)] + mark


def _check_headers(scope: Scope) -> None:
    """Refuse a request with a long header before anything reads the header."""
    for name, value in scope["headers"]:
        longest = LONGEST_HEADERS.get(name, LONGEST_HEADER)
        if len(value) > longest:
            shown = name.decode("latin-1")[:100]
            raise HttpError(431, f"The header `{shown}` is longer than {longest:,} bytes.", "Send a shorter one.")


def _without_secret(name: str) -> StoredResponse:
    """Return the response to keep instead of one that held a secret."""
    error = Conflict(
        f"The request with the Idempotency-Key `{name}` was answered before; "
        "its response held a secret and was not kept.",
        hint="If the secret is lost, revoke the key that was created (see the list of keys) and create another.",
    )
    return StoredResponse(status=error.status, media="application/problem+json", body=json.dumps(problem(error)))


def _without_room(name: str, used_up: LimitExceeded) -> StoredResponse:
    """Return the response to keep instead of a long one for which the tenant has no storage left."""
    error = Conflict(
        f"The request with the Idempotency-Key `{name}` was answered before; its response was not kept. "
        f"{used_up.message}",
        hint="Look at what the request has done, or send it with another key to repeat it.",
    )
    return StoredResponse(status=error.status, media="application/problem+json", body=json.dumps(problem(error)))


def _without_body(name: str, run_id: str | None) -> StoredResponse:
    """Return the response to keep instead of one that is large or not JSON."""
    error = Conflict(
        f"The request with the Idempotency-Key `{name}` was answered before; its response was not kept, because it was "
        f"not JSON of at most {KEPT_BODY:,} bytes.",
        hint=f"Read the run: GET /api/runs/{run_id}" if run_id else "To do it again, send it with another key.",
        **({"run_id": run_id} if run_id else {}),
    )
    return StoredResponse(status=error.status, media="application/problem+json", body=json.dumps(problem(error)))


class RequestHash:
    """The hash of a request, by which a repeated one is known; its content is added as it arrives.

    Clients choose the boundary of a multipart body anew each time, so it does not count.
    """

    def __init__(self, scope: Scope, media: str) -> None:
        kind = media.partition(";")[0].strip().lower()
        found = _BOUNDARY.search(media) if kind.startswith("multipart/") else None
        self._boundary = found[1].encode() if found and len(found[1]) >= SHORTEST_BOUNDARY else b""
        kind = kind if self._boundary else media
        head = f"{scope['path']}\n{scope['query_string'].decode('latin-1')}\n{kind}\n"
        self._hash = hashlib.sha256(head.encode("utf-8", "replace"))
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Add a part of the content."""
        if not self._boundary:
            self._hash.update(data)
            return
        *parts, rest = (self._rest + data).split(self._boundary)
        if parts:
            self._hash.update(b"\n--\n".join([*parts, b""]))
        cut = max(len(rest) - len(self._boundary) + 1, 0)
        self._hash.update(rest[:cut])
        self._rest = rest[cut:]

    def hexdigest(self) -> str:
        """Return the hash of everything that was added."""
        whole = self._hash.copy()
        whole.update(self._rest)
        return whole.hexdigest()


class Middleware:
    """The outermost ASGI application."""

    def __init__(self, inner: Asgi, server: ServerState) -> None:
        self._inner = inner
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; lifespan messages pass through."""
        if scope["type"] == "http":
            if scope["path"].partition("/")[2].partition("/")[0] in CLASSIC:
                scope["path"] = f"/api{scope['path']}"
            await MiddlewareExchange(self._server, scope, receive, send).serve(self._inner)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._inner(scope, receive, send)


class MiddlewareExchange:
    """One request and its response."""

    def __init__(self, server: ServerState, scope: Scope, receive: Receive, send: Send) -> None:
        self._server = server
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self._secrets = read_access_secrets(self._headers)
        given = self._headers.get("x-request-id", "")
        self._id = given if _REQUEST_ID.fullmatch(given) else new_id("request")
        self._caller: ApiCaller = ANONYMOUS
        self._status = 0
        self._started = time.perf_counter()
        self._body: bytes | None = b""
        self._arriving = scope["method"] == "POST" and scope["path"] in UPLOADS
        self._client_gone = asyncio.Event()
        self._claim: tuple[str, str] | None = None
        """The owner and name of a claimed Idempotency-Key whose response is not stored yet."""
        self._content: RequestHash | None = None
        """The hash of an upload with an Idempotency-Key, while it arrives."""
        self._captured: list[bytes] | None = None
        self._captured_size = 0
        self._media = ""
        self._shed = False
        self._task: asyncio.Task[Any] | None = None
        self._noted: dict[str, str] = {}

    async def serve(self, inner: Asgi) -> None:
        """Admit the request, answer it, and record the outcome."""
        try:
            if self._scope["path"] not in PROBES:
                self._server.access_control.check_refusals(self._secrets, self._address)
        except EtudeError as error:
            self._shed = True
            await self._refuse(error)
            self._server.metrics.request(self._scope["method"], "shed", self._status, 0.0)
            return
        self._enter()
        try:
            with ExitStack() as held:
                _check_headers(self._scope)
                await self._admit(held)
                await self._answer(inner)
        except (EtudeError, HttpError) as error:
            if isinstance(error, Unauthorized) and "key_id" in error.details:
                self._noted["key_id"] = str(error.details["key_id"])  # the audit says which key was revoked or expired
            await self._refuse(error)
        except asyncio.CancelledError:
            if not self._server.stopped or self._status:
                raise
            await self._refuse(_stopped_request())
        except Exception as error:
            _log.exception("unexpected error", extra=self._facts())
            if not self._status:
                await self._refuse(error)
        finally:
            self._leave()
            self._record()

    def _enter(self) -> None:
        """Make a shutdown wait for this request."""
        self._task = asyncio.current_task()
        if self._task is not None and self._scope["path"] not in PROBES:
            self._server.requests.add(self._task)

    def _leave(self) -> None:
        """Let a shutdown no longer wait for this request."""
        if self._task is not None:
            self._server.requests.discard(self._task)

    async def _admit(self, held: ExitStack) -> None:
        server, method = self._server, self._scope["method"]
        needs_key = self._scope["path"] not in OPEN and not self._scope["path"].startswith("/assets/")
        try:
            # Metrics are most wanted while something is broken.
            without_store = self._scope["path"] == "/metrics"
            access = server.run_briefly if without_store else server.access_store
            self._caller = await server.access_control.identify(access, self._secrets, without_store)
        except EtudeError:
            if needs_key:
                raise
        if sum(name == b"host" for name, _ in self._scope["headers"]) > 1:
            raise Forbidden("The request has several Host headers.", hint="Send one.")
        server.access_control.check_origin(self._caller, method, self._scope["path"], self._headers)
        if needs_key:
            self._caller.require("reader")
        server.access_control.check_rate(self._caller)
        if method not in SAFE and not _STOPS_WORK.fullmatch(self._scope["path"]):
            server.check_not_draining()
        slot = held.enter_context(ExitStack())
        slot.enter_context(server.access_control.limit_concurrency(self._caller))
        if method not in SAFE and not self._arriving:
            self._body = await self._read_body()
            if "json" in self._headers.get("content-type", "").lower() or self._scope["path"] == "/mcp":
                check_json_body(self._body)
        app = server.app.scoped(self._caller.tenant)
        server.observer.watch(self._caller.tenant)
        call = ApiCall(server, self._caller, app, self._id, self._disconnected, self._is_admitted, slot, self._noted)
        self._scope.setdefault("state", {})["call"] = call

    async def _read_body(self) -> bytes:
        """Return the whole body; refuse a body that is too large or too slow before any work starts."""
        settings = self._server.app.settings.server
        is_open = self._caller is ANONYMOUS or self._scope["path"] in OPEN
        largest = min(settings.body, OPEN_BODY) if is_open else settings.body
        length = self._headers.get("content-length", "")
        parts, announced, size = [], int(length) if length.isdecimal() else 0, 0
        set_replaceable = self._scope.get("extensions", {}).get(REPLACEABLE, lambda _: None)
        # Without a key, such bodies could hold all connections.
        set_replaceable(self._caller is ANONYMOUS)
        try:
            async with asyncio.timeout(settings.body_s):
                while True:
                    if max(announced, size) > largest:
                        hint = "Send less, or raise `server.body`." if largest == settings.body else "Send less."
                        raise HttpError(413, f"The body is larger than {largest:,} bytes.", hint)
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        self._client_gone.set()
                        raise HttpError(400, "The client disconnected before the body was complete.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise HttpError(408, f"The body did not arrive within {settings.body_s:g} s.", "Send it faster.") from None
        finally:
            set_replaceable(False)

    async def _answer(self, inner: Asgi) -> None:
        name = self._headers.get("idempotency-key")
        if name is None or self._scope["method"] != "POST":
            await inner(self._scope, self._receive_body, self._send_message)
            return
        if not 0 < len(name) <= 255 or not name.isprintable():
            raise Invalid("The header Idempotency-Key must be 1 to 255 printable characters.", hint="Send a UUID.")
        owner, access_store = f"{self._caller.tenant}/{self._caller.name}", self._server.access_store
        request = RequestHash(self._scope, self._headers.get("content-type", ""))
        if not self._arriving:
            request.add(self._body or b"")
        before = await access_store(self._server.identity.claim, owner, name, request.hexdigest())
        if self._arriving:
            self._content = request
        if before is not None:
            if before.content and await self._hash_upload() != before.content:
                raise key_of_another_request(name)
            await self._replay(before)
            return
        self._captured, self._claim = [], (owner, name)
        try:
            await inner(self._scope, self._receive_body, self._send_message)
        finally:
            if self._claim is not None:
                self._claim = None
                await access_store(self._server.identity.keep, owner, name, None)

    async def _keep_response(self) -> None:
        """Store the response to a claimed request before its end is sent: the client may repeat the request at once."""
        if self._claim is None:
            return
        if self._content is not None and self._arriving and self._status >= 400:
            return  # an upload that was refused before all of it had arrived: nothing was done
        (owner, name), self._claim = self._claim, None
        if self._status >= 500 or self._status in TRANSIENT:
            with suppress(EtudeError):  # a repeated request gets a conflict until the claim is old
                await self._server.access_store(self._server.identity.keep, owner, name, None)
            return
        if self._scope["state"].get("secret"):
            reply = _without_secret(name)
        elif self._captured is None:
            reply = _without_body(name, self._noted.get("run_id"))
        else:
            text = b"".join(self._captured).decode("utf-8")
            reply = StoredResponse(status=self._status, media=self._media, body=text)
        if self._content is not None:
            reply = reply.model_copy(update={"content": await self._hash_upload()})
        try:
            await self._server.access_store(self._keep_reply, owner, name, reply)
        except EtudeError:
            # The work is done, so the client gets its response; a repeated request gets a conflict.
            _log.exception("a response was not kept", extra=self._facts())

    def _keep_reply(self, owner: str, name: str, reply: StoredResponse) -> None:
        if len(reply.body) > SHORT_REPLY:
            try:
                self._server.app.store.scoped(self._caller.tenant).check_storage(len(reply.body))
            except LimitExceeded as used_up:
                reply = _without_room(name, used_up).model_copy(update={"content": reply.content})
        self._server.identity.keep(owner, name, reply)

    async def _hash_upload(self) -> str:
        """Read the rest of an upload, as far as one may be that large, and return the hash of all of it."""
        assert self._content is not None  # noqa: S101 - for the type checker
        settings = self._server.app.settings.server
        left = settings.upload + OPEN_BODY
        async with asyncio.timeout(settings.upload_s):
            while self._arriving and left > 0:
                left -= len((await self._receive_part()).get("body", b""))
        return self._content.hexdigest()

    async def _replay(self, reply: StoredResponse) -> None:
        body = reply.body.encode()
        headers = [(b"content-type", reply.media.encode("latin-1")), (b"idempotency-replayed", b"true")]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send_message({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self._send_message({"type": "http.response.body", "body": body})

    async def _receive_body(self) -> Message:
        """Return the body once, or part by part if it is an upload; after that, wait until the client disconnects."""
        if self._arriving:
            return await self._receive_part()
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._disconnected()
        return {"type": "http.disconnect"}

    async def _receive_part(self) -> Message:
        settings = self._server.app.settings.server
        try:
            async with asyncio.timeout(settings.body_s):
                message = await self._receive()
        except TimeoutError:
            hint = "Send it without pauses."
            raise HttpError(408, f"Nothing of the body arrived within {settings.body_s:g} s.", hint) from None
        if message["type"] == "http.disconnect":
            self._client_gone.set()
        if self._content is not None:
            self._content.add(message.get("body", b""))
        if not message.get("more_body"):
            self._arriving, self._body = False, None
        return message

    async def _is_admitted(self) -> bool:
        return await self._server.access_control.is_admitted(self._server.access_store, self._secrets)

    async def _disconnected(self) -> None:
        while not self._client_gone.is_set():
            if (await self._receive())["type"] == "http.disconnect":
                self._client_gone.set()

    async def _send_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if 400 <= self._status < 500 and not self._shed:
                self._server.access_control.count_refusal(self._sender)
            present = {name.lower() for name, _ in message.get("headers", [])}
            headers = [*message.get("headers", []), *(h for h in HEADERS if h[0] not in present)]
            headers.append((b"x-request-id", self._id.encode()))
            if self._shed:
                # Requests that the client has sent ahead on this connection are not read.
                headers.append((b"connection", b"close"))
            if b"cache-control" not in present:
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
            self._media = next((v.decode("latin-1") for n, v in headers if n.lower() == b"content-type"), "")
            if not self._media.endswith("json"):
                self._captured = None
                await self._keep_response()  # a client that leaves a stream early may repeat the request too
            if self._media.startswith("text/event-stream") and self._scope["method"] in SAFE:
                # A stream has no end of its own, and its client can resume it.
                self._leave()
        elif self._captured is not None:
            self._captured.append(message.get("body", b""))
            self._captured_size += len(self._captured[-1])
            if self._captured_size > KEPT_BODY:
                self._captured = None
            if self._captured is None or not message.get("more_body"):
                await self._keep_response()
        await self._send(message)

    async def _refuse(self, error: BaseException) -> None:
        self._noted.update(describe_for_log(error))
        shown = hide_outage_details(error, self._caller.role is not None)
        response = respond_with_problem(shown, self._id, self._scope["path"])
        await response(self._scope, self._receive, self._send_message)

    @property
    def _sender(self) -> str:
        """The key of the request, or its address if it has none."""
        return self._caller.key.id if self._caller.key else self._address

    @property
    def _address(self) -> str:
        return str((self._scope.get("client") or ("",))[0])

    def _record(self) -> None:
        seconds = time.perf_counter() - self._started
        route = getattr(self._scope.get("route"), "path", "other")
        method, path = self._scope["method"], _KEY_OF_ROW.sub(r"\1***", self._scope["path"])
        action = _cut_for_log(f"{method} {path}")
        self._server.metrics.request(method, route, self._status or 499, seconds)
        if self._server.access is not None:
            self._server.access.add(action, self._status, seconds, self._facts())
        if method not in SAFE or self._status in (401, 403):
            key = self._caller.key.id if self._caller.key else self._noted.get("key_id")
            reason = self._noted.get("reason")
            self._server.identity.note(self._caller.tenant, key, action, self._status, self._id, self._address, reason)

    def _facts(self) -> dict[str, str]:
        known = self._scope.get("path_params") or {}
        failed = ("code",) if 400 <= self._status < 500 else ("code", "error") if self._status >= 500 else ()
        shown = ("run_id", "thread_id", *failed)
        named = {k: _cut_for_log(str(v)) for k, v in (self._noted | known).items() if k in shown}
        return {"request_id": self._id, "tenant": self._caller.tenant, "key": self._caller.name, **named}
