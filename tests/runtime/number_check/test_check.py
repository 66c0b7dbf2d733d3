from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from etude.runtime.number_check.check import (
    Evidence,
    NumberCheckVerdict,
    check_numbers,
    explain_verdict,
    find_number_mentions,
    mark_unverified,
)

from ..answers import Answer, make_answers
from ..written import ANSWERS, LAST, LATER

SALES = Evidence(
    "sales",
    ("region", "orders", "revenue", "margin"),
    [("North", 412, 48210.5, 0.231), ("South", 388, 39904.25, 0.187), ("East", 275, 31077.0, 0.305)],
)


def readings(text: str) -> list[tuple[str, str, list[str]]]:
    return [(m.text, m.kind, [f"{r.value.normalize():f}" for r in m.readings]) for m in find_number_mentions(text)]


def unverified(text: str, *results: Evidence, question: str = "", context: tuple[str, ...] = ()) -> list[str]:
    return [checked.mention.text for checked in check_numbers(text, results, question, context).unverified]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234.5", [("1,234.5", "number", ["1234.5"])]),
        ("1 234,5", [("1 234,5", "number", ["1234.5"])]),
        ("1.234,5", [("1.234,5", "number", ["1234.5"])]),
        ("1,23,456", [("1,23,456", "number", ["123456"])]),
        ("1.234", [("1.234", "number", ["1.234", "1234"])]),
        ("1,234", [("1,234", "number", ["1234", "1.234"])]),
        ("12k", [("12k", "number", ["12000"])]),
        ("3.4M", [("3.4M", "number", ["3400000"])]),
        ("2 million", [("2 million", "number", ["2000000"])]),
        ("76.98 M", [("76.98 M", "number", ["76980000"])]),
        ("9 days and 6 hours", [("9 days and 6 hours", "number", ["799200"])]),
        ("nine days and six hours", [("nine days and six hours", "number", ["799200"])]),
        ("7:48.67", [("7:48.67", "time", ["468.67"])]),
        ("knapp 4 $", [("4 $", "number", ["4"])]),
        ("1.2bn", [("1.2bn", "number", ["1200000000"])]),
        ("1e6", [("1e6", "number", ["1000000"])]),
        ("$1,200.50", [("$1,200.50", "number", ["1200.5"])]),
        ("-$5", [("-$5", "number", ["-5"])]),
        ("€5", [("€5", "number", ["5"])]),
        ("45%", [("45%", "percent", ["45"])]),
        ("45 percent", [("45 percent", "percent", ["45"])]),
        ("12 percentage points", [("12 percentage points", "points", ["12"])]),
        ("50 bps", [("50 bps", "points", ["0.5"])]),
        ("\u22123.5%", [("\u22123.5%", "percent", ["-3.5"])]),
        ("10-20", [("10", "number", ["10"]), ("20", "number", ["20"])]),
        ("10\u201320%", [("10", "percent", ["10"]), ("20%", "percent", ["20"])]),
        ("between 5 and 6%", [("5", "percent", ["5"]), ("6%", "percent", ["6"])]),
        ("338 or 5.6%", [("338", "number", ["338"]), ("5.6%", "percent", ["5.6"])]),
        ("2.5x", [("2.5x", "times", ["2.5"])]),
        ("twofold", [("twofold", "times", ["2"])]),
        ("it doubled", [("doubled", "times", ["2"])]),
        ("two and a half times", [("two and a half times", "times", ["2.5"])]),
        ("3/4", [("3/4", "percent", ["75"])]),
        ("about half of it", [("half", "percent", ["50"])]),
        ("three regions", [("three", "number", ["3"])]),
        ("twenty-five late orders", [("twenty-five", "number", ["25"])]),
        ("a dozen", [("a dozen", "number", ["12"])]),
        ("over five quarters", [("five", "number", ["5"])]),
        ("the 3rd", [("3rd", "ordinal", ["3"])]),
        ("third-largest", [("third", "ordinal", ["3"])]),
        ("`1234`", [("1234", "number", ["1234"])]),
        ("1987 customers", [("1987", "number", ["1987"])]),
    ],
)
def test_a_number_is_read_with_its_unit(text: str, expected: list[tuple[str, str, list[str]]]) -> None:
    assert readings(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "run `SELECT 1 + 41` first",
        "```\nx = 42\n```",
        "see https://example.org/v2/42",
        'the "Area 51" store',
        "column col_2 of table t1, SKU-1234, COVID-19, version 1.2.3, v2, 3D, 10.0.0.1",
        "1. West\n2. East\n3) North",
        "these two, one of them, both, the first and the second",
        "a third region; in the second half",
    ],
)
def test_names_code_and_numbering_are_not_numbers(text: str) -> None:
    assert readings(text) == []


