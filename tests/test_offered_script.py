"""Scripts that are offered run alone and give the result of their run: threads of all kinds, made by chance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.scripts import check_thread, source_of, write_source

from etude.app import App
from etude.offered_script import offered_code_printing_its_value

THREADS = 4
"""How many threads are made here; `python -m bench scripts` makes 200."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("offered")
    write_source(folder / "sales")
    with App(home=folder / "home", replay="off") as app:
        yield app


@pytest.mark.parametrize("seed", range(THREADS))
def test_every_offered_script_runs_alone_and_gives_the_same(app: App, seed: int):
    check_thread(app, seed)


def test_a_script_that_does_not_run_alone_says_so(app: App):
    flaky = (
        "import uuid, builtins\nseen = getattr(builtins, 'seen_before', None)\nassert db.sql('SELECT 1 AS x').rows()\n"
    )
    answer = app.ask(source_of(app), f"PYTHON: {flaky}import time\nassert time.time() < {2**31}\n41 + 1")
    text = app.script(answer.run_id)
    assert "# Executed alone" in text
    app.ask(source_of(app), "PYTHON: 1", thread_id=answer.thread_id)
    gone = app.ask(source_of(app), "SQL: SELECT count(*) AS n FROM sales")
    (app.settings.home.parent / "sales" / "sales.csv").rename(app.settings.home.parent / "moved.csv")
    try:
        assert "# Not executed alone: " in app.script(gone.run_id)
    finally:
        (app.settings.home.parent / "moved.csv").rename(app.settings.home.parent / "sales" / "sales.csv")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("x", "print(x)"),
        ("x = 1\nx + 1", "x = 1\nprint(x + 1)"),
        ("x = 1; x", "x = 1; print(x)"),
        ("print(1)", "print(1)"),
        ("x = 1", "x = 1"),
        ("f(\n  1,\n  2)", "print(f(\n  1,\n  2))"),
        ("s = 'ä'; s", "s = 'ä'; print(s)"),
        ("1 +", "1 +"),
    ],
)
def test_the_last_expression_is_printed(code: str, shown: str):
    assert offered_code_printing_its_value(code) == shown
