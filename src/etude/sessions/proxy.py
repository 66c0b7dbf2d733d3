"""The HTTP proxy of a session with a list of hosts. It connects to these hosts and to no others.

It runs in the host process and listens on a socket in the session's own, otherwise empty network. It supports CONNECT
for tunnels, and requests with an absolute URI. A session has no other connection, not even to look up a name.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from etude.errors import Refused, Unavailable
from etude.host_addresses import (
    Address,
    Resolve,
    dial_host_addresses,
    find_host_addresses,
    loopback_host_addresses,
    parse_allowed_host,
    parse_host_port,
    resolve_host,
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"[!-~]+")
_PIECE = 1 << 16
_READ, _WRITE = select.POLLIN, select.POLLOUT
_LINGER_S = 1.0
_NEWS = 50
_MORE = "There were more connections to other hosts, made or refused."
# Headers that are meant for the proxy alone. Only Content-Length says where a body ends.
_HOP = frozenset(
    {"connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade"}
)
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    411: "Length Required",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Decision:
    """One connection that a session asked for: whether it was allowed, why, and the bytes in each direction."""

    host: str
    port: int
    allowed: bool
    reason: str
    sent: int = 0
    received: int = 0


@dataclass(frozen=True)
class ProxyLimits:
    """What one session may use of the host through its proxy."""

    header: int = 16 << 10
    header_s: float = 10.0
    connections: int = 32
    connect_s: float = 10.0
    idle_s: float = 300.0


class _Answer(Exception):
    """An error response of the proxy itself."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class _Request:
    """The parsed head of a request."""

    host: str
    port: int
    head: bytes
    """The head that is sent to the target; empty for a tunnel."""
    length: int | None
    """How many bytes of body the session may send; None for a tunnel, which has no limit."""


