"""The flow of a catalog, with real sources, real sessions and a real object store; only the model plays a script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

import etude
from etude.app import App
from etude.catalog.cataloger import CatalogMetrics, CatalogResult
from etude.catalog.model import from_json, to_json
from etude.catalog.storage.annotations import Annotations
from etude.catalog.storage.catalog_store import CatalogStore
from etude.entities import RunFilter, SourceSpec
from etude.errors import Invalid, NotFound
from etude.models.base import ModelRequest
from etude.models.scripted import Line, Scripted, ScriptedCall
from etude.runtime.run_control import RunControl
from etude.store.objects import Objects

NAMES = (
    "catalog.html",
    "catalog_script.py",
    "recent_summary.html",
    "summary_script.py",
    "catalog.json",
    "changes.json",
    "metrics.json",
)
SHOP = (
    "CREATE TABLE customers AS SELECT i AS id, 'c' || i || '@example.com' AS email FROM range(200) t(i)",
    "CREATE TABLE orders AS SELECT i AS id, i % 200 AS customer_id, DATE '2024-01-01' + (i % 300)::INT AS day, "
    "i * 1.5 AS amount FROM range(2000) t(i)",
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write(tmp_path / "shop.duckdb", *SHOP)


def write(path: Path, *statements: str) -> Path:
    """Run statements on a database that may be in use: on a copy, which then takes its place."""
    copy = path.with_suffix(".new")
    if path.exists():
        shutil.copy(path, copy)
    with duckdb.connect(copy) as db:
        for statement in statements:
            db.execute(statement)
    os.replace(copy, path)
    return path


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "shelf")


def read(made: CatalogResult, name: str) -> bytes:
    return (Path(made.url) / name).read_bytes()


def same(one: bytes, other: bytes) -> bool:
    return to_json(from_json(one)) == to_json(from_json(other))


def test_a_catalog_is_made_by_scripts_in_a_session_and_kept_with_them(app: App, shop: Path, place: str) -> None:
    lines: list[str] = []
    made = app.cataloger.run(str(shop), store=place, prefix="customer/orders", on_progress=lines.append)
    assert Path(made.url).parent == Path(place) / "customer" / "orders"
    assert {p.name for p in Path(made.url).iterdir()} == set(NAMES)
    profile = from_json(read(made, "catalog.json"))
    assert [(t.name, t.rows) for t in profile.tables] == [("customers", 200), ("orders", 2000)]
    assert b"customer_id" in read(made, "catalog.html") and b"orders" in read(made, "recent_summary.html")
    assert "0/2 customers" in lines
    metrics = CatalogMetrics.model_validate_json(read(made, "metrics.json"))
    assert metrics.model_calls == 0 and metrics.tokens_in == 0 and metrics.errors == ()
    assert metrics.cells > 5 and metrics.queries > 1 and metrics.rows_read >= 2200 and metrics.seconds > 0
    run = app.store.run(made.run_id)
    assert (run.kind, run.status, run.source) == ("catalog", "succeeded", "shop")
    assert run.code == read(made, "catalog_script.py").decode()
    queries = [s for s in run.steps if s.kind == "sql"]
    assert len(queries) == metrics.queries
    assert all(s.result is not None and s.artifact is None for s in queries), "rows are not kept"
    pages = {a.hash for a in run.artifacts if a.media == "text/html"}
    assert metrics.stored.files["catalog.html"].sha256 in pages


def test_a_second_run_plays_what_worked_and_gives_the_same(app: App, shop: Path, place: str) -> None:
    first = app.cataloger.run(str(shop), store=place)
    second = app.cataloger.run(str(shop), store=place)
    assert second.metrics.model_calls == 0
    assert second.changes == ()
    assert same(read(first, "catalog.json"), read(second, "catalog.json"))
    assert read(first, "catalog_script.py") == read(second, "catalog_script.py")
    lineage = second.metrics.lineage["catalog_script.py"]
    assert (lineage.origin, lineage.previous) == ("run", Path(first.url).name)
    assert second.metrics.stored.history == (Path(first.url).name,)


def test_what_changed_leads_the_summary(app: App, shop: Path, place: str) -> None:
    app.cataloger.run(str(shop), store=place)
    write(shop, "DROP TABLE customers", "ALTER TABLE orders ADD COLUMN channel VARCHAR")
    made = app.cataloger.run(str(shop), store=place)
    assert {c.kind for c in made.changes} >= {"table-removed", "column-added"}
    assert b"customers" in read(made, "recent_summary.html")
    assert made.metrics.changes == len(made.changes)


def test_the_scripts_run_alone(app: App, shop: Path, place: str, tmp_path: Path) -> None:
    """In an empty folder, as any Python file: the same catalog, and the summary of what is recent."""
    (tmp_path / "shop.etude.yaml").write_text("tables: {orders: {description: One row per order.}}")
    app.cataloger.run(str(shop), store=place)
    made = app.cataloger.run(str(shop), store=place)
    folder = tmp_path / "alone"
    folder.mkdir()
    environment = os.environ | {"ETUDE_SOURCE": str(shop), "ETUDE_HOME": str(tmp_path / "other-home")}
    for name in ("catalog_script.py", "summary_script.py"):
        (folder / name).write_bytes(read(made, name))
        subprocess.run(
            [sys.executable, name], cwd=folder, env=environment, check=True, capture_output=True, timeout=120
        )
    assert same((folder / "catalog.json").read_bytes(), read(made, "catalog.json"))
    assert "One row per order." in (folder / "catalog.html").read_text()
    assert "What is new" in (folder / "recent_summary.html").read_text()


def test_the_summary_script_alone_tells_what_changed(app: App, shop: Path, place: str, tmp_path: Path) -> None:
    first = app.cataloger.run(str(shop), store=place)
    write(shop, "DROP TABLE customers")
    made = app.cataloger.run(str(shop), store=place)
    folder = tmp_path / "alone"
    folder.mkdir()
    for name in ("catalog.json", "summary_script.py"):
        (folder / name).write_bytes(read(made, name))
    (folder / "earlier.jsonl").write_bytes(read(first, "catalog.json"))
    environment = os.environ | {"ETUDE_SOURCE": str(shop), "ETUDE_HOME": str(tmp_path / "other-home")}
    command = [sys.executable, "summary_script.py"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=120)
    assert (folder / "recent_summary.html").read_bytes() == read(made, "recent_summary.html")


def test_only_the_tables_asked_for(app: App, shop: Path, place: str) -> None:
    app.cataloger.run(str(shop), store=place)
    made = app.cataloger.run(str(shop), store=place, tables=["ORDERS"])
    assert [t.name for t in made.profile.tables] == ["orders"]
    assert made.changes == (), "other tables were not asked for, they are not gone"
    assert app.cataloger.run(str(shop), store=place).changes == ()
    with pytest.raises(NotFound, match="`order`"):
        app.cataloger.run(str(shop), store=place, tables=["order"])


def test_a_table_that_fails_is_reported_and_the_rest_goes_on(app: App, tmp_path: Path, place: str) -> None:
    path = write(
        tmp_path / "broken.duckdb", *SHOP, "CREATE VIEW bad AS SELECT CAST('out of order' AS INTEGER) AS x FROM orders"
    )
    made = app.cataloger.run(str(path), store=place)
    assert [t.name for t in made.profile.tables if t.plan == "failed"] == list(made.metrics.stored.failed) == ["bad"]
    assert "out of order" in made.metrics.errors[0]
    assert made.profile.table("orders") is not None
    assert "bad" in read(made, "catalog.html").decode()


def test_a_script_that_no_longer_runs_gives_way_to_etudes_own(app: App, shop: Path, place: str) -> None:
    """Whoever can write to the store can put a script there: it runs in the sandbox, and its page is not taken."""
    first = app.cataloger.run(str(shop), store=place, prefix="shop")
    catalog_store = CatalogStore(Objects(place), "shop")
    evil = "import etude\n\ndb = etude.connect()\n\n# %%\netude.save('catalog.html', '<script>evil</script>')\n1 / 0\n"
    files = {n: read(first, n) for n in NAMES if n != "metrics.json"} | {"catalog_script.py": evil.encode()}
    later = first.metrics.stored.model_copy(update={"name": "20990101T000000.000000Z-00000000"})
    kept = first.metrics.model_copy
    catalog_store.publish(later, files, lambda run: kept(update={"stored": run}).model_dump_json().encode())
    made = app.cataloger.run(str(shop), store=place, prefix="shop")
    assert made.metrics.lineage["catalog_script.py"].origin == "generator"
    assert "ZeroDivisionError" in made.metrics.errors[0]
    assert b"evil" not in read(made, "catalog.html")
    assert catalog_store.latest() == made.metrics.stored, "though the clock is behind what it follows"


def test_a_missing_script_is_looked_for_in_the_runs_before(app: App, shop: Path, place: str) -> None:
    first = app.cataloger.run(str(shop), store=place)
    second = app.cataloger.run(str(shop), store=place)
    (Path(second.url) / "catalog_script.py").unlink()
    third = app.cataloger.run(str(shop), store=place)
    assert third.metrics.lineage["catalog_script.py"].previous == Path(first.url).name


def test_a_new_database_starts_from_what_worked_for_its_kind(app: App, shop: Path, place: str, tmp_path: Path) -> None:
    app.cataloger.run(str(shop), store=place, tables=["orders"])
    assert (Path(place) / "_scripts" / "duckdb_catalog_script.py").exists()
    other = write(tmp_path / "other.duckdb", "CREATE TABLE things AS SELECT 1 AS id")
    made = app.cataloger.run(str(other), store=place)
    assert made.metrics.lineage["catalog_script.py"].origin == "dialect"
    assert [t.name for t in made.profile.tables] == ["things"]


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_other_kinds_of_sources(
    app: App, request: pytest.FixtureRequest, tmp_path: Path, place: str, kind: str
) -> None:
    statements = ["CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"]
    if kind == "postgres":
        import psycopg

        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())
    else:
        import sqlite3

        url = str(tmp_path / "data.sqlite")
        connection = sqlite3.connect(url)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
    first = app.cataloger.run(url, store=place, prefix="it")
    second = app.cataloger.run(url, store=place, prefix="it")
    assert [(t.name, t.rows) for t in second.profile.tables] == [("t", 2)]
    assert second.metrics.lineage["catalog_script.py"].origin == "run"
    assert same(read(first, "catalog.json"), read(second, "catalog.json"))
    assert (Path(place) / "_scripts" / f"{kind}_catalog_script.py").exists()


def test_on_a_real_s3_server_many_at_once(app: App, shop: Path, s3_server: Any, tmp_path: Path) -> None:
    """Three whole runs on one prefix at the same time: each is complete, the newest is the latest."""
    settings = etude.Settings.model_validate(
        {"home": tmp_path / "home", "catalog": {"store": s3_server.url, "store_options": s3_server.options}}
    )
    prefix = f"customer/{uuid4().hex}"
    made: list[CatalogResult] = []
    with App(settings) as own:
        own.source(str(shop)).catalog()
        threads = [
            threading.Thread(target=lambda: made.append(own.cataloger.run(str(shop), prefix=prefix))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 3
        catalog_store = CatalogStore(Objects(s3_server.url, **s3_server.options), prefix)
        latest = catalog_store.latest()
        assert latest is not None and latest.name == max(m.metrics.stored.name for m in made)
        for each in made:
            for name in NAMES:
                assert catalog_store.read(each.metrics.stored, name)
        assert own.cataloger.run(str(shop), prefix=prefix).metrics.lineage["catalog_script.py"].previous == latest.name


# With a model.


def cell(code: str) -> Line:
    return Line(calls=(ScriptedCall(name="execute_python", arguments={"code": code}),))


DESCRIBE = """from etude.catalog.storage.annotations import annotate
from etude.catalog.storage.catalog_files import save_catalog
profile = annotate(profile, {"tables": {"orders": {"description": "Orders, says the model."}}})
save_catalog(profile)"""


def test_a_model_improves_the_script_and_is_not_asked_again(app: App, shop: Path, place: str) -> None:
    model = Scripted([cell(DESCRIBE), Line(text="I described the orders.")], name="scripted")
    first = app.cataloger.run(str(shop), store=place, model=model)
    assert first.metrics.model_calls == 2 and first.metrics.tokens_in > 0
    shown = shown_to(model.seen[0])
    assert "previous_script (catalog_script.py)" in shown and "profile_source(db, TABLES" in shown
    assert "`orders` is new" in shown
    orders = first.profile.table("orders")
    assert orders is not None and orders.description == "Orders, says the model."
    script = read(first, "catalog_script.py").decode()
    assert DESCRIBE in script and script.count("etude.connect()") == 1
    lineage = first.metrics.lineage["catalog_script.py"]
    assert (lineage.origin, lineage.improved_by) == ("generator", "scripted")
    changed = read(first, "catalog_script.diff").decode()
    reasons = [line for line in changed.splitlines() if line.startswith("# ")]
    assert any("`orders` is new" in line for line in reasons) and changed.startswith("# ")
    assert "+profile = annotate(profile" in changed and "+db = etude.connect()" not in changed
    child = app.store.run(lineage.agent_run or "")
    assert (child.kind, child.parent, child.status) == ("catalog", first.run_id, "succeeded")

    asked = Scripted([], name="nobody")
    second = app.cataloger.run(str(shop), store=place, model=asked)
    assert not asked.seen and second.metrics.model_calls == 0
    assert same(read(first, "catalog.json"), read(second, "catalog.json"))
    assert read(second, "catalog_script.py").decode() == script
    assert "catalog_script.diff" not in second.files
    assert second.metrics.lineage["catalog_script.py"].previous == Path(first.url).name


def test_the_previous_script_reaches_the_model_when_something_changed(app: App, shop: Path, place: str) -> None:
    app.cataloger.run(str(shop), store=place, model=Scripted([cell(DESCRIBE), Line(text="Done.")], name="one"))
    like = "CREATE TABLE orders_2025 AS SELECT * FROM orders"
    write(shop, like)
    better = DESCRIBE.replace("orders", "orders_2025").replace("Orders, says", "More orders, says")
    model = Scripted([cell(better), Line(text="Done."), Line(text="Nothing to add.")], name="two")
    made = app.cataloger.run(str(shop), store=place, model=model)
    shown = shown_to(model.seen[0])
    assert "Orders, says the model." in shown, "the previous script"
    assert "`orders_2025` is new" in shown and "`customers` is new" not in shown
    assert "`orders_2025` is similar to `orders`" in shown
    descriptions = {t.name: t.description for t in made.profile.tables}
    assert descriptions["orders"] == "Orders, says the model."
    assert descriptions["orders_2025"] == "More orders, says the model."
    lineage = made.metrics.lineage["catalog_script.py"]
    assert (lineage.origin, lineage.improved_by) == ("run", "two")
    assert "summary_script.py" in "".join(shown_to(seen) for seen in model.seen), "the table is news for the summary"


def test_a_model_that_fails_costs_no_catalog(app: App, shop: Path, place: str) -> None:
    model = Scripted([Line(error="out of order")], name="broken")
    made = app.cataloger.run(str(shop), store=place, model=model)
    assert "out of order" in made.metrics.errors[0]
    assert made.metrics.lineage["catalog_script.py"].improved_by is None
    assert same(read(made, "catalog.json"), read(app.cataloger.run(str(shop), store=place), "catalog.json"))


def test_a_script_that_ran_only_in_its_session_is_not_kept(app: App, shop: Path, place: str) -> None:
    """A cell that fails leaves a name behind, which the cells after it use: alone they would not run."""
    turns = [cell("left = 1\n1 / 0"), cell(f"left\n{DESCRIBE}"), Line(text="Done.")]
    made = app.cataloger.run(str(shop), store=place, model=Scripted(turns, name="sloppy"))
    assert "fails in a new session" in made.metrics.errors[0]
    assert "left" not in read(made, "catalog_script.py").decode()


def test_what_a_model_hands_out_is_checked(app: App, shop: Path, place: str) -> None:
    lies = """import etude
