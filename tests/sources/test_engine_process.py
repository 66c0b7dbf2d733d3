"""An engine that is forked from a command knows and may do as little as one in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

START = """
import json, os, sys
from etude.sources.base import Mount
from etude.sources.engine_process import can_fork_engine
from etude.sources.engine_client import EngineClient, EngineLimits

fork = sys.argv[1] == "fork"
assert can_fork_engine()
engine = EngineClient(False, EngineLimits(1 << 30, 1 << 30, 1), fork=fork)
engine.open((Mount("shop", "duckdb", sys.argv[2]),))


def holds(secret):
    for line in open(f"/proc/{engine.pid}/maps"):
        area, rights = line.split()[:2]
        if rights.startswith("rw"):
            start, end = (int(at, 16) for at in area.split("-"))
            with open(f"/proc/{engine.pid}/mem", "rb", 0) as memory:
                memory.seek(start)
                try:
                    if secret in memory.read(end - start):
                        return True
                except OSError:
                    pass
    return False


place = f"/proc/{engine.pid}"
print(json.dumps({
    "isolation": engine.info["isolation"],
    "files": sorted(os.readlink(f"{place}/fd/{n}").split(":")[0] for n in os.listdir(f"{place}/fd")),
    "alone": os.getsid(engine.pid) == engine.pid,
    "nice": os.getpriority(os.PRIO_PROCESS, engine.pid),
    "network": os.readlink(f"{place}/ns/net") == os.readlink("/proc/self/ns/net"),
    "knows": holds(os.environ["SECRET"].encode()),
    "shown": [v for v in open(f"{place}/environ").read().split(chr(0)) if "SECRET" in v],
}))
engine.kill()
assert not engine.alive
"""


def start(how: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", START, how, str(path)]
    environment = {"PATH": "/usr/bin:/bin", "SECRET": "9f8e7d6c5b4a-the-key-of-a-model"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    duckdb.connect(str(path)).close()
    return path


def test_a_forked_engine_is_as_confined_as_a_spawned_one(path: Path) -> None:
    forked, spawned = start("fork", path), start("spawn", path)
    assert forked == spawned
    assert forked["alone"] and not forked["knows"] and not forked["shown"]
