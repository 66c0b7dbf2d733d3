"""The page in a real browser, on a real server: each test is a journey of a person."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.e2e.page_server import ROWS, PageServer, wait_for

UI = Path(__file__).parents[2] / "ui"
PATIENCE_MS = 90_000.0
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    assert (UI.parent / "src/etude/web/index.html").is_file(), "the page is not built: run `make ui`"
    started = PageServer(tmp_path_factory.mktemp("page"))
    started.start()
    yield started
    started.kill()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server that asks for keys."""
    started = PageServer(tmp_path_factory.mktemp("guarded"), "--keys")
    create_key(started, "owner", "admin")
    started.start()
    yield started
    started.kill()


@pytest.fixture
def visit(browser: Browser, server: PageServer) -> Iterator[Visit]:
    """Open the page. Any error on the console and any request to another host fails the test."""
    opened: list[tuple[Page, list[str], str]] = []

    def open_page(
        address: str = "#/ask", *, width: int = 1440, scheme: Any = "light", at: PageServer = server, **options: Any
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", **options
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        errors: list[str] = []
        page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith((at.url, "data:", "blob:")) else errors.append(r.url))
        page.goto(f"{at.url}/{address}")
        opened.append((page, errors, at.url))
        # Keys and drops reach the page only once it has its listeners.
        expect(page.get_by_role("heading").first).to_be_attached()
        return page

    yield open_page
    for page, errors, _ in opened:
        page.context.close()
        # A server that is gone, and a refusal, are logged by the browser itself.
        assert [e for e in errors if not re.search(r"ERR_|status of (4\d\d|503)", e)] == []


def create_key(server: PageServer, name: str, role: str) -> str:
    command = server.command("keys", "create", name, "--role", role)
    made = subprocess.run(command, env=server.environment, capture_output=True, text=True, check=True)
    return re.findall(r"\S{30,}", made.stdout)[-1]


def ask(page: Page, text: str, dataset: str = "shop") -> None:
    page.get_by_label("Data", exact=True).select_option(dataset)
    page.locator("#composer").fill(text)
    page.keyboard.press("Enter")


def write_code(page: Page, language: str, code: str) -> None:
    """Write in the editor in place of what is there. `fill` would let the browser edit beside the editor's back."""
    page.get_by_role("group", name="Language").get_by_role("button", name=language).click()
    expect(page.locator(f"[data-editor={language.lower()}]")).to_be_visible()
    editor = page.get_by_role("textbox", name=f"{language} to run")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)
    expect(editor).to_have_text(code)


def test_from_the_first_visit_to_the_first_answer(visit: Visit) -> None:
    page = visit("")
    expect(page.get_by_role("heading", name=re.compile("^Ask "))).to_be_visible()
    ask(page, "orders by status")
    expect(page.locator(".says")).to_have_text(re.compile(r"Most orders, [\d,]+, are completed\."))
    expect(page.locator(".chart h3")).to_have_text("Orders by status")
    expect(page.locator(".bars")).to_contain_text("completed")
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    expect(page.locator(".grid-part .note").last).to_contain_text("4 rows · 2 columns · nothing truncated")
    expect(page.locator(".threads li.here")).to_contain_text("orders by status")


