"""Mixed load on an installation for hours: a sample every minute, and a verdict at the end.

`python -m tests.chaos.soak --minutes 120 --samples soak.tsv` starts a server with keys and a worker on a new SQLite
store, and sends them questions, queries, cells of sessions, messages to agents, uploads and catalogs, all of which the
settings keep for minutes only. The verdict fits a line through the samples after the warm-up (Theil-Sen, which a few
outliers do not move), and fails if memory, descriptors, processes, rows or disk grow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.chaos.processes import descendants
from tests.patience import wait_until

from etude.sample import write_shop

DAY_S = 86_400.0
KEPT_MIN = {"runs": 15, "results": 5, "threads": 15, "actions": 10, "events": 10, "steps": 10, "audit": 15}
KEPT_MIN |= {"catalogs": 20}
PRUNE_S = 300.0
IN_FLIGHT_MIN = 60
"""A file stays so long after it was last stored."""
KEPT_STEPS = 1000
"""The last steps of each agent always stay."""
WARM_UP = 70.0
"""Minutes until the buffer of events is full: it keeps 4,096, and one is published per second."""
AGENTS = 3
CLIENTS = 3
SHOWN = 20
"""This many errors are printed."""
SESSION_EVERY, CATALOG_EVERY, READ_EVERY, ASK_EVERY = 10, 180, 3, 2


class Installation:
    """A server and a worker as processes, whose records are pruned soon."""

    def __init__(self, folder: Path, kept_min: dict[str, float] | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        write_shop(folder / "shop")
        own = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        kept = kept_min or {**KEPT_MIN}
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.settings = own | {"ETUDE_HOME": str(self.home), "TMPDIR": str(self.temporary)}
        self.settings |= {"ETUDE_SERVER__PER_MINUTE": "100000"}
        self.settings |= {f"ETUDE_RETENTION__{k.upper()}": f"{v * 60 / DAY_S:.9f}" for k, v in kept.items()}
        self.key = json.loads(self.command("keys", "create", "load", "--role", "admin", "--json"))["key"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("server", "etude listens on", "serve", str(folder / "shop"), "--keys", "--port", "0", "--no-open")
        self._start("worker", "steps at once", "worker", "--slots", "2")
        self.address = re.findall(r"etude listens on (\S+)", (folder / "server.log").read_text())[0]
        for number in range(AGENTS):
            config = {"subject": "x", "interval_s": 3600}
            self.send("/api/agents", {"kind": "echo", "id": f"a{number}", "config": config})

    def _start(self, name: str, said: str, *command: str) -> None:
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "etude", *command], env=self.settings, stderr=out, cwd=self.folder
            )
        self.processes[name] = process
        wait_until(lambda: said in log.read_text() or process.poll() is not None)

    def command(self, *words: str) -> str:
        """Return what a command of etude prints."""
        command = [sys.executable, "-m", "etude", *words]
        done = subprocess.run(command, env=self.settings, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"etude {words[0]}: {done.stderr[-500:]}")
        return done.stdout

    def open(self, path: str, body: bytes | None = None, method: str | None = None, **headers: str) -> bytes:
        """Return the body of a response."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.address}{path}", body, names, method=method)
        request.add_header("Authorization", f"Bearer {self.key}")
        with urllib.request.urlopen(request, timeout=120) as response:
            found: bytes = response.read()
            return found

    def send(self, path: str, body: dict[str, Any], **headers: str) -> Any:
        """Post JSON and return JSON."""
        return json.loads(self.open(path, json.dumps(body).encode(), Content_Type="application/json", **headers))

    def run(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Begin a run and wait until it has ended."""
        begun: dict[str, Any] = self.send(path, body, Prefer="wait=60")
        while begun["status"] not in ("succeeded", "failed", "cancelled"):
            time.sleep(0.2)
            begun = json.loads(self.open(f"/api/runs/{begun['id']}/status"))
        if begun["status"] != "succeeded":
            raise RuntimeError(f"{path}: {begun['status']} {begun['error']}")
        return begun

    def prune(self) -> None:
        """Delete what is older than the settings keep it, files that no run refers to included."""
        json.loads(self.command("prune", "--json"))

    def close(self) -> list[int]:
        """Stop all processes; return their exit codes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(180) for process in self.processes.values()]


