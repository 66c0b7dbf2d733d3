"""Follow the changes of earlier runs: a state that has not recovered is repeated in each catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from etude.catalog.drift.change import Acknowledgement, Change
from etude.catalog.drift.compare import compare
from etude.catalog.model import SourceProfile, TableProfile
from etude.entities import Entity

RECOVERED_SCORE = 5.0
_RANKS = {"new": 0, "open": 0, "known": 1, "recovered": 2}


class Baseline(Entity):
    """The state of a table before a change, which shows whether the table has recovered."""

    made_at: datetime | None
    table: TableProfile


class FollowedChanges(Entity):
    """The changes of a run, those that are still open included: `changes.json`."""

    changes: tuple[Change, ...] = ()
    baselines: dict[str, Baseline] = {}
    """By the name of the change. Changes that are not followed, such as new tables, have none."""


def follow_open_changes(
    previous: FollowedChanges | None,
    found: Sequence[Change],
    after: SourceProfile,
    history: Sequence[SourceProfile],
    acknowledged: Mapping[str, Acknowledgement],
) -> FollowedChanges:
    """Return the changes that were found since the last run, and the earlier ones whose state has not recovered.

    Each earlier change is compared with the state of the table before that change. `history` holds the earlier runs,
    oldest first. An acknowledged change is known until its state recovers; if it happens again, it is new.
    """
    new = {c.name: c.model_copy(update={"status": "new", "since": after.made_at, "acknowledged": None}) for c in found}
    baselines = _baselines(list(new.values()), history[-1]) if history else {}
    standing: list[Change] = []
    compared: dict[tuple[str, datetime | None], dict[str, Change]] = {}
    for change in previous.changes if previous else ():
        baseline = previous.baselines.get(change.name) if previous else None
        if baseline is None or change.status == "recovered":
            continue
        key = baseline.table.name, baseline.made_at
        if key not in compared:
            compared[key] = _compare_with(baseline, change.table, after, history)
        again = compared[key]
        if change.name in again:
            baselines[change.name] = baseline
            if change.name not in new:  # else it became worse: that is news
                standing.append(_repeated(change, again[change.name], acknowledged))
            continue
        # The way back is a difference from the last run too, but it is not a change for the worse.
        for name in [n for n, c in new.items() if _leads_back(c, change) and n not in again]:
            del new[name]
            baselines.pop(name, None)
        standing.append(change.model_copy(update={"status": "recovered", "severity": "low", "score": RECOVERED_SCORE}))
    ranked = sorted([*new.values(), *standing], key=lambda c: (_RANKS[c.status], -c.score, c.name, c.text))
    return FollowedChanges(changes=tuple(ranked), baselines=baselines)


def _leads_back(change: Change, earlier: Change) -> bool:
    """Return whether a change is at the same place as an earlier one, or takes back its new name."""
    renamed = change.kind == earlier.kind and change.kind in ("table-renamed", "column-renamed")
    taken_back = renamed and (change.before, change.after) == (earlier.after, earlier.before)
    return taken_back or (change.table, change.column) == (earlier.table, earlier.column)


def is_open_change_followed(change: Change) -> bool:
    """Return whether a change leaves a state that can be broken: an addition or growth does not."""
    if change.severity == "low" or change.kind in ("table-added", "column-added", "filled"):
        return False
    if change.kind == "volume" and isinstance(change.before, int) and isinstance(change.after, int):
        return change.after < change.before
    return True


def _baselines(changes: Sequence[Change], before: SourceProfile) -> dict[str, Baseline]:
    former = {c.table: str(c.before) for c in changes if c.kind == "table-renamed"}
    found = {}
    for change in changes:
        table = before.table(former.get(change.table, change.table))
        if table is not None and is_open_change_followed(change):
            found[change.name] = Baseline(made_at=before.made_at, table=table.model_copy(update={"samples": None}))
    return found


def _compare_with(
    baseline: Baseline, name: str, after: SourceProfile, history: Sequence[SourceProfile]
) -> dict[str, Change]:
    """Return the changes of one table since its baseline, by name; all other tables are as they are now."""
    others = (t for t in after.tables if t.name not in (name, baseline.table.name))
    update: dict[str, Any] = {"tables": (*others, baseline.table), "made_at": baseline.made_at}
    earlier = [p for p in history if p.made_at and baseline.made_at and p.made_at < baseline.made_at]
    return {c.name: c for c in compare(after.model_copy(update=update), after, earlier)}


def _repeated(change: Change, again: Change, acknowledged: Mapping[str, Acknowledgement]) -> Change:
    known = acknowledged.get(change.name)
    if known is not None and known.since != change.since:
        known = None  # it belongs to an earlier occurrence
    status = "known" if known is not None else "open"
    return again.model_copy(update={"status": status, "since": change.since, "acknowledged": known})
