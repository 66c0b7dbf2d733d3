"""Two tenants with a source of one name, and catalogs below one prefix: neither sees anything of the other's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.catalog.storage.annotations import Annotations
from etude.catalog.storage.catalog_folder import catalog_folder, open_catalog_root_folder
from etude.catalog.storage.catalog_store import CatalogStore
from etude.entities import SourceSpec
from etude.errors import Invalid

OURS = ("CREATE TABLE zebra_orders AS SELECT range AS id, 'zebra ' || range % 3 AS kind FROM range(30)",)
THEIRS = ("CREATE TABLE visits AS SELECT range AS id, range % 4 AS page FROM range(40)",)


@pytest.fixture(params=["main", "ours"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[App, App]]:
    """Us, once as the first tenant and once as another, and them; each with a source `shop` of their own."""
    (tmp_path / "said").mkdir()
    catalog = {"annotations": str(tmp_path / "said"), "store": str(tmp_path / "shelf")}
    with App(home=tmp_path / "home", catalog=catalog) as app:
        tenants = app.scoped(request.param), app.scoped("theirs")
        for tenant, statements in zip(tenants, (OURS, THEIRS)):
            path = tmp_path / f"{tenant.tenant}.duckdb"
            with duckdb.connect(path) as db:
                for statement in statements:
                    db.execute(statement)
            tenant.add_source("shop", SourceSpec(url=str(path)))
        yield tenants


def test_runs_scripts_and_history_are_those_of_the_tenant(pair: tuple[App, App], tmp_path: Path) -> None:
    us, them = pair
    first = us.cataloger.run("shop", prefix="team/shop")
    # What worked for a kind of database is offered to the next one: of the same tenant only.
    objects, root = open_catalog_root_folder(us)
    script = "print('zebra')\n" + (Path(first.url) / "catalog_script.py").read_text()
    CatalogStore(objects, "team/shop", root).keep_script("duckdb", "catalog_script.py", script)
    made = them.cataloger.run("shop", prefix="team/shop")
    assert made.metrics.lineage["catalog_script.py"].origin == "generator"
    assert made.changes == () and made.metrics.stored.history == ()
    assert Path(first.url).parent != Path(made.url).parent
    for file in Path(made.url).iterdir():
        assert b"zebra" not in file.read_bytes(), file.name
    again = us.cataloger.run("shop", prefix="team/other")
    assert again.metrics.lineage["catalog_script.py"].origin == "dialect", "our own is offered to us"


def test_profiles_are_those_of_the_tenant(pair: tuple[App, App]) -> None:
    us, them = pair
    us.cataloger.run("shop")
    assert us.known_profile("shop") is not None
    assert them.known_profile("shop") is None
    assert [t.name for t in them.profile("shop").tables] == ["visits"]
    assert [t.name for t in us.profile("shop").tables] == ["zebra_orders"]


def test_what_people_say_is_said_in_the_tenant(pair: tuple[App, App], tmp_path: Path) -> None:
    us, them = pair
    us.annotate("shop", Annotations.model_validate({"tables": {"visits": {"description": "zebra"}}}))
    assert them.annotations("shop") == {}
    # The folder of the settings is the first tenant's, with a folder for each of the others.
    (tmp_path / "said" / "shop.etude.yaml").write_text("owner: zebra\n")
    assert "owner" not in them.annotations("shop")
    (tmp_path / "said" / "tenants" / "theirs").mkdir(parents=True)
    (tmp_path / "said" / "tenants" / "theirs" / "shop.etude.yaml").write_text("owner: lion\n")
    assert them.annotations("shop")["owner"] == "lion"
    assert us.annotations("shop").get("owner") == ("zebra" if us.tenant == "main" else None)


def test_no_prefix_leads_to_another_tenant(pair: tuple[App, App]) -> None:
    us, them = pair
    ours = us.cataloger.run("shop", prefix="team/shop")
    below = Path(ours.url).parent
    for prefix in (str(below).lstrip("/"), f"tenants/{us.tenant}/team/shop", f"../{us.tenant}/team/shop", "_scripts"):
        try:
            made = them.cataloger.run("shop", prefix=prefix)
        except Invalid:
            continue
        assert "/tenants/theirs/" in made.url and made.metrics.stored.history == (), prefix
    assert {run.name for run in below.iterdir()} == {Path(ours.url).name, "latest.json"}


@pytest.mark.parametrize("name", ["tenants", "_2024"])
def test_a_source_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.duckdb"
    with duckdb.connect(path) as db:
        db.execute(OURS[0])
    with App(home=tmp_path / "home") as app:
        unnamed = app.cataloger.run(str(path))
        app.add_source(name, SourceSpec(url=str(path)))
        named = app.cataloger.run(name)
        assert app.known_profile(name) is not None and named.url != unnamed.url
        app.annotate(name, Annotations(owner="us"))
        assert app.annotations(name)["owner"] == "us"
        assert catalog_folder(app, app.source(name)) in named.url
