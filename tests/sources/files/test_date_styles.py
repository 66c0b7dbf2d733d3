"""Columns of dates in several styles: read if every style has one meaning, else kept as text, with a note."""

from __future__ import annotations

import tempfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.sources.files.load import discover, load

Options = tuple[tuple[str, str], ...]

LAST = {"/": "%d/%m/%Y", ".": "%d.%m.%Y", "-": "%d-%m-%Y"}
MONTHS_FIRST = {"/": "%m/%d/%Y", ".": "%m.%d.%Y", "-": "%m-%d-%Y"}
CLEAR = ["%Y-%m-%d", "%d %b %Y", "%B %d, %Y", "%d-%b-%Y"]


def column(folder: Path, values: list[str], options: Options = ()) -> tuple[list[Any], str]:
    """Load a file with the values in its second column; return them, and what the report says."""
    file = folder / "data.csv"
    file.write_text("id,v\n" + "".join(f'{i},"{value}"\n' for i, value in enumerate(values)))
    (found,) = discover(str(file), options=options)
    (loaded,) = load(found, folder / "out")
    rows = duckdb.sql(f"SELECT v FROM '{loaded.path}' ORDER BY id").fetchall()
    return [row[0] for row in rows], " ".join(loaded.report.summary())


def test_the_note_counts_each_style_and_says_what_decided_it(tmp_path: Path) -> None:
    values, said = column(tmp_path, ["2024-06-29", "2024-05-07", "2024-01-02", "03/04/2024", "29/06/2024", "n/a"])
    assert values[2:] == [date(2024, 1, 2), date(2024, 4, 3), date(2024, 6, 29), None]
    assert said == (
        "Column `v` is DATE: its dates are in several styles: 3 values such as '2024-06-29', 2 such as '03/04/2024' "
        "(day first, because of '29/06/2024'); the option `dates=text` of the source keeps them as text, and "
        "1 of 6 values was a null marker ('n/a')."
    )


@pytest.mark.parametrize(
    ("values", "last", "said"),
    [
        (["2024-06-29", "06/29/2024"], date(2024, 6, 29), "(month first, because of '06/29/2024')"),
        (["2024-06-29", "7 May 2024"], date(2024, 5, 7), "1 value such as '2024-06-29', 1 such as '7 May 2024'"),
        (["31.12.2023", "31-12-2023", "31/12/2023"], date(2023, 12, 31), "1 such as '31.12.2023' (day first"),
        (["2024-06-29", "6/29/24"], date(2024, 6, 29), "years of two digits are 1969 to 2068"),
        (["2024-06-29", "29/06/99"], date(1999, 6, 29), "because of '29/06/99'"),
        (
            ["2024-06-29", "29/06/2024 14:30"],
            datetime(2024, 6, 29, 14, 30),
            "1 without a time of day were read as 00:00",
        ),
        (["2024-06-29T10:00:00.5", "6/29/2024 2:30 PM"], datetime(2024, 6, 29, 14, 30), "month first"),
        (["2024/06/29", "2024-06-29 10:00"], datetime(2024, 6, 29, 10), "1 such as '2024-06-29 10:00'"),
    ],
)
def test_styles_that_are_clear_by_themselves_become_dates(
    tmp_path: Path, values: list[str], last: Any, said: str
) -> None:
    found, report = column(tmp_path, values)
    assert found[-1] == last
    assert type(found[-1]) is type(last)
    assert said in report


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["2024-01-02", "03/04/2024"], "'03/04/2024' may be read in two ways, and no value of its style decides it"),
        (["31.12.2023", "03/04/2024"], "'03/04/2024' may be read in two ways"),
        (["2024-01-02", "31.12.2023", "12/31/2023"], "'31.12.2023' has the day first, '12/31/2023' the month first"),
        (["2024-01-02", "31/12/2023", "12/31/2023"], "'31/12/2023' has the day first, '12/31/2023' the month first"),
        (["2024-01-02", "29/06/2024", "31/02/2024"], "'31/02/2024' is not a date"),
        (["2024-06-29", "24/06/29"], "'24/06/29' may be read in two ways"),
        (["2024-06-29", "24-06-29"], "which part of '24-06-29' is the year"),
        (["2024-06-29T10:00:00Z", "29/06/2024 10:00"], "only some have a time zone ('2024-06-29T10:00:00Z')"),
        (["2024-06-29", "29/06/2024", "soon"], "1 of 3 values is not a date ('soon')"),
        (["2024-06-29", "29/06/2024", "45472", "45473"], "2 of 4 values are not dates ('45472')"),
    ],
)
def test_styles_that_are_not_clear_stay_text(tmp_path: Path, values: list[str], said: str) -> None:
    found, report = column(tmp_path, values)
    assert found == values
    assert said in report
    assert f"such as {values[0]!r}" in report
    assert f"such as {values[1]!r}" in report


def test_the_option_dates_settles_a_style_or_keeps_all_as_text(tmp_path: Path) -> None:
    values = ["2024-01-02", "03/04/2024"]
    found, said = column(tmp_path, values, (("dates", "mdy"),))
    assert found == [date(2024, 1, 2), date(2024, 3, 4)]
    assert "(month first, as the option `dates` says)" in said
    clear = ["2024-06-29", "29/06/2024"]
    assert column(tmp_path, clear, (("dates", "mdy"),))[0] == [date(2024, 6, 29)] * 2
    for kept in (values, clear, ["29/06/2024"], ["7 May 2024"]):
        found, said = column(tmp_path, kept, (("dates", "text"),))
        assert found == kept
        assert "kept as text, as the option `dates` says" in said


days = st.dates(date(1970, 1, 1), date(2068, 12, 31))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_mix_of_provable_styles_is_read_as_its_dates(data: st.DataObject) -> None:
    order = data.draw(st.sampled_from([LAST, MONTHS_FIRST]))
    styles = data.draw(st.lists(st.sampled_from([*CLEAR, *order.values()]), min_size=2, max_size=5, unique=True))
    rest = data.draw(st.lists(st.tuples(days, st.sampled_from(styles)), max_size=20))
    # One value of each style, with a day above 12, proves it.
    proofs = [(data.draw(days).replace(day=data.draw(st.integers(13, 28))), style) for style in styles]
    written = data.draw(st.permutations(proofs + rest))
    with tempfile.TemporaryDirectory() as folder:
        found, _ = column(Path(folder), [day.strftime(style) for day, style in written])
    assert found == [day for day, _ in written]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_style_that_proves_nothing_keeps_the_column_text(data: st.DataObject) -> None:
    unclear = data.draw(st.sampled_from(list(LAST.values())))
    low = days.map(lambda day: day.replace(day=min(day.day, 12)))
    doubtful = data.draw(st.lists(low.map(lambda day: day.strftime(unclear)), min_size=1, max_size=9))
    sure = data.draw(st.lists(st.tuples(days, st.sampled_from(CLEAR)), min_size=1, max_size=9))
    written = data.draw(st.permutations(doubtful + [day.strftime(style) for day, style in sure]))
    with tempfile.TemporaryDirectory() as folder:
        found, said = column(Path(folder), written)
    assert found == written
    assert "may be read in two ways" in said
    assert any(f"such as {value!r}" in said for value in doubtful)
