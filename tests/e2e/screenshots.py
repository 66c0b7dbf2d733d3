"""`python -m tests.e2e.screenshots [FOLDER]`: every view of the page as a picture, light, dark and on a phone."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from tests.e2e.page_server import PageServer, wait_for

PATIENCE_MS = 90_000.0
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
}
PLAYBOOK = """---
name: count-orders-once
description: Use when orders are counted by status, channel or country.
metadata:
  trigger: [orders by]
---

# Count orders once

1. Count `order_id` in `orders`; lines and products repeat it.
2. Leave out no status unless the question names one.
3. Say if a column that you group by has nulls, and how many.
"""


class Filled:
    """A server with something in every view."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.thread = self.ask("orders by status")
        self.ask("How many customers are there per country?", model="offline")
        self.run = self.server.get("/runs?text=status")["items"][0]["id"]
        self.server.post("/playbooks", {"text": PLAYBOOK})
        self.server.add_edit()
        for number in range(6):
            self.ask(f"orders by status, look {number}", fresh=True)
        self.agent = self.server.post(
            "/agents",
            {
                "kind": "watch",
                "id": "order-count",
                "config": {"source": "shop", "sql": "SELECT count(*) FROM orders", "every_s": 5},
            },
        )["id"]
        catalog = self.server.post("/catalogs", {"dataset": "shop"})["id"]
        wait_for(lambda: self.server.get(f"/runs/{catalog}/status")["status"] == "succeeded", 300)
        wait_for(lambda: self.server.get(f"/agents/{self.agent}")["step_no"] > 0, 300)

    def ask(self, text: str, **more: Any) -> str:
        run = self.server.post("/runs", {"kind": "ask", "text": text, "dataset": "shop"} | more)["id"]
        wait_for(lambda: self.server.get(f"/runs/{run}/status")["status"] in ("succeeded", "failed"), 300)
        return str(self.server.get(f"/runs/{run}")["thread_id"])

    @property
    def views(self) -> dict[str, str]:
        """The name of each view, and its address."""
        return {
            "start": "#/start",
            "new": "#/ask",
            "ask": f"#/ask/{self.thread}",
            "runs": "#/runs",
            **{f"run-{v}": f"#/runs/{self.run}?view={v}" for v in ("answer", "timeline", "log", "script", "compare")},
            "agents": "#/agents",
            "agent": f"#/agents/{self.agent}",
            "agent-new": "#/agents/new",
            "catalog": "#/catalog/shop",
            "table": "#/catalog/shop/orders",
            "learning": "#/learning",
            "edit": "#/learning/edits/edit_vat",
            "system": "#/system",
        }


def take_all(folder: Path) -> None:
    """Take a picture of every view in every look."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory(prefix="etude-shots-") as home, sync_playwright() as playwright:
        server = PageServer(Path(home))
        server.start()
        try:
            filled = Filled(server)
            options = ["--no-sandbox"] if os.getuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=chromium, args=options)
            for look in LOOKS:
                take_look(browser, filled, look, folder)
            browser.close()
        finally:
            server.kill()


def take_look(browser: Browser, filled: Filled, look: str, folder: Path) -> None:
    """Take a picture of every view in one look."""
    context = browser.new_context(reduced_motion="reduce", **LOOKS[look])
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    for name, address in filled.views.items():
        page.goto(f"{filled.server.url}/{address}")
        page.reload()  # only a whole load is waited for to its end
        settle(page)
        page.screenshot(path=folder / f"{name}-{look}.png", full_page=look == "phone" or name not in ("ask", "new"))
    if look == "phone":
        page.goto(f"{filled.server.url}/{filled.views['ask']}")
        page.get_by_role("button", name="Result").click()
        page.get_by_role("gridcell").first.wait_for()
        page.screenshot(path=folder / "ask-result-phone.png")
    context.close()


def settle(page: Page) -> None:
    """Wait until the view stands still: no request under way, and nothing that says it waits."""
    page.locator("main").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.locator(".skeleton").first.wait_for(state="detached")


if __name__ == "__main__":
    take_all(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
