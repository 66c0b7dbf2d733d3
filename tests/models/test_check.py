from __future__ import annotations

import json
import re
from typing import Any

import pytest

from etude.cli.main import run_command
from etude.models import check
from etude.models.base import Model
from etude.models.check import CHECKS, check_model
from etude.models.scripted import Line, Scripted, ScriptedCall
from openai_server import Answer, OpenAIServer, calls, say


def answer(body: dict[str, Any]) -> Answer:
    """What a capable model would say to the checks."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return say(f"The sum is {last['content']}.")
    pairs = re.findall(r"(\d+) and (\d+)", last["content"])
    if body.get("tools"):
        return calls(*(("add", {"a": int(a), "b": int(b)}) for a, b in pairs))
    return say("one two three four five", pace_s=0.01) if "Count" in last["content"] else say("ready")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon a turn ends is the machine's matter; that it ends by the cancel is the model's."""
    monkeypatch.setattr(check, "LATE_S", 120.0)


def failed(model: Model) -> set[str]:
    results = list(check_model(model))
    assert [r.name for r in results] == list(CHECKS)
    return {r.name for r in results if not r.ok}


def test_a_provider_that_keeps_its_promises_passes() -> None:
    with OpenAIServer(answer) as server:
        model = server.model()
        results = {r.name: r.detail for r in check_model(model)}
        model.close()
        assert failed(model) == set()
        model.close()
    assert results["parallel calls"] == "2 calls in one turn"
    assert "then: The sum is 42." in results["tool call"]


def test_what_is_not_kept_is_found() -> None:
    call = ScriptedCall(name="add", arguments="{no json")
    silent = Scripted([lambda request: Line(text="") if not request.tools else Line(calls=(call,))])
    assert failed(silent) == {"text", "streaming", "usage", "tool call", "parallel calls", "cancel"}
    one_piece = Scripted([Line(text="ready")])
    assert failed(one_piece) == {"streaming", "tool call", "parallel calls", "cancel"}


def test_the_command_prints_each_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path))
    with OpenAIServer(answer) as server:
        monkeypatch.setenv("ETUDE_MODELS__OPENAI__BASE_URL", server.base_url)
        assert run_command(["check", "model", "openai:test-model", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["name"] for r in printed] == list(CHECKS)
    assert run_command(["check", "model"]) == 2
    assert "`offline` is not a model" in capsys.readouterr().err
