"""Correlations: columns that rise together are found, chance and keys are not."""

from __future__ import annotations

from pathlib import Path

import duckdb

import etude
from etude.app import App
from etude.catalog.measure.profile import profile_source


def test_related_columns_are_found_and_unrelated_ones_are_not(app: App, tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "shop.duckdb") as db:
        db.execute(
            "CREATE TABLE parcels AS SELECT i AS id, w AS weight, exp(w) AS postage, "
            "100 - w + (i * 31 % 97) / 100.0 AS room, i * 613 % 331 AS noise "
            "FROM (SELECT range AS i, (range * 7919 % 1000) / 100.0 AS w FROM range(2000))"
        )
    with etude.connect(tmp_path / "shop.duckdb", app=app) as db:
        found = profile_source(db).tables[0].correlations
    assert [c.columns for c in found] == [("weight", "postage"), ("postage", "room"), ("weight", "room")]
    assert found[0].coefficient == 1.0, "by rank: the exponential function rises too"
    assert all(-1 <= c.coefficient < -0.9 for c in found[1:])
    assert all(c.rows == 2000 and c.provenance.method == "exact" for c in found)