class Proxy:
    """The proxy of one session. It takes over the listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        entries: Iterable[str],
        *,
        limits: ProxyLimits | None = None,
        resolve: Resolve = resolve_host,
        on_decision: Callable[[Decision], None] | None = None,
    ) -> None:
        self._listener = listener
        self._allowed = frozenset(map(parse_allowed_host, entries))
        self._limits = limits or ProxyLimits()
        self._resolve = resolve
        self._on_decision = on_decision
        self.decisions: deque[Decision] = deque(maxlen=1000)
        """The newest decisions; `on_decision` gets all of them."""
        self._news: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._acceptor = threading.Thread(target=self._accept, name="etude-proxy", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Close every connection and stop listening."""
        with self._lock:
            self._closed = True
            ending, threads = list(self._open), list(self._threads)
        for sock in (self._listener, *ending):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes threads that wait for the socket; closing it would not
        deadline = time.monotonic() + _LINGER_S
        for thread in (self._acceptor, *threads):
            thread.join(max(deadline - time.monotonic(), 0))
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if not self._closed:
                    time.sleep(0.1)  # the host has no free descriptors right now
                continue
            with self._lock:
                # Connections above the limit get an error response, up to twice the limit; the rest are closed.
                if self._closed or len(self._threads) >= 2 * self._limits.connections:
                    client.close()
                    continue
                crowded = len(self._threads) >= self._limits.connections
                self._open.add(client)
                thread = threading.Thread(target=self._serve, args=(client, crowded), daemon=True)
                self._threads.add(thread)
            try:
                thread.start()
            except RuntimeError:  # no more threads for this process
                self._forget(client, thread)

    def _serve(self, client: socket.socket, crowded: bool) -> None:
        try:
            self._answer(client, crowded)
        except OSError:
            pass  # one side closed its connection, so no answer can be sent
        finally:
            self._forget(client, threading.current_thread())

    def _forget(self, sock: socket.socket, thread: threading.Thread | None = None) -> None:
        with self._lock:
            self._open.discard(sock)
            if thread is not None:
                self._threads.discard(thread)
        sock.close()

    def _answer(self, client: socket.socket, crowded: bool) -> None:
        request: _Request | None = None
        try:
            if crowded:
                raise _Answer(503, f"{self._limits.connections} connections are open already")
            head, rest = self._read_head(client)
            request = _parse_request(head)
            target = self._connect(request)
            self._note(f"Connected to {request.host}:{request.port}.")  # before the session sees the connection
        except _Answer as answer:
            self._note(f"A connection was refused: {answer.reason}.")
            self._decide(request, False, answer.reason)
            _refuse(client, answer)
            return
        counts = [0, 0]
        try:
            if request.length is None:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            first = request.head + (rest if request.length is None else rest[: request.length])
            room = None if request.length is None else max(request.length - len(rest), 0)
            _pump(client, target, first, room, self._limits.idle_s, counts)
        finally:
            self._forget(target)
            self._decide(request, True, "listed", *counts)
        _drain(client)

    def _decide(self, request: _Request | None, allowed: bool, reason: str, sent: int = 0, received: int = 0) -> None:
        host, port = (request.host, request.port) if request else ("", 0)
        decision = Decision(host, port, allowed, reason, sent, received)
        self.decisions.append(decision)
        if self._on_decision is not None:
            with contextlib.suppress(Exception):  # an error of the callback must not end the connection
                self._on_decision(decision)

    def _note(self, text: str) -> None:
        with self._lock:
            self._news[text if text in self._news or len(self._news) < _NEWS else _MORE] += 1

    def take_news(self) -> list[str]:
        """Return a line for each connection made or refused since the last call."""
        with self._lock:
            news, self._news = self._news, Counter()
        return [text if times == 1 else f"{text} ({times} times)" for text, times in news.items()]

    def _read_head(self, client: socket.socket) -> tuple[bytes, bytes]:
        deadline = time.monotonic() + self._limits.header_s
        data = b""
        while b"\r\n\r\n" not in data:
            if len(data) >= self._limits.header:
                raise _Answer(431, f"a request's head is longer than {self._limits.header} bytes")
            # One deadline for the whole head: otherwise a byte now and then would keep it open forever.
            client.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                part = client.recv(self._limits.header - len(data))
            except TimeoutError:
                raise _Answer(408, f"a request's head took longer than {self._limits.header_s:g} s") from None
            if not part:
                raise ConnectionResetError
            data += part
        client.settimeout(self._limits.idle_s)
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    # -- to the target

    def _connect(self, request: _Request) -> socket.socket:
        if (request.host, request.port) not in self._allowed:
            raise _Answer(403, f"{request.host}:{request.port} is not on the list")
        try:
            target = dial_host_addresses(
                self._addresses(request), request.port, self._limits.connect_s, hold=self._hold, drop=self._forget
            )
        except OSError as error:
            failure = error.strerror or str(error) or type(error).__name__
            raise _Answer(502, f"{request.host}:{request.port} cannot be reached: {failure}") from None
        if self._closed:
            self._forget(target)
            raise _Answer(502, "the session ended")
        return target

    def _hold(self, target: socket.socket) -> None:
        with self._lock:
            self._open.add(target)

    def _addresses(self, request: _Request) -> list[Address]:
        with contextlib.suppress(ValueError):
            return [ipaddress.ip_address(request.host)]  # the list itself names this address
        if request.host == "localhost":
            return loopback_host_addresses()
        try:
            return find_host_addresses(request.host, request.port, resolve=self._resolve)
        except Unavailable:
            raise _Answer(502, f"{request.host} has no address") from None
        except Refused:
            raise _Answer(403, f"{request.host} has no public address") from None


def _parse_request(head: bytes) -> _Request:
    try:
        lines = head.decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ")
    except ValueError:
        raise _Answer(400, "the request line must have three parts: method, target and version") from None
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target) or version not in ("HTTP/1.0", "HTTP/1.1"):
        raise _Answer(400, "this is not an HTTP/1 request")
    if method == "CONNECT":
        found = parse_host_port(target)
        if found is None:
            raise _Answer(400, "CONNECT needs a host and a port")
        return _Request(*found, b"", None)
    scheme, _, place = target.partition("://")
    authority = re.split(r"[/?#]", place, maxsplit=1)[0]
    found = parse_host_port(authority, 80)
    if scheme.lower() != "http" or found is None:
        raise _Answer(400, "only `http://host:port/` and CONNECT are supported")
    path = place[len(authority) :].partition("#")[0]
    return _rewrite(f"{method} {path if path.startswith('/') else f'/{path}'} HTTP/1.1", *found, lines[1:])


