"""The catalog agent: it makes the catalog on a schedule and reports what changed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Invalid


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_it_keeps_the_catalog_up_to_date(app: App, agents: AgentControl, tmp_path: Path) -> None:
    path = tmp_path / "stock"
    path.mkdir()
    (path / "stock.csv").write_text("item,n\ntea,42\n")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        events = hub.subscribe(["catalog.*"])
        # An hour that does not come while this test runs.
        hour = (datetime.now(UTC).hour + 12) % 24
        agents.create("catalog", {"source": str(path), "cron": f"0 {hour} * * *"}, id="c")
        wait_until(lambda: agents.get("c").step_no == 1)
        first = agents.get("c").last_output
        assert (first["tables"], first["changes"], first["failed"]) == (1, 0, [])
        assert app.store.run(first["run_id"]).status == "succeeded"
        (path / "shelf.csv").write_text("no\n1\n")
        assert agents.wait(agents.message("c", "now")).state == "done"
        second = agents.get("c").last_output
        assert (second["tables"], agents.state("c")["made"]) == (2, 2)
        (event,) = events.read(timeout=90)
        assert event.body["count"] == second["changes"] > 0
        assert any("shelf" in text for text in event.body["changes"])
        (path / "cellar.csv").write_text("no\n1\n")
        # The step that made this one was killed before it could report.
        app.cataloger.run(str(path), model="offline")
        assert agents.wait(agents.message("c", "now")).state == "done"
        (event,) = events.read(timeout=90)
        assert any("cellar" in text for text in event.body["changes"])
    assert agents.get("c").activity == "waiting"


def test_it_needs_a_schedule(agents: AgentControl) -> None:
    with pytest.raises(Invalid, match="give `every_s` or `cron`"):
        agents.create("catalog", {"source": "x"})
