"""What those who change the rules see: every step from the words to the plan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etude.offline.__main__ import print_trace
from etude.offline.grammar import RULES
from etude.offline.operator_words import OPERATORS
from etude.offline.tags import TAGS
from etude.offline.trace import trace_question
from etude.offline.vocabulary import Vocabulary
from etude.sample import write_shop
from offline.questions import TODAY


def test_every_step_is_shown(shop: Vocabulary) -> None:
    text = trace_question("How many orders are there per status?", shop, TODAY)
    assert [line for line in text.splitlines() if not line.startswith(" ")] == [
        "tokens", "tags", "rules", "parts", "plan", "reading",
    ]  # fmt: skip
    assert "#Tg" in text and "orders.status" in text and "Number of `orders` per `orders.status`" in text


def test_a_refusal_is_shown(shop: Vocabulary) -> None:
    assert "refused\n  It is not clear what `dragons`" in trace_question("How many dragons are there?", shop, TODAY)


def test_every_tag_is_in_the_legend() -> None:
    used = {word.tag for word in OPERATORS.values()} | {
        *re.sub(r"\(\?<?.|[\[\](){}?*+|^\\.]|a-zA-Z", "", "".join(p for p, _ in RULES))
    }
    assert used - TAGS.keys() - {"-"} == set()


def test_it_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    write_shop(tmp_path / "shop")
    assert print_trace([str(tmp_path / "shop"), "Number of orders by channel"]) == 0
    assert "reading\n  Number of `orders` per `orders.channel`" in capsys.readouterr().out
    assert print_trace([str(tmp_path / "nothing"), "Number of orders"]) == 1
    assert "nothing" in capsys.readouterr().err
