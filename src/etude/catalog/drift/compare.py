"""Find the changes between two profiles of a source, ranked by importance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from itertools import pairwise
from statistics import median
from typing import Literal

from etude.catalog.drift.change import Change, ChangePair, make_change
from etude.catalog.drift.column_drift import column_resemblance, find_column_drift
from etude.catalog.drift.significance import required_significance, significance_of_shares
from etude.catalog.measure.axis import axis_position, axis_seconds
from etude.catalog.model import ColumnProfile, ForeignKeyEvidence, Freshness, SourceProfile, TableProfile

__all__ = ["Change", "compare"]

DAY = 86400.0
LOSS, GROW = math.log(0.98), math.log(1.5)
"""How far a row count may change between two runs if earlier runs do not show what is usual."""
LARGE_LOSS, SMALL_LOSS = math.log(0.8), math.log(0.999)
"""Two runs do not make a larger loss usual; a smaller one is reported for a table that has never lost rows."""
STEPS = 4
"""This many steps between runs show how much a table usually grows or shrinks."""
NO_GAPS, GAPS = 0.995, 0.02
"""Numbers have no gaps if this share of them is there; rows were deleted if this share is missing later."""


def compare(before: SourceProfile, after: SourceProfile, history: Sequence[SourceProfile] = ()) -> tuple[Change, ...]:
    """Return the changes from one profile to the next, the most important first.

    `history` holds the runs before `after`, oldest first (`before` may be among them): it shows how much a table
    usually grows and how often new data arrives. A change is reported only if chance cannot explain it: two samples of
    the same data give no changes, except in a few of a thousand comparisons.
    """
    earlier = [p for p in history if p is not before and (p.made_at is None or p.made_at != before.made_at)]
    runs = [*earlier, before]
    past = [{t.name: t for t in p.tables} for p in runs]
    needed = required_significance(sum(len(t.columns) for t in after.tables))
    made = (before.made_at, after.made_at)
    was, now = {t.name: t for t in before.tables}, {t.name: t for t in after.tables}
    renamed = _renamed_tables([t for n, t in was.items() if n not in now], [t for n, t in now.items() if n not in was])
    existing = {n.lower() for n in now}
    found: list[Change] = []
    for name, table in now.items():
        old = was.get(name) or renamed.get(name)
        if old is None:
            text = f"The table `{name}` is new: {len(table.columns)} columns, {_count(table.rows)} rows."
            found.append(make_change("table-added", name, text, after=table.rows))
            continue
        if old.name != name:
            text = f"The table `{old.name}` was renamed to `{name}`: columns and contents match."
            found.append(make_change("table-renamed", name, text, before=old.name, after=name))
        series = [tables[old.name] for tables in past if old.name in tables]
        found.extend(_compare_table(old, table, series, runs, needed, made))
        found.extend(_references(old, table, existing, needed))
    gone = set(was) - set(now) - {t.name for t in renamed.values()}
    for name in gone:
        text = f"The table `{name}` was removed; it had {_count(was[name].rows)} rows."
        found.append(make_change("table-removed", name, text, before=was[name].rows))
    return tuple(sorted(found, key=lambda c: (-c.score, c.table, c.column or "", c.kind, c.text)))


def _compare_table(
    before: TableProfile,
    after: TableProfile,
    series: Sequence[TableProfile],
    runs: Sequence[SourceProfile],
    needed: float,
    made: tuple[datetime | None, datetime | None],
) -> list[Change]:
    if after.plan == "failed" and before.plan != "failed":
        text = f"`{after.name}` could not be profiled: {after.error or 'no reason was given'}."
        return [make_change("table-failed", after.name, text)]
    if after.plan == "failed" or before.plan == "failed":
        return []
    found: list[Change] = []
    pairs = _column_pairs(before, after, needed, made, found)
    if before.rows and after.rows == 0:
        text = f"`{after.name}` is now empty; it had {before.rows:,} rows."
        return [*found, make_change("table-emptied", after.name, text, before=before.rows, after=0)]
    if not before.rows or not after.rows:
        return found
    found.extend(_deleted(before, after) or _volume(before, after, series))
    found.extend(_freshness(before, after, runs, made))
    found.extend(_keys(before, after))
    changes = [(pair, find_column_drift(pair)) for pair in pairs]
    swapped = _swapped([p for p, own in changes if any(c.kind in _SWAP_KINDS for c in own)])
    for one, other in swapped:
        names = sorted((one.after.name, other.after.name))
        text = f"`{names[0]}` and `{names[1]}` seem to be swapped: each now looks like the other did before."
        found.append(make_change("columns-swapped", after.name, text, 1.0, names[0], names[0], names[1]))
    swapped_names = {p.after.name for both in swapped for p in both}
    found.extend(c for pair, own in changes for c in own if pair.after.name not in swapped_names)
    if any(c.kind == "key-broken" for c in found):
        found = [c for c in found if c.kind != "duplicates"]  # Whole rows repeat, which the key already reports.
    return found


# Columns.


def _column_pairs(
    before: TableProfile,
    after: TableProfile,
    needed: float,
    made: tuple[datetime | None, datetime | None],
    found: list[Change],
) -> list[ChangePair]:
    """Pair the columns that match by name or by profile; add the others to `found` as changes."""
    old = {c.name: c for c in before.columns}
    gone = [c for c in before.columns if after.column(c.name) is None]
    added = [c for c in after.columns if c.name not in old]
    renamed = _renamed_columns(before, after, gone, added, needed)
    pairs = []
    for column in after.columns:
        former = old.get(column.name) or renamed.get(column.name)
        if former is None:
            text = f"The column `{column.name}` ({column.type}) is new."
            found.append(make_change("column-added", after.name, text, 1.0, column.name, after=column.type))
            continue
        if former.name != column.name:
            text = f"The column `{former.name}` was renamed to `{column.name}`: its values match."
            found.append(
                make_change("column-renamed", after.name, text, 1.0, column.name, former.name, column.name),
            )
        pairs.append(ChangePair(after.name, former, column, needed, _role(before, former.name), made))
    for column in gone:
        if column.name not in {c.name for c in renamed.values()}:
            text = f"The column `{column.name}` ({column.type}) was removed."
            found.append(make_change("column-removed", after.name, text, 1.0, column.name, column.type))
    return pairs


def _role(table: TableProfile, column: str) -> Literal["key", "reference", ""]:
    if any(k.columns == (column,) and (k.origin == "declared" or k.primary) for k in table.keys):
        return "key"
    if any(column in f.columns for f in table.foreign_keys):
        return "reference"
    return ""


def _renamed_columns(
    before: TableProfile,
    after: TableProfile,
    gone: Sequence[ColumnProfile],
    added: Sequence[ColumnProfile],
    needed: float,
) -> dict[str, ColumnProfile]:
    """Map new names to the previous columns, by the best matches of profile, name and position."""
    candidates = []
    positions = {c.name: i for i, c in enumerate(before.columns)}, {c.name: i for i, c in enumerate(after.columns)}
    for one in gone:
        for other in added:
            alike = column_resemblance(ChangePair(after.name, one, other, needed))
            named = _similar(one.name, other.name)
            same_position = positions[0][one.name] == positions[1][other.name]
            informative = (one.distinct or 0) > 2 or named > 0.5 or same_position
            score = 0.75 * alike + 0.15 * named + 0.1 * same_position
            if alike >= 0.8 and score >= 0.65 and informative:
                candidates.append((-score, one.name, other.name, one))
    found: dict[str, ColumnProfile] = {}
    for _, name, new, column in sorted(candidates, key=lambda c: c[:3]):
        if new not in found and name not in {c.name for c in found.values()}:
            found[new] = column
    return found


def _renamed_tables(gone: Sequence[TableProfile], added: Sequence[TableProfile]) -> dict[str, TableProfile]:
    candidates = []
    for one in gone:
        for other in added:
            had, has = ({(c.name, c.family) for c in t.columns} for t in (one, other))
            shared = len(had & has) / max(1, len(had | has))
            rows = _ratio(one.rows, other.rows)
            score = 0.6 * shared + 0.25 * rows + 0.15 * _similar(one.name, other.name)
            if shared >= 0.6 and rows >= 0.5 and score >= 0.7:
                candidates.append((-score, one.name, other.name, one))
    found: dict[str, TableProfile] = {}
    for _, name, new, table in sorted(candidates, key=lambda c: c[:3]):
        if new not in found and name not in {t.name for t in found.values()}:
            found[new] = table
    return found


_SWAP_KINDS = frozenset(
    {"shift", "spread", "outliers", "scale", "range", "mix", "spike", "new-value", "cardinality", "length"}
)


def _swapped(pairs: Sequence[ChangePair]) -> list[tuple[ChangePair, ChangePair]]:
    """Return the pairs of changed columns that now look like each other did before."""
    found: list[tuple[ChangePair, ChangePair]] = []
    for i, one in enumerate(pairs):
        for other in pairs[i + 1 :]:
            crossed = (
                ChangePair(one.table, one.before, other.after, one.needed),
                ChangePair(one.table, other.before, one.after, one.needed),
            )
            if all(column_resemblance(p) >= 0.85 for p in crossed):
                found.append((one, other))
    return found


# Rows and time.


def _volume(before: TableProfile, after: TableProfile, series: Sequence[TableProfile]) -> Iterator[Change]:
    """Yield a row count that fell or rose more than usual.

    Growth must also exceed the noise of a Poisson count. A loss need not, because rows that were there are gone; but if
    it does not, and the values show another sample, its severity is low.
    """
    was, now = before.rows or 0, after.rows or 0
    step = math.log(now / was)
    usual = [math.log(b.rows / a.rows) for a, b in pairwise(series) if a.rows and b.rows]
    low, high = _usual_steps(usual)
    chance = abs(step) <= 4 * math.sqrt(1 / was + 1 / now)
    if low <= step <= high or (step > 0 and chance):
        return
    word = "fell" if now < was else "rose"
    text = f"The row count of `{after.name}` {word} from {was:,} to {now:,} ({_times(math.exp(step))})"
    never = ": it had never lost rows" if step < 0 and len(usual) >= STEPS and min(usual) >= 0 else ""
    small = LOSS < step < 0 or (chance and step > LARGE_LOSS and not _same_rows(before, after))
    strength = 0.0 if small else 0.2 + 0.8 * min(1.0, abs(step) / (1.4 if step < 0 else 3.0))
    yield make_change("volume", after.name, f"{text}{never}.", strength, before=was, after=now)


def _same_rows(before: TableProfile, after: TableProfile) -> bool:
    """Return whether the rows that are left seem to be rows of the earlier run, and not another sample.

    Columns with many values have other extremes in another sample; if rows are deleted, most extremes stay.
    """
    ends: list[bool] = []
    for column in after.columns:
        former = before.column(column.name)
        if former is None or former.masked or column.masked or 2 * (former.distinct or 0) < (before.rows or 0):
            continue
        ends.extend(a == b for a, b in ((former.min, column.min), (former.max, column.max)) if a is not None)
    return 2 * sum(ends) > len(ends)


def _usual_steps(usual: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest step of a row count that earlier steps suggest, as logarithms."""
    if len(usual) < STEPS:
        worst = min(usual, default=0.0)
        return max(LARGE_LOSS, min(LOSS, 1.5 * worst)), GROW
    middle = median(usual)
    # Six standard deviations, estimated from the median deviation.
    width = 6 * 1.4826 * median(abs(u - middle) for u in usual)
    low = SMALL_LOSS if min(usual) >= 0 else min(LOSS, middle - width)
    return low, middle + max(0.1, width)


