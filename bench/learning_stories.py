"""Two stories: a browser script whose waits are too short, and a data script that fails on some inputs.

`python -m bench.learning_stories web|data [RUNS] [PAGE.html]`: the agent is woken by the event `tests_completed`, works
offline, and the result is measured over fresh runs. The first needs Chromium. Its script has several waits: making all
of them much longer fixes the failures and is tempting, but breaks a test that passes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from etude.agents.worker import Worker
from etude.app import App
from etude.learning.edits.learner import Learner, LearnOptions
from etude.learning.edits.suite import Suite
from etude.learning.edits.tests_completed import TestsCompleted, publish_tests_completed
from etude.learning.learning_report import learning_report_as_text, learning_reports_as_page, read_learning_reports
from etude.learning.statistical_tests import wilson_interval
from etude.store.edits import StoredEdits

# Plugins of this environment that the suites do not use: without them a run starts sooner.
SUITE = "python -m pytest -q -p no:schemathesis -p no:xdist -p no:hypothesispytest -p no:timeout tests"
FRESH = 40

WEB = {
    "orders.py": '''\
"""Reads orders from their pages."""

from playwright.sync_api import TimeoutError as PageTimeout


def read_total(page, url):
    page.goto(url, timeout=20000)
    page.wait_for_selector("#total", timeout=500)
    return page.inner_text("#total")


def is_late(page, url):
    """Return whether the page of an order has a warning; most have none, so it must not wait for one for long."""
    page.goto(url, timeout=20000)
    try:
        page.wait_for_selector("#late", timeout=500)
    except PageTimeout:
        return False
    return True
''',
    "tests/conftest.py": '''\
import random
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import sync_playwright

SLOW = """<p>loading</p><script>setTimeout(() => {
document.body.innerHTML = "<b id=total>%d</b>" }, %d)</script>"""


class Page(BaseHTTPRequestHandler):
    asked = {}

    def do_GET(self):
        number = int(self.path.rpartition("/")[2] or 0) if self.path.startswith("/order/") else 0
        again = Page.asked[self.path] = Page.asked.get(self.path, 0) + 1
        chance = random.Random(f"{os.environ['ETUDE_SEED']}:{self.path}:{again}")
        busy = chance.random() < 0.15
        body = "busy" if busy else SLOW % (number * 10, chance.choice([20, 60, 700, 1300]))
        self.send_response(503 if busy else 200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-zygote"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags, timeout=120_000)
        browser.new_page().goto("data:text/html,ready", timeout=120_000)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()
''',
    "tests/test_orders.py": """\
import time

import pytest

import orders


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_total(page, site, number):
    assert orders.read_total(page, f"{site}/order/{number}") == str(number * 10)


def test_no_warning_is_known_soon(page, site):
    started = time.monotonic()
    assert not orders.is_late(page, f"{site}/order/9")
    assert time.monotonic() - started < 4.5
""",
}

DATA = {
    "sales.py": '''\
"""Sums the sales of each region in files that people export by hand."""

import csv


def sum_by_region(path):
    totals = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            region = row["region"].strip().lower()
            totals[region] = totals.get(region, 0) + parse_amount(row["amount"])
    return totals


def parse_amount(text):
    return float(text)
''',
    "tests/test_sales.py": """\
import pytest

import sales

FILES = {
    "plain": ("region,amount\\nnorth,10\\nsouth,5\\n", {"north": 10, "south": 5}),
    "spaces": ("region,amount\\n north ,10\\n", {"north": 10}),
    "cents": ("region,amount\\nnorth,1.5\\n", {"north": 1.5}),
    "thousands": ('region,amount\\nnorth,"1,200"\\n', {"north": 1200}),
    "blank": ("region,amount\\nnorth,10\\nsouth,\\n", {"north": 10, "south": 0}),
    "both": ('region,amount\\nnorth,"2,000"\\nsouth,\\n', {"north": 2000, "south": 0}),
}


@pytest.mark.parametrize("name", FILES)
def test_sum(tmp_path, name):
    text, expected = FILES[name]
    (tmp_path / "a.csv").write_text(text)
    assert sales.sum_by_region(tmp_path / "a.csv") == expected
""",
}


def write_story(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def measure_rate(app: App, repo: Path, runs: int, seed: int) -> tuple[int, int]:
    """Tests passed, and of how many, over fresh runs with seeds that nothing has seen."""
    learner = Learner(app.store, app.settings.home, repo, Suite(SUITE), LearnOptions(seed=seed))
    passed = total = 0
    for number in range(runs):
        run = learner.suite.run(learner.base, seed + number)
        passed, total = passed + run.passed, total + run.total
        print(f"  run {number + 1}: {passed} of {total}", file=sys.stderr, flush=True)
    return passed, total


def tell(files: dict[str, str], fresh: int = FRESH, page: Path | None = None) -> dict[str, object]:
    """Wake the agent by the event, let it learn, and measure before and after."""
    with tempfile.TemporaryDirectory(prefix="etude-story-") as name:
        Path(name).chmod(0o755)
        repo = write_story(Path(name, "repo"), files)
        with App(home=Path(name, "home")) as app:
            before = measure_rate(app, repo, 5, 5_000_000)
            print(f"before: {before[0]} of {before[1]} tests passed", flush=True)
            agent = app.agents.create("learn", {"repo": str(repo), "suite": SUITE})
            finished = threading.Event()
            worker = Worker(app)
            worker.start()
            publish_tests_completed(app.store, TestsCompleted(repo=str(repo), passed=before[0], total=before[1]))
            step = None
            while step is None:
                finished.wait(1.0)
                steps = [s for s in app.agents.steps(agent.id) if s.output and "kept" in s.output]
                step = steps[0] if steps else None
            app.agents.pause(agent.id, "now")
            worker.stop()
            print(json.dumps(step.output, indent=1), flush=True)
            after = measure_rate(app, repo, fresh, 6_000_000)
            reports = read_learning_reports(StoredEdits(app.store))
            print(learning_report_as_text(reports[0]), flush=True)
            if page is not None:
                page.write_text(learning_reports_as_page(reports))
            dropped = [e for e in reports[0].edits if e.status == "dropped"]
            # Tempting: it fixed failures when it was screened. Worse: the whole suite says so.
            worse = [e for e in dropped if e.body.get("broken") or e.body.get("losses", 0) > e.body.get("wins", 0)]
            return {
                "before": before,
                "after": after,
                "interval": wilson_interval(*after),
                "kept": [e.body["rationale"] for e in reports[0].kept],
                "dropped": len(dropped),
                "tempting but worse": [f"{e.body['rationale']}: {e.body['reason']}" for e in worse],
                "runs": len(reports[0].runs),
            }


if __name__ == "__main__":
    started = time.monotonic()
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else FRESH
    told = tell({"web": WEB, "data": DATA}[sys.argv[1]], runs, Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    print(json.dumps(told), f"{time.monotonic() - started:.0f} s")
