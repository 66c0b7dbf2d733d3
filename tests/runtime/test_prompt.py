"""What a model is told before its first turn, and in which order."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from etude.app import App
from etude.models.base import AssistantMessage, ModelRequest, SystemMessage, UserMessage
from etude.models.scripted import Line, Scripted, ScriptedCall
from etude.sample import write_shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompt") / "shop"
    folder.mkdir()
    write_shop(folder)
    return folder


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=tmp_path / "home") as app:
        yield app


def opened(app: App, source: Path, question: str, thread_id: str | None = None, text: str = "I see.") -> ModelRequest:
    model = Scripted([Line(text=text)])
    app.ask(str(source), question, model=model, thread_id=thread_id)
    return model.seen[0]


def written(request: ModelRequest) -> str:
    """Return a request as providers receive it: the tools first, then the conversation."""
    tools = [[t.name, t.description, t.parameters] for t in request.tools]
    return json.dumps([tools, [m.model_dump() for m in request.conversation]])


def test_two_threads_on_a_source_share_nine_tenths_of_their_prompt(app: App, shop: Path):
    app.profile(str(shop))
    first = written(opened(app, shop, "How many customers ordered in May?"))
    second = written(opened(app, shop, "Which product had the highest revenue last year?"))
    shared = len(os.path.commonprefix([first, second]))  # noqa: RUF071 - of two texts
    assert shared >= 0.9 * max(len(first), len(second))


def test_a_large_schema_is_shared_and_the_tables_that_fit_come_with_the_question(app: App, tmp_path: Path):
    folder = tmp_path / "many"
    folder.mkdir()
    for n in range(120):
        columns = ",".join(f"field_{n}_{k}" for k in range(12))
        (folder / f"table_{n:03}.csv").write_text(f"{columns}\n" + ",".join("1" * 12) + "\n")
    (folder / "penguins.csv").write_text("species,mass\nAdelie,3700\n")
    app.profile(str(folder))
    asked = opened(app, folder, "Which species of penguins is the heaviest?")
    schema, question = (m.text for m in asked.conversation if isinstance(m, UserMessage))
    assert "table_119" in schema and "species" in question and "table_119" not in question
    assert "get_dataset_schema" in {t.name for t in asked.tools}
    other = written(opened(app, folder, "What is in table_007?"))
    shared = len(os.path.commonprefix([written(asked), other]))  # noqa: RUF071 - of two texts
    assert shared >= 0.9 * max(len(written(asked)), len(other))


def test_the_question_comes_last_with_the_date_and_the_mark(app: App, shop: Path):
    request = opened(app, shop, "How many customers?")
    rules, schema, question = request.conversation
    assert isinstance(rules, SystemMessage) and isinstance(schema, UserMessage) and isinstance(question, UserMessage)
    assert schema.shared and not question.shared
    told = re.match(r"It is (\w+), (\S+) \d\d:\d\d (\S+)\. Results are in <data (\w+)>", question.text)
    assert told is not None
    assert told[4].isalpha()  # a model that repeats it has not written a figure
    assert abs((datetime.now() - datetime.fromisoformat(told[2])).days) <= 1
    assert question.text.endswith("Question: How many customers?")
    assert "Python has pandas, numpy, pyarrow, duckdb" in schema.text


def test_earlier_messages_are_turns_and_keep_their_mark(app: App, shop: Path):
    first = app.ask(str(shop), "How many customers?", model=Scripted([Line(text="Many customers.")]))
    request = opened(app, shop, "And orders?", first.thread_id)
    turns = request.conversation[2:-1]
    assert [m.turn.text if isinstance(m, AssistantMessage) else m.text for m in turns] == [
        "How many customers?",
        "Many customers.",
    ]
    third = opened(app, shop, "And products?", first.thread_id)
    marks = [
        re.findall(r"between <data (\w+)>", m.text)
        for r in (request, third)
        for m in r.conversation[-1:]
        if isinstance(m, UserMessage)
    ]
    assert marks[0] == marks[1]
    before, after = (written(r)[: len(written(request))] for r in (request, third))
    assert len(os.path.commonprefix([before, after])) > written(request).index("Many customers.")  # noqa: RUF071


def test_an_earlier_answer_comes_without_the_marks_for_people(app: App, shop: Path):
    first = app.ask(str(shop), "How much?", model=Scripted([Line(text="It is 4711 of 815.")] * 2))
    assert "4711 [?]" in first.text
    turns = [m for m in opened(app, shop, "And now?", first.thread_id).conversation if isinstance(m, AssistantMessage)]
    assert [m.turn.text for m in turns] == ["It is 4711 of 815."]


@pytest.mark.parametrize(("history", "seen"), [(0, 0), (4, 4), (12, 10)])
def test_the_number_of_messages_is_a_setting(tmp_path: Path, shop: Path, history: int, seen: int):
    with App(home=tmp_path / "home", history=history) as app:
        thread_id = None
        for n in range(5):
            answer = app.ask(
                str(shop), f"Question {n}?", model=Scripted([Line(text=f"Answer.{n}")]), thread_id=thread_id
            )
            thread_id = answer.run.thread_id
        request = opened(app, shop, "And now?", thread_id)
    assert len(request.conversation) - 3 == seen


def test_playbooks_that_match_are_in_the_opening(app: App, shop: Path):
    for name, description in (
        ("revenue", "How revenue of orders is computed"),
        ("penguins", "How penguins are counted"),
    ):
        folder = app.settings.home / "playbooks" / app.tenant / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {description}\nmetadata:\n  pinned: true\n---\nLeave out returns.\n"
        )
    asked = opened(app, shop, "What is the revenue of all orders?").conversation[-1]
    assert isinstance(asked, UserMessage)
    assert "revenue: How revenue of orders is computed\nLeave out returns." in asked.text
    assert "penguins" not in asked.text


def test_a_table_name_that_is_almost_right_is_corrected(app: App, shop: Path):
    look = ScriptedCall(name="get_dataset_schema", arguments={"tables": ["custmers", "articles", "zzz"]})
    model = Scripted([Line(calls=(look,)), Line(text="I see.")])
    answer = app.ask(str(shop), "What is there?", model=model)
    shown = next(s.shown for s in answer.run.steps if s.kind == "tool")
    assert shown is not None
    assert "There is no table `custmers`. Did you mean `customers`?" in shown
    assert "There is no table `zzz`.\n" in shown


def test_an_error_does_not_advise_a_model_to_change_settings(app: App, shop: Path):
    query = "SELECT a.order_id FROM orders a, orders b"
    model = Scripted([Line(calls=(ScriptedCall(name="execute_sql", arguments={"query": query}),)), Line(text="I see.")])
    with App(home=app.settings.home / "low", limits={"rows": 1000}) as low:
        answer = low.ask(str(shop), "All pairs?", model=model)
    shown = next(s.shown for s in answer.run.steps if s.kind == "tool")
    assert shown is not None and "1,000 rows" in shown
    assert "limits." not in shown and "Aggregate or filter" in shown


def test_a_query_in_another_dialect_is_offered_in_the_right_one(app: App, shop: Path):
    query = "SELECT TOP 3 name FROM products"
    model = Scripted([Line(calls=(ScriptedCall(name="execute_sql", arguments={"query": query}),)), Line(text="I see.")])
    answer = app.ask(str(shop), "Three products?", model=model)
    shown = next(s.shown for s in answer.run.steps if s.kind == "tool")
    assert shown is not None and "This runs: SELECT name FROM products LIMIT 3" in shown
