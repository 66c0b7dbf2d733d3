from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.errors import Invalid
from etude.models.base import ConversationMessage, Model, SystemMessage, UserMessage
from etude.models.open import open_model
from etude.models.sim import Need, SimModel, SimTask
from etude.settings import load_settings

from .conversation import after, asked, respond

CENTS = Need(
    name="amount",
    kind="unit",
    fact="amounts are cents",
    right="total / 100.0",
    told=("amounts are in cents",),
    lures={"amounts are in thousands": "total * 1000"},
)
OPEN = Need(name="condition", kind="filter", fact="open orders", right="status <> 'closed'")
REVENUE = SimTask(asked="revenue", code="SELECT sum(${amount}) FROM orders WHERE ${condition}", needs=(CENTS, OPEN))


def written(model: Model, *lessons: str) -> str:
    """The code that the model writes for the question on revenue, given some lessons."""
    said: list[ConversationMessage] = [SystemMessage(text="\n".join(lessons)), UserMessage(text="What is the revenue?")]
    return str(json.loads(respond(model, said).turn.calls[0].arguments)["sql"])


def test_one_that_knows_all_is_right_and_one_that_knows_nothing_errs_as_models_do() -> None:
    assert written(SimModel([REVENUE], skill=1)) == "SELECT sum(total / 100.0) FROM orders WHERE status <> 'closed'"
    assert written(SimModel([REVENUE], skill=0)) == "SELECT sum(total) FROM orders WHERE 1 = 1"


def test_the_content_of_a_lesson_helps_and_its_name_does_not() -> None:
    model = SimModel([REVENUE], skill=0)
    assert "total / 100.0" in written(model, "Mind that amounts are in cents.")
    assert "total / 100.0" not in written(model, "Lesson: amounts are cents")
    assert "status <> 'closed'" in written(model, "Open orders have status <> 'closed'.")


def test_an_obedient_one_follows_a_wrong_lesson_though_it_knows_better() -> None:
    wrong = "Mind that amounts are in thousands."
    assert "total * 1000" in written(SimModel([REVENUE], skill=1, obedience=1), wrong)
    assert "total / 100.0" in written(SimModel([REVENUE], skill=1, obedience=0), wrong)


def test_knowledge_is_drawn_by_seed_and_its_share_is_the_skill() -> None:
    facts = [f"fact {n}" for n in range(2000)]
    one, same, other = (SimModel([], skill=0.3, seed=seed) for seed in (1, 1, 2))
    known = [one.knows(fact) for fact in facts]
    assert known == [same.knows(fact) for fact in facts]
    assert known != [other.knows(fact) for fact in facts]
    assert sum(known) / len(facts) == pytest.approx(0.3, abs=0.04)
    better = SimModel([], skill=0.6, seed=1)
    assert all(better.knows(fact) for fact, knew in zip(facts, known, strict=True) if knew)


def test_it_writes_other_code_where_the_result_tells_more_and_else_says_what_came() -> None:
    model = SimModel([REVENUE], skill=0)
    conversation = asked("What is the revenue?")
    first = respond(model, conversation).turn
    conversation += after(first, "Error. Did you mean amounts are in cents?")
    second = respond(model, conversation).turn
    assert "total / 100.0" in second.calls[0].arguments
    conversation += after(second, "1 row: 1234.5")
    last = respond(model, conversation).turn
    assert (last.text, last.calls) == ("1 row: 1234.5", ())


def test_a_question_of_no_task_is_not_answered() -> None:
    assert respond(SimModel([REVENUE], skill=1), asked("Who are you?")).turn.text == "I do not know."


def test_tokens_are_the_length_of_what_it_was_shown() -> None:
    model = SimModel([REVENUE], skill=1)
    plain = respond(model, asked("revenue")).usage.tokens_in
    assert respond(model, asked("revenue" + "x" * 400)).usage.tokens_in == plain + 100


def test_it_is_opened_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([REVENUE.model_dump()]))
    model = open_model(f"sim:0?tasks={path}&seed=3&obedience=1", load_settings({}))
    assert "total * 1000" in written(model, "amounts are in thousands")
    assert model.name == "sim:0"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sim:0.5", "cannot be read"),
        ("sim:much?tasks={path}", "could not convert"),
        ("sim:2?tasks={path}", "between 0 and 1"),
        ("sim:0.5?tasks={path}&sed=1", "`sed` is not known"),
        ("sim:0.5?tasks={bad}", "placeholders in the code"),
    ],
)
def test_a_name_that_cannot_be_opened_says_why(name: str, said: str, tmp_path: Path) -> None:
    path, bad = tmp_path / "tasks.json", tmp_path / "bad.json"
    path.write_text("[]")
    bad.write_text(json.dumps([REVENUE.model_dump() | {"needs": []}]))
    with pytest.raises(Invalid, match=said):
        open_model(name.format(path=path, bad=bad), load_settings({}))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("table", "orders", "orders_table"),
        ("column", "total", "total_value"),
        ("join", "o.customer_id = c.id", "1 = 1"),
        ("unit", "total * 0.01", "total"),
        ("dialect", "strftime(day, '%Y')", "strftime_OF(day, '%Y')"),
        ("fault", "retry", ""),
    ],
)
def test_each_kind_has_its_typical_error(kind: str, right: str, wrong: str) -> None:
    need = Need.model_validate({"name": "x", "kind": kind, "fact": "f", "right": right})
    model = SimModel([SimTask(asked="q", code="${x}", needs=(need,))], skill=0)
    assert json.loads(respond(model, asked("q")).turn.calls[0].arguments) == {"sql": wrong}
