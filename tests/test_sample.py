from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from etude.sample import SPOILED, spoil_sample_orders, write_shop
from etude.sources.files.load import discover, load


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder)
    return folder


@pytest.fixture(scope="module")
def tables(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("out")
    loaded = [t for f in discover(str(shop)) for t in load(f, out / f.fingerprint)]
    return {t.table: f"'{t.path}'" for t in loaded}


def test_the_shop_is_small_and_the_same_each_time(shop: Path, tmp_path: Path) -> None:
    write_shop(tmp_path)
    files = {p.name: p.read_bytes() for p in shop.iterdir()}
    assert files == {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert sorted(files) == ["customers.csv", "order_lines.parquet", "orders.csv", "products.json"]
    assert sum(map(len, files.values())) < 2_000_000


def test_a_bad_import_adds_orders_and_leaves_the_others_as_they_were(shop: Path, tmp_path: Path) -> None:
    write_shop(tmp_path)
    spoil_sample_orders(tmp_path)
    before, after = ((folder / "orders.csv").read_bytes() for folder in (shop, tmp_path))
    assert after.startswith(before)
    late = [line.split(",") for line in after[len(before) :].decode().splitlines()]
    assert len(late) == SPOILED and {line[4] for line in late} == {""}
    assert len({line[0] for line in late}) == SPOILED


def test_another_seed_is_another_shop(shop: Path, tmp_path: Path) -> None:
    write_shop(tmp_path, seed=8)
    assert (tmp_path / "orders.csv").read_bytes() != (shop / "orders.csv").read_bytes()


def test_its_keys_join(tables: dict[str, str]) -> None:
    query = """
        SELECT count(*), count(c.customer_id), count(p.product_id), count(DISTINCT c.country)
        FROM {order_lines} l JOIN {orders} o USING (order_id)
        LEFT JOIN {customers} c USING (customer_id) LEFT JOIN {products} p USING (product_id)
    """
    ((joined, customers, products, countries),) = duckdb.sql(query.format(**tables)).fetchall()
    assert joined == customers == products > 5_000
    assert countries == 7


def test_it_grows_and_peaks_before_christmas(tables: dict[str, str]) -> None:
    orders = tables["orders"]
    years = duckdb.sql(f"SELECT count(*) FROM {orders} GROUP BY year(ordered) ORDER BY year(ordered)").fetchall()
    assert len(years) == 2
    assert years[1][0] > 1.2 * years[0][0]
    best = duckdb.sql(f"SELECT month(ordered) FROM {orders} GROUP BY 1 ORDER BY count(*) DESC LIMIT 1").fetchall()
    assert best == [(12,)]


def test_its_dirt_is_found_and_said(shop: Path, tmp_path: Path) -> None:
    said = {f.table: load(f, tmp_path)[0].report.summary() for f in discover(str(shop))}
    assert said == {
        "customers": [
            "Column `joined` is text: mixed: 2 of 601 values are not dates ('2025-02-30', '2024-06-31'), kept as text.",
            "Column `city` is text: 26 of 601 values have spaces around ('München ', 'Lyon ', 'Austin ', ...), kept.",
        ],
        "order_lines": [],
        "orders": [
            "Column `amount` is DOUBLE: 4 of 3,703 values were null markers ('n/a').",
            "1 row with too few fields (line 2001): the missing ones are null.",
        ],
        "products": [],
    }


def test_it_holds_an_orphan_a_twin_and_a_product_nobody_bought(tables: dict[str, str]) -> None:
    def count(query: str) -> int:
        return int(duckdb.sql(query.format(**tables)).fetchall()[0][0])

    assert count("SELECT count(*) FROM {order_lines} WHERE order_id NOT IN (SELECT order_id FROM {orders})") == 1
    assert count("SELECT count(*) FROM {products} WHERE product_id NOT IN (SELECT product_id FROM {order_lines})") == 1
    assert count("SELECT count(*) - count(DISTINCT lower(email)) FROM {customers} WHERE email IS NOT NULL") == 1
    assert count("SELECT count(*) FROM {customers} WHERE email IS NULL") == 35
    assert count("SELECT count(*) FROM {customers} WHERE city <> trim(city)") > 10
