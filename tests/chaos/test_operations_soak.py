"""Mixed load on a server for a while: requests, sessions, agents, a catalog. Memory, descriptors and disk stay flat.

The short form runs with every test run; `CHAOS=long` (`make chaos`) goes on for two hours.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.sample import write_shop

LONG = os.environ.get("CHAOS") == "long"
ROUNDS = 60
SECONDS = 7200 if LONG else 0
"""The long form repeats rounds for so long."""


class Server:
    """A server as a process, whose records are pruned at once."""

    def __init__(self, folder: Path) -> None:
        write_shop(folder / "shop")
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        self.settings = kept | {"ETUDE_HOME": str(folder / "home"), "ETUDE_RETENTION__RUNS": "0.00001"}
        self.settings |= {f"ETUDE_RETENTION__{kind}": "0.00001" for kind in ("ACTIONS", "EVENTS", "THREADS")}
        command = [sys.executable, "-m", "etude", "serve", str(folder / "shop"), "--port", "0", "--no-open"]
        log = folder / "log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, env=self.settings, stderr=out, cwd=folder)
        wait_until(lambda: "etude listens on" in log.read_text() or self.process.poll() is not None)
        self.address = re.findall(r"etude listens on (\S+)", log.read_text())[0]

    def send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def prune(self) -> None:
        # What ended a second ago is old.
        time.sleep(1.1)
        command = [sys.executable, "-m", "etude", "prune", "--json"]
        done = subprocess.run(command, env=self.settings, cwd=self.folder, capture_output=True, text=True, check=True)
        json.loads(done.stdout)

    def memory(self) -> float:
        """Megabytes of private memory."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1000

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rows(self) -> dict[str, int]:
        import sqlite3

        with sqlite3.connect(self.folder / "home" / "etude.db") as db:
            tables = ("runs", "events", "actions", "hub_events", "artifact_runs")
            found = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
        db.close()
        return found

    def round(self, number: int) -> None:
        self.send("/api/sql", {"query": f"SELECT {number} AS n, * FROM orders LIMIT 100", "dataset": "shop"})
        self.send("/api/ask", {"question": "how many orders?", "dataset": "shop", "fresh": True})
        self.send("/api/agents/a/message", {"body": {"subject": f"round {number}"}})
        if number % 10 == 0:
            begun = self.send("/api/runs", {"kind": "python", "text": f"x = {number}\nx", "dataset": "shop"})
            wait_until(lambda: self.status(begun["id"]) in ("succeeded", "failed"))

    def status(self, run_id: str) -> str:
        with urllib.request.urlopen(f"{self.address}/api/runs/{run_id}", timeout=60) as answer:
            return str(json.load(answer)["status"])


@pytest.mark.timeout(SECONDS + 1200)
def test_nothing_grows(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.send("/api/agents", {"kind": "echo", "id": "a", "config": {"subject": "x", "interval_s": 3600}})
        for number in range(ROUNDS):
            server.round(number)
        server.prune()
        before = (server.memory(), server.descriptors(), server.rows())
        until = time.monotonic() + SECONDS
        rounds = 0
        while rounds < 2 * ROUNDS or time.monotonic() < until:
            server.round(rounds)
            rounds += 1
            if rounds % 1000 == 0:
                server.prune()
        server.prune()
        after = (server.memory(), server.descriptors(), server.rows())
        print(f"{rounds} rounds: {before} -> {after}")
        assert after[0] <= before[0] + max(40, before[0] * 0.25)
        assert after[1] <= before[1] + 20
        for table, count in after[2].items():
            # The runs of the last moments are kept; without pruning there would be thousands of rows more.
            assert count <= before[2][table] + 300, (table, before[2], after[2])
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(180) == 0