# Load.


class Load:
    """Requests of every kind, one round after the other."""

    def __init__(self, installation: Installation) -> None:
        self._to = installation
        self.done = Counter[str]()
        self.errors: list[str] = []

    def round(self, number: int) -> None:
        """Send what is due in this round; count what fails."""
        due: list[tuple[int, str, Callable[[int], object]]] = [
            (1, "query", self._query),
            (1, "message", self._message),
            (ASK_EVERY, "question", self._ask),
            (READ_EVERY, "reads", self._read),
            (SESSION_EVERY, "session", self._use_session),
            (CATALOG_EVERY, "catalog", self._make_catalog),
            (CATALOG_EVERY, "upload", self._upload),
            (CATALOG_EVERY, "agent", self._live_an_agent),
        ]

        def attempt(name: str, act: Callable[[int], object]) -> None:
            try:
                act(number)
                self.done[name] += 1
            except (OSError, ValueError, RuntimeError, KeyError, AssertionError) as error:
                detail = error.read()[:300] if isinstance(error, urllib.error.HTTPError) else b""
                self.errors.append(f"round {number}, {name}: {error!r} {detail!r}")
                if len(self.errors) <= SHOWN:
                    print(self.errors[-1], flush=True)

        with ThreadPoolExecutor(CLIENTS) as clients:
            for every, name, act in due:
                if number % every == 0:
                    clients.submit(attempt, name, act)

    def open_sessions(self, count: int) -> None:
        """Use sessions of new threads, one after the other."""
        for number in range(count):
            self._use_session(number)

    def _query(self, number: int) -> None:
        # Every result is a file of its own.
        query = f"SELECT {number} AS n, * FROM orders LIMIT 100"
        found = self._to.send("/api/sql", {"query": query, "dataset": "shop"})
        assert len(found["rows"]) == 100

    def _message(self, number: int) -> None:
        self._to.send(f"/api/agents/a{number % AGENTS}/message", {"body": {"subject": f"round {number}"}})

    def _ask(self, number: int) -> None:
        fresh = number % (2 * ASK_EVERY) == 0
        asked = {"question": "how many orders?", "dataset": "shop", "fresh": fresh}
        assert self._to.send("/api/ask", asked)["text"]

    def _read(self, number: int) -> None:
        listed = json.loads(self._to.open("/api/runs?limit=50"))["items"]
        self._to.open("/api/runs?limit=20&text=orders")
        ended = next(run["id"] for run in listed if run["status"] == "succeeded")
        self._to.open(f"/api/runs/{ended}")
        assert b"run.finished" in self._to.open(f"/api/runs/{ended}/events")

    def _use_session(self, number: int) -> None:
        thread = self._to.send("/api/threads", {"title": f"round {number}", "dataset": "shop"})["id"]
        for text in (f"x = {number}\nframe = db.sql('SELECT * FROM orders LIMIT 1000')", f"assert x == {number}"):
            self._to.run("/api/runs", {"kind": "python", "text": text, "dataset": "shop", "thread_id": thread})

    def _make_catalog(self, number: int) -> None:
        self._to.run("/api/catalogs", {"dataset": "shop"})

    def _upload(self, number: int) -> None:
        name, edge = f"up{number}", "soak"
        rows = "".join(f"{n},{n * 2}\n" for n in range(500))
        head = f'--{edge}\r\nContent-Disposition: form-data; name="{{}}"{{}}\r\n\r\n'
        parts = [head.format("name", "") + name, head.format("file", '; filename="numbers.csv"') + f"a,b\n{rows}"]
        body = "\r\n".join([*parts, f"--{edge}--\r\n"]).encode()
        made = json.loads(self._to.open("/api/datasets", body, Content_Type=f"multipart/form-data; boundary={edge}"))
        self._to.send("/api/sql", {"query": "SELECT sum(b) FROM numbers", "dataset": made["name"]})
        self._to.open(f"/api/datasets/{made['name']}", method="DELETE")

    def _live_an_agent(self, number: int) -> None:
        agent = f"short{number}"
        self._to.send("/api/agents", {"kind": "echo", "id": agent, "config": {"subject": "x", "interval_s": 3600}})
        self._to.send(f"/api/agents/{agent}/message", {"body": {"subject": "once"}})
        self._to.send(f"/api/agents/{agent}/destroy", {"reason": "its time is over"})


