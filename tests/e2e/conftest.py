"""A real browser that reads pages from files, and tells of every error and every request."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

Open = Callable[..., "Opened"]
PATIENCE_MS = 90_000.0


@dataclass
class Opened:
    """A page in the browser, with what it complained of and asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("chromium is not installed: run tests/install.sh")
    # For a module, not for the session: its event loop would be in the way of tests that have their own.
    # The browser's own sandbox refuses to work for root.
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=options, timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open HTML as a file, in a window of a size and a colour scheme. What it complains of fails the test."""
    opened: list[Opened] = []

    def open_html(html: str, fragment: str = "", width: int = 1400, height: int = 900, scheme: str = "light") -> Opened:
        file = tmp_path / f"page{len(opened)}.html"
        file.write_text(html, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        found = Opened(context.new_page())
        found.page.on("console", lambda m: found.errors.append(m.text) if m.type in ("error", "warning") else None)
        found.page.on("pageerror", lambda e: found.errors.append(str(e)))
        found.page.on("request", lambda r: found.requests.append(r.url))
        found.page.goto(f"{file.as_uri()}{fragment}")
        opened.append(found)
        return found

    yield open_html
    for each in opened:
        url = each.page.url.split("#")[0]
        each.page.context.close()
        assert each.errors == []
        assert [r for r in each.requests if r.split("#")[0] != url] == []
