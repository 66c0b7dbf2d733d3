"""Real databases, where they are at hand: statistics against plain SQL, inferred keys against declared ones."""

from __future__ import annotations

import pytest

import etude
from etude.app import App
from etude.catalog.measure.profile import profile_source

from .plain import check_table
from .reference import databases, score_keys

pytestmark = pytest.mark.skipif(not databases(), reason="the reference data is not here")


@pytest.mark.parametrize("path", databases(), ids=lambda p: p.stem)
def test_statistics(app: App, path: object) -> None:
    db = etude.connect(str(path), app=app)
    for small_rows in (20_000, -1):
        profile = profile_source(db, small_rows=small_rows)
        for table in profile.tables:
            check_table(lambda sql: db.sql(sql, record=False).rows(), profile.dialect, table)


def test_inferred_keys(app: App) -> None:
    primary, declared, every = score_keys(app)
    assert primary.precision >= 0.9 and primary.recall >= 0.9
    assert declared.precision >= 0.9 and declared.recall >= 0.9
    assert every.precision >= 0.9
