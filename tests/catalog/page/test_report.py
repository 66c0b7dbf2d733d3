"""The catalog page: everything a profile knows is in it, in one file, and nothing in the data can break it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.catalog.drift.change import make_change
from etude.catalog.model import (
    ColumnProfile,
    ColumnProvenance,
    Dependency,
    ForeignKeyEvidence,
    Freshness,
    KeyEvidence,
    Lengths,
    Outliers,
    Pattern,
    PiiHint,
    Provenance,
    Samples,
    SourceProfile,
    TableProfile,
    TopValue,
)
from etude.catalog.page.html_markup import clean_for_html, json_for_html_script, make_html_anchors, sentence_to_html
from etude.catalog.page.page_format import format_page_bytes, format_page_count, format_page_share, format_page_value
from etude.catalog.page.report import render_catalog
from etude.catalog.page.starters import starter_queries

NOW = datetime(2026, 3, 1, 6, tzinfo=UTC)
VOID = {"meta", "link", "input", "br", "hr", "rect", "path", "circle"}


def top(*values: tuple[Any, int], of: int) -> tuple[TopValue, ...]:
    return tuple(TopValue(value=v, count=n, share=n / of) for v, n in values)


def make_shop(rows: int = 1000, made_at: datetime = NOW) -> SourceProfile:
    """A profile in which every element of the page has something to show."""
    customers = TableProfile(
        name="customers",
        comment="People who bought something.",
        owner="sales",
        tags=("core",),
        rows=200,
        bytes=52_000,
        columns=(
            ColumnProfile(name="id", type="BIGINT", family="integer", rows=200, nulls=0, distinct=200, unique=True,
                          min=1, max=200, quantiles=tuple(range(0, 201, 10)), top=top((1, 1), (2, 1), of=200)),
            ColumnProfile(name="email", type="VARCHAR", family="text", rows=200, nulls=4, distinct=196, unique=True,
                          min="a***", max="z***", top=top(("a***@***", 1), ("b***@***", 1), of=196), masked=True,
                          lengths=Lengths(min=8, max=31, mean=17.5), patterns=(Pattern(kind="email", share=0.98),),
                          pii=(PiiHint(kind="email", confidence=0.98, reason="98% look like email addresses"),),
                          provenance=ColumnProvenance(patterns=Provenance(method="sampled", rows=100))),
            ColumnProfile(name="country", type="VARCHAR", family="text", rows=200, nulls=0, distinct=3,
                          top=top(("DE", 120), ("FR", 60), ("Åland", 20), of=200), description="Where they live."),
        ),
        keys=(KeyEvidence(columns=("id",), origin="declared", unique=True, not_null=True),),
        samples=Samples(columns=("id", "email", "country"), rows=((1, "a***@***", "DE"), (2, None, ""))),
    )  # fmt: skip
    orders = TableProfile(
        name="orders",
        rows=rows,
        plan="sampled",
        columns=(
            ColumnProfile(name="customer_id", type="BIGINT", family="integer", rows=rows, nulls=0, distinct=180, min=1,
                          max=200, quantiles=tuple(range(0, 201, 10)), top=top((17, 30), of=rows)),
            ColumnProfile(name="amount", type="DECIMAL(10,2)", family="decimal", rows=rows, nulls=rows // 10,
                          distinct=812, min="0.50", max="9800.00", mean=48.2, stddev=20.1, zeros=0, negatives=3,
                          quantiles=("0.50", *(str(10 + 4 * i) for i in range(19)), "9800.00"),
                          outliers=Outliers(low=-50.0, high=180.0, below=0, above=7), top=top(("19.90", 40), of=rows),
                          provenance=ColumnProvenance(
                              quantiles=Provenance(method="sampled", rows=500, error=0.02),
                              distinct=Provenance(method="approximate", error=0.03))),
            ColumnProfile(name="placed_at", type="TIMESTAMP", family="timestamp", rows=rows, nulls=0, distinct=rows,
                          min="2024-01-01T00:00:00", max="2026-02-28T12:00:00",
                          quantiles=tuple(f"2025-01-{d:02d}T00:00:00" for d in range(1, 22))),
            ColumnProfile(name="currency", type="VARCHAR", family="text", rows=rows, nulls=0, distinct=1, constant=True,
                          top=top(("EUR", rows), of=rows)),
        ),
        foreign_keys=(
            ForeignKeyEvidence(columns=("customer_id",), to_table="customers", to_columns=("id",), origin="inferred",
                               containment=0.994, coverage=0.9, values=180, missing=1, cardinality="many-to-one",
                               score=0.93, reasons=("the name is that of the key of `customers`",)),
        ),
        dependencies=(Dependency(columns=("customer_id",), determines="currency", rows=rows, reason="in all rows"),),
        freshness=Freshness(column="placed_at", newest="2026-02-28T12:00:00", oldest="2024-01-01T00:00:00"),
    )  # fmt: skip
    secret = TableProfile(name="secret", plan="failed", error="permission denied")
    return SourceProfile(
        source="shop",
        kind="duckdb",
        dialect="duckdb",
        fingerprint="f00d",
        tables=(customers, orders, secret),
        versions={"etude": "0.1"},
        made_at=made_at,
    )


def make_many(count: int, columns: int = 10) -> SourceProfile:
    """A source of many tables, each with a value of its own."""
    shop = make_shop()
    pool = [c for t in shop.tables for c in t.columns]
    tables = []
    for i in range(count):
        own = ColumnProfile(
            name="region", type="VARCHAR", family="text", rows=1000, nulls=0, distinct=2,
            top=top((f"region {i}", 600), ("elsewhere", 400), of=1000),
        )  # fmt: skip
        others = [pool[(i + j) % len(pool)].model_copy(update={"name": f"column_{j}"}) for j in range(columns - 1)]
        tables.append(TableProfile(name=f"table_{i:04d}", rows=1000 + i, columns=(own, *others), bytes=i * 1000))
    return shop.model_copy(update={"tables": tuple(tables), "source": "warehouse"})


class Reading(HTMLParser):
    """The elements of a page in their order, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    @property
    def ids(self) -> list[str]:
        return [v or "" for _, attrs in self.tags for k, v in attrs if k == "id"]

    @property
    def links(self) -> list[str]:
        return [v or "" for _, attrs in self.tags for k, v in attrs if k in ("href", "src")]


