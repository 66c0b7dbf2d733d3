"""How a run ends: what the person sees, figures with their origin, and answers at the end of a budget."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.cli.ask import print_asked_answer
from etude.entities import Budget
from etude.events import Entry, TextDelta
from etude.models.base import ModelRequest, ToolResult, UserMessage
from etude.models.scripted import Line, Scripted, ScriptedCall
from etude.runtime.answer import AnswerConclusion, answer_to_body
from etude.runtime.conversation import LAST_TOOLS
from etude.sample import write_shop

COUNTRIES = "SELECT country, count(*) AS n FROM customers GROUP BY ALL ORDER BY n DESC, country LIMIT 3"
TOTAL = "SELECT count(*) AS total FROM customers"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "shop"
    folder.mkdir()
    write_shop(folder)
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with App(home=tmp_path_factory.mktemp("home")) as app:
        yield app


def sql(query: str, **more: Any) -> Line:
    return Line(calls=(ScriptedCall(name="execute_sql", arguments={"dataset": "shop", "query": query}),), **more)


def end(**arguments: Any) -> Line:
    return Line(calls=(ScriptedCall(name="answer", arguments=arguments),))


def returned(model: Scripted) -> list[str]:
    return [m.text for m in model.seen[-1].conversation if isinstance(m, ToolResult)]


def said(model: Scripted) -> str:
    message = model.seen[-1].conversation[-1]
    assert isinstance(message, UserMessage)
    return message.text


def names(result: Any) -> list[str]:
    return [c.name for c in result.columns]


# -- the model chooses what is shown


def test_results_have_short_ids_and_the_model_chooses_among_them(app: App, shop: Path):
    model = Scripted([sql(COUNTRIES), sql(TOTAL), sql("SELECT 1 AS checked"), end(text="See.", results=["r2", "r1"])])
    answer = app.ask(str(shop), "Where?", model=model).require()
    assert [text.split("\n")[0] for text in returned(model)] == ["r1:", "r2:", "r3:"]
    assert answer.text == "See."
    assert [(name, names(result)) for name, result in answer.results] == [("r2", ["total"]), ("r1", ["country", "n"])]
    assert answer.result is not None and names(answer.result) == ["total"]
    body = answer_to_body(answer, 2)
    assert [shown.id for shown in body.results] == ["r2", "r1"] and len(body.results[1].rows.rows) == 2


def test_long_cells_are_cut_in_the_answer_and_whole_in_the_result(app: App, shop: Path):
    query = "SELECT repeat('x', 9000) AS long, 'y' AS short, range(5000) AS many"
    answer = app.ask(str(shop), "What?", model=Scripted([sql(query), end(text="This.", results=["r1"])])).require()
    body = answer_to_body(answer, 2)
    for page in (body.result, body.results[0].rows):
        assert page is not None
        long, short, many = page.rows[0]
        assert long == "x" * 4_000 + "… (cut: it has 9,000 characters; the result has all of them)"
        assert short == "y" and many.startswith("[0, 1, 2") and "(cut: " in many
        assert f"result of run `{answer.run_id}` has them whole" in page.notes[-1]
    assert answer.result is not None and len(answer.result.rows()[0][0]) == 9_000


def test_the_check_of_numbers_reads_the_beginning_of_a_cell(app: App, shop: Path):
    query = "SELECT '4711 ' || repeat('x', 9000) || ' 8523' AS long"
    answer = app.ask(
        str(shop), "What?", model=Scripted([sql(query), end(text="It is 4711.", results=["r1"])])
    ).require()
    assert answer.unverified == ()
    (evidence,) = AnswerConclusion(app.objects, app.read_result, corrects=True).evidence(answer.run)
    assert len(evidence.rows[0][0]) == 4_000


def test_an_empty_list_of_results_shows_no_table(app: App, shop: Path):
    answer = app.ask(str(shop), "Where?", model=Scripted([sql(COUNTRIES), end(text="Far.", results=[])])).require()
    assert answer.results == () and answer.result is None and answer.chart is None
    out = io.StringIO()
    print_asked_answer(answer, out)
    assert "country" not in out.getvalue()


def test_plain_text_still_ends_a_run_with_the_last_result(app: App, shop: Path):
    answer = app.ask(str(shop), "Where?", model=Scripted([sql(TOTAL), sql(COUNTRIES), Line(text="Here.")])).require()
    assert [name for name, _ in answer.results] == ["r2"]


def test_plain_text_shows_the_result_that_it_quotes_instead_of_a_check_after_it(app: App, shop: Path):
    [(first, n), (second, m), _] = app.sql(str(shop), COUNTRIES).rows()
    [(total,)] = app.sql(str(shop), TOTAL).rows()
    text = f"{first} leads with {n} of {total} customers, before {second} with {m}."
    answer = app.ask(str(shop), "Where?", model=Scripted([sql(COUNTRIES), sql(TOTAL), Line(text=text)])).require()
    assert [name for name, _ in answer.results] == ["r1"] and not answer.unverified
    assert answer.result is not None and names(answer.result) == ["country", "n"] and answer.code == COUNTRIES
    assert answer.chart is not None and answer.chart["encoding"]["x"]["field"] == "n"


def test_of_two_results_with_the_same_figures_the_later_is_shown(app: App, shop: Path):
    wider = COUNTRIES.replace("count(*) AS n", "count(*) AS n, 7 AS seven")
    [(first, n), *_] = app.sql(str(shop), COUNTRIES).rows()
    model = Scripted([sql(COUNTRIES), sql(wider), sql(TOTAL), Line(text=f"{first} leads with {n}.")])
    answer = app.ask(str(shop), "Where?", model=model).require()
    assert [name for name, _ in answer.results] == ["r2"]


def test_results_that_a_text_quotes_equally_are_shown_in_order(app: App, shop: Path):
    channels = "SELECT channel, round(sum(amount), 2) AS revenue FROM orders GROUP BY ALL ORDER BY ALL"
    countries, sold = app.sql(str(shop), COUNTRIES).rows(), app.sql(str(shop), channels).rows()
    text = "\n".join(f"- {name}: {value}" for name, value in [*countries, *sold])
    answer = app.ask(str(shop), "All?", model=Scripted([sql(COUNTRIES), sql(channels), Line(text=text)])).require()
    assert [name for name, _ in answer.results] == ["r1", "r2"]


def test_an_automatic_chart_shows_the_measure_that_was_asked_for(app: App, shop: Path):
    months = (
        "SELECT strftime(ordered, '%Y-%m') AS month, count(*) AS orders, sum(amount) AS value FROM orders "
        "GROUP BY ALL ORDER BY 1 LIMIT 3"
    )
    [(_, orders, value), *_] = app.sql(str(shop), months).rows()

    def measure(question: str, text: str) -> str:
        answer = app.ask(str(shop), question, model=Scripted([sql(months), Line(text=text)]), fresh=True).require()
        assert answer.chart is not None
        return str(answer.chart["encoding"]["y"]["field"])

    assert measure("What is the value per month?", "See the table.") == "value"
    assert measure("How did we do?", f"The first month brought {value:.2f}.") == "value"
    assert measure("How did we do?", f"The first month had {orders} orders.") == "orders"


@pytest.mark.parametrize(
    ("question", "columns", "text", "drawn"),
    [
        ("How many days until payment?", "payments, avg_days_to_payment", "See the table.", "avg_days_to_payment"),
        ("How many days until payment?", "payments, delay", "Web takes 12.25 and app 31.75.", "delay"),
        ("What share of orders?", "orders, share_pct", "See the table.", "share_pct"),
        ("What percentage of orders?", "orders, share", "See the table.", "share"),
        ("How many orders?", "orders, share", "See the table.", "orders"),
    ],
)
def test_an_automatic_chart_shows_the_measure_that_the_answer_is_about(
    app: App, shop: Path, question: str, columns: str, text: str, drawn: str
):
    query = f"SELECT channel, {columns} FROM (VALUES ('web', 41, 12.25), ('app', 17, 31.75)) AS t(channel, {columns})"
    answer = app.ask(str(shop), question, model=Scripted([sql(query), Line(text=text)]), fresh=True).require()
    assert answer.chart is not None and answer.chart["encoding"]["x"]["field"] == drawn


def test_the_text_of_the_turn_is_the_answer_if_the_call_has_none(app: App, shop: Path):
    call = ScriptedCall(name="answer", arguments={"results": ["r1"]})
    model = Scripted([sql(TOTAL), sql(COUNTRIES), Line(text="As the table shows.", calls=(call,))])
    answer = app.ask(str(shop), "Where?", model=model).require()
    assert answer.text == "As the table shows." and [name for name, _ in answer.results] == ["r1"]


def test_a_result_that_does_not_exist_goes_back_to_the_model(app: App, shop: Path):
    chart = {"mark": "bar", "x": "land", "y": "n"}
    model = Scripted([sql(COUNTRIES), end(text="Done.", results=["r7"], chart=chart), end(text="Now done.")])
    answer = app.ask(str(shop), "Where?", model=model).require()
    told = returned(model)[-1]
    assert answer.text == "Now done." and "There is no result `r7`" in told and "`r1` has no column `land`" in told


@pytest.mark.parametrize(
    ("chart", "why"),
    [
        ({"mark": "bar", "x": "land", "y": "n"}, "`r1` has no column `land` for `x`"),
        ({"mark": "sankey", "x": "country", "y": "n"}, "`sankey` is not a mark"),
        ({"mark": "bar", "x": "country", "y": "n", "bubbles": "n"}, "A chart has no `bubbles`"),
        ({"mark": "line", "x": "country"}, "The chart has no `y`"),
        ({"mark": "line", "x": "country", "y": "n", "theta": "n"}, "`theta` is the size of a slice of a pie"),
        ({"mark": "bar", "x": "country", "y": "n", "size": "n"}, "`size` is for points"),
        ({"result": "r1", "mark": "line", "x": "country", "y": ["n"], "color": "n"}, "each column of `y` is a series"),
        ({"mark": "bar", "encoding": {}, "data": {"values": "r7"}}, "There is no result `r7`"),
        ("a map", "`a map` is not a mark"),
    ],
)
def test_a_wrong_chart_is_asked_for_alone_and_the_text_and_the_results_are_kept(
    app: App, shop: Path, chart: Any, why: str
):
    right = {"result": "r1", "mark": "bar", "x": "country", "y": "n"}
    begin = [sql(COUNTRIES), sql(TOTAL), end(text="As seen.", results=["r1"], chart=chart)]
    if isinstance(chart, dict):
        begin[-1] = end(text="As seen.", results=["r1"], chart={"result": "r1"} | chart)
        if "data" in chart:
            begin[-1] = end(text="As seen.", results=["r1"], chart=chart)
    model = Scripted([*begin, end(chart=right)])
    answer = app.ask(str(shop), "Where?", model=model).require()
    assert why in said(model) and "Call `answer` with `chart` alone" in said(model)
    assert answer.text == "As seen." and [name for name, _ in answer.results] == ["r1"]
    assert answer.chart is not None and answer.chart["encoding"]["x"]["field"] == "country"


def test_a_chart_that_stays_wrong_is_left_out_and_the_answer_says_so(app: App, shop: Path):
    wrong = end(text="As seen.", results=["r1"], chart={"mark": "bar", "x": "land", "y": "n"})
    for again in (wrong, end(chart={"mark": "sankey"}), Line(text="I cannot draw it.")):
        model = Scripted([sql(COUNTRIES), wrong, again])
        answer = app.ask(str(shop), "Where?", model=model).require()
        assert answer.text.startswith("As seen.\n\n(The chart is left out. ") and len(model.seen) == 3
        assert [name for name, _ in answer.results] == ["r1"]


def drawn(app: App, shop: Path, chart: Any, query: str = COUNTRIES) -> dict[str, Any]:
    model = Scripted([sql(query), end(text="Here.", chart=chart)])
    made = app.ask(str(shop), "Draw it.", model=model).require().chart
    assert made is not None and len(model.seen) == 2, "the chart is accepted at once"
    return made


def test_common_names_of_marks_are_understood(app: App, shop: Path):
    for words, mark in {"pie": "arc", "scatter": "point", "Column": "bar", "bars": "bar"}.items():
        assert drawn(app, shop, {"mark": words, "x": "country", "y": "n"})["mark"]["type"] == mark
    ring = drawn(app, shop, {"type": "donut", "theta": "n", "color": "country"})
    assert ring["mark"]["innerRadius"] and {k: v["field"] for k, v in ring["encoding"].items()} == {
        "theta": "n",
        "color": "country",
    }
    whole = {"mark": "pie", "encoding": {"theta": {"field": "n"}, "color": {"field": "country"}}}
    assert drawn(app, shop, whole)["mark"]["type"] == "arc"
    assert drawn(app, shop, '{"mark": "pie", "x": "country", "y": "n"}')["mark"]["type"] == "arc"


GROUPS = "SELECT country, city, count(*) AS n, max(length(city)) AS letters FROM customers GROUP BY ALL ORDER BY ALL"


def test_bars_are_grouped_stacked_and_sorted(app: App, shop: Path):
    bars = {"mark": "bar", "x": "country", "y": "n", "color": "city"}
    assert drawn(app, shop, bars | {"stack": False}, GROUPS)["encoding"]["xOffset"]["field"] == "city"
    offset = {"mark": "bar", "x": "n", "y": "country", "xOffset": "city"}
    grouped = drawn(app, shop, offset, GROUPS)["encoding"]
    assert grouped["yOffset"]["field"] == grouped["color"]["field"] == "city", "bars that lie are below each other"
    assert drawn(app, shop, bars | {"stack": "normalize"}, GROUPS)["encoding"]["y"]["stack"] == "normalize"
    for sort, meant in {"-y": "-y", "descending": "-y", "-n": "-y", "country": "ascending"}.items():
        assert drawn(app, shop, bars | {"sort": sort}, GROUPS)["encoding"]["x"]["sort"] == meant
    points = {"mark": "point", "x": "n", "y": "letters", "size": "n"}
    assert drawn(app, shop, points, GROUPS)["encoding"]["size"]["field"] == "n"


def test_a_histogram_counts_all_rows(app: App, shop: Path):
    rows = "SELECT i AS amount, i % 3 AS third, 'k' || (i % 2) AS kind FROM range(9000) AS t(i)"
    for chart in ({"mark": "histogram", "x": "amount"}, {"mark": "bar", "x": "amount", "y": "count"}):
        values = drawn(app, shop, chart, rows)["data"]["values"]
        assert values[0] == {"amount": "0 to 1,000", "rows": 1000} and len(values) == 9
    kinds = drawn(app, shop, {"mark": "bar", "x": "kind"}, rows)["data"]["values"]
    assert kinds == [{"kind": "k0", "rows": 4500}, {"kind": "k1", "rows": 4500}]
    split = drawn(app, shop, {"mark": "histogram", "x": "amount", "color": "kind", "bins": 2}, rows)
    assert [row["rows"] for row in split["data"]["values"]] == [2500, 2500, 2000, 2000]
    halves = "SELECT i / 10.0 AS size FROM range(11) AS t(i)"
    small = drawn(app, shop, {"mark": "histogram", "x": "size", "bins": 5}, halves)["data"]["values"]
    assert small[0] == {"size": "0.0 to 0.2", "rows": 2} and sum(row["rows"] for row in small) == 11


def test_data_of_vega_lite_can_name_a_result(app: App, shop: Path):
    parts = {"mark": "bar", "encoding": {"x": {"field": "country"}, "y": {"field": "n", "type": "quantitative"}}}
    for data in ({"values": "r1"}, {"name": "r1"}, {"url": "r1"}, "r1"):
        chart = parts | {"data": data}
        model = Scripted([sql(COUNTRIES), sql(TOTAL), end(text="Here.", results=["r2"], chart=chart)])
        answer = app.ask(str(shop), "Draw it.", model=model).require()
        assert answer.chart is not None and len(answer.chart["data"]["values"]) == 3, data
    layers = {"layer": [parts | {"data": {"name": "r1"}}, {"mark": "rule", "data": {"name": "r2"}}], "result": "r1"}
    model = Scripted([sql(COUNTRIES), sql(TOTAL), end(text="Here.", chart=layers), end(chart={"mark": "none"})])
    assert app.ask(str(shop), "Draw it.", model=model).require().chart is None
    assert "The chart draws `r1` and `r2`" in said(model)


def test_a_chart_in_short_form_becomes_vega_lite(app: App, shop: Path):
    chart = {"mark": "line", "x": "country", "y": "n", "title": "Customers"}
    answer = app.ask(str(shop), "Draw.", model=Scripted([sql(COUNTRIES), end(text="Here.", chart=chart)])).require()
    assert answer.chart is not None and answer.chart["mark"]["type"] == "line" and answer.chart["title"] == "Customers"
    assert {k: v["type"] for k, v in answer.chart["encoding"].items()} == {"x": "nominal", "y": "quantitative"}
    assert "data" not in answer.chart


def test_a_chart_of_another_result_than_the_first_has_its_data(app: App, shop: Path):
    chart = {"result": "r1", "mark": "bar", "x": "n", "y": "country"}
    model = Scripted([sql(COUNTRIES), sql(TOTAL), end(text="Here.", results=["r2"], chart=chart)])
    answer = app.ask(str(shop), "Draw.", model=model).require()
    assert answer.chart is not None and len(answer.chart["data"]["values"]) == 3
    out = io.StringIO()
    print_asked_answer(answer, out)
    assert "█" in out.getvalue() and "total" in out.getvalue()


def test_the_terminal_shows_the_chosen_results_in_order_and_names_a_chart_it_cannot_draw(
    app: App, shop: Path, tmp_path: Path
):
    chart = {"mark": "bar", "encoding": {"x": {"field": "n", "aggregate": "sum", "type": "quantitative"}}}
    model = Scripted([sql(COUNTRIES), sql(TOTAL), end(text="Here.", results=["r2", "r1"], chart=chart)])
    out = io.StringIO()
    print_asked_answer(app.ask(str(shop), "Draw.", model=model).require(), out, tmp_path)
    shown = out.getvalue()
    assert shown.index("total") < shown.index("country")
    [written] = tmp_path.iterdir()
    assert f"chart: {written}" in shown and '"values"' in written.read_text()
    assert "https://vega.github.io/editor draws it" in shown


def test_a_pie_is_drawn_as_bars_and_its_file_is_named(app: App, shop: Path, tmp_path: Path):
    chart = {"result": "r1", "mark": "pie", "x": "country", "y": "n"}
    for shown in (["r1"], ["r2"]):
        model = Scripted([sql(COUNTRIES), sql(TOTAL), end(text="Here.", results=shown, chart=chart)])
        answer, out = app.ask(str(shop), "Draw it.", model=model).require(), io.StringIO()
        print_asked_answer(answer, out, tmp_path)
        written = tmp_path / f"{answer.run_id}.vl.json"
        assert f"chart: {written}" in out.getvalue() and "█" in out.getvalue()
        assert '"arc"' in written.read_text() and '"values"' in written.read_text()


def test_the_terminal_draws_lines_and_points_beside_the_table(app: App, shop: Path, tmp_path: Path):
    months = "SELECT date_trunc('month', ordered) AS month, count(*) AS n FROM orders GROUP BY ALL ORDER BY month"
    for mark in ("line", "point"):
        chart = {"mark": mark, "x": "month", "y": "n", "title": "Orders"}
        model = Scripted([sql(months), end(text="Here.", results=["r1"], chart=chart)])
        out = io.StringIO()
        print_asked_answer(app.ask(str(shop), f"Draw a {mark}.", model=model).require(), out, tmp_path)
        shown = out.getvalue()
        assert "Orders (n by month)" in shown and "┤" in shown and "└" in shown and "█" not in shown
        assert "┃   n" in shown and not list(tmp_path.iterdir()), "the table is there, and no file is needed"


def test_a_chart_that_links_to_a_url_goes_back_to_the_model(app: App, shop: Path):
    chart = {"mark": "bar", "encoding": {}, "data": {"url": "https://example.org/x.csv"}, "layer": [{"href": "x"}]}
    model = Scripted([sql(COUNTRIES), end(text="Here.", chart=chart), end(text="Here.")])
    answer = app.ask(str(shop), "Draw.", model=model).require()
    assert "The chart loads or links to a URL" in said(model)
    assert "url" not in str(answer.chart) and "href" not in str(answer.chart)


WIDE = "SELECT i AS a, i * 2 AS b, repeat('long ', 20) || i AS c, i % 7 AS d FROM range({rows}) AS t(i)"
POINTS = {"result": "r1", "mark": "point", "x": "a", "y": "b", "title": "Sizes"}


def test_a_chart_carries_only_the_columns_that_it_draws(app: App, shop: Path):
    model = Scripted([sql(WIDE.format(rows=3503)), sql(TOTAL), end(text="Here.", results=["r2"], chart=POINTS)])
    chart = app.ask(str(shop), "Draw.", model=model).require().chart
    assert chart is not None and chart["title"] == "Sizes"
    assert len(chart["data"]["values"]) == 3503 and set(chart["data"]["values"][0]) == {"a", "b"}


def test_points_of_too_many_rows_are_a_part_of_them_and_say_so(app: App, shop: Path):
    chart = POINTS | {"color": "c"}
    model = Scripted([sql(WIDE.format(rows=9000)), sql(TOTAL), end(text="Here.", results=["r2"], chart=chart)])
    made = app.ask(str(shop), "Draw.", model=model).require().chart
    assert made is not None
    count = len(made["data"]["values"])
    assert 1000 < count < 5000 and made["title"] == f"Sizes ({count:,} of 9,000 rows, taken at random)"


def test_bars_of_too_many_rows_go_back_to_the_model(app: App, shop: Path):
    bars = {"result": "r1", "mark": "bar", "x": "a", "y": "b"}
    begin = [sql(WIDE.format(rows=9000)), sql(TOTAL)]
    model = Scripted([*begin, end(text="Here.", results=["r2"], chart=bars), end(text="Now.", results=["r2"])])
    assert app.ask(str(shop), "Draw.", model=model).require().text == "Now."
    assert "needs all 9,000 rows" in said(model) and "aggregate" in said(model)
    stubborn = Scripted([*begin, *[end(text="Here.", results=["r2"], chart=bars)] * 3])
    answer = app.ask(str(shop), "Draw it.", model=stubborn).require()
    assert answer.chart is None and "(The chart is left out. " in answer.text


def test_a_model_can_decline_a_chart(app: App, shop: Path):
    for none in ({"mark": "none"}, "none"):
        model = Scripted([sql(COUNTRIES), end(text="Here.", chart=none)])
        assert app.ask(str(shop), "Which countries?", model=model).require().chart is None


def test_a_question_that_declines_a_chart_gets_none(app: App, shop: Path):
    for question, chart in (("Which countries? No chart, please.", False), ("Which countries?", True)):
        answer = app.ask(str(shop), question, model=Scripted([sql(COUNTRIES), Line(text="Here.")])).require()
        assert (answer.chart is not None) is chart


def test_a_wrong_chart_and_a_wrong_figure_are_reported_together(app: App, shop: Path):
    wrong = end(text="{{ r1.total[0] }}", chart={"mark": "bar", "x": "land", "y": "n"})
    model = Scripted([sql(COUNTRIES), wrong, end(text="Done.")])
    assert app.ask(str(shop), "Where?", model=model).require().text == "Done."
    assert "`r1` has no column `land`" in said(model) and "`{{ r1.total[0] }}`" in said(model)
    assert "Write the answer again" in said(model)


def test_an_answer_that_is_sent_back_was_not_given(app: App, shop: Path):
    model = Scripted([sql(COUNTRIES), end(text="{{ r1.total[0] }}"), end(text="Done.")])
    assert app.ask(str(shop), "Where?", model=model).require().text == "Done."
    assert "given" not in returned(model)[-1] and "cannot be computed" in said(model)


# -- figures that carry their origin


def test_figures_are_computed_and_their_origin_is_kept(app: App, shop: Path):
    text = "Of {{ r2.total[0] }} customers, {{ r1.n[0] / r2.total | 0.1% }} are in {{ r1.country[0] }}."
    answer = app.ask(str(shop), "Where?", model=Scripted([sql(COUNTRIES), sql(TOTAL), Line(text=text)])).require()
    assert "{{" not in answer.text and not answer.unverified
    assert [(f.result, f.expression) for f in answer.figures] == [
        ("r2", "r2.total[0]"),
        ("r1, r2", "r1.n[0] / r2.total"),
        ("r1", "r1.country[0]"),
    ]
    assert all(answer.text[f.start : f.end] == f.text for f in answer.figures)


def test_a_figure_is_not_checked_again_with_the_percent_sign_beside_it(app: App, shop: Path):
    share, days = "{{ round(r1.n[0] / r2.total * 9.317, 1) }}%", "{{ r1.n[0] * 7.77 | 0.1 }} days"
    text = f"It is {share}, {days} and ${{{{ r1.n[1] * 0.377 | 1.23 }}}}."
    model = Scripted([sql(COUNTRIES), sql(TOTAL), end(text=text)])
    answer = app.ask(str(shop), "Where?", model=model).require()
    assert not answer.unverified and len(model.seen) == 3 and len(answer.figures) == 3


def test_a_wrong_expression_goes_back_to_the_model_as_a_sentence(app: App, shop: Path):
    model = Scripted([sql(TOTAL), Line(text="There are {{ r1.totl[0] }}."), Line(text="There are {{ r1.total }}.")])
    answer = app.ask(str(shop), "How many?", model=model).require()
    assert "`r1` has no column `totl`; did you mean `total`?" in said(model)
    assert answer.figures[0].expression == "r1.total"


def test_streamed_text_shows_values_and_never_an_expression(app: App, shop: Path):
    seen: list[Entry] = []
    text = "There are {{ r1.total[0] }} customers, { and } included."
    model = Scripted([sql(TOTAL), Line(text=text, pace_s=0.06)])
    answer = app.ask(str(shop), "How many?", model=model, on_entry=seen.append).require()
    pieces = [e.event.text for e in seen if isinstance(e.event, TextDelta)]
    assert "".join(pieces) == answer.text and not any("{{" in piece for piece in pieces)


# -- no run is lost


@pytest.mark.parametrize(
    "budget", [Budget(steps=1), Budget(tokens=10), Budget(rows=3)], ids=["steps", "tokens", "rows"]
)
def test_at_the_end_of_a_budget_the_model_answers_from_what_it_has(app: App, shop: Path, budget: Budget):
    model = Scripted([sql(COUNTRIES), Line(text="Only the countries are known; the cities are missing.")])
    answer = app.ask(str(shop), "Where?", model=model, budget=budget).require()
    assert answer.text.startswith("Only the countries are known; the cities are missing.")
    assert "may be incomplete" in answer.text and "the limit is" in answer.text and "`" not in answer.text
    assert not model.seen[-1].tools and "last turn" in said(model)
    assert [name for name, _ in answer.results] == ["r1"]


def test_a_cell_that_outlasts_the_time_budget_does_not_lose_the_run(app: App, shop: Path):
    sleep = Line(calls=(ScriptedCall(name="execute_python", arguments={"code": "import time\ntime.sleep(60)"}),))
    model = Scripted([sql(COUNTRIES), sleep, Line(text="Only the countries are known.")])
    answer = app.ask(str(shop), "Where?", model=model, budget=Budget(wall_s=4)).require()
    assert answer.text.startswith("Only the countries are known.") and "longer than 4 s" in answer.text
    told = [m.text for m in model.seen[-1].conversation if isinstance(m, UserMessage)]
    assert any("was interrupted before it finished" in text for text in told)


def test_a_model_that_calls_tools_in_its_last_turn_ends_with_the_limit(app: App, shop: Path):
    answer = app.ask(str(shop), "Where?", model=Scripted([sql(COUNTRIES), sql(TOTAL)]), budget=Budget(steps=1))
    assert answer.status == "failed" and answer.error is not None and answer.error.details["limit"] == "steps"


@pytest.mark.parametrize("first", [Line(text=""), Line(text="There are", stop="length")], ids=["empty", "cut"])
def test_a_turn_that_is_empty_or_cut_is_asked_for_again_with_more_room(app: App, shop: Path, first: Line):
    def reply(request: ModelRequest) -> Line:
        return first if len(model.seen) == 1 else Line(text="There are some.")

    model = Scripted([reply])
    answer = app.ask(str(shop), "How many?", model=model).require()
    assert answer.text == "There are some."
    assert [request.max_tokens for request in model.seen] == [16_384, 32_768]
    assert answer.run.usage.model_calls == 2


def test_the_model_hears_before_its_last_turn_with_tools(app: App, shop: Path):
    model = Scripted([sql(COUNTRIES), sql(TOTAL), Line(text="I see.")])
    app.ask(str(shop), "Where?", model=model, budget=Budget(steps=2))
    told = [[m.text for m in request.conversation if isinstance(m, UserMessage)][-1] for request in model.seen]
    assert LAST_TOOLS not in told[0] and told[1] == LAST_TOOLS
    assert model.seen[1].tools and not model.seen[2].tools


def test_several_columns_as_y_are_drawn_as_series(app: App, shop: Path):
    query = sql("SELECT country, count(*) AS n, count(DISTINCT city) AS cities FROM customers GROUP BY 1 ORDER BY 1")
    chart = {"mark": "bar", "x": "country", "y": ["n", "cities"], "title": "Both"}
    given = Line(calls=(ScriptedCall(name="answer", arguments={"text": "See.", "chart": chart}),))
    answer = app.ask(str(shop), "Where?", model=Scripted([query, given])).require()
    drawn = answer.run.chart
    assert drawn is not None and drawn["encoding"]["color"]["field"] == "series"
    assert {row["series"] for row in drawn["data"]["values"]} == {"n", "cities"}
    assert drawn["encoding"]["xOffset"]["field"] == "series" and drawn["encoding"]["y"]["title"] == "n, cities"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import matplotlib_of_nobody", "Python has pandas"),
        ("import pandas as pd\npd.Series(['2026-01-01']).dt.year", "write pd.to_datetime(df['column']).dt"),
        ("display(1)", "print(...) shows others"),
    ],
)
def test_a_cell_that_fails_says_what_to_write(app: App, shop: Path, code: str, told: str):
    cell = Line(calls=(ScriptedCall(name="execute_python", arguments={"code": code}),))
    answer = app.ask(str(shop), "What?", model=Scripted([cell, Line(text="I see.")]))
    assert any(told in (s.shown or "") for s in answer.run.steps)


def test_a_difference_of_dates_in_sqlite_has_a_warning(app: App, tmp_path: Path):
    with sqlite3.connect(tmp_path / "shop.sqlite") as db:
        db.execute("CREATE TABLE trips (opened DATE, closed DATETIME)")
        db.execute("INSERT INTO trips VALUES ('2026-01-01', '2026-01-09')")
    model = Scripted([sql("SELECT closed - opened AS days FROM trips"), Line(text="I see.")])
    answer = app.ask(str(tmp_path / "shop.sqlite"), "How long?", model=model)
    shown = next(s.shown for s in answer.run.steps if s.kind == "tool")
    assert shown is not None and "closed - opened subtracts years; write julianday(b) - julianday(a)" in shown
