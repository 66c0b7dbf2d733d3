"""A TCP relay to a server: a test can cut all connections and refuse new ones, as an outage does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Relay:
    """Passes connections of the loopback on to a socket of the file system."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.up()

    def up(self) -> None:
        """Accept connections, always on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def down(self) -> None:
        """Close the connections and refuse new ones."""
        listener, self._listener = self._listener, None
        for end in [*([listener] if listener else []), *self._open]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open = []

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=[source, sink], daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def relay_to_postgres(url: str) -> Iterator[tuple[Relay, str]]:
    """A relay to a Postgres that listens on a socket, and the URL of the database through the relay."""
    from psycopg.conninfo import conninfo_to_dict

    where = conninfo_to_dict(url)
    relay = Relay(f"{where['host']}/.s.PGSQL.{where.get('port', 5432)}")
    try:
        yield relay, f"postgresql://{where['user']}:x@127.0.0.1:{relay.port}/{where['dbname']}"
    finally:
        relay.down()