def unpack(text: str) -> str:
    return zlib.decompress(base64.b64decode(text), -15).decode()


def packed_sections(page: str) -> list[str]:
    packs = re.findall(r'<script type="text/plain" id="pack\d+">([^<]*)</script>', page)
    return [section for pack in packs for section in json.loads(unpack(pack))]


def index_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="index" data-packed="(1?)">([^<]*)</script>', page)
    assert found
    return json.loads(unpack(found[2]) if found[1] else found[2])


CHANGES = (
    make_change("scale", "orders", "`amount` is about 100 times larger.", 1.0, "amount"),
    make_change("table-removed", "invoices", "The table `invoices` is gone (9 rows before).", 1.0),
    make_change("new-value", "customers", "`country` has a new value “<b>”.", 0.1, "country"),
)


@pytest.fixture(scope="module")
def page() -> str:
    history = [make_shop(900 + 10 * i, NOW - timedelta(days=9 - i)) for i in range(5)]
    return render_catalog(make_shop(), CHANGES, history, {"Run": "run_42", "Duration": "3.4 s"})


@pytest.fixture(scope="module")
def reading(page: str) -> Reading:
    return Reading(page)


@pytest.mark.parametrize(
    "words",
    [
        "People who bought something.", "sales", "core",  # purpose, owner, tags
        "200 rows", "52 kB", "2026-02-28", "18 hours old",  # sizes, freshness
        "`amount` is about 100 times larger.".replace("`", ""), "Changes since the last run",  # changes
        "DECIMAL(10,2)", "nulls 10%", "812 distinct≈",  # strips
        "DE12060%", "1 distinct",  # frequent values
        "median46", "5%10", "mean48.2", "7 above 180",  # quantiles, outliers
        "email98%", "8 to 31, mean 17.5",  # patterns, lengths
        "98% look like email addresses", "Values are masked.",  # personal data
        "99.4% of the values have a match (1 without a match)", "inferred, 93% confidence",  # keys with evidence
        "Diagram of related tables", "Sample rows", "Suspected personal data is masked.",
        "Example queries", 'JOIN "customers" AS b',
        "quantiles sampled (500 rows, within 2%)", "distinct approximate (within 3%)", "run_42", "f00d",  # provenance
        "permission denied", "customer_id determines currency", "Where they live.",
    ],
)  # fmt: skip
def test_the_page_tells_what_the_profile_knows(reading: Reading, words: str) -> None:
    assert words in reading.text


