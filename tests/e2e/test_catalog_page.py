"""The catalog and the summary in a real browser: found by a value, read by keyboard, in light and dark, on paper."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import etude
from etude.app import App
from etude.catalog.drift.compare import compare
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import SourceProfile, TableProfile
from etude.catalog.page.report import render_catalog
from etude.catalog.page.summary import render_summary
from etude.sample import write_shop

Open = Callable[..., Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[SourceProfile]:
    """The shop, profiled; then the same shop with half of its orders and a table less."""
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder / "shop")
    found = []
    with App(home=folder / "home") as app:
        for day in range(2):
            with etude.connect(folder / "shop", app=app) as db:
                profile = profile_source(db)
            found.append(profile.model_copy(update={"made_at": NOW + timedelta(days=day)}))
            orders = folder / "shop" / "orders.csv"
            lines = orders.read_text(encoding="utf-8").splitlines()
            orders.write_text("\n".join(lines[: len(lines) // 2]) + "\n", encoding="utf-8")
            (folder / "shop" / "products.json").unlink(missing_ok=True)
    return found


@pytest.fixture(scope="module")
def catalog(runs: list[SourceProfile]) -> str:
    return render_catalog(runs[1], compare(runs[0], runs[1]), runs[:1])


@pytest.fixture(scope="module")
def warehouse(runs: list[SourceProfile]) -> str:
    """A thousand tables, each with the columns of one of the shop's and a value of its own."""
    tables: list[TableProfile] = []
    for i in range(1000):
        like = runs[0].tables[i % len(runs[0].tables)]
        first = like.columns[0]
        own = first.model_copy(
            update={"name": "special", "top": (first.top[0].model_copy(update={"value": f"only-{i}"}),)}
        )
        tables.append(like.model_copy(update={"name": f"table_{i:04d}", "columns": (own, *like.columns[1:])}))
    return render_catalog(runs[0].model_copy(update={"tables": tuple(tables)}))


