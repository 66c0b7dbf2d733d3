"""Catalogs that are killed at any moment: the latest run is a complete one, and the next run goes on from it.

The kills come at every request to the object store: just before the server hears it, and once the server has done it
but the client does not know. `CHAOS=long` kills whole runs of the command at each of their requests.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest
from tests.patience import wait_until

from catalog.proxy import Proxy, proxy_to
from etude.app import App
from etude.catalog.storage.catalog_store import METRICS, CatalogStore, StoredCatalog, StoredMetrics
from etude.entities import RunFilter
from etude.store.objects import Objects

LONG = os.environ.get("CHAOS") == "long"
FILES = {
    "catalog.html",
    "catalog.json",
    "catalog_script.py",
    "changes.json",
    "recent_summary.html",
    "summary_script.py",
}

PUBLISHER = """
import json, sys
from datetime import datetime
from etude.catalog.storage.catalog_store import StoredMetrics, CatalogStore, StoredCatalog, catalog_run_name
from etude.store.objects import Objects

url, options, prefix, at = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], datetime.fromisoformat(sys.argv[4])
catalog_store = CatalogStore(Objects(url, **options), prefix)
before = catalog_store.latest()
run = StoredCatalog(name=catalog_run_name(at), source="s", dialect="duckdb", fingerprint="f")
files = {name: name.encode() * 1000 for name in NAMES}
catalog_store.publish(run, files, lambda run: StoredMetrics(stored=run).model_dump_json().encode())
"""


class Killer:
    """Kills a process at its nth request."""

    def __init__(self, proxy: Proxy, number: int, moment: str) -> None:
        self._number = number
        self._proxy = proxy
        self._start = len(proxy.seen)
        self._moment = moment
        self._answered = 0
        self.process: subprocess.Popen[bytes] | None = None
        proxy.before = self._before
        proxy.after = self._after

    def _before(self, number: int) -> None:
        if self._moment == "before":
            self._strike(number)

    def _after(self, number: int) -> None:
        if self._moment == "after":
            self._strike(number)
        self._answered += 1

    def _strike(self, number: int) -> None:
        if number - self._start == self._number:
            while self.process is None:
                time.sleep(0.001)
            self.process.kill()
            self.process.wait()

    def wait(self, timeout: float) -> bytes:
        """Wait until the process has ended and the server has done all that it asked for; what it said of errors."""
        assert self.process is not None
        _, errors = self.process.communicate(timeout=timeout)
        wait_until(lambda: self._answered == len(self._proxy.seen) - self._start)
        return errors

    @property
    def struck(self) -> bool:
        """Whether the process lived long enough to be killed."""
        return len(self._proxy.seen) - self._start >= self._number


def check_latest(catalog_store: CatalogStore, files: set[str] = FILES) -> StoredCatalog | None:
    """The latest run, after a look that all of it is there."""
    latest = catalog_store.latest()
    if latest is not None:
        assert latest.files.keys() == files
        for name, known in latest.files.items():
            assert hashlib.sha256(catalog_store.read(latest, name)).hexdigest() == known.sha256
        assert StoredMetrics.model_validate_json(catalog_store.read(latest, METRICS)).stored == latest
    return latest


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_writer_killed_at_each_request_leaves_the_latest_whole(s3_server: Any, moment: str) -> None:
    catalog_store = CatalogStore(Objects(s3_server.url, **s3_server.options), f"chaos/{uuid4().hex}")
    start = datetime(2025, 1, 1, tzinfo=UTC)
    program = PUBLISHER.replace("NAMES", repr(sorted(FILES)))
    names: list[str] = []
    with proxy_to(s3_server.options["endpoint"]) as proxy:
        options = json.dumps(s3_server.options | {"endpoint": proxy.url})
        for number in range(1, 40):
            at = (start + timedelta(hours=number)).isoformat()
            killer = Killer(proxy, number, moment)
            command = [sys.executable, "-c", program, s3_server.url, options, catalog_store.prefix, at]
            killer.process = subprocess.Popen(command, stderr=subprocess.PIPE)
            errors = killer.wait(timeout=120)
            latest = check_latest(catalog_store)
            names.append(latest.name if latest else "")
            if not killer.struck:
                assert killer.process.returncode == 0, errors.decode()
                break
            assert killer.process.returncode == -signal.SIGKILL
        else:
            pytest.fail("it was killed at every request and never came to its end")
    assert names == sorted(names), "never back to an older one"
    assert number > len(FILES) + 3, "it was killed at each file, the pointer and the looks around"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE orders AS SELECT i AS id, i % 7 AS kind FROM range(1000) t(i)")
        db.execute("CREATE TABLE kinds AS SELECT i AS id, 'k' || i AS name FROM range(7) t(i)")
    return path


@pytest.fixture
def command(shop: Path, s3_server: Any, tmp_path: Path) -> Callable[[str, str], subprocess.Popen[bytes]]:
    """A function that starts `etude catalog` on a prefix, through an endpoint."""

    def start(prefix: str, endpoint: str) -> subprocess.Popen[bytes]:
        options = s3_server.options | {"endpoint": endpoint}
        environment = os.environ | {"ETUDE_HOME": str(tmp_path / "home")}
        environment |= {f"ETUDE_CATALOG__STORE_OPTIONS__{name.upper()}": value for name, value in options.items()}
        words = ["catalog", "--db-conn", str(shop), "--store", s3_server.url, "--s3-prefix", prefix]
        return subprocess.Popen(
            [sys.executable, "-m", "etude", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    return start


@pytest.mark.timeout(3600 if LONG else 300)
def test_a_command_killed_at_its_requests_leaves_the_latest_whole(
    s3_server: Any, command: Callable[[str, str], subprocess.Popen[bytes]]
) -> None:
    catalog_store = CatalogStore(Objects(s3_server.url, **s3_server.options), f"chaos/{uuid4().hex}")
    with proxy_to(s3_server.options["endpoint"]) as proxy:
        first = command(catalog_store.prefix, proxy.url)
        out, errors = first.communicate(timeout=120)
        assert first.returncode == 0, (out + errors).decode()
        before = check_latest(catalog_store)
        assert before is not None
        requests = len(proxy.seen)
        numbers = range(1, requests + 6) if LONG else (3, requests - 4, requests - 1)
        for number in numbers:
            for moment in ("before", "after") if LONG else ("after",):
                killer = Killer(proxy, number, moment)
                killer.process = command(catalog_store.prefix, proxy.url)
                killer.wait(timeout=120)
                assert LONG or (killer.struck and killer.process.returncode == -signal.SIGKILL)
                latest = check_latest(catalog_store)
                assert latest is not None and latest.name >= before.name
                before = latest
        proxy.before = lambda _: None
        proxy.after = lambda _: None
        last = command(catalog_store.prefix, proxy.url)
        out, errors = last.communicate(timeout=120)
        assert last.returncode == 0, errors.decode()
        assert b"2 tables" in out and b"0 changes" in out
        latest = check_latest(catalog_store)
        assert latest is not None and latest.name > before.name


def test_an_interrupt_leaves_no_half_written_run(
    s3_server: Any, command: Callable[[str, str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Ctrl-C while the files are being written: those that were are taken away again."""
    objects = Objects(s3_server.url, **s3_server.options)
    prefix = f"chaos/{uuid4().hex}"
    with proxy_to(s3_server.options["endpoint"]) as proxy:
        started: list[subprocess.Popen[bytes]] = []
        struck: list[str] = []

        def interrupt(number: int) -> None:
            if (
                proxy.seen[number - 1].startswith("PUT")
                and "catalog_script.py" in proxy.seen[number - 1]
                and not struck
            ):
                struck.append(proxy.seen[number - 1])
                started[0].send_signal(signal.SIGINT)

        proxy.after = interrupt
        started.append(command(prefix, proxy.url))
        _, errors = started[0].communicate(timeout=120)
    assert struck
    assert started[0].returncode == 130, errors.decode()
    assert list(objects.names(prefix)) == []
    with App(home=tmp_path / "home") as app:
        assert [r.status for r in app.store.runs(RunFilter(kind="catalog")).items] == ["cancelled"]
