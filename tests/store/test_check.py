from __future__ import annotations

import pytest

from etude.entities import RunFilter
from etude.errors import Conflict
from etude.events import Event
from etude.store.base import Store
from etude.store.check import CHECKS, MARK, check_store
from etude.store.sqlite import SqliteStore


def test_both_stores_pass(store: Store) -> None:
    # Twice: the second time the store is not empty.
    results = [*check_store(store), *check_store(store)]
    assert [r for r in results if not r.ok] == []
    assert [r.name for r in results] == [*CHECKS, *CHECKS]
    assert all(r.detail and r.ms > 0 for r in results)


def test_it_leaves_only_ended_runs_behind(store: Store) -> None:
    list(check_store(store))
    assert store.threads().items == []
    assert store.sources() == {}
    runs = store.runs(limit=100).items
    assert runs and all(run.text.startswith(MARK) and run.ended_at for run in runs)
    assert store.runs(RunFilter(status="running")).items == []


class Careless(SqliteStore):
    """A store that does not check what is expected."""

    def append(self, run_id: str, *events: Event, expect: int) -> int:
        """Append whatever the run is at."""
        for left in reversed(range(50)):
            head = self._read("SELECT seq FROM runs WHERE id = ?", run_id)
            try:
                return super().append(run_id, *events, expect=head[0][0] if head else 0)
            except Conflict:
                if not left:
                    raise
        raise AssertionError


class Broken(SqliteStore):
    """A store whose lists fail."""

    def sources(self) -> dict[str, object]:  # type: ignore[override]
        """Fail."""
        raise KeyError("sources")


@pytest.mark.parametrize(("cls", "caught"), [(Careless, {"expectation", "race"}), (Broken, {"sources"})])
def test_it_catches_a_store_that_breaks_a_promise(cls: type[SqliteStore], caught: set[str], tmp_path: object) -> None:
    with cls(f"{tmp_path}/x.db") as store:
        failed = {r.name: r.detail for r in check_store(store) if not r.ok}
    assert set(failed) == caught
    assert all(failed.values())