@pytest.mark.parametrize(
    "text", ["2024-03-01", "1 March 2024", "March 2024", "Q3 2024", "2024-Q3", "FY25", "in 2024", "H1 2024"]
)
def test_dates_are_dates(text: str) -> None:
    assert [mention.kind for mention in find_number_mentions(text)] == ["date"]


@pytest.mark.parametrize(
    "text",
    [
        "North has 412 orders and $48,210.50.",
        "North made 48.2k, or 48,211.",
        "There are three regions, with 1,075 orders in total.",
        "On average a region makes 39,730.58.",
        "North makes 40.4% of the revenue.",
        "South has 24 fewer orders than North.",
        "North's revenue is 20.8% higher than that of South.",
        "North's revenue is 1.6x that of East.",
        "North has a margin of 23.1%, 4.4 percentage points above South.",
        "North and East together have 687 orders.",
        "The top two regions make 73.9% of revenue.",
        "An order in North is worth $117.02.",
        "Two regions have more than 300 orders.",
        "More than a third of the revenue comes from North.",
    ],
)
def test_what_follows_from_a_result_is_verified(text: str) -> None:
    assert unverified(text, SALES) == []


@pytest.mark.parametrize(
    ("text", "false"),
    [
        ("North has 421 orders.", ["421"]),
        ("North made 48.3k.", ["48.3k"]),
        ("North made 48,209 and South 39,905.", ["48,209", "39,905"]),
        ("There are four regions.", ["four"]),
        ("North makes 44.4% of the revenue.", ["44.4%"]),
        ("North makes -40.4% of the revenue.", ["-40.4%"]),
        ("North's revenue is 20.8% lower than that of South.", ["20.8%"]),
        ("Four regions have more than 300 orders.", ["Four"]),
        ("Sales peaked in 2031.", ["2031"]),
        ("Half of the revenue comes from East.", ["Half"]),
        ("North has a margin of 23.1 million.", ["23.1 million"]),
    ],
)
def test_what_does_not_is_not(text: str, false: list[str]) -> None:
    assert unverified(text, SALES) == false


def test_numbers_of_the_question_and_the_query_may_be_repeated() -> None:
    text = "Here are the top 10 since 2020 above 5,000."
    assert unverified(text, SALES) == ["10", "2020", "5,000"]
    assert unverified(text, SALES, question="top 10 since 2020?", context=("WHERE total > 5000",)) == []


def test_a_name_may_hold_a_number() -> None:
    items = Evidence("items", ("item", "sold"), [("Monitor 27", 14), ("Area 51 Lamp", 3)])
    assert unverified("Monitor 27 sold 14 times, Area 51 Lamp 3.", items) == []


def test_of_a_result_cut_short_the_total_is_not_known() -> None:
    part = Evidence("sales", SALES.columns, SALES.rows, row_count=12480)
    assert unverified("12,480 rows; the orders sum to 1,075.", part) == ["1,075"]


def test_printed_numbers_count_as_computed() -> None:
    cell = Evidence("cell 1", text="mean: 4.327\nlate 212 of 1,520\n")
    assert unverified("The mean is 4.33; 212 (13.9%) of 1,520 were late, not 221.", cell) == ["221"]


def test_units_of_time_are_converted_and_not_confused() -> None:
    calls = Evidence("calls", ("team", "avg_wait_seconds"), [("A-Team", 655.5), ("B-Team", 90.0)])
    assert unverified("The A-Team waits 10.9 minutes, the B-Team 90 seconds.", calls) == []
    assert unverified("The A-Team waits 10.9 hours, the B-Team 90 minutes.", calls) == ["10.9 hours", "90 minutes"]