@cache
def axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    page.evaluate(axe())
    found = page.evaluate("() => axe.run()")
    return [f"{v['id']}: {n['html'][:160]} {n['failureSummary']}" for v in found["violations"] for n in v["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_the_catalog_is_accessible(catalog: str, open_page: Open, scheme: str, width: int) -> None:
    page = open_page(catalog, scheme=scheme, width=width).page
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_summary_is_accessible_and_leads_with_the_changes(
    runs: list[SourceProfile], open_page: Open, scheme: str
) -> None:
    page = open_page(render_summary(runs[1], compare(runs[0], runs[1]), runs[:1]), scheme=scheme).page
    assert violations(page) == []
    expect(page.locator("h2").first).to_have_text("Changes")
    expect(page.locator("#changes li").first).to_contain_text("products")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_open_search_is_accessible(catalog: str, open_page: Open, scheme: str) -> None:
    page = open_page(catalog, scheme=scheme).page
    page.fill("#q", "o")
    expect(page.locator("#hits")).to_be_visible()
    assert violations(page) == []
    page.fill("#q", "no such thing anywhere")
    expect(page.locator("#hits li")).to_contain_text("No match")
    assert violations(page) == []


def test_a_column_is_found_by_a_value_in_it(catalog: str, open_page: Open) -> None:
    page = open_page(catalog).page
    page.keyboard.press("/")
    page.keyboard.type("enterprise")
    expect(page.locator("#hits li").first).to_contain_text("customers.segment")
    page.keyboard.press("Enter")
    column = page.locator("[id='t.customers.segment']")
    expect(column).to_have_attribute("open", "")
    expect(column).to_be_in_viewport()
    expect(column.locator("summary")).to_be_focused()
    expect(column).to_contain_text("enterprise")
    page.wait_for_url("**/*#t.customers.segment")


def test_results_are_chosen_by_arrow_keys_and_left_by_escape(catalog: str, open_page: Open) -> None:
    page = open_page(catalog).page
    page.keyboard.press("Control+k")
    page.keyboard.type("order")
    expect(page.locator("#hits li").nth(2)).to_be_visible()
    second = page.locator("#hits li").nth(1).locator("span").text_content() or ""
    page.keyboard.press("ArrowDown")
    expect(page.locator("#hits li").nth(1)).to_have_attribute("aria-selected", "true")
    assert page.locator("#q").get_attribute("aria-activedescendant") == "hit1"
    page.keyboard.press("Escape")
    expect(page.locator("#hits")).to_be_hidden()
    page.keyboard.type("s")
    page.keyboard.press("Backspace")
    expect(page.locator("#hits")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/*#t.{second}")


def test_tables_are_walked_by_keyboard_and_columns_opened(catalog: str, open_page: Open) -> None:
    page = open_page(catalog).page
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.press("Alt+ArrowDown")
    page.wait_for_url("**/*#t.orders")
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    page.wait_for_url("**/*#t.customers")
    first = page.locator("[id='t.customers'] details.column").first
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(first.locator(".detail")).to_be_visible()


def test_a_changed_column_is_one_click_from_the_change(catalog: str, open_page: Open) -> None:
    page = open_page(catalog).page
    page.locator("#changes a", has_text="orders").first.click()
    expect(page.locator("[id='t.orders']")).to_be_in_viewport()


def test_the_theme_follows_the_system_until_one_is_chosen(catalog: str, open_page: Open) -> None:
    page = open_page(catalog, scheme="dark").page

    def paper() -> str:
        return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    dark = paper()
    page.click("#theme")
    light = paper()
    assert light != dark
    page.reload()
    assert paper() == light
    page.click("#theme")
    assert paper() == dark
    page.emulate_media(color_scheme="light")
    assert paper() == dark


def test_the_overview_is_sorted_by_a_column(catalog: str, open_page: Open) -> None:
    page = open_page(catalog).page
    page.click("#tables th button:text('Rows')")
    expect(page.locator("#tables th[aria-sort='descending']")).to_have_text("Rows")
    counts = page.eval_on_selector_all("#tables tbody tr", "rows => rows.map((r) => Number(r.children[1].dataset.v))")
    assert counts == sorted(counts, reverse=True)


def test_a_query_can_be_taken_along(catalog: str, open_page: Open) -> None:
    page = open_page(catalog).page
    page.locator("[id='t.orders'] .sql summary").click()
    button = page.locator("[id='t.orders'] .copy").first
    # What it says of it goes away after a moment, so it is written down.
    write_down = "new MutationObserver(() => said.push(button.textContent)).observe(button, { childList: true })"
    button.evaluate(f"(button) => {{ window.said = []; {write_down}; }}")
    button.click()
    # A page that is a file may have no clipboard; then the text is selected for the person to copy.
    page.wait_for_function("() => said.some((text) => ['Copied', 'Selected'].includes(text))")


def test_on_paper_everything_is_open_and_nothing_is_dark(catalog: str, open_page: Open, tmp_path: Path) -> None:
    page = open_page(catalog, scheme="dark").page
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("header")).to_be_hidden()
    expect(page.locator("nav")).to_be_hidden()
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF")
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_a_phone_scrolls_in_one_direction(catalog: str, open_page: Open) -> None:
    page = open_page(catalog, width=360, height=740).page
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_a_thousand_tables_stay_usable(warehouse: str, open_page: Open) -> None:
    page = open_page(warehouse).page
    assert page.locator("section.table").count() == 1000
    assert page.locator("details.column").count() < 1000  # Only what comes into view is unpacked.
    page.keyboard.press("/")
    page.keyboard.type("only-777")
    expect(page.locator("#hits li").first).to_contain_text("table_0777.special")
    page.keyboard.press("Enter")
    column = page.locator("[id='t.table_0777.special']")
    expect(column).to_be_in_viewport()
    expect(column).to_contain_text("only-777")
    expect(page.locator("nav li.here")).to_contain_text("table_0777")


def test_a_link_into_a_thousand_tables_opens_its_column(warehouse: str, open_page: Open) -> None:
    page = open_page(warehouse, "#t.table_0900.special").page
    column = page.locator("[id='t.table_0900.special']")
    expect(column).to_be_in_viewport()
    expect(column).to_have_attribute("open", "")
