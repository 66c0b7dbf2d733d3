"""The listening process: connections limited in number, size and time, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from etude.api.middleware import REPLACEABLE
from etude.api.server import create_app
from etude.errors import EtudeError, Unavailable
from etude.store.processes import ProcessHeartbeat
from etude.telemetry import TelemetryAccessLog

if TYPE_CHECKING:
    from fastapi import FastAPI

    from etude.api.server_state import ServerState
    from etude.app import App

HEAD_BYTES = 64 << 10
"""The largest request head."""
PIPELINED = 16
"""Requests that a client may send ahead on a connection; it is closed after their responses if there are more."""
LINGER_S = 0.5
"""How long a refused connection stays open so that the client can read the refusal."""
RESPOND_S = 2.0
"""Seconds for a request to respond once its query or the wait for its run was ended by a shutdown."""
UNSENT = 128 << 10
"""Bytes of a response that the kernel takes before the client has room for them; the rest waits in this process."""
TAKEN = 16 << 10
"""Bytes that a client must take within `server.response_s` while a response waits for it."""
SPARE_FILES = 256
"""Open files that are reserved for engines, sessions and the store."""
SWITCH_S = 0.0002
"""How long a computing thread may keep others waiting, about five times in each request.

Python's default of 5 ms is longer than a small query takes.
"""


class WaitingUvicornConnections:
    """Connections in which the server waits for the client, by the address of the client; the oldest come first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[HttpToolsProtocol, None]] = {}

    def add(self, address: str, connection: HttpToolsProtocol) -> None:
        """Add a connection as the newest of its address."""
        self.discard(address, connection)
        self._by_address.setdefault(address, {})[connection] = None

    def discard(self, address: str, connection: HttpToolsProtocol) -> None:
        """Remove a connection, because it closes or the client has done its part."""
        waiting = self._by_address.get(address)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._by_address[address]

    def take_oldest(self) -> HttpToolsProtocol | None:
        """Return the oldest connection of the address that has the most, and remove it; None if there is none."""
        if not self._by_address:
            return None
        address = max(self._by_address, key=lambda a: len(self._by_address[a]))
        oldest = next(iter(self._by_address[address]))
        self.discard(address, oldest)
        return oldest