def test_a_column_in_millions_is_read_so() -> None:
    sales = Evidence("sales", ("country", "revenue_m"), [("Spain", 7.88), ("Italy", 8.31)])
    assert unverified("Italy made 8.31 million, Spain 7,880,000.", sales) == []


def test_parts_of_dates_and_times_are_found() -> None:
    events = Evidence("events", ("at",), [(datetime(2024, 3, 5, 14, 30),)])
    assert unverified("It happened on March 5, 2024 at 14:30.", events) == []
    assert unverified("It happened on March 6, 2024 at 15:30.", events) == ["March 6, 2024", "15:30"]


def test_in_a_large_result_a_percentage_is_no_accident() -> None:
    rows = [
        (f"Shop {chr(65 + i // 26)}{chr(65 + i % 26)}", 1000 + 37 * i % 4001, i * i % 997 / 1000) for i in range(200)
    ]
    result = Evidence("shops", ("shop", "visits", "rate"), rows)
    found = [p for p in range(2, 99) if not unverified(f"Shop AC grew by {p}% in visits against Shop BD.", result)]
    assert 93 in found and len(found) <= 3


def test_odd_values_do_no_harm() -> None:
    rows = [
        (10**400, float("nan"), None, True),
        (-(10**5000), float("inf"), Decimal("NaN"), "x"),
        (3, -0.0, Decimal("Infinity"), b""),
    ]
    odd = Evidence("odd", ("a", "b", "c", "d"), rows)  # type: ignore[arg-type]
    assert unverified(f"It is 3, {10**400} and 7 in 2024 or 50% of it.", odd) == ["7", "2024", "50%"]
    assert check_numbers("Nothing at all.", []).ok


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text(max_size=12)
    | st.dates()
    | st.datetimes()
)


@given(
    st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=6),
    st.lists(
        st.sampled_from(
            ["up 5%", "2024", "1e300", "a third of", "7 more", "3x", "total 12", "0.0", "top 2", "\n- ", "$1.5M"]
        ),
        max_size=8,
    ),
    st.text(max_size=20),
)
def test_any_result_can_be_searched(rows: list[tuple[object, ...]], words: list[str], printed: str) -> None:
    named = [str(row[0]) for row in rows[:2] if isinstance(row[0], str | date)]
    check_numbers(
        " ".join([*named, *words]),
        [Evidence("r", ("label", "revenue_m", "rate"), rows), Evidence("cell", text=printed)],
    )


def test_unverified_numbers_are_marked_once() -> None:
    text = "North has 421 orders, `99` and 412."
    verdict = check_numbers(text, [SALES])
    marked = mark_unverified(text, verdict)
    assert marked == "North has 421 [?] orders, `99` [?] and 412."
    assert mark_unverified(marked, verdict) == marked
    assert mark_unverified(marked, check_numbers(marked, [SALES])) == marked
    with pytest.raises(ValueError, match="another text"):
        mark_unverified("other", verdict)


def test_the_explanation_names_what_to_correct() -> None:
    message = explain_verdict(check_numbers("North has 421 orders. South has 388.", [SALES]))
    assert "`421` in `North has 421 orders." in message and "for North, sales has 412 (orders)" in message
    assert "leave the number out" in message
    assert explain_verdict(check_numbers("North has 412 orders.", [SALES])) == ""


def test_every_verified_number_has_its_source() -> None:
    verdict = check_numbers("South has 388 orders, 94.2% of North's 412.", [SALES])
    assert [checked.because for checked in verdict.mentions] == [
        "orders of South",
        "orders of South as a share of orders of North",
        "orders of North",
    ]


@given(st.text() | st.text(alphabet="0123456789.,-+%$€kMx/: eE'`\"\n|#Q\u2212abth", max_size=60))
@example("1" * 5000)
@example("٣٤٥ ²³ ½ 1²")
def test_any_text_can_be_read(text: str) -> None:
    at = 0
    for mention in find_number_mentions(text):
        assert at <= mention.start < mention.end <= len(text)
        assert text[mention.start : mention.end] == mention.text
        at = mention.end


