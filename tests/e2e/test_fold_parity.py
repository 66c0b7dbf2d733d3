"""The page folds the log of a run as Python does: on the logs in `ui/tests/logs.json` and on made ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from tests.test_events import logs

from etude.api.event_streams import format_stream_entry
from etude.errors import Conflict
from etude.events import Entry, fold

UI = Path(__file__).parents[2] / "ui"
MADE = 300


def folded(name: str, entries: list[Entry]) -> dict[str, Any]:
    try:
        run = json.loads(fold(entries).model_dump_json())
    except Conflict:
        run = None
    return {"name": name, "entries": [json.loads(format_stream_entry(entry)) for entry in entries], "run": run}


def check_in_node(file: Path) -> None:
    done = subprocess.run(
        [UI / "node_modules/.bin/vitest", "run", "tests/fold.test.ts"],
        cwd=UI,
        env=os.environ | {"ETUDE_LOGS": str(file)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_made_logs_fold_alike(tmp_path: Path) -> None:
    made: list[dict[str, Any]] = []

    @settings(max_examples=MADE, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(logs())
    def make(log: list[Entry]) -> None:
        made.append(folded(f"made {len(made)}", log))
        if len(log) > 2:  # a gap, and two entries that changed places
            made.append(folded("gap", [log[0], *log[2:]]))
            made.append(folded("swapped", [log[0], log[2], log[1], *log[3:]]))

    make()
    assert len(made) > MADE
    assert any(one["run"] is None for one in made)
    file = tmp_path / "logs.json"
    file.write_text(json.dumps(made))
    check_in_node(file)


def test_the_kept_logs_fold_as_they_are_kept() -> None:
    for kept in json.loads((UI / "tests/logs.json").read_text()):
        entries = [to_entry(flat) for flat in kept["entries"]]
        assert folded(kept["name"], entries)["run"] == kept["run"], kept["name"]


def to_entry(flat: dict[str, Any]) -> Entry:
    head = {name: flat[name] for name in ("run_id", "seq", "at")}
    return Entry.model_validate(head | {"event": {k: v for k, v in flat.items() if k not in head}})


def test_the_units_of_the_page_work() -> None:
    done = subprocess.run(
        [UI / "node_modules/.bin/vitest", "run"], cwd=UI, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
