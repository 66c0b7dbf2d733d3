"""Playbooks as files, shown by a coin, and what becomes of them by the outcomes of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.errors import Conflict, Invalid, NotFound
from etude.events import RunFailed, RunFinished, RunQueued, RunStarted
from etude.learning.observer.operations import read_operations
from etude.learning.playbooks.library import PlaybookLibrary
from etude.store.base import Store
from etude.store.identity import Identity
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "etude.db")


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "etude.db")
    return PostgresStore(request.getfixturevalue("postgres_url"))


@pytest.fixture
def library(store: SqliteStore, tmp_path: Path) -> PlaybookLibrary:
    return PlaybookLibrary(store, tmp_path)


def write(tmp_path: Path, name: str, description: str = "How revenue of orders is counted", more: str = "") -> Path:
    file = tmp_path / "playbooks" / "main" / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\ndescription: {description}\n{more}---\nLeave out returns.\n")
    return file


def test_a_playbook_that_matches_is_shown_most_of_the_time_and_the_coin_is_noted(
    store: SqliteStore, library: PlaybookLibrary, tmp_path: Path
) -> None:
    write(tmp_path, "revenue")
    shown = sum(bool(library.choose("What is the revenue of orders?", "shop", f"run_{n}")) for n in range(200))
    assert 160 < shown < 200
    entry = library.entry("revenue")
    assert (entry.state, entry.eligible, entry.shown) == ("active", 200, shown)
    assert library.choose("How many penguins are there?", "shop", "run_x") == []
    assert library.entry("revenue").eligible == 200


def test_the_coin_of_a_run_stays_the_same(library: PlaybookLibrary, tmp_path: Path) -> None:
    write(tmp_path, "revenue")
    for n in range(20):
        first = library.choose("revenue of orders", None, f"run_{n}")
        assert library.choose("revenue of orders", None, f"run_{n}") == first


def test_at_most_two_are_shown_those_with_a_matching_trigger_first(library: PlaybookLibrary, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name, more="metadata:\n  pinned: true\n")
    write(tmp_path, "net", "x", "metadata:\n  pinned: true\n  trigger: [net revenue]\n")
    write(tmp_path, "other", more="metadata:\n  pinned: true\n  source: elsewhere\n")
    shown = library.choose("What is the net revenue of orders?", "shop", "run_1")
    assert [text.partition(":")[0] for text in shown] == ["net", "a"]


def test_a_harmful_playbook_is_retired_and_a_new_version_starts_anew(
    store: SqliteStore, library: PlaybookLibrary, tmp_path: Path
) -> None:
    file = write(tmp_path, "revenue")
    for n in range(400):
        run_id = f"run_{n:03}"
        # It harms: runs that are shown it fail.
        store.append(run_id, RunQueued(kind="ask", text="x", source="shop"), expect=0)
        shown = library.choose("What is the revenue of orders?", "shop", run_id)
        end = RunFailed(error={"code": "invalid_query", "detail": "no"}) if shown else RunFinished(answer="It is 3.")
        store.append(run_id, RunStarted(worker=store.worker_id), end, expect=1)
        if library.entry("revenue").state == "retired":
            break
    entry = library.entry("revenue")
    assert (entry.state, entry.standing.reason) == ("retired", "it lowers success")
    changes = [c.change for c in library.history("revenue")]
    assert (changes[0], changes[-1], changes.count("retired")) == ("added", "retired", 1)
    assert library.approved() == []
    effect, low, high = entry.standing.effect
    assert low <= effect <= high < 0
    file.write_text(file.read_text() + "And refunds.\n")
    assert library.entry("revenue").state == "active"
    assert library.entry("revenue").eligible == 0


def test_unverified_numbers_fail_outages_say_nothing_and_reports_overrule(any_store: Store, tmp_path: Path) -> None:
    store, library = any_store, PlaybookLibrary(any_store, tmp_path)
    write(tmp_path, "revenue")
    ends = {
        "run_fine": RunFinished(answer="3"),
        "run_guess": RunFinished(answer="77", unverified=("77",)),
        "run_down": RunFailed(error={"code": "model_unavailable", "detail": "x"}),
        "run_wrong": RunFinished(answer="4"),
    }
    for run_id, end in ends.items():
        store.append(run_id, RunQueued(kind="ask", text="x", source="shop"), expect=0)
        library.choose("revenue of orders", "shop", run_id)
        store.append(run_id, RunStarted(worker=store.worker_id), end, expect=1)
    Identity(store).add_report("main", {"text": "it was 5", "outcome": "failed", "run_id": "run_wrong"})
    standing = library.entry("revenue").standing
    arms = (standing.shown, standing.withheld)
    assert sum(arm.runs for arm in arms) == 3
    assert sum(arm.successes for arm in arms) == 1
    kinds = {(o.kind, o.outcome) for o in read_operations(store)}
    assert {("ask", "ok"), ("ask", "failed"), ("report", "failed")} <= kinds
    assert [c.change for c in library.history("revenue")] == ["added"]
    store.close()


def test_people_add_pin_and_retire(library: PlaybookLibrary, tmp_path: Path) -> None:
    draft = tmp_path / "draft" / "SKILL.md"
    draft.parent.mkdir()
    draft.write_text("---\nname: sums\ndescription: How sums of orders are made\n---\nAdd.\n")
    assert library.add(draft.parent).name == "sums"
    assert library.pin("sums").state == "pinned"
    assert all(library.choose("sums of orders", None, f"run_{n}") for n in range(30))
    assert library.entry("sums").eligible == 0
    assert library.retire("sums").state == "retired"
    assert library.choose("sums of orders", None, "run_x") == []
    assert library.pin("sums").state == "pinned"
    assert [c.change for c in library.history("sums")] == ["added", "pinned", "retired", "pinned"]


def test_mistakes_are_explained(library: PlaybookLibrary, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no playbook `x`"):
        library.entry("x")
    with pytest.raises(NotFound, match="There is no"):
        library.add(tmp_path / "nowhere")
    bad = tmp_path / "SKILL.md"
    bad.write_text("---\nname: ../x\ndescription: y\n---\n")
    with pytest.raises(Invalid, match="cannot name a playbook"):
        library.add(bad)
    bad.write_text("no head")
    with pytest.raises(Invalid, match="no front matter"):
        library.add(bad)
    write(tmp_path, "fixed", more="metadata:\n  pinned: true\n")
    with pytest.raises(Conflict, match="pins it"):
        library.retire("fixed")