@given(st.text(alphabet="0123456789.,-%$ km[]unverifd`\nNorthas", max_size=80))
def test_marking_twice_is_marking_once(text: str) -> None:
    once = mark_unverified(text, check_numbers(text, [SALES]))
    assert mark_unverified(once, check_numbers(once, [SALES])) == once


def group(value: Decimal, mark: str, point: str) -> str:
    return f"{value:,}".translate(str.maketrans(",.", mark + point))


@given(
    st.decimals(min_value=-(10**9), max_value=10**9, places=4) | st.integers(-(10**15), 10**15).map(Decimal),
    st.sampled_from(["english", "swiss", "spaces", "plain", "money", "float", "thousands", "millions"]),
    st.integers(0, 4),
    st.sampled_from(["ROUND_HALF_UP", "ROUND_HALF_EVEN"]),
)
def test_any_cell_written_in_any_way_is_verified(value: Decimal, style: str, places: int, rounding: str) -> None:
    scale = {"thousands": 1000, "millions": 10**6}.get(style, 1)
    rounded = (value / scale).quantize(Decimal(1).scaleb(-places), rounding)
    # A whole number below 3,000 may be a year or a count, which are not rounded values of a cell.
    assume(places > 0 or abs(rounded) >= 3000)
    assume(rounded)  # no one writes `0.000k` for a value that is not zero
    written = {
        "english": f"{rounded:,}",
        "swiss": group(rounded, "'", "."),
        "spaces": group(rounded, "\u202f", "," if places else "."),
        "plain": f"{rounded}",
        "money": f"{'-' if rounded < 0 else ''}${abs(rounded):,}",
        "float": f"{rounded}",
        "thousands": f"{rounded:,}k",
        "millions": f"{rounded:,} million",
    }[style]
    cell: object = float(value) if style == "float" else value
    result = Evidence("r", ("label", "amount"), [("total", cell), ("other", 1)])
    assert unverified(f"The amount is {written} here.", result) == []


@given(st.floats(0, 1), st.integers(0, 3))
def test_a_fraction_may_be_written_as_a_percentage(fraction: float, places: int) -> None:
    result = Evidence("r", ("label", "rate"), [("total", fraction), ("other", 0.5)])
    written = (Decimal(repr(fraction)) * 100).quantize(Decimal(1).scaleb(-places), "ROUND_HALF_UP")
    assert unverified(f"The rate is {written}%.", result) == []


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)))
def test_a_date_may_be_written_in_any_way(day: date) -> None:
    result = Evidence("r", ("day",), [(day,)])
    year, quarter = day.year, (day.month + 2) // 3
    text = f"On {day.isoformat()}, or {day.day} {day:%B} {year}, in {day:%b} {year}, in {year}, Q{quarter} {year}."
    assert unverified(text, result) == []


def tally(answers: list[tuple[NumberCheckVerdict, tuple[tuple[int, int], ...]]]) -> tuple[int, int, int, int]:
    """Lies, lies caught, true numbers, true numbers that were taken for lies."""
    lies = caught = true = alarms = 0
    for verdict, false in answers:
        lies += len(false)
        hit = set()
        for checked in verdict.mentions:
            span = next((s for s in false if checked.mention.start < s[1] and s[0] < checked.mention.end), None)
            if span is None:
                true += 1
                alarms += not checked.verified
            elif not checked.verified:
                hit.add(span)
        caught += len(hit)
    return lies, caught, true, alarms


def judge(answer: Answer) -> tuple[NumberCheckVerdict, tuple[tuple[int, int], ...]]:
    return check_numbers(answer.text, answer.results, answer.question), answer.false


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 20, 300])
def test_lies_are_caught_and_truths_are_left_alone(seed: int) -> None:
    lies, caught, true, alarms = tally([judge(answer) for answer in make_answers(seed, 500, lies=True)])
    assert caught >= 0.95 * lies
    assert alarms <= 0.02 * true
    _, _, true, alarms = tally([judge(answer) for answer in make_answers(seed + 1, 200, lies=False)])
    assert alarms <= 0.02 * true


