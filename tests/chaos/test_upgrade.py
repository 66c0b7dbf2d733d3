"""A rolling upgrade: servers and workers are replaced one after the other under load, as a proxy would see it.

Clients try another server if one refuses the connection or answers 503. No other failure is allowed, no action is lost,
and none is done twice. `CHAOS=long` (`make chaos`) goes on for longer.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.app import App
from etude.entities import SourceSpec
from etude.sample import write_shop
from etude.store.processes import Processes

LONG = os.environ.get("CHAOS") == "long"
REQUESTS = 2_000 if LONG else 60
"""Answered requests of each client between two replacements."""
CLIENTS = 3


class Installation:
    """A store with servers and workers as processes."""

    def __init__(self, folder: Path, store_url: str) -> None:
        self.folder = folder
        self.settings = {"ETUDE_HOME": str(folder / "home"), "ETUDE_STORE": store_url}
        self.app = App(home=folder / "home", store=store_url)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.addresses: list[str] = []
        self._number = 0

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        self._number += 1
        log = self.folder / f"{self._number}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "etude", *command], env=kept | self.settings, stderr=out, cwd=self.folder
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


@pytest.fixture(params=["sqlite", "postgres"])
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    url = f"sqlite:///{tmp_path}/home/etude.db"
    made = Installation(tmp_path, url if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    write_shop(tmp_path / "shop")
    made.app.add_source("shop", SourceSpec(url=str(tmp_path / "shop")))
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    made.app.close()


@pytest.mark.timeout(1200)
def test_nothing_fails_and_nothing_is_lost(installation: Installation) -> None:
    app = installation.app
    app.agents.create("echo", {"subject": "rain", "interval_s": 3600}, id="a")
    server = installation.start("serve", "--port", "0", "--no-open")
    workers = [installation.start("worker", "--slots", "2") for _ in range(2)]
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
    wait_until(lambda: app.agents.queue.depth().ready == 0, 300)
    wait_until(lambda: app.agents.queue.depth().running == 0, 300)
    steps = [s for s in app.agents.steps("a", limit=100_000) if s.kind == "message" and s.outcome == "ok"]
    assert sorted(step.action for step in steps) == sorted(sent), "each message was handled once"
    assert [p.role for p in Processes(app.store).list() if p.alive] == ["server", "worker", "worker"]
