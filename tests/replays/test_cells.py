"""Answers from cells: sliced, replayed in a fresh session, and written as a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.replays.test_script_library import app, ask, change, compiled, decision, scripted, shop, sql

from etude.app import App
from etude.replays.script_file import write_script_file

__all__ = ["app", "shop"]
QUESTION = "What is the median amount of web orders?"
CELLS = (
    "rows = db.sql('SELECT channel, amount FROM orders ORDER BY order_id').rows()\nprint(len(rows))",
    "unused = [1, 2, 3]\nunused.append(4)",
    "web = []\nkept = web\n1 / 0",
    "for channel, amount in rows:\n    if channel == 'web':\n        kept.append(float(amount))",
    "from statistics import median, mean\nprint(mean(web))\nresult = median(web)",
    "print(f'median {result:.1f} of {len(web)}')",
)


def python(code: str) -> dict[str, object]:
    return {"calls": [{"name": "execute_python", "arguments": {"code": code}}]}


def test_a_run_of_cells_is_sliced_and_replayed(app: App, shop: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path, *map(python, CELLS), {"text": "The median is 52.0 of 666 orders."})
    first = ask(app, shop, QUESTION, model=model)
    event = compiled(app, first)
    assert event.replayable, event.reason
    second = ask(app, shop, QUESTION, model=model)
    assert second.replayed and second.text == first.text and second.run.usage.model_calls == 0
    code = second.code
    assert "unused" not in code and "mean(web)" not in code and "1 / 0" not in code and "kept.append" in code


def test_other_data_give_the_new_output_of_the_cells(app: App, shop: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path, *map(python, CELLS), {"text": "The median is 52.0 of 666 orders."})
    ask(app, shop, QUESTION, model=model)
    change(shop, "INSERT INTO orders SELECT order_id + 2000, customer_id, amount, ordered, 'web' FROM orders LIMIT 400")
    answer = ask(app, shop, QUESTION, model=model)
    assert decision(app, answer).level == "replay" and "1066" in answer.text and "666" not in answer.text


def test_a_mixed_run_replays_both_kinds_of_steps(app: App, shop: Path, tmp_path: Path) -> None:
    cell = "total = sum(r[0] for r in db.sql('SELECT amount FROM orders').rows())\nprint('total', total)"
    query = "SELECT count(*) AS n FROM customers"
    model = scripted(tmp_path, sql(query), python(cell), {"text": "40 customers spent 108320.0."})
    first = ask(app, shop, "How much did all customers spend?", model=model)
    second = ask(app, shop, "How much did all customers spend?", model=model)
    assert first.text == second.text and second.replayed
    assert [s.kind for s in second.run.steps if s.kind in ("sql", "python")][:1] == ["sql"]


def test_a_table_that_a_cell_returns_is_the_result_again(app: App, shop: Path, tmp_path: Path) -> None:
    cell = "frame = db.sql('SELECT channel, amount FROM orders').df()\nframe.groupby('channel', as_index=False).size()"
    model = scripted(tmp_path, python(cell), {"text": "See the table."})
    first = ask(app, shop, "How are the orders spread?", model=model)
    second = ask(app, shop, "How are the orders spread?", model=model)
    assert second.replayed and first.result is not None and second.result is not None
    assert second.result.rows() == first.result.rows()


def test_the_file_of_cells_runs_alone(app: App, shop: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path, *map(python, CELLS), {"text": "The median is 52.0 of 666 orders."})
    file = tmp_path / "median.py"
    file.write_text(write_script_file(app.scripts.script(ask(app, shop, QUESTION, model=model).run_id)))
    environment = os.environ | {"ETUDE_HOME": str(tmp_path / "elsewhere")}
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and "median 52.0 of 666" in done.stdout, done.stderr


# -- parameters

ROWS = "rows = db.sql('SELECT channel, amount, ordered FROM orders ORDER BY order_id').rows()"
BY_QUERY = """query = "unused"
total = db.sql("SELECT sum(amount) AS s FROM orders WHERE ordered >= '2024-01-01' AND ordered < '2025-01-01'")
print('total', total.rows()[0][0])"""


@pytest.mark.parametrize(
    ("cells", "asked", "other", "name"),
    [
        (
            (ROWS, "print(sum(a for c, a, _ in rows if c == 'App'))"),
            "What did App orders bring?",
            "What did Store orders bring?",
            "channel",
        ),
        (
            (ROWS, "print(sum(a for c, a, d in rows if d.year == 2024))"),
            "What did orders bring in 2024?",
            "What did orders bring in 2025?",
            "year",
        ),
        (
            (ROWS, "print(sorted(a for c, a, d in rows)[:3])"),
            "What are the 3 smallest amounts?",
            "What are the 4 smallest amounts?",
            "limit",
        ),
        ((BY_QUERY,), "What is the revenue of 2024?", "What is the revenue of 2025?", "year"),
    ],
)
def test_a_literal_of_the_question_is_a_parameter_of_cells(
    app: App, shop: Path, tmp_path: Path, cells: tuple[str, ...], asked: str, other: str, name: str
) -> None:
    change(shop, "UPDATE orders SET channel = upper(channel[1]) || channel[2:]")
    model = scripted(tmp_path, *map(python, cells), {"text": "See above."})
    first = ask(app, shop, asked, model=model)
    assert compiled(app, first).parameters == (name,)
    answer = ask(app, shop, other, model=model)
    assert answer.replayed and answer.run.usage.model_calls == 0
    value = decision(app, answer).parameters[name]
    file = tmp_path / "script.py"
    file.write_text(app.script(first.run_id))
    alone = run_alone(file, tmp_path, f"--{name}", value)
    assert alone.returncode == 0 and alone.stdout.strip() == answer.text.strip(), alone.stderr
    assert run_alone(file, tmp_path).stdout != alone.stdout


@pytest.mark.parametrize(
    ("cells", "asked"),
    [
        ((ROWS, "label = 'App'\nprint(sum(a for c, a, _ in rows if c == label))"), "What did App orders bring?"),
        ((ROWS, "print('App', sum(a for c, a, _ in rows if c == 'App'))"), "What did App orders bring?"),
        ((ROWS, "print(sum(a for c, a, d in rows if a > 50))"), "What did orders above 50 bring?"),
        ((ROWS, "print(len(rows) // 3)"), "What is a part of 3?"),
    ],
)
def test_a_literal_whose_meaning_is_not_certain_stays_as_it_is(
    app: App, shop: Path, tmp_path: Path, cells: tuple[str, ...], asked: str
) -> None:
    change(shop, "UPDATE orders SET channel = upper(channel[1]) || channel[2:]")
    model = scripted(tmp_path, *map(python, cells), {"text": "See above."})
    assert compiled(app, ask(app, shop, asked, model=model)).parameters == ()


def run_alone(file: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ETUDE_HOME": str(folder / "elsewhere")}
    command = [sys.executable, str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_file_of_a_query_takes_its_parameters(app: App, shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "total.py"
    file.write_text(app.script(ask(app, shop, "What is the total amount in 2024?").run_id))
    fresh = ask(app, shop, "What is the total amount in 2025?", fresh=True)
    assert fresh.result is not None
    assert str(fresh.result.rows()[0][0]) in run_alone(file, tmp_path, "--year", "2025").stdout
    assert "is from 2024 to 2025" in run_alone(file, tmp_path, "--year", "1999").stderr