def _rewrite(line: str, host: str, port: int, headers: list[str]) -> _Request:
    """Return the request for the target: with one Host header, a known length, and `Connection: close`."""
    kept = [line, f"Host: {f'[{host}]' if ':' in host else host}{'' if port == 80 else f':{port}'}"]
    lengths: set[str] = set()
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or re.search(r"[\r\n\0]", value):
            raise _Answer(400, "a header is malformed")
        if name.lower() == "transfer-encoding":
            raise _Answer(411, "a request with a body needs a Content-Length")
        if name.lower() == "content-length":
            lengths.add(value.strip(" \t"))
        elif name.lower() not in _HOP:
            kept.append(header)
    if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,15}", found, re.ASCII) for found in lengths):
        raise _Answer(400, "the Content-Length is malformed")
    # Bytes after the body are not forwarded: they could be a second request, for a host that is not on the list.
    kept += [f"Content-Length: {found}" for found in lengths]
    head = "\r\n".join([*kept, "Connection: close", "", ""])
    return _Request(host, port, head.encode("latin-1"), int(lengths.pop()) if lengths else 0)


def _refuse(client: socket.socket, answer: _Answer) -> None:
    body = f"{answer.reason}\n".encode("ascii", "replace")
    line = f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}"
    # The reason is also in the status line, which is all that a client shows if a tunnel is refused.
    head = f"{line}: {answer.reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    client.settimeout(_LINGER_S)
    client.sendall(f"{head}\r\n\r\n".encode("ascii", "replace") + body)
    _drain(client)


def _drain(client: socket.socket) -> None:
    """Read until the client closes: closing with unread bytes would reset the connection and lose the answer."""
    client.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + _LINGER_S
    while (left := deadline - time.monotonic()) > 0:
        client.settimeout(left)
        if not client.recv(_PIECE):
            return


def _pump(
    client: socket.socket, target: socket.socket, first: bytes, room: int | None, idle_s: float, counts: list[int]
) -> None:
    """Forward bytes in both directions until the target closes, or the connection is idle for too long.

    The target gets `first` and then at most `room` bytes of the client; None means no limit. The loop never waits for
    one side alone: if both send before they read, that would be a deadlock.
    """
    out, back = bytearray(first), bytearray()
    reads_client, reads_target, ends = room != 0, True, False
    client.setblocking(False)
    target.setblocking(False)
    while reads_target or back:
        wants_client = (_READ if reads_client and len(out) < _PIECE else 0) | (_WRITE if back else 0)
        wants_target = (_READ if reads_target and len(back) < _PIECE else 0) | (_WRITE if out else 0)
        waiting = select.poll()
        for sock, wants in ((client, wants_client), (target, wants_target)):
            if wants:  # otherwise a closed side would wake this loop again and again
                waiting.register(sock, wants)
        events = dict(waiting.poll(idle_s * 1000))
        if not events:
            return
        at_client, at_target = events.get(client.fileno(), 0), events.get(target.fileno(), 0)
        if out and at_target & ~_READ:
            counts[0] += _send(target, out)
        if back and at_client & ~_READ:
            counts[1] += _send(client, back)
        if wants_client & _READ and at_client & ~_WRITE:
            part = client.recv(_PIECE if room is None else min(room, _PIECE))
            out += part
            room = None if room is None else room - len(part)
            reads_client = bool(part) and room != 0
            if not part:
                if room is not None:
                    return  # the client closed in the middle of its request
                ends = True
        if wants_target & _READ and at_target & ~_WRITE:
            part = target.recv(_PIECE)
            back += part
            reads_target = bool(part)
        if ends and not out:
            ends = False
            target.shutdown(socket.SHUT_WR)


def _send(sock: socket.socket, data: bytearray) -> int:
    sent = sock.send(data)
    del data[:sent]
    return sent
