"""Definitions of playbooks, and the rules that answer questions by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.entities import SourceSpec
from etude.errors import Invalid, NotUnderstood
from etude.playbook import Definition, Playbook, apply_definitions, find_definitions


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    rows = [f"{n},{'north' if n % 2 else 'south'},{10 * n},{n}" for n in range(1, 7)]
    (tmp_path / "orders.csv").write_text("order_id,region,amount,refund\n" + "\n".join(rows) + "\n")
    with App(home=tmp_path / "home") as opened:
        opened.add_source("shop", SourceSpec(url=str(tmp_path / "orders.csv")))
        yield opened


def add(app: App, means: str) -> None:
    app.playbooks.add_text(f"---\nname: words\ndescription: What words mean\nmetadata:\n  means: {means}\n---\n")


def test_a_synonym_of_a_playbook_is_understood_without_a_model(app: App) -> None:
    question = "What is the total haul for each region?"
    assert isinstance(app.ask("shop", question, model="offline").error, NotUnderstood)
    add(app, "{haul: amount}")
    answer = app.ask("shop", question, model="offline")
    assert answer.result is not None
    assert sorted(answer.result.rows()) == [("north", 90), ("south", 120)]
    assert "`haul` means “amount” (playbook `words`)" in answer.reading


def test_a_longer_definition_replaces_the_word(app: App) -> None:
    add(app, '{big orders: "orders with an amount over 30"}')
    answer = app.ask("shop", "How many big orders are there?", model="offline")
    assert answer.result is not None
    assert answer.result.rows() == [(3,)]


def test_a_definition_that_the_rules_cannot_compute_is_not_ignored(app: App) -> None:
    question = "What is the total amount?"
    assert app.ask("shop", question, model="offline").error is None
    add(app, '{amount: "whatever the auditors like"}')
    error = app.ask("shop", question, model="offline", fresh=True).error
    assert isinstance(error, NotUnderstood)
    assert "`amount` means “whatever the auditors like” (playbook `words`)" in error.message


def test_definitions_are_pairs_or_sentences_about_a_trigger() -> None:
    text = "Revenue means net of refunds.\n- **Turnover** means revenue\nThat means trouble.\nIt means what it means."
    playbook = Playbook(name="revenue", description="x", text=text)
    found = {d.phrase: d.meaning for d in find_definitions(playbook, {"Sales": "amount"}, ["turnover"])}
    assert found == {"sales": "amount", "revenue": "net of refunds", "turnover": "revenue"}
    with pytest.raises(Invalid, match="Write pairs below it"):
        list(find_definitions(playbook, "revenue", []))


WORDS = st.text("abc ", min_size=1, max_size=6).map(str.strip).filter(bool)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(WORDS, WORDS, max_size=4), st.lists(WORDS, max_size=6).map(" ".join))
def test_only_whole_phrases_are_replaced_and_definitions_never_loop(means: dict[str, str], question: str) -> None:
    definitions = [Definition(phrase=p, meaning=m, playbook="x") for p, m in means.items()]
    asked, used = apply_definitions(question, definitions)
    assert {d.phrase for d in used} <= means.keys()
    if not used:
        assert asked == question
    assert apply_definitions(question, []) == (question, [])
