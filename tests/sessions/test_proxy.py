"""The proxy of a session with a list of hosts: it connects to these hosts and to no others."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.app import App
from etude.errors import Invalid, SandboxError
from etude.sessions import isolation
from etude.sessions.base import SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.proxy import Decision, Proxy, ProxyLimits
from etude.sessions.session import Session

needs_level_3 = pytest.mark.skipif(isolation.probe_isolation()[0] < 3, reason="this machine does not allow level 3")

pytestmark = pytest.mark.usefixtures("small")


class Handler(BaseHTTPRequestHandler):
    """Answers with the request it got."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, dict[str, str], bytes]] = []

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append((self.path, dict(self.headers), body))
        answer = b"the way out"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)
        connection.sendall(b"end")


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    """A server that echoes what it gets, and sends a final text at the end of the input."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


# -- entries


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "",
            "example.com",
            "example.com:",
            ":80",
            "example.com:0",
            "example.com:65536",
            "example.com:https",
            "a b:80",
        ),
        *("*.example.com:443", "http://example.com:80", "user@example.com:80", "example.com:80/x", "::1:80", "[::1]"),
        *("127.1:80", "2130706433:80", "0x7f.1:80", "a..b:80", "-a.example:80", "[127.0.0.1]:80", "a.example:\u0668"),
    ],
)
def test_a_bad_entry_is_named(entry: str) -> None:
    with pytest.raises(Invalid) as error:
        SandboxSpec(network=("api.example.com:443", entry))
    assert f"`{entry}`" in str(error.value)
    assert error.value.details["value"] == entry


def test_the_list_is_part_of_what_makes_specs_equal() -> None:
    one = SandboxSpec(network=("a.example:1", "b.example:2"))
    assert one.key() == SandboxSpec(network=("B.example.:2", "a.example:1")).key()
    assert len({one.key(), SandboxSpec().key(), SandboxSpec(network=("a.example:1",)).key()}) == 3


# -- the proxy by itself


Start = Callable[..., tuple[Proxy, int]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    # A refused client has enough time to read the reason, and to be counted meanwhile.
    monkeypatch.setattr("etude.sessions.proxy._LINGER_S", 120.0)
    started = []

    def run(*entries: str, **options: Any) -> tuple[Proxy, int]:
        listener = socket.create_server(("127.0.0.1", 0))
        proxy = Proxy(listener, entries, **options)
        started.append(proxy)
        return proxy, listener.getsockname()[1]

    yield run
    for proxy in started:
        proxy.close()


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=120)


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    return data


def ask(port: int, request: str) -> bytes:
    with dial(port) as connection:
        connection.sendall(request.encode("latin-1"))
        return read_all(connection)


def await_decision(proxy: Proxy) -> Decision:
    """Return the newest decision, which is recorded when the connection has ended."""
    wait_until(lambda: proxy.decisions)
    return proxy.decisions[-1]


def test_a_tunnel_carries_bytes_both_ways(start: Start, echo_port: int) -> None:
    heard: list[Decision] = []
    proxy, port = start(f"127.0.0.1:{echo_port}", on_decision=heard.append)
    much = os.urandom(3 << 20)
    with dial(port) as connection:
        # The first bytes arrive together with the head, as from a client that does not wait for the answer.
        connection.sendall(f"CONNECT 127.0.0.1:{echo_port} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + much[:100])
        writer = threading.Thread(target=lambda: (connection.sendall(much[100:]), connection.shutdown(1)))
        writer.start()
        answer = read_all(connection)
        writer.join()
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n" + much + b"end"
    assert await_decision(proxy) == Decision("127.0.0.1", echo_port, True, "listed", 3 << 20, (3 << 20) + 3)
    wait_until(lambda: heard)
    assert heard == list(proxy.decisions)


def test_a_request_goes_to_one_host_and_ends(start: Start, web: int) -> None:
    _, port = start(f"localhost:{web}")
    Handler.seen.clear()
    second = f"GET http://localhost:{web}/second HTTP/1.1\r\nHost: other.example\r\n\r\n"
    head = f"POST http://LOCALHOST.:{web}/first?a=1#part HTTP/1.1\r\nHost: other.example\r\nX-Kept: yes\r\n"
    head += "Proxy-Authorization: secret\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\n"
    answer = ask(port, f"{head}body{second}")
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"the way out")
    ((path, headers, body),) = Handler.seen
    assert (path, body) == ("/first?a=1", b"body")
    assert headers == {"Host": f"localhost:{web}", "X-Kept": "yes", "Content-Length": "4", "Connection": "close"}


@pytest.mark.parametrize("pieces", [("first", "endGET /second HTTP/1.1\r\n\r\n"), ("firstendGET /second HTTP/1.1", "")])
def test_what_follows_a_request_is_not_sent_on(start: Start, pieces: tuple[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        place = f"127.0.0.1:{target.getsockname()[1]}"
        _, port = start(place)
        with dial(port) as client:
            client.sendall(f"POST http://{place}/ HTTP/1.1\r\nContent-Length: 8\r\n\r\n{pieces[0]}".encode())
            connection, _ = target.accept()
            with connection:
                got = b""
                while b"first" not in got:
                    got += connection.recv(1 << 16)
                client.sendall(pieces[1].encode())
                while b"firstend" not in got:
                    got += connection.recv(1 << 16)
                connection.sendall(b"answer")
                connection.shutdown(socket.SHUT_WR)
                got += read_all(connection)
            assert read_all(client) == b"answer"
    assert got.endswith(b"\r\n\r\nfirstend")


@pytest.mark.parametrize("target", ["localhost:{other}", "127.0.0.1:{web}", "[::1]:{web}", "localhost.example:{web}"])
def test_what_is_not_on_the_list_is_refused(start: Start, web: int, target: str) -> None:
    proxy, port = start(f"localhost:{web}", resolve=lambda *_: pytest.fail("a name was looked up"))
    place = target.format(web=web, other=web - 1)
    for request in (f"CONNECT {place} HTTP/1.1", f"GET http://{place}/ HTTP/1.1"):
        answer = ask(port, f"{request}\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 Forbidden: ") and b"is not on the list" in answer
    assert [(d.allowed, f"{d.host}:{d.port}") for d in proxy.decisions] == [
        (False, place.strip("[").replace("]", ""))
    ] * 2


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "ff02::1"])
def test_a_name_with_an_inner_address_is_refused(start: Start, web: int, address: str) -> None:
    proxy, port = start(f"api.example.com:{web}", resolve=lambda *_: [address])
    answer = ask(port, f"GET http://api.example.com:{web}/ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"has no public address" in answer
    assert not proxy.decisions[0].allowed


def test_the_address_that_was_judged_is_the_one_that_is_used(
    start: Start, web: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["10.0.0.1", "93.184.216.34"], ["127.0.0.1"]]
    dialled: list[Any] = []

    class Socket(socket.socket):
        def connect(self, address: Any) -> None:
            dialled.append(address)
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    _, port = start(f"api.example.com:{web}", resolve=lambda *_: answers.pop(0))
    with dial(port) as connection:
        monkeypatch.setattr("etude.sessions.proxy.socket.socket", Socket)
        connection.sendall(f"CONNECT api.example.com:{web} HTTP/1.1\r\n\r\n".encode())
        answer = read_all(connection)
        monkeypatch.undo()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert dialled == [("93.184.216.34", web)]
    assert len(answers) == 1


def test_a_name_without_an_address(start: Start) -> None:
    def fail(*_: Any) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    _, port = start("api.example.com:80", resolve=fail)
    assert ask(port, "CONNECT api.example.com:80 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("nonsense", 400),
        ("GET / HTTP/1.1", 400),
        ("GET https://localhost:{web}/ HTTP/1.1", 400),
        ("GET http://user@localhost:{web}/ HTTP/1.1", 400),
        ("GET http://localhost:{web}/ HTTP/2", 400),
        ("CONNECT localhost HTTP/1.1", 400),
        ("GET http://localhost:{web}/ HTTP/1.1\r\n folded: yes", 400),
        ("GET http://localhost:{web}/ HTTP/1.1\r\nA: b\nHost: other.example", 400),
        ("POST http://localhost:{web}/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        ("POST http://localhost:{web}/ HTTP/1.1\r\nContent-Length: +1", 400),
        ("POST http://localhost:{web}/ HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        ("GET http://localhost:{web}/ HTTP/1.1\r\nX: " + 16_384 * "x", 431),
        (100_000 * "x", 431),
    ],
)
def test_a_head_that_cannot_be_trusted_is_refused(start: Start, web: int, head: str, status: int) -> None:
    proxy, port = start(f"localhost:{web}")
    Handler.seen.clear()
    assert ask(port, head.format(web=web) + "\r\n\r\n").startswith(f"HTTP/1.1 {status} ".encode())
    assert Handler.seen == []
    assert not proxy.decisions[0].allowed


def test_a_slow_head_is_cut_off(start: Start, web: int) -> None:
    _, port = start(f"localhost:{web}", limits=ProxyLimits(header_s=0.3))
    started = time.monotonic()
    with dial(port) as connection:
        connection.setblocking(False)
        answer = b""
        while not answer and time.monotonic() < started + 60:
            connection.send(b"x")  # each byte alone would come in time
            time.sleep(0.05)
            try:
                answer = connection.recv(100)
            except BlockingIOError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - started > 0.25


def await_connections(proxy: Proxy, number: int) -> None:
    wait_until(lambda: len(proxy._threads) == number)


def test_too_many_connections_are_refused_and_room_comes_back(start: Start, web: int) -> None:
    proxy, port = start(f"localhost:{web}", limits=ProxyLimits(connections=2, header_s=300))
    request = f"GET http://localhost:{web}/ HTTP/1.1\r\n\r\n"
    held = [dial(port), dial(port)]
    await_connections(proxy, 2)
    assert ask(port, request).startswith(b"HTTP/1.1 503 ")
    await_connections(proxy, 2)
    held += [dial(port), dial(port)]
    await_connections(proxy, 4)
    with dial(port) as beyond:
        assert beyond.recv(100) == b""  # above twice the limit, connections are closed without an answer
    for connection in held:
        connection.close()
    await_connections(proxy, 0)
    assert ask(port, request).startswith(b"HTTP/1.1 200 ")


def test_a_connection_on_which_nothing_moves_is_ended(start: Start, echo_port: int) -> None:
    _, port = start(f"127.0.0.1:{echo_port}", limits=ProxyLimits(idle_s=0.5))
    started = time.monotonic()
    with dial(port) as connection:
        connection.sendall(f"CONNECT 127.0.0.1:{echo_port} HTTP/1.1\r\n\r\n".encode())
        assert read_all(connection).endswith(b"established\r\n\r\n")
    assert time.monotonic() - started > 0.4


def test_closing_ends_what_is_open(start: Start, echo_port: int) -> None:
    before = threading.active_count()
    proxy, port = start(f"127.0.0.1:{echo_port}")
    with dial(port) as connection, dial(port):
        connection.sendall(f"CONNECT 127.0.0.1:{echo_port} HTTP/1.1\r\n\r\n".encode())
        assert connection.recv(100)
        proxy.close()
        assert connection.recv(100) == b""
        with pytest.raises(ConnectionRefusedError):
            dial(port)
    wait_until(lambda: threading.active_count() <= before)


# -- in a session


@pytest.fixture(scope="module")
def provider(small: None) -> Iterator[LocalProvider]:
    made = LocalProvider(ready=0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def session(provider: LocalProvider, web: int, echo_port: int) -> Iterator[Session]:
    with Session(provider, SandboxSpec(network=(f"localhost:{web}", f"127.0.0.1:{echo_port}"))) as made:
        made.execute("import os, socket, threading, urllib.error, urllib.request")
        yield made


ATTEMPT = """
def attempt(do, *arguments):
    try:
        return do(*arguments)
    except OSError as error:
        return getattr(error, "code", None) or error.errno
