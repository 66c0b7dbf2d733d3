"""`etude ask`, `etude chat` and `etude threads`, as a person runs them; a script stands for the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli.terminal_chart import draw_terminal_chart, terminal_chart_shows_all


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "fruit.csv").write_text("name,n\napple,3\npear,5\nplum,2\n")
    query = {"dataset": "fruit", "query": "SELECT name, n FROM fruit ORDER BY n DESC"}
    which = {"name": "ask_user", "arguments": {"question": "Ripe ones only?", "choices": ["yes", "no"]}}
    wrong = {"dataset": "fruit", "query": "SELECT nope FROM fruit"}
    broken = {"name": "execute_python", "arguments": {"code": "1 / 0"}}
    many = {"dataset": "fruit", "query": "SELECT range AS n, range * 2 AS double FROM range(19)"}
    scenes = [
        {
            "asked": "mistaken",
            "turns": [
                {"calls": [{"name": "execute_sql", "arguments": wrong}, broken]},
                {"calls": [{"name": "execute_sql", "arguments": query}]},
                {"text": "Pears lead with 5, plums have 2, apples cost 77."},
            ],
        },
        {"asked": "nineteen", "turns": [{"calls": [{"name": "execute_sql", "arguments": many}]}, {"text": "Here."}]},
        {"asked": "ripe", "turns": [{"calls": [which]}, {"text": "All of them."}]},
        {
            "asked": "most",
            "turns": [{"calls": [{"name": "execute_sql", "arguments": query}]}, {"text": "Pears lead with 5."}],
        },
    ]
    (tmp_path / "script.json").write_text(json.dumps(scenes))
    return tmp_path


def etude(place: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ETUDE_HOME": str(place / "home"), "ETUDE_MODEL": f"scripted:{place}/script.json"}
    command = [sys.executable, "-m", "etude", *arguments]
    return subprocess.run(
        command, input=text, env=environment, cwd=place, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_question_shows_its_steps_the_answer_the_table_and_a_chart(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "Which fruit has the most?")
    assert done.returncode == 0, done.stderr
    assert "▸ SELECT name, n FROM fruit ORDER BY n DESC" in done.stderr
    assert done.stdout.startswith("Pears lead with 5.\n")
    assert "n by name\npear  ████" in done.stdout and "run_" in done.stdout and "thread_" in done.stdout
    run_id = next(word for word in done.stdout.split() if word.startswith("run_"))
    assert "chart     Vega-Lite, bar" in etude(place, "runs", "show", run_id).stdout


def test_json_has_every_event_and_then_the_answer(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "Which has the most?", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"]["type"] for line in lines[:-1]][:2] == ["run.queued", "run.started"]
    answer = lines[-1]
    assert (answer["type"], answer["status"], answer["text"]) == ("answer", "succeeded", "Pears lead with 5.")
    assert answer["result"]["row_count"] == 3 and answer["chart"]["mark"]["type"] == "bar"


def test_a_question_back_waits_for_a_reply(place: Path) -> None:
    asked = etude(place, "ask", "fruit.csv", "How many are ripe?")
    assert "Ripe ones only?" in asked.stdout and "1. yes" in asked.stdout
    run_id = asked.stdout.split("--reply ")[1].split()[0]
    assert etude(place, "ask", "fruit.csv", "1", "--reply", run_id).stdout.startswith("All of them.")
    assert '"reply":"yes"' in etude(place, "runs", "show", run_id, "--json").stdout.replace('": "', '":"')


def test_a_question_back_names_the_source_in_the_command_that_replies(place: Path) -> None:
    (place / "my fruit.csv").write_text("name,n\napple,3\n")
    asked = etude(place, "ask", "my fruit.csv", "How many are ripe?")
    assert """Reply with:  etude ask 'my fruit.csv' "your answer" --reply run_""" in asked.stdout


def test_an_error_of_a_query_or_a_cell_is_printed_once(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "A mistaken one")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("division by zero") == 1 and "Traceback" not in done.stderr
    assert sum('"nope"' in line for line in done.stderr.splitlines() if not line.startswith("▸")) == 1
    alone = etude(place, "ask", "fruit.csv", "SQL: SELECT nope FROM fruit")
    assert alone.returncode == 2 and sum('"nope"' in line for line in alone.stderr.splitlines()) == 1


def test_a_marked_number_is_explained(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "A mistaken one")
    assert "apples cost 77 [?]." in done.stdout
    assert "\n[?] marks a number that etude could not trace to the results." in done.stdout
    assert "[?]" not in etude(place, "ask", "fruit.csv", "Which has the most?").stdout


def test_a_long_result_says_how_to_see_the_rest(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "Which nineteen?")
    [line] = [line for line in done.stdout.splitlines() if "12 shown" in line]
    start, command = line.split(" All of them: etude ")
    assert start == "19 rows, 12 shown."
    assert "19 rows" in etude(place, *command.split()).stdout
    assert etude(place, *command.split(), "--result", "r1").returncode == 0
    assert "shows no result `r9`" in etude(place, *command.split(), "--result", "r9").stderr


def test_a_run_that_fails_says_why_with_an_exit_code(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "Something else entirely")
    assert done.returncode == 7 and "No scene of the script" in done.stderr
    done = etude(place, "ask", "fruit.csv", "SQL: SELECT nope FROM fruit")
    assert done.returncode == 2 and "nope" in done.stderr
    done = etude(place, "ask", "fruit.csv", "x", "--thread", "thread_none")
    assert done.returncode == 4 and "thread_none" in done.stderr


def test_a_conversation_keeps_its_thread_and_its_variables(place: Path) -> None:
    lines = ["PYTHON: x = 20", "PYTHON: x + 1", "", "Which has the most?", "How many are ripe?", "yes", "SQL: nonsense"]
    done = etude(place, "chat", "fruit.csv", text="\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert "\n21\n" in done.stdout.replace("? ", "\n") and "Pears lead" in done.stdout and "All of them." in done.stdout
    assert "error:" in done.stderr

    listed = etude(place, "threads", "list").stdout
    thread = next(word for word in listed.split() if word.startswith("thread_"))
    assert listed.count("thread_") == 1
    shown = etude(place, "threads", "show", thread).stdout
    assert "PYTHON: x + 1" in shown and "Pears lead with 5." in shown
    fork = etude(place, "threads", "fork", thread, "--at", "2").stdout.strip()
    assert etude(place, "ask", "fruit.csv", "PYTHON: x * 2", "--thread", fork).stdout.startswith("40")
    exported = json.loads(etude(place, "threads", "export", thread).stdout)
    assert exported["thread"]["id"] == thread and exported["messages"][0]["text"] == "PYTHON: x = 20"
    assert etude(place, "threads", "delete", thread).returncode == 0
    assert etude(place, "threads", "show", thread).returncode == 4


def test_a_chart_is_drawn_with_bars_to_scale() -> None:
    chart = {"encoding": {"x": {"field": "n", "type": "quantitative"}, "y": {"field": "name", "type": "nominal"}}}
    drawn = draw_terminal_chart(chart, ["name", "n"], [("a", 4), ("bb", 2), ("c\x1b", 1), ("d", None)])
    heading, *lines = drawn.splitlines()
    assert heading == "n by name"
    assert [line.count("█") for line in lines] == [40, 20, 10] and "\x1b" not in drawn
    assert draw_terminal_chart(chart, ["name", "other"], [("a", 1)]) == ""


def test_bars_with_colours_are_drawn_one_below_the_other() -> None:
    axes = {"x": {"field": "city", "type": "nominal"}, "y": {"field": "n", "type": "quantitative"}}
    chart = {"mark": "bar", "encoding": axes | {"color": {"field": "kind"}}}
    rows = [("Oslo", "new", 4), ("Oslo", "old", 2), ("Rome", "new", 1)]
    heading, *lines = draw_terminal_chart(chart, ["city", "kind", "n"], rows).splitlines()
    assert heading == "n by city and kind"
    assert [line.split("█")[0].strip() for line in lines] == ["Oslo, new", "Oslo, old", "Rome, new"]
    own = {"mark": "bar", "encoding": axes | {"color": {"field": "city"}}}
    assert draw_terminal_chart(own, ["city", "n"], [("Oslo", 4), ("Rome", 1)]).startswith("n by city\nOslo ")


def test_bars_of_negative_values_go_to_the_left_of_an_axis() -> None:
    chart = {"encoding": {"x": {"field": "n", "type": "quantitative"}, "y": {"field": "name", "type": "nominal"}}}
    lines = draw_terminal_chart(chart, ["name", "n"], [("a", -3), ("b", 1), ("c", 0)]).splitlines()[1:]
    assert lines == [
        "a " + "█" * 30 + "│" + " " * 10 + " -3",
        "b " + " " * 30 + "│" + "█" * 10 + " 1",
        "c " + " " * 30 + "│" + " " * 10 + " 0",
    ]
    only = draw_terminal_chart(chart, ["name", "n"], [("a", -4), ("b", -1)]).splitlines()[1:]
    assert only == ["a " + "█" * 40 + "│ -4", "b " + " " * 30 + "█" * 10 + "│ -1"]


def test_the_parts_of_a_pie_are_bars_from_the_largest_on() -> None:
    chart = {"mark": {"type": "arc"}, "encoding": {"theta": {"field": "n"}, "color": {"field": "city"}}}
    lines = draw_terminal_chart(chart, ["city", "n"], [("Oslo", 1), ("Rome", 4), ("Bern", 2)]).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["Rome", "Bern", "Oslo"]


def test_a_titled_chart_still_names_its_columns() -> None:
    axes = {"x": {"field": "n", "type": "quantitative"}, "y": {"field": "name", "type": "nominal"}}
    chart = {"title": "Fruit in stock", "encoding": axes}
    assert draw_terminal_chart(chart, ["name", "n"], [("a", 4)]).splitlines()[0] == "Fruit in stock (n by name)"


def test_bars_replace_a_table_only_if_they_say_all_of_it() -> None:
    chart = {"encoding": {"x": {"field": "n", "type": "quantitative"}, "y": {"field": "who", "type": "nominal"}}}
    assert draw_terminal_chart(chart, ["who", "n"], [("a", 1234567), ("b", 7)]).splitlines()[1].endswith("█ 1,234,567")
    assert terminal_chart_shows_all(chart, ["who", "n"], [("a", 1), ("b", 2.5)])
    assert not terminal_chart_shows_all(chart, ["who", "n"], [("a", 1), ("b", None)]), "a row without a bar"
    assert not terminal_chart_shows_all(chart, ["who", "n"], [(None, 1), ("b", 2)])
    assert not terminal_chart_shows_all(chart, ["who", "n"], [("a" * 60, 1)]), "a label that is cut"
    assert not terminal_chart_shows_all(chart, ["who", "id", "n"], [("a", 1, 2)])


def test_a_table_with_more_columns_is_not_repeated_as_bars(place: Path) -> None:
    (place / "people.csv").write_text("id,name,age\n1,Ann,30\n2,Bo,40\n3,Cy,50\n")
    done = etude(place, "ask", "people.csv", "top 2 people by age", "--model", "offline")
    assert "Cy" in done.stdout and "█" not in done.stdout, done.stderr


def test_what_python_prints_is_shown(place: Path) -> None:
    done = etude(place, "ask", "fruit.csv", "PYTHON: print(5)")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "5")


def test_bars_are_drawn_in_the_order_of_the_chart() -> None:
    axes = {"x": {"field": "n", "type": "quantitative"}, "y": {"field": "who", "type": "nominal", "sort": "-x"}}
    bars = draw_terminal_chart(
        {"mark": {"type": "bar"}, "encoding": axes}, ["who", "n"], [("a", 1), ("b", 3), ("c", 2)]
    )
    assert [line[0] for line in bars.splitlines()[1:]] == ["b", "c", "a"]


def test_an_answer_ends_with_the_notes_of_the_columns_that_it_uses(place: Path) -> None:
    (place / "amb.csv").write_text("id,day\n1,01/02/2024\n2,03/02/2024\n3,04/05/2024\n")
    for command in (
        ["ask", "amb.csv", "how many rows per month?", "--model", "offline"],
        ["ask", "amb.csv", "how many rows per month?", "--model", "offline"],
        ["sql", "amb.csv", "SELECT day FROM amb"],
        ["sql", "amb.csv", "SELECT day FROM amb"],
    ):
        done = etude(place, *command)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("note: amb: Column `day` is DATE") == 1, (command, done.stderr)
    assert "note:" not in etude(place, "sql", "amb.csv", "SELECT count(*), max(id) FROM amb").stderr
    done = etude(place, "ask", "amb.csv", "how many rows per month?", "--model", "offline", "--json")
    assert "Column `day`" in json.loads(done.stdout.splitlines()[-1])["result"]["notes"][0]