def make_uvicorn_protocol(connections: int, head_s: float, response_s: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's HTTP protocol with a limit on connections and on the seconds that it waits for a client.

    At the limit, a new connection replaces one in which the server waits for the client: first an idle one, then one
    whose client does not take its response. It is refused only if the server works on the requests of all.
    """
    idle, unread = WaitingUvicornConnections(), WaitingUvicornConnections()

    class Bounded(HttpToolsProtocol):
        _address = ""
        _timer: asyncio.TimerHandle | None = None
        _head = 0
        _response_timer: asyncio.TimerHandle | None = None
        _unread = 0
        """Bytes of responses that waited for the client when the timer was started."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= connections:
                oldest = idle.take_oldest() or unread.take_oldest()
                if oldest is not None:
                    _reset(oldest.transport)
                    self.connections.discard(oldest)
            if len(self.connections) >= connections:
                self.parser = None  # type: ignore[assignment]
                transport.write(_refusal(503, "Too many connections", "Retry-After: 5\r\n"))
                _close_gently(transport, self.loop)
                return
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            idle.add(self._address, self)
            self._expect_head()

        def connection_lost(self, error: Exception | None) -> None:
            self._stop_timer()
            idle.discard(self._address, self)
            self._stop_response_timer()
            if self.transport is not None:
                super().connection_lost(error)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._expect_reading()

        def resume_writing(self) -> None:
            super().resume_writing()
            if not self.transport.is_closing():
                self._stop_response_timer()

        def data_received(self, data: bytes) -> None:
            if self.parser is None:
                return
            if self._timer is not None:
                if self._head > HEAD_BYTES:
                    self._refuse(431, "Request header fields too large")
                    return
                self._head += len(data)
            # As in uvicorn, but it would log each malformed request, and anyone can send these.
            self._unset_keepalive_if_required()
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade:
                pass  # the request is answered as if it asked for no other protocol
            except httptools.HttpParserError:
                if len(self.pipeline) < PIPELINED:
                    self._refuse(400, "Bad request")
                else:
                    self.parser = None  # type: ignore[assignment]
                    self.cycle.keep_alive = False

        def on_message_begin(self) -> None:
            if len(self.pipeline) >= PIPELINED:
                raise _TooManyAhead
            self._expect_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._stop_timer()
            idle.discard(self._address, self)
            self.scope["extensions"] = {REPLACEABLE: self._set_replaceable}  # type: ignore[dict-item]
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.transport.is_closing():
                self._expect_reading()
            elif self.cycle.response_complete:
                idle.add(self._address, self)

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._expect_reading()

        def _set_replaceable(self, replaceable: bool) -> None:
            """Let new connections replace this one while a request waits for a client who has shown no key."""
            (idle.add if replaceable and not self.transport.is_closing() else idle.discard)(self._address, self)

        def _expect_head(self) -> None:
            if self._timer is None:
                self._head = 0
                self._timer = self.loop.call_later(head_s, self._refuse, 408, "Request timeout")

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _expect_reading(self) -> None:
            """Close the connection if its client does not take what waits for it.

            Nothing is added to what waits: a request that has more to send waits too, or the connection closes.
            """
            waiting = self.transport.get_write_buffer_size()
            if waiting and self._response_timer is None:
                self._unread = waiting
                unread.add(self._address, self)
                self._response_timer = self.loop.call_later(response_s, self._check_reading)

        def _check_reading(self) -> None:
            self._response_timer = None
            waiting = self.transport.get_write_buffer_size()
            if waiting and self._unread - waiting < TAKEN:
                _reset(self.transport)
            else:
                self._expect_reading()

        def _stop_response_timer(self) -> None:
            unread.discard(self._address, self)
            if self._response_timer is not None:
                self._response_timer.cancel()
                self._response_timer = None

        def _refuse(self, status: int, title: str) -> None:
            self._stop_timer()
            if not self.transport.is_closing():
                self.parser = None  # type: ignore[assignment]
                self.transport.write(_refusal(status, title))
                _close_gently(self.transport, self.loop)
                self._expect_reading()

    return Bounded


class _TooManyAhead(Exception):
    """Ends the parsing of what a connection sends."""


def _close_gently(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
    """Close the writing side now and the connection a little later, so that the client can read the refusal.

    Closing at once with unread bytes would reset the connection, and the client would never see the refusal.
    """
    if transport.can_write_eof():
        transport.write_eof()
    loop.call_later(LINGER_S, transport.close)


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection at once. The kernel drops what its client has not read, instead of sending it."""
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _limit_unsent(listener: socket.socket, response_s: float) -> None:
    """Limit what the kernel keeps for clients who do not read. Accepted connections inherit this on Linux."""
    for option, value in (("TCP_NOTSENT_LOWAT", UNSENT), ("TCP_USER_TIMEOUT", int(response_s * 1000))):
        if sys.platform == "linux" and listener.family != socket.AF_UNIX and hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _refusal(status: int, title: str, more: str = "") -> bytes:
    code = title.lower().replace(" ", "_")
    body = (
        f'{{"type": "urn:etude:error:{code}", "title": "{title}", "status": {status}, "detail": "{title}.", '
        f'"code": "{code}", "retryable": {str(status != 431).lower()}}}'
    )
    head = f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n{more}"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


class UvicornServer(uvicorn.Server):
    """A server that shuts down gracefully: it refuses new work and waits for running work."""

    def __init__(self, config: uvicorn.Config, server: ServerState) -> None:
        super().__init__(config)
        self._server = server
        self.on_listening: Callable[[str], None] | None = None
        """Called once with the address."""
        self._heartbeat: ProcessHeartbeat | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen and print the address."""
        for listener in sockets or ():
            _limit_unsent(listener, self._server.app.settings.server.response_s)
        await super().startup(sockets)
        if self.started and sockets:
            host, port, *_ = sockets[0].getsockname()
            address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            sys.stderr.write(f"etude listens on {address}\n")
            self._enter(address)
            if self.on_listening is not None:
                self.on_listening(address)

    def _enter(self, address: str) -> None:
        """Add this server to those that `etude status` shows; without the store it serves all the same."""
        worker = self._server.worker
        working = None if worker is None else lambda: worker.responsive
        self._heartbeat = ProcessHeartbeat(self._server.app.store, "server", address, working).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new work, wait for running work and requests in flight, end the streams, and close."""
        server = self._server
        server.draining = True
        if server.worker is not None:
            server.worker.drain()
        until = time.monotonic() + server.app.settings.server.drain_s
        while server.at_work and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.05)
        server.run_watcher.close()
        await self._stop_requests()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        await super().shutdown(sockets)

    async def _stop_requests(self) -> None:
        """End the requests in flight. Queries are interrupted first, so that they record it and respond."""
        if self._server.requests:
            self._server.app.open_queries.interrupt()
        until = time.monotonic() + RESPOND_S
        while self._server.requests and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        self._server.stop_requests()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down on a signal; a second Ctrl-C does not wait for running work.

        uvicorn's own method also keeps the signal and raises it again after the shutdown. The process would then end
        before the app is closed, with the status of a failure.
        """
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        else:
            self.should_exit = True


def make_uvicorn_server(app: App, api: FastAPI, host: str, port: int) -> UvicornServer:
    """Return the server of an API, not yet listening."""
    settings = app.settings.server
    # As many connections again may be closing.
    limit = min(settings.connections, (_raise_open_files() - SPARE_FILES) // 2)
    config = uvicorn.Config(
        api,
        host=host,
        port=port,
        http=make_uvicorn_protocol(max(limit, 16), settings.head_s, settings.response_s),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        backlog=2048,
        lifespan="on",
    )
    return UvicornServer(config, api.state.server)


def _raise_open_files() -> int:
    """Raise the limit of open files as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted, soft)


def serve_with_uvicorn(
    app: App,
    host: str,
    port: int,
    *,
    keys_required: bool,
    anyone: bool = False,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until stopped; resume the runs that an earlier process left unfinished."""
    sys.setswitchinterval(SWITCH_S)
    api = create_app(app, keys_required=keys_required, anyone=anyone, runs_agents=True)
    api.state.server.access = TelemetryAccessLog(sys.stderr)
    listener = make_uvicorn_server(app, api, host, port)
    listener.on_listening = on_listening
    try:
        bound = listener.config.bind_socket()
    except SystemExit:
        raise Unavailable(f"Cannot listen on `{host}:{port}`.", hint="Choose another --port.") from None
    known = api.state.server.identity.keys()
    for tenant in {app.tenant, *(key.tenant for key in known)}:
        try:
            app.scoped(tenant).uploads.remove_leftovers()
            app.scoped(tenant).runs.recover()
        except EtudeError as error:
            logging.getLogger("etude").warning("the work of %s could not be resumed: %s", tenant, error.message)
    listener.run(sockets=[bound])