"""


@needs_level_3
def test_a_session_reaches_what_is_listed(session: Session, web: int) -> None:
    cell = session.execute(f"urllib.request.urlopen('http://localhost:{web}/', timeout=50).read().decode()")
    assert (cell.outcome, cell.value) == ("ok", "the way out")
    assert session.isolation["network"][0] == f"localhost:{web}"
    proxy = session._opened().proxy
    assert proxy is not None and await_decision(proxy).host == "localhost"


@needs_level_3
def test_libraries_may_send_over_tcp_by_messages(session: Session, echo_port: int) -> None:
    # By the call itself, as compiled libraries do, not by Python's method.
    code = f"""
import _socket
with socket.create_connection(("127.0.0.1", 3128), 50) as way:
    _socket.socket.sendmsg(way, [b"CONNECT 127.0.0.1:{echo_port} HTTP/1.1\\r\\n", b"\\r\\n"])
    status = way.recv(99).decode().split()[1]
status"""
    assert session.execute(code).value == "200"


@needs_level_3
def test_a_session_hears_why_another_place_is_refused(session: Session, web: int) -> None:
    cell = session.execute(f"urllib.request.urlopen('http://localhost:{web + 1}/', timeout=50)")
    assert cell.error is not None
    assert cell.error["message"] == f"HTTP Error 403: Forbidden: localhost:{web + 1} is not on the list"
    cell = session.execute("urllib.request.urlopen('https://api.example.com/', timeout=50)")
    assert cell.error is not None
    assert "403 Forbidden: api.example.com:443 is not on the list" in cell.error["message"]


@needs_level_3
def test_a_session_opens_a_tunnel(session: Session, echo_port: int) -> None:
    code = f"""