@pytest.mark.parametrize("answers", [ANSWERS, LATER, LAST], ids=["first", "later", "last"])
def test_lies_in_answers_written_by_hand_are_caught(answers: list[tuple[tuple[Evidence, ...], str, str]]) -> None:
    judged = []
    for results, question, marked in answers:
        pieces = re.split("[⟦⟧]", marked)
        text, false = "", []
        for i, piece in enumerate(pieces):
            if i % 2:
                false.append((len(text), len(text) + len(piece)))
            text += piece
        judged.append((check_numbers(text, results, question), tuple(false)))
    lies, caught, true, alarms = tally(judged)
    assert caught >= 0.92 * lies
    assert alarms <= 0.02 * true


def test_answers_as_models_write_them_are_judged_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The battery has honest answers and the same ones with a false number or label: `bench/number_check.py`."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    from bench.number_check import BATTERY, is_caught, judge

    lines = [json.loads(line) for line in BATTERY.read_text().splitlines()]
    honest = [judge(line) for line in lines if line["planted"] is None]
    assert sum(verdict.sends_back for verdict in honest) <= 0.03 * len(honest)
    assert sum(not verdict.ok for verdict in honest) <= 0.1 * len(honest)
    for kind, least in (("number", 0.93), ("label", 0.8)):
        planted = [line for line in lines if line["planted"] and line["planted"]["kind"] == kind]
        assert sum(is_caught(line, judge(line)) for line in planted) >= least * len(planted)


def test_the_label_next_to_a_number_decides_its_row() -> None:
    verdict = check_numbers("South has 412 orders and North 388.", [SALES])
    assert [c.mention.text for c in verdict.contradicted] == ["412", "388"]
    assert verdict.sends_back and "for South, sales has 388 (orders)" in explain_verdict(verdict)


def test_an_untraced_number_is_marked_but_the_answer_is_not_sent_back() -> None:
    text = "North has 412 orders, South 388 and East 275. A competitor is said to have 7,777."
    verdict = check_numbers(text, [SALES])
    assert [c.mention.text for c in verdict.unverified] == ["7,777"]
    assert not verdict.sends_back and explain_verdict(verdict) == ""
    assert mark_unverified(text, verdict).endswith("7,777 [?].")


def test_the_schema_the_thread_and_the_code_are_evidence() -> None:
    schema = "dataset shop (SQL dialect duckdb, 2 tables)\n\norders (18,204 rows)\n  id INTEGER\n  forecast_2026 DOUBLE"
    assert check_numbers("There are 18,204 orders in two tables, with a forecast for 2026.", [], schema=schema).ok
    thread = ["How many?", "There are 1,297 rock tracks."]
    long = Evidence("r1", ("long_tracks",), [(412,)])
    assert check_numbers("412 of the 1,297 rock tracks are long (31.8%).", [long], thread=thread).ok
    assert check_numbers("With 42 as the seed, 412 are long.", [long], context=["random_state=42"]).ok


def test_durations_follow_from_dates_and_seconds() -> None:
    rows = [
        ("INC-1", datetime(2024, 3, 4, 8, 12), datetime(2024, 3, 4, 9, 40)),
        ("INC-2", datetime(2024, 3, 9, 22), None),
    ]
    incidents = Evidence("r1", ("incident", "started", "resolved"), rows)
    assert unverified("INC-1 took 1 h 28 min.", incidents) == []
    assert unverified("INC-1 took 1 h 58 min.", incidents) == ["1 h 58 min"]


def test_what_a_reader_would_compute_is_verified() -> None:
    shops = Evidence(
        "r1",
        ("shop_id", "address", "staff", "avg_s", "opened_year"),
        [
            (1, "12 Main Street", 40, 2145.0, 1980.0),
            (2, "7 Oak Road", 25, 283.9, 2001.0),
            (3, "9 Elm", 25, 310.0, 2008.0),
        ],
    )
    assert unverified("Shop 1 (12 Main Street) opened in 1980 and has 40 staff.", shops) == []
    assert unverified("At 12 Main Street a visit takes 35:45 min.", shops) == []
    assert unverified("At 12 Main Street a visit takes 45:35 min.", shops) == ["45:35 min"]
    heights = Evidence("r2", ("airport", "elevation_ft"), [("Leh", 14219)])
    assert unverified("Leh lies at 14,219 ft, about 4,334 m.", heights) == []
    assert unverified("Leh lies at 14,219 ft, about 5,334 m.", heights) == ["5,334"]