# Samples.


def sample(installation: Installation, load: Load, minute: float) -> dict[str, float]:
    """Look at the processes, the disk and the rows."""
    found = {"minute": round(minute, 2), "requests": sum(load.done.values()), "errors": len(load.errors)}
    for name, process in installation.processes.items():
        tree = [process.pid, *descendants(process.pid)]
        found[f"{name}_mb"] = _memory(process.pid)
        found[f"{name}_rss_mb"] = _resident(process.pid)
        found[f"{name}_fds"] = _descriptors(process.pid)
        found[f"{name}_threads"] = _count(Path(f"/proc/{process.pid}/task"))
        found[f"{name}_processes"] = len(tree)
        found[f"{name}_tree_mb"] = round(sum(_memory(pid) for pid in tree), 1)
        found[f"{name}_tree_fds"] = sum(_descriptors(pid) for pid in tree)
    database = installation.home / "etude.db"
    found["store_mb"] = round(sum(_size(Path(f"{database}{end}")) for end in ("", "-wal")) / 1e6, 3)
    sizes = [_size(file) for file in _files(installation.home) if not file.name.startswith("etude.db")]
    found["files"], found["files_mb"] = len(sizes), round(sum(sizes) / 1e6, 3)
    found["temporary_files"] = sum(1 for _ in _files(installation.temporary))
    return found | {f"rows_{table}": count for table, count in _rows(database).items()}


def _memory(pid: int) -> float:
    """Return the megabytes of a process that nobody shares."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return (
            sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:"))) / 1e3
        )
    return 0.0


def _resident(pid: int) -> float:
    with contextlib.suppress(OSError):
        return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1e3
    return 0.0


def _descriptors(pid: int) -> int:
    return _count(Path(f"/proc/{pid}/fd"))


def _count(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def _files(folder: Path) -> Iterator[Path]:
    # Files come and go meanwhile, which os.walk does not mind.
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _rows(database: Path) -> dict[str, int]:
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)
    try:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        plain = [table for table in tables if not table.startswith(("sqlite_", "run_words"))]
        return {table: db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in plain}
    finally:
        db.close()


# Verdict.


@dataclass(frozen=True)
class Fit:
    """How a number changes: its median, its growth per hour, and how far it may grow."""

    name: str
    median: float
    per_hour: float
    allowed: float

    @property
    def flat(self) -> bool:
        """Whether it does not grow."""
        return self.per_hour <= self.allowed

    def __str__(self) -> str:
        verdict = "flat" if self.flat else "GROWS"
        return (
            f"{self.name:<28}{self.median:>12,.1f}{self.per_hour:>+12,.2f}/h  allowed {self.allowed:,.1f}/h  {verdict}"
        )


@dataclass
class Verdict:
    """What the samples say."""

    fits: list[Fit] = field(default_factory=list)
    errors: int = 0

    @property
    def good(self) -> bool:
        """Whether nothing grew and nothing failed."""
        return not self.errors and all(fit.flat for fit in self.fits)


def fit(name: str, points: Sequence[tuple[float, float]], least: float, share: float) -> Fit:
    """Fit a line through points of (minute, value): the median of the slopes between all pairs of them."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0]]
    median = statistics.median(value for _, value in points)
    return Fit(name, median, statistics.median(slopes) * 60 if slopes else 0.0, max(least, share * median))