with socket.create_connection(("127.0.0.1", {isolation.PROXY_PORT}), timeout=50) as sock:
    sock.sendall(b"CONNECT 127.0.0.1:{echo_port} HTTP/1.1\\r\\n\\r\\n")
    head = sock.recv(1000).decode()
    sock.sendall(b"hello")
    said = sock.recv(5).decode()
[head, said]
"""
    assert session.execute(code).value == ["HTTP/1.1 200 Connection established\r\n\r\n", "hello"]


@needs_level_3
def test_without_the_proxy_a_session_reaches_nothing(session: Session, web: int, echo_port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            own = probe.getsockname()[0]
        except OSError:
            own = "192.0.2.1"
    session.execute(ATTEMPT)
    for place in [("127.0.0.1", web), ("127.0.0.1", echo_port), ("::1", web), (own, web), ("192.0.2.1", 80)]:
        reached = session.execute(f"attempt(lambda: socket.create_connection({place!r}, timeout=2).close())")
        assert reached.value in (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EADDRNOTAVAIL), place
    # Only the proxy looks up names.
    assert session.execute("attempt(socket.gethostbyname, 'api.example.com') < 0").value is True


@needs_level_3
def test_a_session_gets_tcp_and_no_other_socket(session: Session) -> None:
    session.execute(ATTEMPT)
    kinds = "AF_UNIX,SOCK_STREAM AF_NETLINK,SOCK_RAW AF_PACKET,SOCK_RAW AF_INET,SOCK_DGRAM AF_INET,SOCK_RAW"
    code = "[attempt(socket.socket, *(getattr(socket, n) for n in k.split(','))) for k in %r.split()]"
    assert session.execute(code % kinds).value == [errno.EAFNOSUPPORT] * 5
    assert session.execute("attempt(socket.socket, 2, 1, 132)").value == errno.EAFNOSUPPORT
    session.execute("import gc\ngc.collect()")  # errors of earlier cells may still hold their sockets
    assert session.execute("[threading.active_count(), len(os.listdir('/proc/self/fd'))]").value == [1, 5]


@needs_level_3
def test_socket_files_in_data_stay_closed(provider: LocalProvider, tmp_path: Path) -> None:
    spec = SandboxSpec(mounts={str(tmp_path): "/data"}, network=("api.example.com:443",))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control"))
        listener.listen()
        listener.setblocking(False)
        for path in (tmp_path, tmp_path / "control"):
            path.chmod(0o777)
        with Session(provider, spec) as session:
            # Pairs and `connect` are allowed here, but a connected socket cannot connect elsewhere.
            session.execute(f"import os, socket{ATTEMPT}\nfound = []")
            code = """
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    for end in (lambda: None, other.close, lambda: one.shutdown(2)):
        end()
        found += [attempt(one.connect, "/data/control"), attempt(one.sendto, b"x", "/data/control")]
