"""A proxy before an S3 server: it counts requests, fails some of them, and lets a test act at a chosen one."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Proxy:
    """What passed, and what is done to it."""

    url: str
    seen: list[str] = field(default_factory=list)
    """Methods and paths, in order."""
    failing: int = 0
    """So many requests fail, from the next one on."""
    before: Callable[[int], None] = lambda _: None
    """Called with the number of a request before it is passed on."""
    after: Callable[[int], None] = lambda _: None
    """Called once the server has done what it asks for, before the client knows."""


@contextmanager
def proxy_to(target: str) -> Iterator[Proxy]:
    """A proxy to a server, while the block runs."""
    server = urlsplit(target)
    proxy = Proxy("")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                proxy.seen.append(f"{self.command} {self.path}")
                number = len(proxy.seen)
                fails, proxy.failing = proxy.failing > 0, max(proxy.failing - 1, 0)
            if fails:
                self.answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
                return
            proxy.before(number)
            client = http.client.HTTPConnection(server.hostname or "", server.port, timeout=60)
            # Kept as it came: the signature covers it.
            client.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                client.putheader(name, value)
            client.endheaders(body)
            reply = client.getresponse()
            data = reply.read()
            client.close()
            proxy.after(number)
            self.answer(reply.status, dict(reply.getheaders()), data)

        def answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", str(len(data))) if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = pass_on

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # the client was killed, as the tests want

        def log_message(self, format: str, *args: object) -> None:
            return

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