def test_a_change_in_the_wrong_direction_is_marked() -> None:
    pigs = Evidence("r1", ("year", "pigs"), [(1933, 2089.2), (1934, 4236.7)])
    assert unverified("Pigs rose from 2,089.2 in 1933 to 4,236.7 in 1934.", pigs) == []
    assert unverified("Pigs fell from 2,089.2 in 1933 to 4,236.7 in 1934.", pigs) == ["4,236.7"]


SHOPS = Evidence(
    "shops",
    ("shop", "country", "sales", "staff"),
    [
        ("Kiosk", "Germany", 8412.5, 12),
        ("Atrium", "United States", 7390.25, 9),
        ("Depot", "Germany", 6101.75, 7),
        ("Corner", "United States", 3380.5, 4),
        ("Arcade", "Japan", 2954.0, 3),
    ],
)


@pytest.mark.parametrize(
    "text",
    [
        "The German shops sold 14,514.25.",
        "The two American ones sold 10,770.75, which is 38.1% of all sales.",
        "Without Kiosk the others sold 19,826.50.",
        "In total 35 people work there, so one of them sells 806.83.",
    ],
)
def test_rows_need_not_be_named_as_in_the_result(text: str) -> None:
    assert unverified(text, SHOPS) == []


def test_values_of_different_kinds_are_not_added() -> None:
    assert unverified("Five shops: Depot sold 6,106.75.", SHOPS) == ["6,106.75"]  # 5 more than the truth.


def test_a_mean_has_to_be_called_one() -> None:
    assert unverified("The average shop sold 5,647.80.", SHOPS) == []
    assert unverified("The Arcade sold 5,647.80.", SHOPS) == ["5,647.80"]


def test_a_number_beside_a_name_that_no_result_has_is_marked() -> None:
    verdict = check_numbers("Second is Pavilion with 7,390.25.", [SHOPS], "Which shops sell most?")
    assert [c.mention.text for c in verdict.unverified] == ["7,390.25"]
    assert verdict.unverified[0].because == "no result has `Pavilion`; the value is that of Atrium"
    assert check_numbers("Second is Atrium with 7,390.25.", [SHOPS]).ok


def test_a_translated_name_does_not_send_the_answer_back() -> None:
    countries = Evidence("r1", ("country", "peaks"), [("Ethiopia", 13), ("Kenya", 6), ("Morocco", 4)])
    text = "A Etiópia lidera com 13 das 23 montanhas (56,5%). Kenya tem 6."
    assert not check_numbers(text, [countries]).sends_back


@pytest.mark.parametrize(
    "text",
    [
        "The ages run from 275 (East) to 412 (North), with a median of 389 orders.",
        "North, with 412 of 1,076 orders, leads.",
        "North has about 430 orders, South 388 and East 275.",
    ],
)
def test_a_number_that_is_not_plainly_of_its_label_is_only_marked(text: str) -> None:
    verdict = check_numbers(text, [SALES])
    assert verdict.unverified and not verdict.sends_back


def test_several_untraced_figures_do_not_send_the_answer_back() -> None:
    verdict = check_numbers("The first needs 7,771, the second 8,882 and the third 9,993.", [SALES])
    assert len(verdict.unverified) == 3 and not verdict.sends_back


@pytest.mark.parametrize("day", ["1 März 2024", "1 mars 2024", "1 de marzo de 2024", "1 marzo 2024", "1 maart 2024"])
def test_months_of_other_languages_are_dates(day: str) -> None:
    [mention] = find_number_mentions(day)
    assert mention.period == find_number_mentions("1 March 2024")[0].period


