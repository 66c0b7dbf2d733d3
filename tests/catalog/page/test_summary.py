"""The summary: what changed comes first, then the runs, then what is recent."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.catalog.drift.compare import Change, compare
from etude.catalog.model import ColumnProfile, Freshness, SourceProfile, TableProfile
from etude.catalog.page.summary import render_summary

NOW = datetime(2026, 3, 1, 6, tzinfo=UTC)


def make_run(day: int, rows: int, nulls: int = 0, name: str = "orders") -> SourceProfile:
    """A run of one table whose newest row is of the day before."""
    newest = datetime(2026, 2, 1, 12) + timedelta(days=day - 1)
    days = tuple((newest - timedelta(days=10 * (20 - i))).isoformat() for i in range(21))
    placed = ColumnProfile(
        name="placed_at", type="TIMESTAMP", family="timestamp", rows=rows, nulls=0, distinct=rows, min=days[0],
        max=days[20], quantiles=days,
    )  # fmt: skip
    note = ColumnProfile(name="note", type="VARCHAR", family="text", rows=rows, nulls=nulls, distinct=rows - nulls)
    fresh = Freshness(column="placed_at", newest=days[20], oldest=days[0])
    table = TableProfile(name=name, rows=rows, columns=(placed, note), freshness=fresh)
    return SourceProfile(
        source="shop", kind="duckdb", dialect="duckdb", fingerprint="f", tables=(table,),
        made_at=datetime(2026, 2, 1, 18, tzinfo=UTC) + timedelta(days=day),
    )  # fmt: skip


RUNS = [make_run(day, 1000 + 10 * day) for day in range(6)]


@pytest.fixture(scope="module")
def page() -> str:
    after = make_run(6, 500, nulls=200)
    return render_summary(after, compare(RUNS[-1], after, RUNS), RUNS)


def text_of(page: str) -> str:
    body = page[page.index("<main") : page.index("</main>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", body))


def test_the_changes_lead_ranked(page: str) -> None:
    titles = re.findall(r"<h2>([^<]*)</h2>", page)
    assert titles == ["Changes", "Over 7 runs", "Rows over time"]
    text = text_of(page)
    assert text.index("Nulls in note went from 0% to 40.0%") < text.index("Over 7 runs")
    assert "fell from 1,050 to 500" in text


def test_each_change_has_its_line_over_the_runs(page: str) -> None:
    changes = page[page.index('id="changes"') : page.index("Over 7 runs")]
    assert 'aria-label="nulls over the runs"' in changes
    assert 'aria-label="rows over the runs"' in changes
    points = re.search(r'rows over the runs"><path d="([^"]*)"', changes)
    assert points and points[1].count("L") == 6


def test_runs_show_rows_nulls_and_freshness(page: str) -> None:
    runs = page[page.index("Over 7 runs") : page.index("Rows over time")]
    for label in ("rows of orders", "nulls of orders", "age of the newest row of orders"):
        assert f'aria-label="{label}"' in runs
    assert "-550" in runs


def test_what_is_recent_is_told_from_the_quantiles(page: str) -> None:
    text = text_of(page)
    assert "The latest 5% of the rows span 10 days: 2.5 per day; 2.5 per day on average." in text
    assert 'class="volume"' in page


def test_changes_lead_to_the_catalog_beside_it(page: str) -> None:
    assert 'href="catalog.html#t.orders.note"' in page


def test_a_first_run_says_when_changes_are_told() -> None:
    assert "Changes appear from the second run on." in render_summary(RUNS[0], (), ())


def test_an_uneventful_run_says_so() -> None:
    page = render_summary(RUNS[1], compare(RUNS[0], RUNS[1]), RUNS[:1])
    assert "No significant changes." in page


@settings(max_examples=30)
@given(
    st.one_of(st.text(max_size=20), st.sampled_from(["<script>", "</main><img src=x>", '" onload="x', "\ud800", "{x}"]))
)
def test_no_name_becomes_markup(words: str) -> None:
    run = make_run(1, 100, name=words)
    change = Change(kind="late", table=words, column=words, score=80, severity="high", text=words)
    page = render_summary(run.model_copy(update={"source": words}), (change,), [make_run(0, 100, name=words)])
    page.encode()
    assert page.count("<script") == 1 and "<img" not in page
    assert len(re.findall(r"<[a-z]", page)) == len(re.findall(r"<[a-z][^<>]*>", page))