[os.path.exists("/data/control"), all(type(f) is int and f > 0 for f in found)]
"""
            assert session.execute(code).value == [True, True]
        with pytest.raises(BlockingIOError):
            listener.accept()


@needs_level_3
def test_the_certificates_of_the_host_are_there(session: Session) -> None:
    if not isolation.isolated_certificate_paths():
        pytest.skip("this machine has no trusted certificates")
    assert session.execute("import ssl\nssl.create_default_context().cert_store_stats()['x509_ca'] > 0").value is True


def test_without_a_list_nothing_changes(provider: LocalProvider) -> None:
    if isolation.probe_isolation()[0] < 2:
        pytest.skip("no session starts here")
    before = threading.active_count()
    with Session(provider) as session:
        session.execute(f"import os, socket{ATTEMPT}")
        assert session.execute("attempt(socket.socket)").value == errno.EAFNOSUPPORT
        assert session.execute("[n for n in os.environ if 'proxy' in n.lower()]").value == []
        assert "network" not in session.isolation
        assert session._opened().proxy is None
        assert threading.active_count() <= before


@needs_level_3
def test_after_closing_nothing_is_left(web: int) -> None:
    before, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    provider = LocalProvider(ready=0)
    first = Session(provider, SandboxSpec(network=(f"localhost:{web}",)))
    second = Session(provider, SandboxSpec(network=(f"localhost:{web}",)))
    ended, left = first._opened().proxy, second._opened().proxy
    assert ended is not None and left is not None
    first.close()
    assert (ended._listener.fileno(), left._listener.fileno() >= 0) == (-1, True)
    provider.close()  # the second is still open: its proxy ends with the fork server
    assert left._listener.fileno() == -1
    second.close()
    wait_until(lambda: threading.active_count() <= before)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files)


@needs_level_3
def test_a_host_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    code = """
from etude.sessions import local
from etude.sessions.base import SandboxSpec
from etude.sessions.session import Session
local.PRELOAD = ()
session = Session(local.LocalProvider(ready=0), SandboxSpec(network=("localhost:1",)))
print(session._opened().pid, flush=True)
import time
time.sleep(600)
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        host.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert list(tmp_path.iterdir()) == []


