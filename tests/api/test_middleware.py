"""What every request passes: bodies huge, deep, slow or broken, tricks in paths and headers, every error a problem."""

from __future__ import annotations

import fcntl
import json
import re
import selectors
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import Running, listening, open_app
from etude.api.middleware import RequestHash
from etude.app import App

KEYS = {"type", "title", "status", "detail", "code", "retryable"}


PATIENT = {"body": 100_000, "body_s": 120, "head_s": 120, "connections": 300}


@contextmanager
def serving(home: Path, shop: Path, **limits: float) -> Iterator[Running]:
    with open_app(home, shop, server=PATIENT | limits) as app, listening(app) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[Running]:
    """A server with room for few, that waits for a slow machine."""
    with serving(tmp_path_factory.mktemp("home"), shop) as running:
        yield running


def talk(server: Running, *pieces: bytes) -> tuple[int, dict[str, Any]]:
    """Send raw bytes, and read the status and the problem of what comes back."""
    with socket.create_connection(("127.0.0.1", server.port), 120) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break  # refused before all of it was sent
        answer = b""
        while b"\r\n\r\n" not in answer or not complete(answer):
            part = connection.recv(65_536)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body) if b"json" in head else {}


def complete(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    return len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)


def post(body: bytes, *headers: str, path: str = "/sql") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *(headers or (f"content-length: {len(body)}",))]
    lines.append("content-type: application/json")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"query": "SELECT 1"', 422),
        (b"", 422),
        (b"null", 422),
        (b"[" * 90_000, 422),
        (b'{"query":' * 9_000, 422),
        (b'{"query": ' + b"9" * 90_000 + b"}", 422),
        (b'{"query": "\xff\xfe"}', 422),
        ('{"query": "SELECT 1"}'.encode("utf-16"), 422),
        ('{"query": "SELECT 1"}'.encode("utf-7"), 200),
        ('{"query": "ä"}'.encode("latin-1"), 422),
        (b'{"query": "SELECT 1", "query": 2}', 422),
        (b'{"query": "SELECT \\ud800"}', 422),
        (b'{"query": "SELECT \\u0000"}', 422),
        (b'{"query": "SELECT 1", "limit": 1e999}', 422),
        (b'{"query": "SELECT 1", "limit": NaN}', 422),
        (b'{"query": "SELECT 1", "unknown": 1}', 422),
        (b'{"query": "' + b"x" * 100_001 + b'"}', 413),
    ],
)
def test_bodies(server: Running, body: bytes, status: int) -> None:
    seen, problem = talk(server, post(body))
    assert seen in (status, 400) if status == 422 else seen == status, problem
    if status >= 400:
        assert set(problem) >= KEYS


def test_a_body_that_says_it_is_huge_is_refused_before_it_comes(server: Running) -> None:
    seen, problem = talk(server, post(b"", "content-length: 99999999999"))
    assert (seen, problem["code"]) == (413, "too_large")


def test_a_body_without_end_is_refused_where_it_is_too_long(server: Running) -> None:
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    seen, problem = talk(server, post(b"", "transfer-encoding: chunked"), *[chunk] * 30)
    assert (seen, problem["code"]) == (413, "too_large")


def test_slow_bodies_are_not_waited_for(tmp_path: Path, shop: Path) -> None:
    with serving(tmp_path, shop, body_s=0.5) as server:
        seen, problem = talk(server, post(b"{", "content-length: 1000"), *[b" "] * 3)
    assert (seen, problem["code"]) == (408, "timeout")


def test_slow_heads_are_not_waited_for(tmp_path: Path, shop: Path) -> None:
    """Nor are those who say nothing; each is told so."""
    with serving(tmp_path, shop, head_s=0.5) as server:
        for sent in ([], [b"GET /healthz HTTP/1.1\r\n", b"x: y\r\n", b"x: y\r\n"]):
            seen, problem = talk(server, *sent)
            assert (seen, problem["code"]) == (408, "request_timeout")


def test_a_head_that_is_too_large(server: Running) -> None:
    seen, problem = talk(server, b"GET / HTTP/1.1\r\n", *[b"x: " + b"y" * 50_000 + b"\r\n"] * 10)
    assert (seen, problem["status"]) == (431, 431)


@pytest.mark.parametrize("name", ["content-type", "accept", "x-csrf-token", "prefer"])
def test_a_header_that_is_too_long_is_refused_before_it_is_parsed(server: Running, name: str) -> None:
    """The standard library takes quadratic time for the parameters of a header, on the event loop."""
    first, long = f"{name}: text/plain\r\n", f'{name}: multipart/x;"{";" * 60_000}\r\n'
    head = f"POST /api/session HTTP/1.1\r\nhost: localhost\r\n{first}{long}idempotency-key: k\r\n"
    started = time.perf_counter()
    seen, problem = talk(server, f"{head}content-length: 2\r\n\r\n{{}}".encode())
    assert (seen, problem["code"]) == (431, "request_header_fields_too_large")
    assert name in problem["detail"]
    assert time.perf_counter() - started < 3