etude.save("catalog.json", profile.model_copy(update={"source": "other", "fingerprint": "x"}).model_dump_json())
etude.save("catalog.html", "<script>evil</script>")"""
    turns = [
        cell("import etude; etude.save('catalog.json', 'nonsense')"),
        Line(text="Done."),
        cell(lies),
        Line(text="Now."),
    ]
    model = Scripted(turns, name="liar")
    made = app.cataloger.run(str(shop), store=place, model=model)
    assert "`catalog.json`: it is not valid JSON" in shown_to(model.seen[2])
    assert made.profile.source == "shop" and made.profile.fingerprint != "x"
    assert b"evil" not in read(made, "catalog.html")


def shown_to(request: ModelRequest) -> str:
    return "\n".join(getattr(u, "text", "") for u in request.conversation)


# Stopping.


def test_a_cancelled_catalog_leaves_nothing(app: App, shop: Path, place: str) -> None:
    control = RunControl()
    with pytest.raises(etude.errors.Cancelled):
        app.cataloger.run(str(shop), store=place, on_progress=lambda _: control.cancel(), control=control)
    run = app.store.runs(RunFilter(kind="catalog"), limit=1).items[0]
    assert run.status == "cancelled"
    assert not list(Path(place).rglob("*.json"))


def test_one_in_the_background_can_be_cancelled(app: App, tmp_path: Path) -> None:
    path = write(tmp_path / "slow.duckdb", "CREATE VIEW slow AS SELECT count(*) AS n FROM range(100000000000000)")
    run_id = app.cataloger.start(str(path))
    for entry in app.runs.follow(run_id):
        if entry.event.type == "step.started" and entry.event.kind == "sql":
            app.runs.cancel(run_id)
    assert app.store.run(run_id).status == "cancelled"


# For others.


def test_a_profile_is_measured_once_for_the_same_data(tmp_path: Path, shop: Path) -> None:
    with App(home=tmp_path / "home") as app:
        assert app.known_profile(str(shop)) is None
        made = app.profile(str(shop))
        again = app.profile(str(shop))
        assert again == made and app.known_profile(str(shop)) == made
        write(shop, "INSERT INTO customers VALUES (1000, 'x')")
        assert app.known_profile(str(shop)) is None
        customers = app.profile(str(shop)).table("customers")
        assert customers is not None and customers.rows == 201


def test_a_profile_comes_from_the_latest_catalog(tmp_path: Path, shop: Path) -> None:
    with App(home=tmp_path / "one", objects=str(tmp_path / "objects")) as app:
        made = app.cataloger.run(str(shop))
    with App(home=tmp_path / "two", objects=str(tmp_path / "objects")) as app:
        assert app.known_profile(str(shop)) == made.profile


def test_what_people_say_outlives_runs(app: App, tmp_path: Path) -> None:
    path = write(tmp_path / "store.duckdb", *SHOP)
    (tmp_path / "store.etude.yaml").write_text(
        "owner: the shop\ntables:\n  orders:\n    description: From the file.\n    columns: {day: The day of it.}\n"
    )
    app.add_source("store", SourceSpec(url=str(path)))
    said = {"tables": {"orders": {"owner": "ann", "tags": ["core"], "columns": {"amount": {"tags": ["money"]}}}}}
    app.annotate("store", Annotations.model_validate(said))
    for made in (app.cataloger.run("store"), app.cataloger.run("store")):
        orders, customers = made.profile.table("orders"), made.profile.table("customers")
        assert orders is not None and customers is not None
        assert (orders.description, orders.owner, orders.tags) == ("From the file.", "ann", ("core",))
        assert customers.owner == "the shop"
        assert orders.column("day").description == "The day of it."  # type: ignore[union-attr]
        assert orders.column("amount").tags == ("money",)  # type: ignore[union-attr]
        assert "From the file." in read(made, "catalog.html").decode()
    assert app.profile("store") == made.profile
    app.annotate("store", Annotations.model_validate({"tables": {"orders": {"description": None}}}))
    assert app.profile("store").table("orders").description is None  # type: ignore[union-attr]


def test_a_wrong_file_of_annotations_is_named(tmp_path: Path, shop: Path, app: App) -> None:
    (tmp_path / "shop.etude.yaml").write_text("tables: {orders: {descripton: x}}")
    with pytest.raises(Invalid, match="descripton"):
        app.annotations(str(shop))


# Files of a session.


@pytest.fixture
def python(app: App, shop: Path) -> Iterator[Callable[[str], Any]]:
    with app.open_session(str(shop)) as session:

        def run(code: str) -> Any:
            done = session.execute(code)
            return session.files if done.ok else done.error

        yield run


def test_a_session_hands_out_files_that_its_run_keeps(app: App, shop: Path) -> None:
    with app.open_session(str(shop)) as session:
        done = session.execute("import etude\netude.save('a.html', '<p>é')\netude.save('b.bin', bytes(9_000_000))")
        assert done.ok, done.error
        assert session.files == {"a.html": "<p>é".encode(), "b.bin": bytes(9_000_000)}
        session.reset()
        assert (
            session.execute("import etude\nlen(etude.load('b.bin')), etude.load('a.html')[:3]").text
            == "(9000000, b'<p>')"
        )
        assert session.execute("etude.save('empty', '')\netude.load('empty')").text == "b''"
    run = app.store.run(app.store.runs(limit=3).items[-1].id)
    kept = {a.media: app.objects.get(a.hash) for a in run.artifacts}
    assert kept["text/html"] == "<p>é".encode() and len(kept["application/octet-stream"]) == 9_000_000


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", ".hidden", "a/b", "x" * 101, "a\\nb", 1])
def test_a_file_has_a_plain_name(python: Callable[[str], Any], name: object, tmp_path: Path, monkeypatch: Any) -> None:
    assert "is not a valid file name" in python(f"import etude\netude.save({name!r}, 'x')")["message"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid):
        etude.save(name, "x")  # type: ignore[arg-type]
    with pytest.raises(Invalid):
        etude.load(name)  # type: ignore[arg-type]


def test_a_session_hands_out_no_more_than_it_may(python: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    many = python("import etude\nfor n in range(100): etude.save(f'f{n}', 'x')")
    assert "64 files" in many["message"]
    monkeypatch.setattr("etude.runtime.broker.FILE_BYTES", 1000)
    assert "1,000 bytes of files" in python("etude.save('f1', bytes(1001))")["message"]


def test_a_script_alone_saves_and_loads_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    etude.save("a.txt", "é")
    assert etude.load("a.txt") == "é".encode()
    assert os.listdir(tmp_path) == ["a.txt"]
    with pytest.raises(NotFound):
        etude.load("b.txt")