@needs_level_3
def test_no_rights_of_root_are_needed(everyones_python: Any, web: int) -> None:
    code = f"""
from etude.sessions import local
from etude.sessions.base import SandboxSpec
from etude.sessions.session import Session
local.PRELOAD = ()
provider = local.LocalProvider(ready=0)
with Session(provider, SandboxSpec(network=("localhost:{web}",))) as session:
    print(session.execute("from urllib.request import urlopen; urlopen('http://localhost:{web}/').status").value)
provider.close()
"""
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    command, environment = [everyones_python.path, "-c", code], everyones_python.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", timeout=240, **nobody)
    assert (done.stdout, done.stderr) == ("200\n", "")


# -- without a network of its own


def test_below_level_3_it_is_refused() -> None:
    provider = LocalProvider(ready=0, max_level=2)
    with pytest.raises(SandboxError, match="needs isolation level 3") as error:
        Session(provider, SandboxSpec(network=("api.example.com:443",)))
    assert "shares the network of its system" in error.value.hint
    provider.close()


@needs_level_3
def test_an_app_opens_a_session_with_a_list(tmp_path: Path, web: int) -> None:
    with App(home=tmp_path, record=False) as app:
        with pytest.raises(Invalid, match="`nonsense`"):
            app.open_session(network=("nonsense",))
        with app.open_session(network=[f"localhost:{web}"]) as notebook:
            cell = notebook.execute(
                f"from urllib.request import urlopen\nurlopen('http://localhost:{web}/', timeout=50).read().decode()"
            )
            assert (cell.outcome, cell.value) == ("ok", "the way out")
            assert notebook.execute("import subprocess").outcome == "refused"
        with app.open_session() as notebook:
            assert notebook.execute("import urllib.request").outcome == "refused"


@needs_level_3
def test_what_was_connected_and_refused_is_on_record(tmp_path: Path, web: int) -> None:
    other = f"localhost:{web + 1}"
    refused = f"try: urlopen('http://{other}/')\nexcept OSError: pass\n"
    with App(home=tmp_path) as app, app.open_session(network=[f"localhost:{web}"]) as notebook:
        cell = notebook.execute(f"from urllib.request import urlopen\nurlopen('http://localhost:{web}/').status")
        assert (cell.value, cell.notes) == (200, (f"Connected to localhost:{web}.",))
        cell = notebook.execute(2 * refused)
        assert cell.notes == (f"A connection was refused: {other} is not on the list. (2 times)",)
        newest = app.store.runs(limit=1).items[0].id
        assert app.store.run(newest).notes == cell.notes
        assert notebook.execute("1").notes == ()
