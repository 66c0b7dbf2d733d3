"""Playbooks as files, shown by a coin, and what becomes of them by the outcomes of runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from etude.errors import Conflict, Invalid, NotFound
from etude.events import RunFailed, RunFinished, RunQueued, RunStarted
from etude.learning.observer.operations import read_operations
from etude.learning.playbooks.playbook_library import PlaybookLibrary
from etude.learning.statistical_tests import ONE_IN_20
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
    assert shown[0].startswith("net: ")
    assert len(shown) == 2
    longer = "What is the net revenue of orders, " + "and of those orders " * 10 + "in all?"
    assert len(library.choose(longer, "shop", "run_1")) == 3


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


def run_once(
    store: Store, library: PlaybookLibrary, number: int, helps: bool, question: str = "revenue of orders"
) -> None:
    """One run that succeeds if a playbook that helps is shown, or if one that does not help is withheld."""
    run_id = f"run_{number:04}"
    store.append(run_id, RunQueued(kind="ask", text="x", source="shop"), expect=0)
    shown = bool(library.choose(question, "shop", run_id))
    end = RunFinished(answer="3") if shown == helps else RunFailed(error={"code": "invalid_query", "detail": "no"})
    store.append(run_id, RunStarted(worker=store.worker_id), end, expect=1)


def draft(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, f".drafts/{name}", more="metadata:\n  state: draft\n  trigger: [revenue]\n")
    file.write_text(file.read_text().replace(f"name: .drafts/{name}", f"name: {name}"))


def test_an_admitted_draft_is_on_probation_until_its_effect_is_proven(
    store: SqliteStore, library: PlaybookLibrary, tmp_path: Path
) -> None:
    draft(tmp_path, "net")
    entry = library.admit_draft("net", "better in 2 of 2 replays of its own runs")
    assert (entry.state, entry.standing.reason) == ("probation", "admitted: better in 2 of 2 replays of its own runs")
    assert library.definitions("shop") == []
    # Two more playbooks: a claim about one of three needs three times the evidence (e-BH).
    for name in ("zebra", "okapi"):
        write(tmp_path, name, more=f"metadata:\n  trigger: [{name}]\n")
    standings = []
    for number in range(100):
        run_once(store, library, number, helps=True)
        standings.append(library.entry("net").standing)
        if standings[-1].state == "active":
            break
    alone = next(s for s in standings if s.log_e_help >= ONE_IN_20)
    assert alone.state == "probation"
    assert (standings[-1].state, standings[-1].reason) == ("active", "it raises success")
    assert standings[-1].log_e_help >= ONE_IN_20 + math.log(3) > standings[-2].log_e_help
    assert [c.change for c in library.history("net")] == ["added", "admitted", "promoted"]


def test_each_exposure_tells_why_the_playbook_was_a_candidate(
    store: SqliteStore, library: PlaybookLibrary, tmp_path: Path
) -> None:
    write(tmp_path, "net", more="metadata:\n  trigger: [net revenue]\n")
    write(tmp_path, "words", "How revenue of orders is counted")
    run_once(store, library, 1, helps=True, question="net revenue of orders")
    (net,), (words,) = library.exposures("net"), library.exposures("words")
    assert net.why.startswith("trigger `net revenue`; sampled benefit")
    assert net.why.endswith("rank 1 of 2")
    assert words.why.startswith("words order, revenue; sampled benefit")
    assert (net.q, net.run_id) == (0.9, "run_0001")


def test_playbooks_that_match_alike_take_turns_by_their_sampled_benefit(
    library: PlaybookLibrary, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name, more="metadata:\n  pinned: true\n")
    shown = [library.choose("revenue of orders", "shop", f"run_{n}") for n in range(60)]
    firsts = {texts[0].partition(":")[0] for texts in shown}
    assert firsts == {"a", "b", "c"}
    assert shown == [library.choose("revenue of orders", "shop", f"run_{n}") for n in range(60)]


def test_long_playbooks_leave_room_for_no_other(library: PlaybookLibrary, tmp_path: Path) -> None:
    for name in ("a", "b"):
        file = write(tmp_path, name, more="metadata:\n  pinned: true\n")
        file.write_text(file.read_text() + "Look twice. " * 150)
    assert len(library.choose("revenue of orders", "shop", "run_1")) == 1


def test_a_playbook_that_is_too_long_is_shortened_and_says_so(library: PlaybookLibrary, tmp_path: Path) -> None:
    file = write(tmp_path, "long", more="metadata:\n  pinned: true\n")
    assert not library.entry("long").lesson.is_shortened
    file.write_text(file.read_text() + "Look twice. " * 300)
    (shown,) = library.choose("revenue of orders", "shop", "run_1")
    assert len(shown) == 2400
    assert shown.endswith("characters, of which 2,400 are shown.)")
    assert library.entry("long").lesson.is_shortened


def test_a_full_library_drops_the_one_with_the_lowest_benefit(
    store: SqliteStore, library: PlaybookLibrary, tmp_path: Path
) -> None:
    write(tmp_path, "harms", more="metadata:\n  source: shop\n  trigger: [revenue]\n")
    for number in range(6):
        run_once(store, library, number, helps=False)
    for number in range(19):
        write(tmp_path, f"p{number}", "x", "metadata:\n  source: shop\n  trigger: [zebra]\n")
    write(tmp_path, "elsewhere", "x", "metadata:\n  source: zoo\n  trigger: [zebra]\n")
    assert library.entry("harms").state == "active"
    write(tmp_path, "one-more", "x", "metadata:\n  source: shop\n  trigger: [zebra]\n")
    harms = library.entry("harms")
    assert (harms.state, harms.standing.reason) == (
        "retired",
        "the library is full, and this one has the lowest benefit",
    )
    assert [e.state for e in library.entries()].count("retired") == 1
    (tmp_path / "playbooks" / "main" / "one-more" / "SKILL.md").unlink()
    assert library.entry("harms").state == "active"
    write(tmp_path, "one-more", "x", "metadata:\n  source: shop\n  trigger: [zebra]\n")
    assert library.pin("harms").state == "pinned"


def test_definitions_come_from_approved_playbooks(library: PlaybookLibrary, tmp_path: Path) -> None:
    file = write(tmp_path, "revenue", more="metadata:\n  trigger: [turnover]\n  means:\n    sales: amount\n")
    file.write_text(file.read_text() + "- Turnover means net revenue.\nThis means nothing.\n")
    write(tmp_path, "zoo", more="metadata:\n  source: zoo\n  means: {beast: animal}\n")
    found = {d.phrase: (d.meaning, d.playbook) for d in library.definitions("shop")}
    assert found == {"sales": ("amount", "revenue"), "turnover": ("net revenue", "revenue")}
    assert len(library.definitions("zoo")) == 3
    library.retire("revenue")
    assert library.definitions("shop") == []


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