MULTIPART = "multipart/form-data; charset=utf-8; boundary="


@pytest.mark.parametrize(
    ("boundary", "same"), [("{}{}", True), ('"{}.{}"', True), ("{}{} ; x=1", True), ("{:.1}", False)]
)
def test_the_boundary_of_a_form_does_not_count_as_its_content(boundary: str, same: bool) -> None:
    seen = set()
    for name in ("abcdefgh", "ijklmnop"):
        quoted = boundary.format(name, 1)
        mark = quoted.partition(" ")[0].strip('"').encode()
        body = b"--" + mark + b"\r\nfield\r\n--" + mark + b"--\r\n"
        for size in (1, 3, 1000):
            content = RequestHash({"path": "/", "query_string": b""}, MULTIPART + quoted)
            for start in range(0, len(body), size):
                content.add(body[start : start + size])
            seen.add(content.hexdigest())
    assert len(seen) == (1 if same else 2)


@pytest.mark.parametrize("boundary", ["a", "a" * 8])
def test_a_body_made_of_boundaries_is_hashed_quickly(boundary: str) -> None:
    content = RequestHash({"path": "/", "query_string": b""}, MULTIPART + boundary)
    started = time.process_time()
    content.add(b"a" * (4 << 20))
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST /sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx\x00y: z\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(server: Running, head: bytes) -> None:
    assert talk(server, head)[0] == 400


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//healthz",
        "/api//runs",
        "/runs/%00",
        "/runs/%2F..%2Fx",
        "/runs/run_1%0d%0aset-cookie:%20a=b",
        "/runs/%ff%fe",
        "/threads/" + "x" * 9000,
        "/api/api/runs",
        "/runs/x/result?sort=%00",
        "/rows/shop/orders/%00?by=order_id",
        "/datasets/..%2f..%2fetc/schema",
    ],
)
def test_paths(server: Running, path: str) -> None:
    seen, problem = talk(server, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert seen in (404, 405, 422), problem
    assert set(problem) >= KEYS


def test_a_request_id_is_taken_over_only_where_it_is_plain(client: TestClient) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for strange in ("a b", "x" * 65, "<script>", "é"):
        sent = {"X-Request-Id": strange.encode()}
        assert client.get("/healthz", headers=sent).headers["x-request-id"].startswith("request_")  # type: ignore[arg-type]


def test_every_response_has_the_headers_of_safety(client: TestClient) -> None:
    for path in ("/", "/healthz", "/api/datasets", "/nothing", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        # The page itself says nothing secret; browsers ask whether it is still the same.
        assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")


def test_every_route_errs_in_one_shape(client: TestClient) -> None:
    """Each route is sent what it cannot take: wrong methods, ids of nothing, bodies of nothing."""
    schema = client.get("/openapi.json").json()
    seen = set()
    for path in schema["paths"]:
        # Any topic can be listened to, for ever, but for one that cannot be.
        url = path.replace("{topic}", "no topic").replace("{", "none-").replace("}", "")
        for method in ("get", "post", "put", "delete", "patch"):
            answer = client.request(method, url, content=b'{"no": ')
            if answer.is_error:
                seen.add(path)
                assert answer.headers["content-type"] == "application/problem+json", (method, url, answer.text)
                problem = answer.json()
                assert set(problem) >= KEYS and problem["status"] == answer.status_code
                assert problem["instance"] == answer.headers["x-request-id"]
                if answer.status_code == 405:
                    # `/datasets/connect` is also a path of `/datasets/{dataset}`, whose methods may be named.
                    known = {m for template, found in schema["paths"].items() if _fits(template, url) for m in found}
                    assert answer.headers["allow"].lower().split(", ")[0] in known
    assert seen >= set(schema["paths"])


def _fits(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(template)), path) is not None


def test_an_unexpected_error_tells_nothing_but_its_id(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.api import datasets
    from etude.api.server import create_app

    def broken(_: object) -> None:
        raise RuntimeError("the password is 123")

    monkeypatch.setattr(datasets, "load_datasets", broken)
    with TestClient(create_app(app), base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = client.get("/datasets")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "123" not in answer.text
    assert answer.json()["instance"]


def test_a_thousand_connections_that_say_nothing(server: Running) -> None:
    """The oldest make room for new ones, so that others are served all the time, and they cost no memory."""
    with ExitStack() as silent:
        before = resident()
        waiting = silent.enter_context(selectors.DefaultSelector())
        for _ in range(1000):
            connection = silent.enter_context(socket.create_connection(("127.0.0.1", server.port), 120))
            waiting.register(connection, selectors.EVENT_READ)
        assert talk(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")[0] == 200
        while len(waiting.get_map()) > 300:
            answered = waiting.select(120)
            assert answered, f"{len(waiting.get_map())} connections are open"
            for place, _ in answered:
                with suppress(ConnectionResetError):
                    assert place.fileobj.recv(4096) == b""  # type: ignore[union-attr]
                waiting.unregister(place.fileobj)
    wait_until(lambda: talk(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")[0] == 200)
    assert resident() - before < 64 << 20


def test_a_connection_with_a_request_in_work_is_not_closed_for_a_new_one(tmp_path: Path, shop: Path) -> None:
    slow = b'{"query": "SELECT count(*) FROM range(100000000000) a", "record": false}'
    with serving(tmp_path / "home", shop, connections=16) as server, ExitStack() as busy:
        for _ in range(16):
            connection = busy.enter_context(socket.create_connection(("127.0.0.1", server.port), 120))
            # The head has come and the body has not: the request is in work.
            connection.sendall(post(slow)[: -len(slow)])
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
        assert talk(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")[0] == 503


UNREAD = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n%s\r\n"
"""A request without a key whose response is larger than what a connection may hold."""


def connect_without_reading(server: Running, request: bytes) -> socket.socket:
    """Send a request on a connection that takes next to nothing of its response."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.settimeout(120)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(request)
    return connection


def count_unread(server: Running) -> int:
    """Count the connections whose responses wait for their clients."""
    open_now = [c.transport for c in list(server.listener.server_state.connections)]
    return sum(transport.get_write_buffer_size() > 0 for transport in open_now if transport is not None)


@pytest.mark.parametrize("request_head", [UNREAD % b"", UNREAD % b"connection: close\r\n"], ids=["keep", "close"])
def test_connections_whose_responses_are_not_read_make_room_for_new_ones(
    tmp_path: Path, shop: Path, request_head: bytes
) -> None:
    with serving(tmp_path / "home", shop, connections=16) as server, ExitStack() as stack:
        for count in range(1, 17):
            stack.enter_context(connect_without_reading(server, request_head))
            wait_until(lambda count=count: count_unread(server) == count)  # type: ignore[misc]
        assert talk(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")[0] == 200
        assert count_unread(server) == 15


@pytest.mark.parametrize("request_head", [UNREAD % b"", UNREAD % b"connection: close\r\n"], ids=["keep", "close"])
def test_a_response_that_is_not_read_is_given_up(tmp_path: Path, shop: Path, request_head: bytes) -> None:
    """The connection is reset, so that the kernel keeps nothing of it either."""
    with (
        serving(tmp_path / "home", shop, response_s=0.5) as server,
        connect_without_reading(server, request_head * 4) as connection,
    ):
        wait_until(lambda: count_unread(server) == 1)
        wait_until(lambda: not server.listener.server_state.connections)
        with pytest.raises(ConnectionResetError):
            while connection.recv(65_536):
                pass


def test_a_response_that_is_read_slowly_is_complete(tmp_path: Path, shop: Path) -> None:
    with (
        serving(tmp_path / "home", shop, response_s=2) as server,
        connect_without_reading(server, UNREAD % b"connection: close\r\n") as connection,
    ):
        answer, started = b"", time.monotonic()
        while part := connection.recv(10_000):
            answer += part
            time.sleep(0.05)
    assert complete(answer)
    assert time.monotonic() - started > 2


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not limit it for a connection")
def test_the_kernel_takes_little_of_a_response_that_is_not_read(server: Running) -> None:
    with connect_without_reading(server, UNREAD % b"" * 16):
        wait_until(lambda: count_unread(server) == 1)
        (held,) = [c.transport for c in server.listener.server_state.connections if c.transport.get_write_buffer_size()]
        unsent = fcntl.ioctl(held.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0" * 4)
        assert struct.unpack("i", unsent)[0] < 400_000


def test_bodies_without_a_key_that_do_not_come_make_room_for_others(tmp_path: Path, shop: Path) -> None:
    """With a key they are work, and few."""
    start = post(b"", "content-length: 1000", path="/api/session")
    limits = PATIENT | {"connections": 16}
    with (
        open_app(tmp_path / "home", shop, server=limits) as app,
        listening(app, keys_required=True) as server,
        ExitStack() as stack,
    ):
        for _ in range(32):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 120))
            connection.sendall(start)
        assert talk(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")[0] == 200


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_requests_in_one_connection_are_answered_in_order(server: Running) -> None:
    one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    two = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 120) as connection:
        connection.sendall(one + two)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert answer.index(b"200 OK") < answer.index(b"404 Not Found")


def test_requests_sent_far_ahead_are_not_kept(server: Running) -> None:
    """A few are answered, and then the connection is closed: what waits must not fill the memory."""
    sent, answer = 20_000, b""
    with socket.create_connection(("127.0.0.1", server.port), 120) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * sent)
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                answer += part
    assert answer.count(b" 200 OK") < sent / 2


def test_many_at_once_are_all_answered(server: Running) -> None:
    outcomes: list[int] = []

    def ask() -> None:
        outcomes.append(talk(server, post(b'{"query": "SELECT 1", "record": false}'))[0])

    threads = [threading.Thread(target=ask) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [200] * 60