def test_the_page_draws_lines_bars_and_neighbours(reading: Reading) -> None:
    kinds = [dict(attrs).get("class") for tag, attrs in reading.tags if tag == "svg"]
    assert {"h", "b", "spark", "near"} <= set(kinds)


def test_the_page_asks_for_nothing(page: str, reading: Reading) -> None:
    assert all(link.startswith("#") or link == "data:," for link in reading.links)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert not re.search(r"url\(|@import|https?://", page)


def test_every_link_leads_somewhere_and_every_id_is_one(reading: Reading) -> None:
    assert len(reading.ids) == len(set(reading.ids))
    assert {link[1:] for link in reading.links if link.startswith("#")} <= set(reading.ids)


def test_the_same_profile_gives_the_same_page(page: str) -> None:
    history = [make_shop(900 + 10 * i, NOW - timedelta(days=9 - i)) for i in range(5)]
    assert render_catalog(make_shop(), CHANGES, history, {"Run": "run_42", "Duration": "3.4 s"}) == page


def test_masked_values_are_all_that_is_there_of_a_masked_column(page: str) -> None:
    values = dict((c[0], c[3]) for c in index_of(page)[0][3])
    assert values["email"] == ["a***@***", "b***@***", "a***", "z***"]


def test_values_of_samples_and_ends_are_searched() -> None:
    index = index_of(render_catalog(make_shop()))
    amount = next(c for c in index[1][3] if c[0] == "amount")
    assert amount[3] == ["19.90", "0.50", "9800.00"]


def test_a_hundred_tables_stay_under_a_megabyte() -> None:
    page = render_catalog(make_many(100))
    assert len(page.encode()) < 1_000_000
    sections = packed_sections(page)
    assert len(sections) == 100
    assert "region 99" in Reading(sections[99]).text


def test_packed_and_plain_pages_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = make_many(12)
    plain = render_catalog(profile)
    monkeypatch.setattr("etude.catalog.page.report.UNPACKED", 0)
    packed = render_catalog(profile)
    assert index_of(plain) == index_of(packed)
    for section in packed_sections(packed):
        assert section in plain


def test_an_empty_source_has_a_page() -> None:
    empty = make_shop().model_copy(update={"tables": ()})
    assert "No tables." in Reading(render_catalog(empty)).text


def test_a_calm_run_says_so() -> None:
    assert "No significant changes." in render_catalog(make_shop(), (), [make_shop(made_at=NOW - timedelta(1))])


# Nothing in the data can become part of the page.

