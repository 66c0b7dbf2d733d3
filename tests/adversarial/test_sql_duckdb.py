"""Attacks by SQL get nothing, queries that exhaust resources hit their limits, and legitimate queries run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.entities import Limits, SourceSpec
from etude.errors import EtudeError, InvalidQuery, LimitExceeded, Refused

from .battery import Attempt, read_battery

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("REFERENCE_DATA", HERE.parents[2] / "shared" / "data")).parent / "batteries"
BATTERY = read_battery(HERE / "sql_duckdb.txt")
MORE = read_battery(SHARED / "escape_sql.txt") if (SHARED / "escape_sql.txt").exists() else []
OLD_LAMBDA = "L07"  # DuckDB 2 itself refuses the arrow form of a lambda
SECRET = "TOPSECRET"


@dataclass
class Place:
    """A database with a granted and a hidden table, and folders inside and outside the source."""

    app: App
    secret: Path
    allowed: Path
    outside: Path

    def fill(self, sql: str) -> str:
        for mark, path in (("@S@", self.secret), ("@A@", self.allowed), ("@O@", self.outside)):
            sql = sql.replace(mark, str(path))
        return sql

    def run(self, attempt: Attempt, timeout_s: float = 60) -> str:
        limits = Limits(timeout_s=timeout_s, rows=1000)
        result = self.app.sql("shop", self.fill(attempt.sql), limits=limits, record=False)
        return repr(result.rows())

    def files(self) -> set[str]:
        return {str(p) for folder in (self.secret, self.allowed, self.outside) for p in folder.rglob("*")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    secret, allowed, outside, home = (tmp_path_factory.mktemp(n) for n in ("secret", "allowed", "outside", "home"))
    (secret / "secret.txt").write_text(SECRET)
    (secret / "s.csv").write_text(f"k,v\n{SECRET},1\n")
    (secret / "s.json").write_text(f'{{"k": "{SECRET}"}}')
    duckdb.sql(f"SELECT '{SECRET}' AS k").write_parquet(str(secret / "s.parquet"))
    with duckdb.connect(str(secret / "other.duckdb")) as other:
        other.execute(f"CREATE TABLE t AS SELECT '{SECRET}' AS k")
    (allowed / "ok.csv").write_text("a,b\n1,2\n")
    (allowed / "link.csv").symlink_to(secret / "s.csv")
    with duckdb.connect(str(allowed / "shop.duckdb")) as shop:
        shop.execute("CREATE TABLE ok (a INT, b INT); INSERT INTO ok VALUES (1, 2), (3, 4)")
        shop.execute(f"CREATE TABLE hidden AS SELECT '{SECRET}_ROW' AS k, 1 AS v")
        shop.execute("CREATE MACRO peek() AS TABLE SELECT * FROM hidden")
    spec = SourceSpec(url=str(allowed / "shop.duckdb"), tables=("ok",))
    with App(home=home, engine={"memory": "2GiB"}, sources={"shop": spec}) as app:
        yield Place(app, secret, allowed, outside)


def named(attempts: list[Attempt], *kinds: str) -> list[object]:
    return [pytest.param(a, id=a.id) for a in attempts if a.kind in kinds]


@pytest.mark.parametrize("attempt", named(BATTERY + MORE, "leak", "ok", "write", "net"))
def test_an_attempt_gets_nothing(place: Place, attempt: Attempt) -> None:
    secret_df = {"k": SECRET}  # a variable that a replacement scan of DuckDB would find
    before = place.files()
    try:
        seen = place.run(attempt)
    except EtudeError as error:
        # The guard or the parser must refuse it, before the engine tries to run it.
        assert isinstance(error, Refused | InvalidQuery), f"{type(error).__name__}: {error}"
        seen = str(error)
    else:
        assert attempt.kind == "leak", f"this ran: {attempt.sql}"
    assert SECRET not in seen.replace(attempt.sql, "")
    assert place.files() == before
    assert secret_df


@pytest.mark.parametrize("attempt", named(BATTERY + MORE, "dos"))
def test_a_burner_ends_at_its_limits(place: Place, attempt: Attempt) -> None:
    with pytest.raises((LimitExceeded, InvalidQuery)):
        place.run(attempt, timeout_s=2)
    assert place.run(Attempt("next", "legit", "SELECT 1 AS a")) == "[(1,)]"


@pytest.mark.parametrize("attempt", named([a for a in BATTERY + MORE if a.id != OLD_LAMBDA], "legit"))
def test_a_legitimate_query_runs(place: Place, attempt: Attempt) -> None:
    assert place.run(attempt)


def test_a_macro_of_the_file_does_not_reach_hidden_tables(place: Place) -> None:
    with pytest.raises(Refused):
        place.run(Attempt("macro", "leak", "SELECT * FROM peek()"))


def test_the_data_is_as_it_was(place: Place) -> None:
    with duckdb.connect(str(place.allowed / "shop.duckdb"), read_only=True) as shop:
        assert shop.sql("SELECT * FROM ok ORDER BY a").fetchall() == [(1, 2), (3, 4)]
