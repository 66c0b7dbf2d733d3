"""`etude serve` as a process, with the shop, a large table and a model that plays a script."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import httpx

from etude.sample import write_shop

START_S = 120
ROWS = 1_000_000
COUNT = "SELECT status, count(*) AS orders FROM orders GROUP BY status ORDER BY orders DESC"
FIGURE = (
    "Most orders, {{ r1.orders[0] | ,.0f }}, are {{ r1.status[0] }}.\n\nThe rest is returned, cancelled or shipped."
)
SCRIPT: list[dict[str, Any]] = [
    {
        "asked": "orders by status",
        "turns": [
            {"text": "Counting.", "calls": [{"name": "execute_sql", "arguments": {"dataset": "shop", "query": COUNT}}]},
            {
                "calls": [
                    {
                        "name": "answer",
                        "arguments": {
                            "text": FIGURE,
                            "results": ["r1"],
                            "chart": {"mark": "bar", "x": "status", "y": "orders", "title": "Orders by status"},
                        },
                    }
                ]
            },
        ],
    },
    {
        "asked": "which year",
        "turns": [
            {"calls": [{"name": "ask_user", "arguments": {"question": "Which year?", "choices": ["2023", "2024"]}}]},
            {"text": "Then it is that year."},
        ],
    },
    {
        "asked": "take your time",
        "turns": [
            {"calls": [{"name": "execute_python", "arguments": {"code": "import time\ntime.sleep(3)\n'rested'"}}]},
            {"text": "I have read your direction."},
        ],
    },
    {"asked": "talk slowly", "turns": [{"text": "word " * 3000, "pace_s": 0.05}]},
    {"asked": "tell a story", "turns": [{"text": "once upon a time " * 60 + "the end", "pace_s": 0.03}]},
    {"asked": "markup", "turns": [{"text": '# Hello <img src=x onerror="window.bad=1"><script>window.bad=1</script>'}]},
]


PRICE = "VAT = 0.07\n\n\ndef gross(net: float) -> float:\n    return round(net * (1 + VAT), 2)\n"


class PageServer:
    """A server to open in a browser; it can be killed and started again on the same port."""

    def __init__(self, home: Path, *options: str, empty: bool = False) -> None:
        self.home = home
        self.options = options
        self.empty = empty
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        home.mkdir(parents=True, exist_ok=True)
        (home / "script.json").write_text(json.dumps(SCRIPT))
        if empty:
            return
        write_shop(home / "shop")
        duckdb.sql(
            f"COPY (SELECT range AS id, range * 7 % 1000 AS amount, 'name ' || range AS name FROM range({ROWS})) "
            f"TO '{home / 'large.parquet'}'"
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "etude", *words]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ETUDE_")}
        # Without data of its own, the server answers as it does for a new user: by rules.
        model = "offline" if self.empty else f"scripted:{self.home / 'script.json'}"
        return kept | {"ETUDE_HOME": str(self.home / "etude"), "ETUDE_MODEL": model, "ETUDE_REPLAY": "on"}

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        sources = [] if self.empty else [str(self.home / "shop"), str(self.home / "large.parquet")]
        with (self.home / "serve.log").open("a") as log:
            self._process = subprocess.Popen(
                self.command("serve", *sources, "--port", port, *self.options),
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            found = re.findall(r"listens on (http://\S+)", (self.home / "serve.log").read_text())
            if found:
                self.url = found[-1]
                try:
                    if httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
            assert self._process.poll() is None, (self.home / "serve.log").read_text()
            time.sleep(0.1)
        raise AssertionError((self.home / "serve.log").read_text())

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def post(self, path: str, body: Any = None) -> Any:
        answer = httpx.post(f"{self.url}/api{path}", json=body, timeout=120)
        assert answer.is_success, answer.text
        return answer.json()

    def add_edit(self, edit_id: str = "edit_vat") -> Path:
        """Record an edit of code that was merged, as the learner does it, and return the changed file."""
        from etude.app import App
        from etude.learning.edits.merge import merge_edit
        from etude.learning.edits.workspace import Hunk, Workspace
        from etude.settings import Settings
        from etude.store.edits import StoredEdit, StoredEdits, StoredSuiteRun

        code = self.home / edit_id
        code.mkdir()
        (code / "price.py").write_text(PRICE)
        hunk = Hunk(path="price.py", old="VAT = 0.07\n", new="VAT = 0.19\n")
        before = Workspace(code, ("price.py",))
        body = {
            "rationale": "Use the rate of 19% that eight tests expect.",
            "reason": "Eight tests pass only with it, and none fails because of it.",
            "hunks": [hunk.model_dump()],
            "score_before": 0.5,
            "score_after": 1.0,
            "wins": 8,
            "losses": 0,
            "log_e": 4.0,
        }
        with App(Settings(home=self.home / "etude")) as app:
            merge_edit(app.settings.home, edit_id, before, before.apply([hunk]), "Use 19%")
            edits = StoredEdits(app.store)
            edits.put(StoredEdit(edit_id, str(code), "constants", "merged", datetime.now(UTC), body))
            edits.add_run(StoredSuiteRun(str(code), "pytest", "base", 0, 8, 16, 1.0))
            edits.add_run(StoredSuiteRun(str(code), "pytest", "judge", 0, 16, 16, 1.0, edit_id=edit_id))
        return code / "price.py"

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}/api{path}", timeout=60).json()


def wait_for(what: Callable[[], Any], seconds: float = 90) -> Any:
    """Return what `what` returns, once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")
