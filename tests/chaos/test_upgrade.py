"""A rolling upgrade: servers and workers are replaced one after the other under load, as a proxy would see it.

They are of the version before the newest migration, as git has it; the new server migrates the store while they work.
Clients try another server if one refuses the connection or answers 503. No other failure is allowed, no action is lost,
and none is done twice. `CHAOS=long` (`make chaos`) goes on for longer.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude import plugins
from etude.app import App
from etude.sample import write_shop
from etude.sources.source_url import source_path
from etude.store.processes import Processes
from etude.store.schema import store_schema_version

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/etude/store/migrations"
LONG = os.environ.get("CHAOS") == "long"
REQUESTS = 2_000 if LONG else 60
"""Answered requests of each client between two replacements."""
CLIENTS = 3
LONG_QUERY = "SELECT count(*) AS n FROM range(200000000) a WHERE hash(a.range) % 7 = 3"


class Installation:
    """A store with servers and workers as processes, of the version before or of this one."""

    def __init__(self, folder: Path, store_url: str) -> None:
        self.folder = folder
        self.store_url = store_url
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        self.settings = kept | {"ETUDE_HOME": str(folder / "home"), "ETUDE_STORE": store_url}
        self.before = self.settings | {"PYTHONPATH": str(unpack_version_before(folder))}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.addresses: list[str] = []
        self._number = 0

    def start(self, *command: str, before: bool = False) -> subprocess.Popen[bytes]:
        self._number += 1
        log = self.folder / f"{self._number}.log"
        settings = self.before if before else self.settings
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "etude", *command], env=settings, stderr=out, cwd=self.folder
            )
        self.processes.append(process)
        said = "etude listens on" if command[0] == "serve" else "steps at once"
        wait_until(lambda: said in log.read_text() or process.poll() is not None)
        if command[0] == "serve":
            (address,) = re.findall(r"etude listens on (\S+)", log.read_text())
            self.addresses.append(address)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0

    def send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request as a proxy does: to another server if one is not there, or not ready."""
        data = json.dumps(body).encode()
        until = time.monotonic() + 120
        while time.monotonic() < until:
            for address in reversed(self.addresses):
                request = urllib.request.Request(f"{address}{path}", data, {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(request, timeout=120) as answer:
                        found: dict[str, Any] = json.load(answer)
                        return found
                except urllib.error.HTTPError as error:
                    if error.code != 503:
                        raise AssertionError(f"{path}: {error.code} {error.read()[:500]!r}") from None
                except (urllib.error.URLError, ConnectionError):
                    continue
            time.sleep(0.05)
        raise AssertionError(f"{path}: no server answered")


def unpack_version_before(folder: Path) -> Path:
    """Write the source of a commit that lacks only the newest migrations; return where it is."""
    known = sorted(file.name for file in (ROOT / MIGRATIONS).glob("*.sql"))
    for commit in git("rev-list", "--max-count=50", "HEAD", "--", MIGRATIONS).decode().split():
        listed = git("ls-tree", "--name-only", f"{commit}^:{MIGRATIONS}").decode().split()
        if listed and listed != known and known[: len(listed)] == sorted(listed):
            with tarfile.open(fileobj=io.BytesIO(git("archive", f"{commit}^", "src"))) as archive:
                archive.extractall(folder / "before", filter="data")
            return folder / "before" / "src"
    pytest.skip("the history of the repository is not here")


def git(*words: str) -> bytes:
    """Return what a git command prints; nothing if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True)
    return done.stdout if done.returncode == 0 else b""


@pytest.fixture(params=["sqlite", "postgres"])
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    url = f"sqlite:///{tmp_path}/home/etude.db"
    made = Installation(tmp_path, url if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    write_shop(tmp_path / "shop")
    add = [sys.executable, "-m", "etude", "sources", "add", "shop", str(tmp_path / "shop")]
    subprocess.run(add, env=made.before, cwd=tmp_path, check=True, capture_output=True)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.mark.timeout(1200)
def test_nothing_fails_and_nothing_is_lost(installation: Installation) -> None:
    server = installation.start("serve", "--port", "0", "--no-open", before=True)
    workers = [installation.start("worker", "--slots", "2", before=True) for _ in range(2)]
    config = {"subject": "rain", "interval_s": 3600}
    installation.send("/api/agents", {"kind": "echo", "id": "a", "config": config})
    kind = plugins.load_plugin("store", installation.store_url.partition("://")[0])
    place = Path(source_path(installation.store_url)) if kind.dialect == "sqlite" else installation.store_url
    assert kind.find_schema(place) < store_schema_version(kind.dialect)
    sent: list[str] = []
    answered = [0] * CLIENTS
    errors: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                rows = installation.send("/api/sql", {"dataset": "shop", "query": f"SELECT {answered[number]} AS n"})
                assert rows["rows"] == [[answered[number]]]
                name = f"{number}-{answered[number]}"
                made = installation.send("/api/agents/a/message", {"body": {"subject": name}, "id": name})
                sent.append(made["action"])
                if answered[number] % 10 == number:
                    # Long enough to be in flight when a server is stopped.
                    installation.send("/sql", {"dataset": "shop", "query": LONG_QUERY})
                answered[number] += 1
        except BaseException as error:
            errors.append(error)

    clients = [threading.Thread(target=work, args=(n,)) for n in range(CLIENTS)]

    def wait_for_load() -> None:
        least = [count + REQUESTS // 10 for count in answered]
        wait_until(lambda: errors or all(now >= then for now, then in zip(answered, least)), 300)

    for client in clients:
        client.start()
    try:
        wait_for_load()
        # The new server runs before the old one stops, and each worker is replaced by another.
        installation.start("serve", "--port", "0", "--no-open")
        assert kind.find_schema(place) == store_schema_version(kind.dialect), "the new server migrated the store"
        wait_for_load()
        installation.stop(server)
        wait_for_load()
        for worker in workers:
            installation.stop(worker)
            installation.start("worker", "--slots", "2")
            wait_for_load()
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert errors == []
    assert len(sent) == len(set(sent)) == sum(answered)
    with App(home=installation.folder / "home", store=installation.store_url) as app:
        _check_that_each_message_was_handled_once(app, sent)


def _check_that_each_message_was_handled_once(app: App, sent: list[str]) -> None:
    wait_until(lambda: app.agents.queue.depth().ready == 0, 300)
    wait_until(lambda: app.agents.queue.depth().running == 0, 300)
    steps = [s for s in app.agents.steps("a", limit=100_000) if s.kind == "message" and s.outcome == "ok"]
    assert sorted(step.action for step in steps) == sorted(sent), "each message was handled once"
    assert [p.role for p in Processes(app.store).list() if p.alive] == ["server", "worker", "worker"]