RENTALS = Evidence("r1", ("rentals", "not_returned", "late"), [(16044, 183, 8121)])
CLAIMS = Evidence(
    "r1",
    ("claim_header_id", "status", "claimed", "paid"),
    [(15, "Settled", 349.15, 582.03), (24, "Disputed", 318.16, 309.2), (73, "Settled", 228.45, 794.63)],
)
DEPARTMENTS = Evidence(
    "r1",
    ("department", "students", "budget"),
    [("Civil Eng.", 120, 255041.46), ("Comp. Sci.", 108, 106378.69), ("Pol. Sci.", 109, 573745.09)],
)
SWIMMERS = Evidence("r1", ("name", "time"), [("Craig Stevens", "7:48.67"), ("Grant Hackett", "7:55.39")])
GRANTS = Evidence("r1", ("organisation_id", "total"), [(7, 76977810.29), (10, 38679503.14), (14, 4516014.12)])
CITIES = Evidence("r1", ("city", "reviews"), [("New York", 9), ("San Francisco", 9), ("Los Angeles", 5)])
FILMS = Evidence("r1", ("title", "budget_million", "gross"), [("Get Carter", 63.6, 19412993), ("Red", 47.0, 543356)])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("8,121 of 16,044 rentals were late. A further 183 (1.1%) have not come back.", RENTALS),
        ("Two caveats: 183 rentals are open, and 8,121 were late.", RENTALS),
        ("The most extreme is claim 73, with $794.63 paid against $228.45 claimed.", CLAIMS),
        ("Political Science has 109 students, Civil Engineering 120.", DEPARTMENTS),
        ("Craig Stevens swam 7:48.67, Grant Hackett 7:55.39, a gap of 6.72 seconds.", SWIMMERS),
        ("| Organisation | Total |\n|---|---|\n| 7 | 76.98 M |\n| 14 | 4.52 M |", GRANTS),
        ("| | New York | Los Angeles |\n|---|---|---|\n| Reviews | 9 | 5 |", CITIES),
        ("Get Carter made $19.4 million on a $63.6 million budget (0.31x).", FILMS),
    ],
)
def test_a_reader_would_not_doubt_these(text: str, result: Evidence) -> None:
    assert unverified(text, result) == []


TRACKS = Evidence("r1", ("track", "seats", "year_opened"), [("Martinsville", 65000, 1947), ("Darlington", 63000, 1950)])
MEMBERS = Evidence(
    "r1",
    ("member", "branch", "pounds"),
    [("Ann Lee", "York", 430.29), ("Ann Lee", "Bath", 402.1), ("Ann Lee", "Leeds", 321.13), ("Bo Kay", "York", 232.09)],
)
WINES = Evidence("r1", ("winery", "wine", "price"), [("Carlisle", "Papas Block", 43), ("Hobbs", "Crane", 150)])
DEGREES = Evidence("r1", ("year", "degrees"), [(2000, 56983), (2001, 61463), (2002, 61712), (2003, 65741)])


@pytest.mark.parametrize(
    ("text", "result", "false"),
    [
        ("Martinsville, opened in 1950, has 65,000 seats.", TRACKS, ["1950"]),
        ("Ann Lee spent \u00a3832.39 over three branches.", MEMBERS, ["\u00a3832.39"]),
        ("106 in 202 \u2192 51.0%.", Evidence("r1", ("podiums", "starts"), [(106, 202), (117, 208)]), ["51.0%"]),
        ("Hobbs's *Papas Block* costs only $43.", WINES, ["$43"]),
        ("The biggest jump came in 2003, with 4,480 more degrees than the year before.", DEGREES, ["4,480"]),
        ("Comp. Sci. has to make do with $2,125 per student.", DEPARTMENTS, ["$2,125"]),
    ],
)
def test_values_of_other_rows_are_false(text: str, result: Evidence, false: list[str]) -> None:
    assert unverified(text, result) == false


@pytest.mark.parametrize("column", ["avg_years", "orders_per_day", "year_built", "years", "hour_of_day", "avg_id"])
def test_a_fraction_measures_something_whatever_its_column_is_called(column: str) -> None:
    assert check_numbers("The value is 48.08.", [Evidence("r1", ("label", column), [("x", 48.083)])]).ok


@pytest.mark.parametrize(("column", "value"), [("year", 2024), ("month", 7), ("id", 48), ("month", 202407)])
def test_parts_of_dates_and_ids_are_not_added_up(column: str, value: int) -> None:
    rows = [("a", value), ("b", value)]
    assert not check_numbers(f"Together they have {2 * value:,} orders.", [Evidence("r1", ("label", column), rows)]).ok


