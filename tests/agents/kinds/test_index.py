"""The index agent: it keeps an index up to date and tells when it changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.app import App


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_it_keeps_the_index_up_to_date(app: App, agents: AgentControl, tmp_path: Path) -> None:
    path = tmp_path / "stock"
    path.mkdir()
    (path / "stock.csv").write_text("id,item\n1,green tea\n2,black tea\n")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        events = hub.subscribe(["index.*"])
        agents.create("index", {"source": str(path), "every_s": 3600}, id="i")
        wait_until(lambda: agents.get("i").step_no == 1)
        assert app.search("tea", str(path), kinds=["row"]).hits
        (event,) = events.read(timeout=90)
        assert event.body["new"] == event.body["documents"]
        (path / "stock.csv").write_text("id,item\n1,green tea\n3,hot cocoa\n")
        assert agents.wait(agents.message("i", "now")).state == "done"
        (event,) = events.read(timeout=90)
        assert event.body["deleted"] == event.body["new"] == 1
    assert [h.key["id"] for h in app.search("cocoa", str(path), kinds=["row"], mode="text").hits] == [3]