ALLOWED_TAGS = frozenset(
    [
        "html", "head", "meta", "title", "link", "style", "script", "noscript", "body", "header", "nav", "main",
        "section", "article", "div", "p", "h1", "h2", "h3", "ol", "ul", "li", "dl", "dt", "dd", "a", "span", "b", "i",
        "s", "em", "small", "code", "kbd", "abbr", "pre", "figure", "figcaption", "details", "summary", "label",
        "input", "button",
        "table", "thead", "tbody", "tr", "th", "td", "caption", "svg", "g", "path", "rect", "circle", "text",
    ]
)  # fmt: skip
HOSTILE = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--<script>", "]]>", "-->", "</pre>",
            '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "javascript:alert(1)", "{name}",
            "{0.__class__}", "`</code><b>`", "&lt;b&gt;", "\x00\x1b[2J\u202egnp.exe", "\ud800", "a" * 300, "{", "}",
            "%s", "\u2028", "</title>", "</style>", "<svg/onload=alert(1)>", "__proto__", "constructor",
        ]
    ),
)  # fmt: skip
VALUES = st.one_of(HOSTILE, st.integers(), st.floats(), st.booleans(), st.none())


@st.composite
def hostile_profiles(draw: st.DrawFn) -> SourceProfile:
    """The shop, with hostile text in every place that holds text."""

    def text() -> str:
        return draw(HOSTILE)

    def column(name: str) -> ColumnProfile:
        values = draw(st.lists(VALUES, max_size=3))
        quantiles = draw(st.sampled_from([(), tuple(range(21)), tuple(draw(VALUES) for _ in range(21))]))
        family = draw(st.sampled_from(["text", "integer", "float", "timestamp", "json"]))
        return ColumnProfile(
            name=name, type=text(), family=family, comment=text(), tags=(text(),), rows=10, nulls=1,
            distinct=len(values), min=draw(VALUES), max=draw(VALUES), quantiles=quantiles,
            top=tuple(TopValue(value=v, count=2, share=0.2) for v in values),
            patterns=(Pattern(kind=text(), share=0.5, form=text()),), notes=(text(),),
            pii=(PiiHint(kind=text(), confidence=0.9, reason=text()),),
            provenance=ColumnProvenance(top=Provenance(method="sampled", detail=text())),
        )  # fmt: skip

    names = draw(st.lists(HOSTILE, min_size=1, max_size=3, unique=True))
    tables = []
    for name in names:
        columns = draw(st.lists(HOSTILE, min_size=1, max_size=2, unique=True))
        tables.append(
            TableProfile(
                name=name, description=text(), owner=text(), tags=(text(),), rows=10, error=text(), notes=(text(),),
                columns=tuple(column(c) for c in columns),
                keys=(KeyEvidence(columns=tuple(columns), origin="inferred", reasons=(text(),)),),
                foreign_keys=(ForeignKeyEvidence(columns=(columns[0],), to_table=names[0], to_columns=(text(),),
                                                 origin="inferred", reasons=(text(),)),),
                dependencies=(Dependency(columns=(columns[0],), determines=text(), rows=1, reason=text()),),
                freshness=Freshness(column=columns[0], newest=text(), oldest=text()),
                samples=Samples(columns=(text(),), rows=((draw(VALUES),),)),
            )
        )  # fmt: skip
    return SourceProfile(
        source=text(), kind=text(), dialect=draw(st.sampled_from(["duckdb", "mysql", "sqlite", "postgres"])),
        fingerprint=text(), tables=tuple(tables), notes=(text(),), versions={"x": text()}, made_at=NOW,
    )  # fmt: skip


def check_harmless(page: str, scripts: int) -> None:
    page.encode("utf-8")
    reading = Reading(page)
    assert {tag for tag, _ in reading.tags} <= ALLOWED_TAGS
    assert sum(tag == "script" for tag, _ in reading.tags) == scripts
    for _, attrs in reading.tags:
        for name, _ in attrs:
            assert re.fullmatch(r"[A-Za-z:-]+", name) and not name.lower().startswith("on") and name != "style"
    assert all(link.startswith(("#", "catalog.html")) or link == "data:," for link in reading.links)
    assert len(reading.ids) == len(set(reading.ids))
    assert reading.open == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(profile=hostile_profiles(), words=HOSTILE)