def _deleted(before: TableProfile, after: TableProfile) -> list[Change]:
    """Return the rows that are gone from within a table whose numbers had no gaps, which chance does not explain."""
    for column in after.columns:
        former = before.column(column.name)
        if former is None or not (former.unique and column.unique) or {former.family, column.family} != {"integer"}:
            continue
        had, has = _span(former), _span(column)
        rows, later = before.rows or 0, after.rows or 0
        if not had or not has or rows < NO_GAPS * had or later > (1 - GAPS) * has or later >= rows:
            continue
        text = (
            f"The row count of `{after.name}` fell from {rows:,} to {later:,} ({_times(later / rows)}): "
            f"`{column.name}` had no gaps, and now {has - later:,} values are missing."
        )
        strength = 0.2 + 0.8 * min(1.0, 4 * (1 - later / rows))
        return [make_change("volume", after.name, text, strength, before=rows, after=later)]
    return []


def _span(column: ColumnProfile) -> int:
    """Return how many whole numbers there are from the lowest to the highest value; 0 if they are not known."""
    low, high = column.min, column.max
    return high - low + 1 if isinstance(low, int) and isinstance(high, int) else 0


def _freshness(
    before: TableProfile,
    after: TableProfile,
    runs: Sequence[SourceProfile],
    made: tuple[datetime | None, datetime | None],
) -> Iterator[Change]:
    fresh, former = after.freshness, before.freshness
    if fresh is None or former is None or fresh.column != former.column:
        return
    newest, newest_before = axis_position(fresh.newest), axis_position(former.newest)
    interval = _interval(before, former)
    if newest is None or newest_before is None or interval is None:
        return
    back = newest_before - newest
    if back > 16 * interval + DAY:
        text = f"The newest `{fresh.column}` of `{after.name}` went back from {former.newest} to {fresh.newest}."
        yield make_change("rewound", after.name, text, back / (30 * DAY), fresh.column, former.newest, fresh.newest)
        return
    if made[0] is None or made[1] is None or newest > newest_before:
        return
    age, age_before = axis_seconds(made[1]) - newest, axis_seconds(made[0]) - newest_before
    at_rest = age_before > max(20 * interval, 3 * DAY)
    limit = min(max(3 * age_before, 5 * interval, 2 * DAY), _usual_age(before.name, fresh.column, runs))
    if at_rest or age <= limit:
        return
    text = (
        f"No new data in `{after.name}`: the newest `{fresh.column}` is still {fresh.newest}, "
        f"{age / DAY:.3g} days before this run."
    )
    yield make_change("late", after.name, text, age / (10 * limit), fresh.column, former.newest, fresh.newest)