def drop_file(page: Page, name: str, text: str) -> None:
    """Drop a file on the page, as a person does with the mouse."""
    held = page.evaluate_handle(
        """([name, text]) => {
          const held = new DataTransfer();
          held.items.add(new File([text], name, { type: "text/csv" }));
          return held;
        }""",
        [name, text],
    )
    for event in ("dragenter", "dragover", "drop"):
        page.dispatch_event("main", event, {"dataTransfer": held})


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server as a new user has it: no data and no model."""
    started = PageServer(tmp_path_factory.mktemp("empty"), empty=True)
    started.start()
    yield started
    started.kill()


def test_a_question_that_fails_is_no_lost_connection(visit: Visit) -> None:
    page = visit("")
    ask(page, "a question that is in no scene of the model")
    expect(page.locator(".flow")).to_contain_text("no model")
    page.wait_for_timeout(1_500)  # time for the stream's end to be seen, and to be taken for something else
    expect(page.get_by_text("The connection is lost")).to_have_count(0)


def test_a_question_that_fails_shows_no_earlier_result(visit: Visit) -> None:
    page = visit("")
    ask(page, "orders by status before a failure")
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    ask(page, "SQL: SELECT nothing FROM nowhere")
    pane = page.get_by_role("region", name="Result", exact=True)
    expect(pane).to_contain_text("This question failed, so it has no result.")
    expect(page.get_by_role("gridcell")).to_have_count(0)
    pane.get_by_role("button", name="Show the result before it").click()
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    expect(pane).to_contain_text("of the question orders by status before a failure")


def test_an_earlier_answer_is_shown_again(visit: Visit) -> None:
    page = visit("")
    ask(page, "orders by status first of three")
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    for number in (2, 3):
        ask(page, f"SQL: SELECT {number} AS number, {number} * 10 AS tens")
        expect(page.get_by_role("gridcell", name=f"{number}0", exact=True)).to_be_visible()
    turns, pane = page.locator(".turn"), page.get_by_role("region", name="Result", exact=True)
    expect(turns.nth(2)).to_have_attribute("aria-current", "true")
    turns.nth(0).locator(".says").click()
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    expect(page.locator(".chart h3")).to_have_text("Orders by status")
    expect(turns.nth(0)).to_have_attribute("aria-current", "true")
    expect(turns.nth(2)).not_to_have_attribute("aria-current", "true")
    assert "turn=run_" in page.url
    turns.nth(1).get_by_role("button", name="1 row", exact=True).press("Enter")
    expect(page.get_by_role("gridcell", name="20", exact=True)).to_be_visible()
    page.keyboard.press("Alt+ArrowUp")
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    turns.nth(1).get_by_role("button", name="Show SQL").click()
    expect(page.get_by_role("gridcell", name="20", exact=True)).to_be_visible()
    linked = visit("#" + page.url.split("#")[1])
    expect(linked.get_by_role("gridcell", name="20", exact=True)).to_be_visible()
    expect(linked.locator(".turn").nth(1)).to_have_attribute("aria-current", "true")
    pane.get_by_role("button", name="Show the latest").click()
    expect(page.get_by_role("gridcell", name="30", exact=True)).to_be_visible()
    ask(page, "SQL: SELECT 4 AS number, 40 AS tens")
    expect(page.get_by_role("gridcell", name="40", exact=True)).to_be_visible()
    assert "turn=" not in page.url


def test_the_view_of_a_result_is_kept(visit: Visit) -> None:
    page = visit("", permissions=["clipboard-read", "clipboard-write"])
    ask(page, "SQL: SELECT date '2024-01-01' + INTERVAL (range) MONTH AS month, range AS n FROM range(6)")
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("gridcell", name="2024-03", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("from 2024-01 to 2024-06"))).to_be_visible()
    grid.get_by_role("button", name=re.compile("^n")).click()  # of numbers, the highest come first
    expect(grid.locator('[role="row"][aria-rowindex="2"]')).to_contain_text("2024-06")
    page.get_by_role("tab", name="Details").click()
    page.get_by_role("tab", name=re.compile("^Result")).click()
    expect(grid.get_by_role("columnheader").nth(1)).to_have_attribute("aria-sort", "descending")
    expect(grid.locator('[role="row"][aria-rowindex="2"]')).to_contain_text("2024-06")
    page.locator(".grid-part").get_by_role("button", name="Copy the rows").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("month\tn\n2024-06-01")


def test_charts_of_queries(visit: Visit) -> None:
    page = visit("", accept_downloads=True)
    two = "SELECT * FROM (VALUES ('a', 'N', 3), ('b', 'N', 5), ('a', 'S', 9), ('b', 'S', 4)) AS t(kind, region, total)"
    ask(page, f"SQL: {two}")
    expect(page.locator(".bars .group")).to_have_text(["a", "b"])
    expect(page.locator(".legend")).to_contain_text("S")
    with page.expect_download() as saving:
        page.locator(".pane").get_by_text("SVG", exact=True).click()
    drawn = Path(saving.value.path()).read_text()
    assert ">total by kind and region</text>" in drawn and drawn.count("<rect") == 1 + 2 + 4
    ask(page, "SQL: SELECT * FROM (VALUES ('tea', 5), ('cocoa', 9), ('coffee', 7)) AS t(drink, cups)")
    expect(page.locator(".bars .clip-2")).to_have_text(["cocoa", "coffee", "tea"])
    expect(page.get_by_role("gridcell").nth(0)).to_have_text("cocoa")  # the rows follow the bars
    page.get_by_role("group", name="Form of the chart").get_by_role("button", name="Pie").click()
    expect(page.get_by_role("img", name="cups by drink: cocoa 42.9%, coffee 33.3%, tea 23.8%")).to_be_visible()
    ask(page, "SQL: SELECT * FROM (VALUES (date '2024-01-05', 3), (date '2024-02-07', 540), (NULL, 7)) AS t(day, n)")
    expect(page.locator(".chart")).to_contain_text("1 row without a date is not drawn.")
    expect(page.locator("svg.plot")).to_contain_text("600")
    ask(page, "SQL: SELECT [1, 2] AS list, 3 AS n UNION ALL SELECT [4], 5")
    expect(page.get_by_role("gridcell", name="[1,2]")).to_be_visible()
    expect(page.locator(".chart")).to_have_count(0)
    assert "does not draw" not in page.content()


@pytest.mark.parametrize("width", [1024, 768, 390])
def test_threads_are_listed_at_every_width_and_removed(visit: Visit, width: int) -> None:
    page = visit("", width=width)
    ask(page, f"orders by status at {width}")
    expect(page.locator(".says")).to_be_visible()
    thread = page.url
    threads = page.get_by_role("complementary", name="Threads")
    expect(threads).to_be_hidden()
    page.get_by_role("button", name=f"orders by status at {width}").click()
    threads.get_by_role("link", name="New thread").click()
    expect(page.get_by_role("heading", name=re.compile("^Ask "))).to_be_visible()
    page.get_by_role("button", name=re.compile("^Threads")).click()
    threads.get_by_role("link", name=f"orders by status at {width}").click()
    page.wait_for_url(thread)
    expect(threads).to_be_hidden()
    page.get_by_role("button", name=f"orders by status at {width}").click()
    threads.get_by_role("button", name=f"Remove the thread orders by status at {width}").click()
    expect(threads.get_by_role("alertdialog")).to_contain_text("its runs and their results stay")
    threads.get_by_role("button", name="Remove it").click()
    page.wait_for_url(lambda url: url != thread)
    page.get_by_role("button", name=re.compile("^Threads")).click()
    expect(threads.get_by_role("link", name=f"orders by status at {width}")).to_have_count(0)


def test_what_is_typed_outside_the_box_goes_into_it(visit: Visit) -> None:
    page = visit("")
    expect(page.locator("#composer")).to_be_visible()
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.type("number of orders")
    expect(page.locator("#composer")).to_have_value("number of orders")


def test_drop_a_csv_and_ask(visit: Visit, empty: PageServer) -> None:
    page = visit("", at=empty)
    expect(page.get_by_role("heading", name="Bring data, then ask it.")).to_be_visible()
    rows = "".join(f"2025-01-{1 + n % 28:02},{('north', 'south', 'west')[n % 3]},{10 + n}\n" for n in range(90))
    drop_file(page, "sales.csv", "day,region,amount\n" + rows)
    report = page.get_by_role("region", name="sales was added")
    expect(report.get_by_role("heading")).to_have_text("sales is ready: 90 rows")
    expect(report.locator("tbody")).to_contain_text("region")
    questions = report.get_by_role("list", name="Questions on sales").get_by_role("button")
    expect(questions).to_have_count(3)
    questions.first.click()
    expect(page.locator(".says, .answer").first).to_be_visible()
    expect(page.get_by_role("gridcell").first).to_be_visible()
    ask(page, "total amount per region", "sales")
    expect(page.locator(".bars, svg.plot").first).to_contain_text("south")
    page.get_by_role("button", name="Show SQL").last.click()
    expect(page.locator(".step pre").last).to_contain_text("GROUP BY")


def test_choose_files_paste_rows_and_connect(visit: Visit, empty: PageServer, tmp_path: Path) -> None:
    (tmp_path / "towns.csv").write_text("town,people\nUlm,128000\nBonn,336000\n")
    (tmp_path / "rivers.csv").write_text("river,km\nRhine,1233\nDanube,2850\n")
    page = visit("#/start", at=empty)
    page.get_by_label("Files to add").set_input_files([tmp_path / "towns.csv", tmp_path / "rivers.csv"])
    expect(page.locator(".added").first.locator("tbody tr")).to_have_count(2)
    page.evaluate(
        """() => {
          const held = new DataTransfer();
          held.setData("text/plain", "name\\tsize\\nash\\t12\\noak\\t30\\n");
          document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: held, bubbles: true }));
        }"""
    )
    expect(page.get_by_role("heading", name=re.compile("pasted_rows.* is ready: 2 rows"))).to_be_visible()
    page.get_by_label("Database URL").fill(str(tmp_path / "none.duckdb"))
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_role("alert")).to_contain_text("none.duckdb")
    page.get_by_label("Database URL").fill(str(tmp_path / "towns.csv"))
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_role("heading", name=re.compile("^towns.* is ready: 2 rows"))).to_be_visible()


def test_a_catalog_is_made_and_data_is_removed(visit: Visit, empty: PageServer) -> None:
    page = visit("#/start", at=empty)
    skewed = "".join(f"{n},{1.5**n if n % 2 else n}\n" for n in range(60))
    drop_file(page, "lakes_2024.csv", "lake,depth\n" + skewed)
    page.get_by_role("link", name="Look at it").click()
    expect(page.get_by_role("heading", name="lakes_2024", exact=True)).to_be_visible()
    rows = page.get_by_role("region", name="Rows of lakes_2024")
    expect(rows.locator("tbody tr").nth(2).locator("td")).to_have_text(["2", "2.0000"])
    page.get_by_role("button", name="Make a catalog").click()
    expect(page.get_by_role("link", name="Open the catalog page")).to_be_visible()
    expect(page.locator(".lead")).to_contain_text("This is its first catalog")
    expect(page.get_by_role("region", name="Stored catalogs").locator("tbody td.n").first).to_have_text("\u2013")
    page.get_by_role("complementary").get_by_role("link", name="lakes_2024").last.click()
    page.locator(".column", has_text="depth").click()
    expect(page.get_by_role("img", name=re.compile("on a logarithmic axis"))).to_be_visible()
    page.get_by_role("group", name="Bins of equal").get_by_role("button", name="Linear").click()
    expect(page.get_by_role("img", name=re.compile("logarithmic"))).to_have_count(0)
    page.get_by_role("complementary").get_by_role("link", name="lakes_2024").first.click()
    page.get_by_role("button", name="Remove…").click()
    expect(page.get_by_role("alertdialog")).to_contain_text("Runs on it stay")
    page.get_by_role("button", name="Remove lakes_2024").click()
    expect(page.get_by_role("heading", name="Bring data, then ask it.")).to_be_visible()
    assert "lakes_2024" not in [known["id"] for known in empty.get("/datasets")["items"]]


def test_open_the_shop_and_ask_a_suggested_question(visit: Visit, empty: PageServer) -> None:
    page = visit("#/start", at=empty)
    page.get_by_role("button", name="Open the shop").click()
    report = page.get_by_role("region", name="shop was added")
    expect(report.locator("tbody tr")).to_have_count(4)
    report.get_by_role("link", name="Ask shop").click()
    expect(page.get_by_role("heading", name="Ask shop")).to_be_visible()
    page.get_by_role("list", name="Questions on shop").get_by_role("button").first.click()
    expect(page.locator(".says, .answer").first).to_be_visible()


def test_a_refusal_is_shown_once_and_its_suggestions_ask(visit: Visit, empty: PageServer) -> None:
    page = visit("#/start", at=empty)
    drop_file(
        page, "trips.csv", "day,town,km\n" + "".join(f"2025-01-{n % 28 + 1:02},t{n % 3},{n}\n" for n in range(60))
    )
    expect(page.get_by_role("region", name="trips was added")).to_be_visible()
    page.goto(f"{empty.url}/#/ask")
    ask(page, "what is the zorblax of trips?", "trips")
    refusal = page.locator(".unclear")
    expect(refusal).to_contain_text("zorblax")
    expect(refusal).to_contain_text("ETUDE_MODEL")
    expect(page.locator(".turn").last.get_by_text("zorblax", exact=True)).to_have_count(1)
    tries = refusal.get_by_role("list", name="Questions to try").get_by_role("button")
    asked = tries.first.inner_text()
    tries.first.click()
    expect(page.locator(".turn").last.locator("h2")).to_have_text(asked)
    expect(page.locator(".turn").last.locator(".says, .answer").first).to_be_visible()


def test_an_answer_and_its_chart_tell_their_conditions(visit: Visit, empty: PageServer) -> None:
    page = visit("#/start", at=empty)
    drop_file(
        page,
        "rides.csv",
        "Ride No,town,paid,km\n" + "".join(f"{n + 1000},t{n % 3},{('card', 'cash')[n % 2]},{n}\n" for n in range(60)),
    )
    expect(page.get_by_role("region", name="rides was added")).to_be_visible()
    page.goto(f"{empty.url}/#/ask")
    ask(page, "total km by town where paid is card", "rides")
    expect(page.get_by_role("main").get_by_text("Total km by town where paid is card:")).to_be_visible()
    expect(page.locator(".chart .subtitle")).to_have_text("where paid is card")
    ask(page, 'SQL: SELECT "Ride No", km FROM rides ORDER BY 1', "rides")
    expect(page.get_by_role("gridcell", name="1000", exact=True)).to_be_visible()


def test_a_figure_leads_back_to_its_query(visit: Visit) -> None:
    page = visit()
    ask(page, "orders by status with figures")
    page.locator("a.num").first.click()
    origin = page.get_by_role("dialog", name="Where this value comes from")
    expect(origin).to_contain_text("r1.orders[0]")
    expect(origin).to_contain_text("r1")
    origin.get_by_role("link").click()
    expect(page.get_by_role("navigation", name="Views of this run")).to_be_visible()


def test_the_same_question_again_is_a_replay(visit: Visit, server: PageServer) -> None:
    page = visit()
    ask(page, "Orders by status?")
    expect(page.locator(".says")).to_be_visible()
    wait_for(lambda: any(run["kind"] == "ask" for run in server.get("/runs?text=orders")["items"]))

    def replayed() -> bool:
        page.goto(f"{server.url}/#/ask")
        page.reload()
        ask(page, "Orders by status?")
        expect(page.locator(".says")).to_be_visible()
        return page.locator(".strip").count() == 1

    wait_for(replayed)  # once the script of the first run is compiled
    expect(page.locator(".strip")).to_contain_text("0 tokens")
    expect(page.locator("a.num")).to_have_count(2)  # its figures still lead back
    page.get_by_role("button", name="Show SQL").click()
    expect(page.locator(".step pre")).to_contain_text("GROUP BY")
    expect(page.locator(".chart h3")).to_have_text("Orders by status")
    page.get_by_role("button", name="Ask afresh").click()
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".says")).to_have_count(2)
    expect(page.locator(".strip")).to_have_count(1)


def test_stop_is_there_while_it_works(visit: Visit) -> None:
    page = visit()
    ask(page, "talk slowly")
    expect(page.locator(".caret")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".line-note")).to_contain_text("Stopped by you")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_escape_stops_too(visit: Visit) -> None:
    page = visit()
    ask(page, "talk slowly again")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.locator("#composer").press("Escape")
    expect(page.locator(".line-note")).to_contain_text("Stopped by you")


def test_sending_while_it_works_steers(visit: Visit) -> None:
    page = visit()
    ask(page, "take your time")
    expect(page.get_by_role("button", name="Steer")).to_be_visible()
    page.locator("#composer").fill("only the year 2024")
    page.get_by_role("button", name="Steer").click()
    expect(page.locator(".turn .note").first).to_contain_text("You added: only the year 2024")
    expect(page.locator(".says")).to_have_text("I have read your direction.")


@pytest.mark.parametrize("by", ["click", "key", "words"])
def test_a_question_back_is_answered(visit: Visit, by: str) -> None:
    page = visit()
    ask(page, f"which year, by {by}")
    expect(page.locator(".question-back")).to_contain_text("Which year?")
    if by == "click":
        page.locator(".question-back").get_by_role("button", name="2024").click()
    elif by == "key":
        page.locator("#content").focus()
        page.keyboard.press("2")
    else:
        page.get_by_label("Answer in words").fill("2024")
        page.get_by_role("button", name="Answer").click()
    expect(page.locator(".says")).to_have_text("Then it is that year.")


def test_the_server_dies_in_the_middle_of_an_answer_and_comes_back(visit: Visit, tmp_path: Path) -> None:
    own = PageServer(tmp_path / "own")
    own.start()
    try:
        page = visit(at=own)
        ask(page, "tell a story")
        expect(page.locator(".caret")).to_be_visible()
        own.kill()
        expect(page.locator(".offline")).to_contain_text("The connection is lost")
        own.start()
        expect(page.locator(".offline")).to_have_count(0)
        expect(page.locator(".answer, .says").last).to_contain_text("the end")
        expect(page.locator(".turn")).to_have_count(1)
    finally:
        own.kill()


def test_a_second_tab_and_a_refresh_continue_the_stream(visit: Visit) -> None:
    page = visit()
    ask(page, "tell a story to two")
    expect(page.locator(".caret")).to_be_visible()
    second = visit(page.url.rpartition("/#")[2].join(["#", ""]))
    expect(second.locator(".caret")).to_be_visible()
    page.reload()
    expect(page.locator(".answer, .says").last).to_contain_text("the end")
    expect(second.locator(".answer, .says").last).to_contain_text("the end")


def test_sql_and_python_run_as_they_are_written(visit: Visit) -> None:
    page = visit()
    page.get_by_label("Data", exact=True).select_option("shop")
    write_code(page, "SQL", "SELECT 41 + 1 AS answer, NULL AS nothing")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("gridcell", name="42")).to_be_visible()
    expect(page.locator(".vgrid .null")).to_have_text("null")
    write_code(page, "Python", "print(6 * 7)")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".turn").last).to_contain_text("42")


def test_the_editor_completes_from_the_schema(visit: Visit) -> None:
    page = visit()
    page.get_by_label("Data", exact=True).select_option("shop")
    write_code(page, "SQL", "SELECT count(*) AS lines FROM ")
    page.keyboard.type("order_l")
    page.get_by_role("option", name="order_lines").click()
    editor = page.get_by_role("textbox", name="SQL to run")
    expect(editor).to_have_text("SELECT count(*) AS lines FROM order_lines")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("columnheader", name="lines")).to_be_visible()
    expect(editor).to_have_text("")


def test_a_million_rows_jump_sort_and_filter(visit: Visit) -> None:
    page = visit()
    ask(page, "SQL: SELECT * FROM large", "large")
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("gridcell", name="name 0", exact=True)).to_be_visible()
    grid.focus()
    page.keyboard.press("Control+End")
    expect(grid.get_by_role("gridcell", name=f"name {ROWS - 1}", exact=True)).to_be_visible()
    rows = grid.locator("[role=rowgroup] > [role=row]:not([hidden])")
    order = "rows => rows.map(row => Number(row.getAttribute('aria-rowindex')))"
    wait_for(lambda: (found := rows.evaluate_all(order)) == sorted(found))  # as readers of the document meet them
    grid.get_by_role("button", name=re.compile("^id")).click()
    expect(grid.get_by_role("columnheader", name="id")).to_have_attribute("aria-sort", "descending")
    expect(grid.locator('[role="row"][aria-rowindex="2"]')).to_contain_text(f"name {ROWS - 1}")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_label("Value", exact=True)).to_be_focused()
    page.get_by_label("Column").select_option("name")
    page.get_by_label("Comparison").select_option("eq")
    page.get_by_label("Value", exact=True).fill("name 777")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".grid-part .note").last).to_contain_text(f"1 of {ROWS:,} rows pass the filter")


def test_two_hundred_columns(visit: Visit) -> None:
    page = visit()
    ask(page, "SQL: SELECT " + ", ".join(f"{i} AS c{i}" for i in range(200)))
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("columnheader", name="c0 ")).to_be_visible()
    assert grid.get_by_role("columnheader").count() < 60  # only the visible ones exist
    grid.focus()
    page.keyboard.press("End")
    expect(grid.get_by_role("columnheader", name="c199")).to_be_visible()


def test_results_and_charts_are_saved_as_files(visit: Visit) -> None:
    page = visit(accept_downloads=True)
    ask(page, "orders by status for files")
    expect(page.locator(".bars")).to_be_visible()
    for name, begin in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"status,orders"), ("Parquet", b"PAR1")):
        with page.expect_download() as saving:
            page.locator(".pane").get_by_text(name, exact=True).click()
        assert Path(saving.value.path()).read_bytes().startswith(begin), name
        assert saving.value.suggested_filename.lower().startswith("orders-by-status"), name


def test_a_run_in_its_views(visit: Visit) -> None:
    page = visit()
    ask(page, "orders by status in views")
    expect(page.locator(".says")).to_be_visible()
    page.locator(".after").get_by_role("link", name="Run").click()
    views = page.get_by_role("navigation", name="Views of this run")
    views.get_by_role("link", name="Timeline").click()
    expect(page.locator(".waterfall .fr").nth(2)).to_be_visible()
    views.get_by_role("link", name="Log").click()
    expect(page.locator(".log")).to_contain_text("run.finished")
    page.locator(".log button").first.click()
    expect(page.locator("pre").last).to_contain_text('"type": "run.queued"')
    views.get_by_role("link", name="Script").click()
    expect(page.locator("pre code")).to_contain_text("etude")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_label("State").select_option("failed")
    expect(page.locator(".rows .st.good")).to_have_count(0)


def test_a_run_is_replayed_compared_and_exported(visit: Visit) -> None:
    page = visit(accept_downloads=True)
    for _ in range(2):
        page.goto(page.url.split("#")[0] + "#/ask")
        ask(page, "SQL: SELECT status, count(*) AS orders FROM orders GROUP BY status")
        expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    page.locator(".after").get_by_role("link", name="Run", exact=True).click()
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("region", name="Replayed")).to_contain_text("The step gave the recorded result")
    views = page.get_by_role("navigation", name="Views of this run")
    views.get_by_role("link", name="Compare").click()
    expect(page.locator(".cause")).to_contain_text("Nothing differs.")
    expect(page.locator(".detail")).to_contain_text("Both results hold the same rows.")
    with page.expect_download() as saving:
        page.get_by_role("link", name="Export").click()
    assert Path(saving.value.path()).read_bytes().startswith(b"PK")


def test_two_runs_differ_and_the_cause_is_named(visit: Visit, server: PageServer) -> None:
    runs = []
    for limit in (1, 2):
        text = f"SELECT status FROM orders GROUP BY status ORDER BY status LIMIT {limit}"
        runs.append(server.post("/runs", {"kind": "sql", "text": text, "dataset": "shop"})["id"])
        wait_for(lambda: server.get(f"/runs/{runs[-1]}/status")["status"] == "succeeded")
    page = visit(f"#/runs/{runs[1]}?view=compare&with={runs[0]}")
    expect(page.locator(".cause")).to_contain_text("The code changed.")
    expect(page.locator(".detail")).to_contain_text("0 rows are gone, 1 are new")
    expect(page.locator("td.now").last).to_have_text("completed")


def test_feedback_reaches_the_learning(visit: Visit, server: PageServer) -> None:
    page = visit()
    ask(page, "orders by status to judge")
    expect(page.locator(".says")).to_be_visible()
    page.get_by_role("button", name="Wrong", exact=True).click()
    page.get_by_label("What is wrong").fill("returns are missing")
    page.get_by_role("button", name="Say it is wrong").click()
    expect(page.locator(".feedback")).to_contain_text("Noted")
    page.reload()
    expect(page.get_by_role("button", name="Wrong", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".turn")).to_contain_text("Wrong: returns are missing")
    assert "returns are missing" in wait_for(lambda: server.get("/log")["items"])[0]["text"]


def test_an_action_is_copied_as_a_command(visit: Visit, server: PageServer) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    ask(page, "orders by status as a command")
    expect(page.locator(".says")).to_be_visible()
    page.get_by_role("button", name="Copy as curl").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert '"status"' in done.stdout and server.url in command


def test_branch_continues_from_a_message(visit: Visit) -> None:
    page = visit()
    ask(page, "orders by status to branch")
    expect(page.locator(".says")).to_be_visible()
    before = page.url
    page.get_by_role("button", name="Branch", exact=True).click()
    page.wait_for_url(lambda url: url != before)
    expect(page.locator(".turn")).to_have_count(1)


def test_an_agent_is_created_paused_steered_and_destroyed(visit: Visit) -> None:
    page = visit("#/agents/new")
    form = page.get_by_role("region", name="New agent")
    form.get_by_role("button", name="echo", exact=True).click()
    form.get_by_label("Name").fill("reporter")
    form.get_by_role("button", name="Create").click()  # the browser asks for the subject
    expect(form.get_by_label("Subject")).to_be_focused()
    form.get_by_label("Subject").fill("the weather")
    form.get_by_label("Interval").fill("60")
    form.get_by_role("button", name="Create").click()
    agent = page.get_by_role("region", name="reporter")
    expect(agent.get_by_role("list", name="Steps")).to_contain_text("the weather: worth another look")
    agent.get_by_role("button", name="Pause").click()
    expect(agent.locator(".facts")).to_contain_text("paus")
    agent.get_by_role("button", name="Resume").click()
    expect(agent.get_by_role("button", name="Pause")).to_be_visible()
    agent.get_by_label("Message").fill("the tides")
    agent.get_by_role("button", name="Send").click()
    expect(agent.get_by_role("list", name="Steps")).to_contain_text("the tides: worth another look")
    agent.get_by_role("button", name="Destroy…").click()
    expect(agent.get_by_role("alertdialog")).to_contain_text("stay recorded")
    agent.get_by_role("button", name="Destroy it").click()
    expect(agent.locator(".facts")).to_contain_text("destroy")


def test_an_agent_is_named_by_its_question_and_shows_its_last_value(visit: Visit) -> None:
    page = visit("#/agents/new")
    form = page.get_by_role("region", name="New agent")
    form.get_by_label("Source").select_option("shop")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("alert")).to_have_text("This agent cannot be created yet: give Question, SQL or Plan.")
    form.get_by_label("SQL").fill("SELECT 'tea' AS drink, 5 AS cups UNION ALL SELECT 'cocoa', 1234.5 ORDER BY 1 DESC")
    expect(form.get_by_label("How often")).to_have_value("3600")
    form.get_by_role("button", name="Create").click()
    row = page.locator(".cards tr.here")
    expect(row.locator("th")).to_contain_text("SELECT 'tea' AS drink")
    expect(row).to_contain_text("tea 5; cocoa 1,234.5")


def test_the_catalog_is_read_and_described(visit: Visit) -> None:
    page = visit("#/catalog/shop")
    expect(page.get_by_role("heading", name="How tables refer to each other")).to_be_visible()
    expect(page.locator(".diagram")).to_contain_text("order_lines")
    page.get_by_role("region", name="Tables", exact=True).get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("heading", name="Refers to")).to_be_visible()
    page.get_by_role("button", name="Describe").first.click()
    page.get_by_label("Description of orders").fill("What customers bought")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".description").first).to_contain_text("What customers bought")
    expect(page.get_by_role("region", name="Rows of orders").locator("tbody tr")).to_have_count(50)
    page.locator(".column", has_text="status").first.click()
    expect(page.locator(".column[open] .bars")).to_contain_text("completed")
    page.get_by_role("link", name="Ask about this table").click()
    expect(page.locator("#composer")).to_have_value("How many orders?")


SKILL = "---\nname: {name}\ndescription: Use when orders are counted.\n---\n\n1. Count each order once.\n{more}"


def test_a_draft_becomes_a_playbook_and_its_versions_are_compared(visit: Visit, server: PageServer) -> None:
    for name in ("count-once", "count-twice"):
        draft = server.home / "etude/playbooks/main/.drafts" / name / "SKILL.md"
        draft.parent.mkdir(parents=True)
        draft.write_text(SKILL.format(name=name, more=""))
    page = visit("#/learning")
    expect(page.get_by_role("heading", name="2 drafts wait for you")).to_be_visible()
    page.get_by_role("complementary").get_by_role("link", name="count-twice").click()
    page.get_by_role("button", name="Refuse…").click()
    page.get_by_label("Why it is refused").fill("an order is one order")
    page.get_by_role("button", name="Refuse it").click()
    expect(page.get_by_role("heading", name="1 draft waits for you")).to_be_visible()
    page.get_by_role("link", name="Decide").click()
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("heading", name="No certain effect yet")).to_be_visible()
    server.post("/playbooks", {"text": SKILL.format(name="count-once", more="2. Leave out no status.\n")})
    page.reload()
    page.get_by_role("button", name="What changed").first.click()
    expect(page.locator(".diff .add")).to_have_text(["2. Leave out no status."])
    page.get_by_role("button", name="Retire").click()
    expect(page.locator(".facts")).to_contain_text("retired")
    page.get_by_role("button", name="Bring back").click()
    expect(page.locator(".facts")).to_contain_text("pinned")


def test_an_edit_is_read_with_its_evidence_and_taken_back(visit: Visit, server: PageServer) -> None:
    changed = server.add_edit()
    assert "0.19" in changed.read_text()
    page = visit("#/learning")
    page.get_by_role("region", name="Edits").get_by_role("link", name="Use the rate of 19%").click()
    expect(page.get_by_role("heading", name="In the code now")).to_be_visible()
    evidence = page.get_by_role("table")
    expect(evidence.get_by_role("row", name=re.compile(r"^tests that pass \d"))).to_contain_text("50.0%100.0%")
    expect(evidence).to_contain_text("54.6")  # the e-value
    expect(page.locator(".diff .del")).to_have_text(["VAT = 0.07"])
    expect(page.locator(".diff .add")).to_have_text(["VAT = 0.19"])
    page.get_by_role("button", name="Take back…").click()
    page.get_by_label("Why it is taken back").fill("the tests were wrong")
    page.get_by_role("button", name="Take it back").click()
    expect(page.get_by_role("heading", name="Taken back")).to_be_visible()
    expect(page.locator(".line-note")).to_contain_text("the tests were wrong")
    expect(page.get_by_role("button", name="Take back…")).to_have_count(0)
    assert "0.07" in changed.read_text()


def test_everything_by_keyboard(visit: Visit) -> None:
    page = visit()
    expect(page.get_by_role("heading", name=re.compile("^Ask "))).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search everything")).to_be_focused()
    page.keyboard.type("runs")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Words of the question")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Search everything")).to_be_focused()
    page.keyboard.type("new thread")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^Ask "))).to_be_visible()
    page.keyboard.press("Tab")
    for _ in range(60):
        if page.evaluate("document.activeElement.id") == "composer":
            break
        page.keyboard.press("Tab")
    page.keyboard.type("which year by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator(".question-back")).to_be_visible()
    page.locator("#content").focus()
    page.keyboard.press("1")
    expect(page.locator(".says")).to_have_text("Then it is that year.")


def test_one_box_searches_everything(visit: Visit) -> None:
    page = visit("#/system")
    expect(page.get_by_role("heading", name="Working")).to_be_visible()
    page.keyboard.press("/")
    box = page.get_by_role("combobox", name="Search everything")
    box.fill("unit price")
    found = page.get_by_role("listbox", name="Found").get_by_role("option")
    expect(found.filter(has_text="order_lines.unit_price")).to_be_visible()
    expect(found.locator("mark").first).to_be_in_viewport()
    page.get_by_role("group", name="Only").get_by_role("button", name="Playbooks").click()
    expect(found.filter(has_text="order_lines.unit_price")).to_have_count(0)
    page.get_by_role("group", name="Only").get_by_role("button", name="Data").click()
    found.filter(has_text="order_lines.unit_price").click()
    expect(page.get_by_role("heading", name="order_lines")).to_be_visible()


def test_nothing_is_said_to_be_missing_before_the_search_has_ended(visit: Visit) -> None:
    page = visit("#/system")
    held: list[Any] = []
    page.route("**/api/search", lambda route: held.append(route))
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Search everything").fill("zzyzx")
    menu = page.get_by_role("dialog", name="Search everything")
    menu.get_by_role("button", name="Conversations").click()
    expect(menu).to_contain_text("Searching")
    wait_for(lambda: held or page.wait_for_timeout(50))
    expect(menu).not_to_contain_text("Nothing matches")
    held[0].continue_()
    expect(menu).to_contain_text("Nothing matches “zzyzx” among conversations.")


def test_the_system_view_shows_queue_workers_storage_and_retention(visit: Visit, server: PageServer) -> None:
    server.post("/sql", {"dataset": "shop", "query": "SELECT count(*) FROM orders"})
    page = visit("#/system")
    expect(page.get_by_role("region", name="Processes")).to_contain_text(server.url)
    expect(page.get_by_role("main")).to_contain_text("Actions of agents")
    expect(page.locator(".meters")).to_contain_text("Storage of main")
    expect(page.get_by_role("main")).to_contain_text("After 30 days")
    assert server.get("/spending")["seconds"] > 0


def test_a_phone_shows_what_was_asked_last(visit: Visit) -> None:
    page = visit(width=390)
    ask(page, "orders by status on a small screen")
    expect(page.locator(".turn .bars")).to_be_in_viewport()
    for number in range(4):
        ask(page, f"SQL: SELECT {number} AS number, 'row' AS name")
        expect(page.locator(".turn")).to_have_count(number + 2)
        expect(page.locator(".turn").last.locator(".says")).to_be_in_viewport()
    page.evaluate("scrollTo(0, 0)")
    ask(page, "orders by status on a small screen again")
    expect(page.locator(".turn").last.locator(".says")).to_be_in_viewport()
    expect(page.locator(".turn").last.locator(".bars")).to_be_in_viewport()
    opened = visit("#" + page.url.split("#")[1], width=390)
    expect(opened.locator(".turn").last.locator(".says")).to_be_in_viewport()
    opened.locator(".turn").last.get_by_role("button", name="Chart and 4 rows").click()
    expect(opened.get_by_role("gridcell", name="completed")).to_be_in_viewport()


def test_one_click_changes_the_theme(visit: Visit) -> None:
    page = visit()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: light. Switch to dark.").click()
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Theme: dark. Switch to light.").click()
    assert page.evaluate(ground) == light


def test_on_a_phone(visit: Visit) -> None:
    page = visit(width=390)
    ask(page, "orders by status on a phone")
    expect(page.locator(".says")).to_be_visible()
    expect(page.locator(".pane")).to_be_hidden()
    page.get_by_role("button", name=re.compile("^Result")).click()
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    for address in ("#/start", "#/ask", "#/runs", "#/agents/new", "#/catalog", "#/learning", "#/system"):
        page.goto(page.url.split("#")[0] + address)
        expect(page.locator("main")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_sign_in_and_a_role_without_rights(visit: Visit, guarded: PageServer) -> None:
    key = create_key(guarded, "eyes", "reader")
    page = visit(at=guarded)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Key").fill("wrong-key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#composer")).to_be_disabled()
    expect(page.locator("#composer")).to_have_attribute("placeholder", "Your key may read, not ask")
    page.get_by_role("link", name="Agents").click()
    expect(page.get_by_role("link", name="New agent")).to_have_count(0)
    page.goto(guarded.url + "/#/start")
    expect(page.get_by_role("button", name="Choose files")).to_be_disabled()
    expect(page.get_by_label("Database URL")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_text_of_a_model_is_never_run(visit: Visit) -> None:
    page = visit()
    ask(page, "markup")
    expect(page.locator(".turn")).to_contain_text("Hello")
    assert page.evaluate("window.bad === undefined")
    assert page.locator(".turn script, .turn img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(visit: Visit, server: PageServer, scheme: str) -> None:
    edit = f"edit_{scheme}"
    server.add_edit(edit)
    page = visit(scheme=scheme)
    ask(page, f"orders by status in {scheme}")
    expect(page.get_by_role("gridcell", name="completed")).to_be_visible()
    axe = (UI / "node_modules/axe-core/axe.min.js").read_text()
    thread = page.url.split("#")[1]
    run = page.locator(".after").get_by_role("link", name="Run").get_attribute("href") or ""
    runs = [f"{run}?view={view}" for view in ("answer", "timeline", "log", "result", "script", "compare")]
    for address in (
        f"#{thread}",
        "#/start",
        "#/ask",
        "#/runs",
        *runs,
        "#/agents/new",
        "#/catalog/shop/orders",
        "#/learning",
        f"#/learning/edits/{edit}",
        "#/system",
    ):
        page.goto(page.url.split("#")[0] + address)
        expect(page.locator("main").first).to_be_visible()
        page.wait_for_load_state("networkidle")
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
        told = [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found]
        assert told == [], address


def test_files_of_the_page_are_kept_for_ever_and_the_page_is_not(server: PageServer) -> None:
    page = httpx.get(server.url + "/")
    assert page.headers["cache-control"] == "no-cache"
    name = re.findall(r'src="(/assets/[^"]+)"', page.text)[0]
    script = httpx.get(server.url + name)
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-type"].startswith("text/javascript")
    for wrong in ("/assets/../index.html", "/assets/%2e%2e/index.html", "/assets/nothing.js"):
        assert httpx.get(server.url + wrong).status_code == 404