def test_a_short_label_is_one_if_it_is_written_as_in_the_result() -> None:
    visits = Evidence("r1", ("channel", "visits"), [("web", 249_921), ("app", 223_992), ("in", 50_757)])
    assert check_numbers("App rose to 223,992, web to 249,921.", [visits]).ok
    assert check_numbers("The app has 249,921 visits.", [visits]).contradicted
    assert check_numbers("The most visits in all are 249,921.", [visits]).ok


def test_days_that_the_model_was_shown_may_be_repeated() -> None:
    shown = "visits (729 rows)\n  day DATE -- 2024-01-01..2025-12-30"
    assert check_numbers("The last day is 30 December 2025.", [SALES], schema=shown).ok
    printed = Evidence("printed", text="2015-08-21 17:03:00 2015-08-31 23:26:00")
    assert check_numbers("The data ends on 31 August 2015.", [printed]).ok
    assert not check_numbers("The data ends on 30 August 2015.", [printed]).ok


HOURS = Evidence(
    "r1", ("hour", "trips"), [(h, [30, 10, 5, 8, 20, 60, 300, 640, 910, 700, 300, 280][h % 12]) for h in range(24)]
)
BANDS = Evidence(
    "r1", ("age_band", "people"), [("<25", 38), ("25-34", 164), ("35-44", 141), ("45-54", 97), ("55+", 60)]
)


def test_numbers_of_labels_name_rows() -> None:
    assert unverified("At 8:00 there are 910 trips, at 3 a.m. only 8.", HOURS) == []
    assert unverified("7.6% are under 25, 32.8% aged 25\u201334, 28.2% aged 35\u201344.", BANDS) == []
    assert unverified("7.6% are under 25, 32.9% aged 25\u201334.", BANDS) == ["32.9%"]


def test_rows_between_two_labels_are_added_up() -> None:
    assert unverified("Between midnight and 5 a.m. there are 73 trips.", HOURS) == []
    assert unverified("Between midnight and 5 a.m. there are 83 trips.", HOURS) == ["83"]


def test_columns_of_one_kind_are_added_up() -> None:
    days = Evidence("r1", ("team", "q1", "q2", "q3", "q4"), [("Sales", 41, 33, 29, 40), ("Plant", 402, 281, 240, 391)])
    assert unverified("Plant had 1,314 days, Sales 143, so all had 1,457.", days) == []
    assert unverified("Plant had 1,341 days.", days) == ["1,341 days"]


def test_a_change_has_the_sign_that_the_words_say() -> None:
    degrees = Evidence("r1", ("year", "degrees"), [(1990, 50_352), (2004, 66_768)])
    assert unverified("Degrees went from 50,352 to 66,768, an increase of 32.6%.", degrees) == []
    assert unverified("Degrees went from 50,352 to 66,768, an increase of 24.6%.", degrees) == ["24.6%"]


def test_a_mean_of_averages_is_not_the_mean_of_all() -> None:
    rents = Evidence("r1", ("kind", "tenancies", "avg_rent"), [("flat", 6, 1050.0), ("house", 14, 882.5)])
    assert unverified("Over all 20 tenancies the mean rent is $932.75.", rents) == []
    assert unverified("Over all 20 tenancies the mean rent is $966.25.", rents) == ["$966.25"]
    assert unverified("The simple mean of the two averages is $966.25.", rents) == []


def test_two_columns_are_divided_only_if_the_text_says_so() -> None:
    coupons = Evidence("r1", ("code", "minimum", "uses"), [("HOME", 50, 3750), ("TECH", 100, 900)])
    assert unverified("HOME: 75 uses per unit of the minimum.", coupons) == []
    assert unverified("HOME: minimum 75.", coupons) == ["75"]


def test_conventions_and_ranges_of_the_schema_may_be_stated() -> None:
    tests = Evidence("r1", ("arm", "p_value"), [("a", 0.31), ("b", 0.44)])
    assert unverified("Both p-values are above the usual threshold of 0.05.", tests) == []
    shown = "readings (4800 rows)\n  temp_c DOUBLE -- -99.9..11.01"
    assert check_numbers("Readings of -99.9 are faults.", [tests], schema=shown).ok