def _interval(table: TableProfile, fresh: Freshness) -> float | None:
    """Return the mean seconds between distinct timestamps: the longer one of the whole and of the recent part."""
    column = table.column(fresh.column)
    newest, oldest = axis_position(fresh.newest), axis_position(fresh.oldest)
    if column is None or newest is None or oldest is None or not column.distinct or column.distinct < 5:
        return None
    whole = (newest - oldest) / (column.distinct - 1)
    recent = axis_position(column.quantiles[-2]) if len(column.quantiles) > 1 else None
    last = (newest - recent) / max(1.0, 0.05 * column.distinct) if recent is not None else 0.0
    return max(whole, last, 1.0)


def _usual_age(table: str, column: str, runs: Sequence[SourceProfile]) -> float:
    """Return 1.5 times the greatest age that earlier runs saw; infinity with fewer than three runs."""
    ages = []
    for run in runs:
        seen = run.table(table)
        newest = (
            axis_position(seen.freshness.newest)
            if seen and seen.freshness and seen.freshness.column == column
            else None
        )
        if newest is not None and run.made_at is not None:
            ages.append(axis_seconds(run.made_at) - newest)
    return 1.5 * max(*ages, 1.0) if len(ages) >= 3 else math.inf


# Keys.


def _keys(before: TableProfile, after: TableProfile) -> Iterator[Change]:
    now = {k.columns: k for k in after.keys}
    for key in before.keys:
        if len(key.columns) == 1 and key.origin != "declared":
            continue  # The column itself reports it.
        name, later = ", ".join(f"`{c}`" for c in key.columns), now.get(key.columns)
        still = all(after.column(c) is not None for c in key.columns)
        if later is not None and key.unique and later.unique is False and len(key.columns) > 1:
            text = f"{name} of `{after.name}` no longer form a key: values repeat."
            yield make_change("key-broken", after.name, text, 0.5, key.columns[0])
        elif key.origin == "declared" and still and (later is None or later.origin != "declared"):
            text = f"{name} of `{after.name}` is no longer declared as a key."
            yield make_change("key-changed", after.name, text, 1.0, key.columns[0])
        elif later is None and still and key.unique and key.primary and key.score >= 0.8:
            text = f"{name} of `{after.name}` formed a key before and no longer do."
            yield make_change("key-broken", after.name, text, 0.3, key.columns[0])


