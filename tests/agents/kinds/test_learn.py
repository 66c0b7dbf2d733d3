"""The learning agent on the queue: it sleeps until tests fail, learns, and watches what it merged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.agent_kinds import check_agent_rights
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Forbidden
from etude.learning.edits.tests_completed import TestsCompleted, publish_tests_completed
from etude.store.edits import StoredEdits

CHECK = """\
import sys, traceback
from shop import total

try:
    assert total({}) == 0
    body = ""
except Exception as error:
    body = f'<failure type="{type(error).__name__}" message="x"><![CDATA[{traceback.format_exc()}]]></failure>'
with open(sys.argv[1], "w") as file:
    file.write(f'<testsuite><testcase name="empty">{body}</testcase></testsuite>')
"""


@pytest.fixture
def config(tmp_path: Path) -> dict[str, object]:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "shop.py").write_text('def total(row):\n    return row["total"]\n')
    (repo / "conformance.py").write_text(CHECK)
    return {"repo": str(repo), "suite": "python -S conformance.py {junit}", "edits": 1}


def test_only_a_pass_rate_that_is_surely_low_wakes_it(
    app: App, agents: AgentControl, config: dict[str, object]
) -> None:
    agents.create("learn", config, id="l")
    repo = str(config["repo"])
    with Worker(app, agents.queue):
        wait_until(lambda: agents.get("l").step_no >= 1)
        publish_tests_completed(app.store, TestsCompleted(repo=repo, passed=23, total=30))
        publish_tests_completed(app.store, TestsCompleted(repo="/elsewhere", passed=0, total=30))
        wait_until(lambda: agents.get("l").step_no >= 2)
        assert StoredEdits(app.store).list(repo) == []
        publish_tests_completed(app.store, TestsCompleted(repo=repo, passed=1, total=30))
        wait_until(lambda: any(e.status == "merged" for e in StoredEdits(app.store).list(repo)))
        wait_until(lambda: any("kept" in (s.output or {}) for s in agents.steps("l")))
        wait_until(lambda: any("watched" in (s.output or {}) for s in agents.steps("l")))
    learned = next(s.output for s in agents.steps("l") if "kept" in (s.output or {}))
    assert (learned["before"], learned["after"]) == ({"passed": 0, "total": 5}, {"passed": 5, "total": 5})
    assert '.get("total", 0)' in (Path(repo) / "shop.py").read_text()


def test_a_message_makes_it_learn_within_the_given_proposers(
    app: App, agents: AgentControl, config: dict[str, object]
) -> None:
    agents.create("learn", config, id="l")
    with Worker(app, agents.queue):
        agents.wait(agents.message("l", {"proposers": ["retry"]}), timeout=300)
    (learned,) = [s.output for s in agents.steps("l") if "kept" in (s.output or {})]
    assert (learned["kept"], learned["dropped"]) == ([], 0)


def test_only_the_operator_of_the_host_may_create_it(app: App, config: dict[str, object]) -> None:
    with pytest.raises(Forbidden, match="works on folders of the host"):
        check_agent_rights(app, "learn", config, lambda role: None)
