"""The whole way with a real, tiny model in this process. It demonstrates that the parts fit; it is no capable agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.app import App
from etude.entities import ENDED, Budget

pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")


def test_a_local_model_works_at_a_question_until_its_run_ends(tmp_path: Path):
    (tmp_path / "t.csv").write_text("v\n1\n2\n3\n")
    with App(home=tmp_path / "home") as app:
        answer = app.ask(
            str(tmp_path / "t.csv"), "How many rows are there?", model="local:smollm2", budget=Budget(steps=2)
        )
    turns = [s.turn for s in answer.run.steps if s.kind == "model" and s.turn]
    assert answer.status in ENDED and turns
    assert answer.run.usage.tokens_out > 0 and answer.run.usage.cost_usd == 0