def test_no_name_and_no_value_becomes_markup(profile: SourceProfile, words: str) -> None:
    changes = [make_change("shift", t.name, words, 0.5, t.columns[0].name, words, words) for t in profile.tables]
    earlier = profile.model_copy(update={"made_at": NOW - timedelta(days=1)})
    page = render_catalog(profile, changes, [earlier], {words: words})
    check_harmless(page, scripts=2)
    assert [t[0] for t in index_of(page)] == [clean_for_html(t.name) for t in profile.tables]


def test_packed_sections_are_as_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.catalog.page.report.UNPACKED", 0)
    evil = "</script><img src=x onerror=alert(1)>"
    shop = make_shop()
    tables = tuple(t.model_copy(update={"name": f"{evil}{i}", "comment": evil}) for i, t in enumerate(shop.tables))
    page = render_catalog(shop.model_copy(update={"tables": tables, "source": evil}))
    check_harmless(page, scripts=3)
    for section in packed_sections(page):
        check_harmless(section, scripts=0)


@settings(max_examples=40)
@given(st.lists(HOSTILE | st.none() | st.integers() | st.dictionaries(HOSTILE, HOSTILE, max_size=3), max_size=4))
def test_json_in_a_script_survives_and_cannot_end_it(value: Any) -> None:
    text = json_for_html_script(value)
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


@given(st.lists(HOSTILE, unique=True))
def test_anchors_are_plain_and_never_repeat(names: list[str]) -> None:
    found = make_html_anchors(names, "t.")
    assert len(set(found.values())) == len(names)
    assert all(re.fullmatch(r"t\.[\w~-]+", a) for a in found.values())


def test_names_in_sentences_are_code() -> None:
    assert sentence_to_html("`a<b` is <gone>") == "<code>a&lt;b</code> is &lt;gone&gt;"


# Numbers as people read them.


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (format_page_count(950), "950"), (format_page_count(9999), "9,999"), (format_page_count(12_345), "12.3k"),
        (format_page_count(4_100_000), "4.1M"), (format_page_count(999_999), "1M"), (format_page_count(None), "?"),
        (format_page_bytes(52_000), "52 kB"), (format_page_bytes(12), "12 B"), (format_page_share(0), "0%"),
        (format_page_share(0.00001), "<0.1%"), (format_page_share(0.9999), ">99.9%"), (format_page_share(0.123), "12%"),
        (format_page_value(1234.5678), "1,234.6"), (format_page_value(0.5), "0.5"), (format_page_value(1e-9), "1e-09"),
        (format_page_value(2024), "2,024"), (format_page_value(True), "true"),
        (format_page_value("2024-01-01T00:00:00"), "2024-01-01"), (format_page_value("x" * 100, 10), "xxxxxxxxx…"),
        (format_page_value(float("inf")), "inf"), (format_page_value(10**30), f"{10**30:,}"),
    ],
)  # fmt: skip
def test_numbers_are_short(made: str, expected: str) -> None:
    assert made == expected


# Example queries.


def test_starter_queries_use_the_keys_and_the_dialect() -> None:
    shop = make_shop()
    queries = dict(starter_queries(shop, shop.tables[1]))
    assert queries["With customers"].endswith('ON a."customer_id" = b."id"\nLIMIT 20')
    assert "date_trunc('month', \"placed_at\")" in queries["Rows per month"]
    other = shop.model_copy(update={"dialect": "mysql"})
    assert "date_format(`placed_at`" in dict(starter_queries(other, other.tables[1]))["Rows per month"]


def test_starter_queries_quote_hostile_names() -> None:
    shop = make_shop()
    table = shop.tables[0].model_copy(update={"name": 'x" ; DROP TABLE y'})
    assert dict(starter_queries(shop, table))["A few rows"] == 'SELECT *\nFROM "x"" ; DROP TABLE y"\nLIMIT 20'