LEAST = {"mb": 4.0, "fds": 2.0, "threads": 1.0, "processes": 1.0}


def judge(samples: Sequence[dict[str, float]], warm_up: float, disk_from: float) -> Verdict:
    """Fit lines through the samples: of processes and rows after the warm-up, of files once some are removed.

    Rows are added until the next pruning, so those that are left after each pruning are compared.
    """
    verdict = Verdict(errors=int(samples[-1]["errors"]))
    for name in samples[-1]:
        if name in ("minute", "requests", "errors"):
            continue
        of_disk = name in ("store_mb", "rows_agent_steps", "rows_unused_artifacts") or "files" in name
        begin = disk_from if of_disk else warm_up
        points = [(each["minute"], each[name]) for each in samples if name in each and each["minute"] >= begin]
        if name.startswith("rows_"):
            points = least_of_periods(points, 2 * PRUNE_S / 60)
        if len(points) > 2:
            least = 50.0 if name.startswith("rows_") or name.endswith("files") else LEAST[name.rpartition("_")[2]]
            verdict.fits.append(fit(name, points, least, 0.05))
    return verdict


def least_of_periods(points: Sequence[tuple[float, float]], minutes: float) -> list[tuple[float, float]]:
    """Return the lowest point of each whole period of so many minutes."""
    periods: dict[int, list[tuple[float, float]]] = {}
    for minute, value in points:
        periods.setdefault(int((minute - points[0][0]) / minutes), []).append((minute, value))
    whole = list(periods.values())[:-1] if len(periods) > 3 else periods.values()
    return [min(period, key=lambda point: point[1]) for period in whole]


def soak(
    folder: Path, minutes: float, rounds_per_second: float, samples: Path, warm_up: float, disk_from: float
) -> Verdict:
    """Load an installation for so long; write a sample every minute; return the verdict."""
    installation, taken = Installation(folder), list[dict[str, float]]()
    load = Load(installation)
    began = time.monotonic()
    due, next_sample, next_prune, number = began, 0.0, PRUNE_S, 0
    try:
        while (now := time.monotonic() - began) < minutes * 60:
            load.round(number)
            number += 1
            if now >= next_prune:
                next_prune += PRUNE_S
                try:
                    installation.prune()
                except (RuntimeError, ValueError) as error:
                    load.errors.append(f"prune: {error}")
            if now >= next_sample:
                next_sample += 60
                taken.append(sample(installation, load, now / 60))
                _write(samples, taken)
            # Rounds that are late are not made up for.
            due = max(due + 1 / rounds_per_second, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        taken.append(sample(installation, load, minutes))
        _write(samples, taken)
    finally:
        codes = installation.close()
        print(f"{number:,} rounds, {dict(load.done)}, exit codes {codes}", flush=True)
    return judge(taken, warm_up, disk_from)


def _write(path: Path, samples: Sequence[dict[str, float]]) -> None:
    names = list(samples[-1])
    if len(samples) == 1:
        path.write_text("\t".join(names) + "\n", encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write("\t".join(f"{samples[-1][name]:g}" for name in names) + "\n")


def main() -> int:
    """Run the soak of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=1.0, help="rounds a second; a round has about three requests")
    parser.add_argument("--samples", type=Path, default=Path("soak.tsv"))
    parser.add_argument("--warm-up", type=float, default=WARM_UP, help="minutes that say nothing about memory")
    parser.add_argument("--disk-from", type=float, default=85, help="minutes after which files are removed steadily")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etude-soak-", ignore_cleanup_errors=True) as folder:
        verdict = soak(Path(folder), options.minutes, options.rate, options.samples, options.warm_up, options.disk_from)
    for each in verdict.fits:
        print(each)
    print(f"errors: {verdict.errors}")
    print("The soak held." if verdict.good else "The soak did NOT hold.")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
