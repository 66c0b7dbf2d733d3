"""The page in Chromium, served locally: bytes and time of the first load, and large results and runs."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright
from tests.e2e.page_server import ROWS, PageServer

from bench.figure import Figure
from etude.api.page import WEB

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
STEPS = 4_998
"""With the run's own events, 10,000 events."""
PATIENCE_MS = 60_000.0
FRAME_COUNT = 120
"""Frames from one end of a box to the other: two seconds at 60 frames per second."""

JUMP = """(rows) => new Promise((done) => {
  const grid = document.querySelector('[role="grid"]'), start = performance.now();
  grid.scrollTop = grid.scrollHeight;
  const look = () => {
    const last = grid.querySelector(`[aria-rowindex="${rows + 1}"] [role="gridcell"]`);
    if (last && last.textContent !== "…") done(performance.now() - start);
    else requestAnimationFrame(look);
  };
  look();
})"""
"""Milliseconds until the last row is drawn with its values."""
FRAMES = """([selector, side, frames]) => new Promise((done) => {
  const box = document.querySelector(selector), start = performance.now();
  const far = side === "top" ? box.scrollHeight - box.clientHeight : box.scrollWidth - box.clientWidth;
  let frame = 0;
  const step = (now) => {
    frame += 1;
    if (frame > frames) return done((now - start) / 1000);
    box[side === "top" ? "scrollTop" : "scrollLeft"] = (far * frame) / frames;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
"""The seconds that it takes to scroll a box from one end to the other, the same distance in each frame."""
OPEN_RUN = """([address, count]) => new Promise((done) => {
  const start = performance.now();
  location.hash = address;
  const look = () => {
    if (document.querySelector(".log li") && document.body.textContent.includes(count)) done(performance.now() - start);
    else requestAnimationFrame(look);
  };
  look();
})"""
"""Milliseconds from the click on a run until its whole log can be scrolled."""


@dataclass(frozen=True)
class Scrolled:
    """How a box scrolls. Frames per second depend on what else the machine does, and here on drawing by software; the
    time of the page's main thread, in processor time, hardly does."""

    frames_s: float
    main_ms: float

    def figures(self, name: str) -> list[Figure]:
        return [
            Figure(f"scroll {name}", self.frames_s, None, "frames/s", least=50),
            Figure(f"scroll {name}, main thread per frame", self.main_ms, None, "ms", most=20),
        ]


def measure() -> list[Figure]:
    """Return the figures of the page."""
    first, total = _sizes()
    with tempfile.TemporaryDirectory(prefix="etude-page-") as home:
        server = PageServer(Path(home))
        run_id = _write_long_run(server)
        server.start()
        try:
            with _browser() as browser:
                interactive = statistics.median(_interactive(browser, server) for _ in range(ROUNDS))
                jump, down, across = _grids(browser, server)
                opened, log = _long_run(browser, server, run_id)
        finally:
            server.kill()
    return [
        Figure("first load of the page, gzip", first / 1000, None, "kB", most=60),
        Figure("all files of the page", total / 1e6, None, "MB", most=1.5),
        Figure("from the address to a box to type in", interactive, None, "ms", most=1000),
        Figure(f"jump to row {ROWS:,}", jump, None, "ms", most=100),
        *down.figures(f"{ROWS:,} rows"),
        *across.figures("200 columns"),
        Figure("open a run of 10,000 events", opened, None, "ms", most=500),
        *log.figures("its log"),
    ]


def _sizes() -> tuple[int, int]:
    """Return the bytes of the first load as they travel, and of all files as they are stored."""
    index = (WEB / "index.html").read_text()
    names = re.findall(r'(?:src|href)="/(assets/[^"]+)"', index)
    files = [index.encode(), *((WEB / name).read_bytes() for name in names)]
    first = sum(len(gzip.compress(data, 6)) for data in files)
    return first, sum(path.stat().st_size for path in WEB.rglob("*") if path.is_file())


@contextmanager
def _browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=options)
        yield started
        started.close()