def _references(before: TableProfile, after: TableProfile, existing: set[str], needed: float) -> Iterator[Change]:
    """Yield references whose values lost their match, between tables that still exist and have rows."""
    if not before.rows or not after.rows:
        return
    now = {(f.columns, f.to_table): f for f in after.foreign_keys}
    for key in before.foreign_keys:
        if key.to_table.lower() not in existing:
            continue
        later = now.get((key.columns, key.to_table))
        names = ", ".join(f"`{c}`" for c in key.columns)
        if later is None and key.origin == "inferred" and key.containment == 1 and key.score >= 0.8:
            # A reference of several columns may no longer be inferred although all its values still match.
            if len(key.columns) == 1 and after.column(key.columns[0]) is not None:
                text = f"All values of {names} in `{after.name}` had a match in `{key.to_table}`; now many have none."
                yield make_change("orphans", after.name, text, 1.0, key.columns[0], 1.0)
        elif later is not None and (lost := _lost(key, later, needed)):
            missing = f"{later.missing:,}" if later.missing is not None else f"{lost:.1%} more"
            text = f"{missing} values of {names} in `{after.name}` have no match in `{key.to_table}`."
            yield make_change("orphans", after.name, text, 3 * lost, key.columns[0], key.containment, later.containment)


def _lost(before: ForeignKeyEvidence, after: ForeignKeyEvidence, needed: float) -> float:
    """Return the share of values that newly have no match: any if all had one before, else only more than chance."""
    if before.containment is None or after.containment is None or after.containment >= before.containment:
        return 0.0
    lost = before.containment - after.containment
    if before.containment == 1 and (before.origin == "declared" or (before.values or 0) >= 20):
        return lost
    values, later = before.values or 0, after.values or 0
    was, now = round((1 - before.containment) * values), round((1 - after.containment) * later)
    return lost if significance_of_shares(was, values, now, later) > needed else 0.0


# Names and numbers.


def _similar(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.lower()).ratio()


def _ratio(one: int | None, other: int | None) -> float:
    if one is None or other is None:
        return 0.5
    return 1.0 if one == other else min(one, other) / max(one, other)


def _count(rows: int | None) -> str:
    return "an unknown number of" if rows is None else f"{rows:,}"


def _times(factor: float) -> str:
    if factor >= 2:
        return f"{factor:.3g} times"
    return f"{factor - 1:+.1%}" if abs(factor - 1) < 0.01 else f"{factor - 1:+.0%}"