def _open(browser: Browser, address: str) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    return page


def _interactive(browser: Browser, server: PageServer) -> float:
    """Return the milliseconds until a new visitor can type a question."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    start = time.perf_counter()
    page.goto(f"{server.url}/#/ask", wait_until="commit")
    page.locator("#composer:enabled").wait_for(timeout=PATIENCE_MS)
    took = (time.perf_counter() - start) * 1000
    context.close()
    return took


def _ask(page: Page, text: str, dataset: str) -> None:
    page.get_by_label("Data", exact=True).select_option(dataset)
    page.locator("#composer").fill(text)
    page.keyboard.press("Enter")
    page.get_by_role("gridcell").first.wait_for()


def _grids(browser: Browser, server: PageServer) -> tuple[float, Scrolled, Scrolled]:
    page = _open(browser, f"{server.url}/#/ask")
    _ask(page, "SQL: SELECT * FROM large", "large")
    jumps = []
    for _ in range(ROUNDS):
        page.reload()  # without the pages of the last jump
        page.get_by_role("gridcell").first.wait_for()
        jumps.append(float(page.evaluate(JUMP, ROWS)))
    down = _scroll(page, ".vgrid", "top")
    page.goto(f"{server.url}/#/ask")
    page.reload()
    _ask(page, "SQL: SELECT " + ", ".join(f"range * {i} AS c{i}" for i in range(200)) + " FROM range(1000)", "large")
    return statistics.median(jumps), down, _scroll(page, ".vgrid", "left")


def _scroll(page: Page, selector: str, side: str) -> Scrolled:
    """Scroll several times, and return the medians."""
    tracing = page.context.new_cdp_session(page)
    tracing.send("Performance.enable", {"timeDomain": "threadTicks"})
    rates, costs = [], []
    for _ in range(ROUNDS):
        before = _main_thread_s(tracing)
        seconds = page.evaluate(FRAMES, [selector, side, FRAME_COUNT])
        rates.append(FRAME_COUNT / seconds)
        costs.append((_main_thread_s(tracing) - before) * 1000 / FRAME_COUNT)
    return Scrolled(statistics.median(rates), statistics.median(costs))


def _main_thread_s(tracing: CDPSession) -> float:
    metrics = tracing.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def _long_run(browser: Browser, server: PageServer, run_id: str) -> tuple[float, Scrolled]:
    opened = []
    page = _open(browser, f"{server.url}/#/runs")
    for _ in range(ROUNDS):
        page.goto(f"{server.url}/#/runs")
        page.reload()
        page.get_by_label("Words of the question").wait_for()
        page.wait_for_load_state("networkidle")
        opened.append(float(page.evaluate(OPEN_RUN, [f"#/runs/{run_id}?view=log", f"{2 * STEPS + 4:,} events"])))
    return statistics.median(opened), _scroll(page, ".log", "top")


def _write_long_run(server: PageServer) -> str:
    """Write a run as a long investigation leaves it: thousands of queries, each recorded."""
    from etude.app import App
    from etude.events import Event, Note, RunFinished, RunQueued, RunStarted, StepFinished, StepStarted
    from etude.ids import new_id
    from etude.settings import Settings

    run_id = new_id("run")
    with App(Settings(home=server.home / "etude")) as app:
        seq = app.store.append(
            run_id, RunQueued(kind="ask", text="A long investigation"), RunStarted(worker=app.store.worker_id), expect=0
        )
        for start in range(0, STEPS, 500):
            batch: list[Event] = []
            for number in range(start, min(start + 500, STEPS)):
                step: dict[str, Any] = {"step_id": f"step_{number}"}
                code = f"SELECT count(*) FROM orders WHERE customer_id = {number}"
                batch += [StepStarted(kind="sql", code=code, source="shop", **step), StepFinished(outcome="ok", **step)]
            seq = app.store.append(run_id, *batch, expect=seq)
        app.store.append(run_id, Note(text="done"), RunFinished(answer="Done."), expect=seq)
    return run_id
