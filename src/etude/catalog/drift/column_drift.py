"""Find the changes in one column between two profiles; each check reports only what chance cannot explain."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from etude.catalog.drift.change import SMALL, Change, ChangePair, Kind, change_share, change_value
from etude.catalog.drift.number_drift import (
    number_drift,
    number_extremes_drift,
    number_outliers_drift,
    number_precision_drift,
    significant_number_distance,
    unusual_number_drift,
)
from etude.catalog.drift.significance import (
    kolmogorov_distance,
    significance_of_counts,
    significance_of_distinct,
    significance_of_means,
    significance_of_shares,
)
from etude.catalog.measure.axis import axis_position, axis_seconds, quantile_axis
from etude.catalog.model import DATED, ColumnProfile, Scalar, profile_datetime, profile_number

DAY_S = 86400.0
UNSEEN = 0.5
"""The share that a pattern may have without being in the profile, which tests only patterns that a few values fit."""


def find_column_drift(pair: ChangePair) -> list[Change]:
    """Return the changes in a column, without those that another change implies."""
    if pair.before == pair.after:
        return []
    found = [*_declared(pair)]
    whole = next((c for check in _WHOLE for c in check(pair)), None)
    if whole is not None:
        return [*found, whole]
    for check in _PARTS:
        found.extend(check(pair))
    return _without_implied(found)


# The kinds of change that each kind implies: next to `scale`, `shift` says nothing new. The order matters: a kind that
# is left out does not leave out others.
_IMPLIED: dict[str, frozenset[str]] = {
    "scale": frozenset({"shift", "spread", "outliers", "range", "spike", "mix", "precision"})
    | frozenset({"cardinality", "negative"}),
    "sign": frozenset({"shift", "spread", "outliers", "range", "spike", "mix", "negative"}),
    "time-shift": frozenset({"shift", "spread", "range", "spike", "mix", "new-value", "vanished-value", "future"}),
    "precision": frozenset({"cardinality", "spike", "mix", "duplicates", "new-value", "vanished-value"}),
    "spaces": frozenset({"spelling", "new-value", "vanished-value", "mix", "spike", "length", "format", "cardinality"}),
    "spelling": frozenset({"new-value", "vanished-value", "mix", "spike", "length", "format", "cardinality"}),
    "format": frozenset({"length", "spike", "cardinality", "mix", "new-value", "vanished-value"}),
    "empty-text": frozenset({"length", "spike", "mix", "cardinality", "new-value", "format", "duplicates"}),
    "new-value": frozenset({"mix", "length", "cardinality", "spike", "shift", "spread", "range"}),
    "vanished-value": frozenset({"mix", "length", "cardinality", "shift", "spread"}),
    "spike": frozenset(
        {"length", "mix", "shift", "spread", "cardinality", "format", "range", "duplicates", "outliers"}
    ),
    "negative": frozenset({"range", "spread"}),
    "nan": frozenset({"spike", "cardinality"}),
    "mix": frozenset({"length", "shift", "spread", "cardinality", "format"}),
    "outliers": frozenset({"range", "spread", "cardinality"}),
    "shift": frozenset({"cardinality", "spread"}),
    "future": frozenset({"range"}),
    "type": frozenset({"cardinality", "length"}),
}


def _without_implied(found: Sequence[Change]) -> list[Change]:
    kinds = {c.kind for c in found}
    left_out: set[str] = set()
    for kind, implied in _IMPLIED.items():
        if kind in kinds and kind not in left_out:
            left_out |= implied
    return [c for c in found if c.kind not in left_out]


def _declared(pair: ChangePair) -> Iterator[Change]:
    before, after, name = pair.before, pair.after, pair.after.name
    if before.type != after.type:
        strength = 1.0 if before.family != after.family else 0.2
        yield pair.change(
            "type", f"`{name}` changed its type from {before.type} to {after.type}.", strength, before.type, after.type
        )
    if before.nullable != after.nullable:
        now = "nullable" if after.nullable else "not nullable"
        yield pair.change("nullable", f"`{name}` is now declared {now}.", 1.0 if after.nullable else 0.0)
    if not before.pii and after.pii and after.pii[0].confidence >= 0.6 and pair.values(before) >= 20:
        hint = after.pii[0]
        yield pair.change(
            "pii", f"`{name}` now looks like personal data ({hint.kind}): {hint.reason}.", after=hint.kind
        )


def _emptied(pair: ChangePair) -> Iterator[Change]:
    before, after, name = pair.before, pair.after, pair.after.name
    if before.empty or not after.empty or not after.rows:
        return
    share = before.null_share or 0.0
    if -after.rows * math.log(max(share, 1e-12)) > pair.needed:
        yield pair.change(
            "emptied",
            f"`{name}` is now empty; {change_share(1 - share)} of the rows had a value.",
            before=1 - share,
        )


def _filled(pair: ChangePair) -> Iterator[Change]:
    if pair.before.empty and not pair.after.empty and pair.before.rows and pair.values(pair.after) >= 20:
        yield pair.change("filled", f"`{pair.after.name}` was empty and now has values.", after=pair.values(pair.after))


def _constant(pair: ChangePair) -> Iterator[Change]:
    before, after = pair.before, pair.after
    if before.constant or not after.constant or not before.top or before.distinct in (None, 0, 1):
        return
    if pair.values(after) * -math.log(min(max(before.top[0].share, 1e-12), 1 - 1e-12)) <= pair.needed:
        return
    shown = f" ({change_value(after.min)})" if pair.readable and after.min is not None else ""
    yield pair.change(
        "constant",
        f"`{after.name}` now has the same value in every row{shown}; it had {before.distinct:,} distinct values.",
        before=before.distinct,
        after=1,
    )


def _nulls(pair: ChangePair) -> Iterator[Change]:
    before, after = pair.before, pair.after
    if before.nulls is None or after.nulls is None or not before.rows or not after.rows:
        return
    was, now = before.nulls / before.rows, after.nulls / after.rows
    floor = 0.0 if 0 in (before.nulls, after.nulls) else 0.02
    rows, later = (min(c.rows or 0, c.provenance.counts.rows or c.rows or 0) for c in (before, after))
    certain = significance_of_shares(round(was * rows), rows, round(now * later), later) > pair.needed
    if abs(now - was) < floor or not certain:
        return
    text = f"Nulls in `{after.name}` went from {change_share(was)} to {change_share(now)} of the rows."
    strength = math.sqrt(now - was) if now > was else 0.2 * (was - now)
    yield pair.change("nulls", text, strength, round(was, 6), round(now, 6))


def _duplicates(pair: ChangePair) -> Iterator[Change]:
    before, after = pair.before, pair.after
    if before.unique is not True or after.unique is not False or after.distinct is None:
        return
    rows, later = pair.values(before), pair.values(after)
    twice = later - after.distinct
    # Values can be unique by chance; the expected number of equal pairs then grows with the square of the rows.
    evidence = twice * -math.log(later**2 / (rows**2 + later**2)) if rows and twice > 0 else 0.0
    if pair.role != "key" and evidence <= pair.needed:
        return
    kind: Kind = "key-broken" if pair.role == "key" else "duplicates"
    text = f"`{after.name}` was unique and now has {twice:,} repeated value{'s' if twice != 1 else ''}."
    yield pair.change(kind, text, twice / max(1, later) * 5, before.distinct, after.distinct)


def _is_dated(column: ColumnProfile) -> bool:
    """Return whether the values are dates, or texts that are all ISO dates, which have quantiles too."""
    return column.family in DATED or (column.family == "text" and len(column.quantiles) == 21)


def _times(pair: ChangePair) -> Iterator[Change]:
    """Find timestamps that all moved by the same number of hours, days or years, or that are in the future."""
    if not _is_dated(pair.before) or not _is_dated(pair.after):
        return
    before, after, name = quantile_axis(pair.before), quantile_axis(pair.after), pair.after.name
    if before and after:
        offsets = [a - b for b, a in zip(before, after)]
        common = max(set(offsets), key=offsets.count)
        hours = common / 3600
        passed = axis_seconds(pair.made[1]) - axis_seconds(pair.made[0]) if pair.made[0] and pair.made[1] else 0.0
        moved = abs(common) >= 900 and common % 900 == 0 and abs(hours) <= 14
        # A table that keeps only the newest rows moves by the time that passed.
        if moved and offsets.count(common) >= 15 and len(set(before)) > 5 and abs(common - passed) > 900:
            text = f"`{name}` moved by {hours:+g} hours in nearly all rows. A different time zone?"
            yield pair.change("time-shift", text, 1.0, pair.before.min, pair.after.min)
        elif (step := _calendar_step(pair)) and abs(common - passed) > max(2 * DAY_S, passed / 2):
            text = f"`{name}` moved by {step} in nearly all rows."
            yield pair.change("time-shift", text, 1.0, pair.before.min, pair.after.min)
    made_before, made_after = pair.made
    newest, newest_before = axis_position(pair.after.max), axis_position(pair.before.max)
    if made_before is None or made_after is None or newest is None or newest_before is None:
        return
    if newest_before <= axis_seconds(made_before) + 86400 and newest > axis_seconds(made_after) + 2 * 86400:
        text = f"`{name}` now has dates in the future, up to {change_value(pair.after.max)}."
        yield pair.change("future", text, 1.0, pair.before.max, pair.after.max)


def _calendar_step(pair: ChangePair) -> str:
    """Return the years or days by which nearly all dates moved, in words; empty if they did not."""
    before, after = ([profile_datetime(v) for v in side.quantiles] for side in (pair.before, pair.after))
    pairs = [(b, a) for b, a in zip(before, after) if b is not None and a is not None]
    # Years first: with leap years, a year is not always the same number of days.
    years = Counter(a.year - b.year for b, a in pairs if a.replace(year=2000) == b.replace(year=2000))
    days = Counter((a.date() - b.date()).days for b, a in pairs if a.timetz() == b.timetz())
    for counts, unit in ((years, "year"), (days, "day")):
        step, count = max(counts.items(), key=lambda item: item[1], default=(0, 0))
        if step and count >= 15 and len({b for b, _ in pairs}) > 5:
            return f"{step:+,} {unit}{'' if abs(step) == 1 else 's'}"
    return ""


def _dates(pair: ChangePair) -> Iterator[Change]:
    """Find a different distribution of dates in a fixed range; a range that grows with time is not compared."""
    if not _is_dated(pair.before) or not _is_dated(pair.after):
        return
    before, after = quantile_axis(pair.before), quantile_axis(pair.after)
    if not before or not after:
        return
    span = before[20] - before[0]
    if abs(before[0] - after[0]) > 0.02 * span or abs(before[20] - after[20]) > 0.02 * span:
        return
    gap = significant_number_distance(pair, before, after)
    if gap:
        was, now = pair.before.quantiles[10], pair.after.quantiles[10]
        text = (
            f"`{pair.after.name}` is distributed differently: the median went from {change_value(was)} to "
            f"{change_value(now)}."
        )
        yield pair.change("shift", text, gap * 1.6, was, now)


def column_has_all_values(column: ColumnProfile) -> bool:
    """Return whether the frequent values are all values of the column."""
    exact = column.provenance.top is not None and column.provenance.top.method == "exact"
    return exact and bool(column.top) and column.distinct == len(column.top)


def _values(pair: ChangePair) -> Iterator[Change]:
    """Find values that are new, vanished, spelled differently, dominant, or in other proportions."""
    before, after = pair.before, pair.after
    if not pair.readable or not before.top or not after.top or pair.role == "key" or before.family != after.family:
        return
    # The counts are those of the sample if one was taken.
    rows = pair.values(before, before.provenance.top)
    later = pair.values(after, after.provenance.top)
    if not rows or not later:
        return
    was = {t.value: round(t.share * rows) for t in before.top}
    now = {t.value: round(t.share * later) for t in after.top}
    # A value that is not listed occurs at most as often as the least frequent listed one; if all are listed, never.
    rest_before = 0 if column_has_all_values(before) else min(was.values())
    rest_after = 0 if column_has_all_values(after) else min(now.values())
    respelled = _respelled(was, now, rows, later, pair.needed)
    if respelled:
        pairs = ", ".join(f"{change_value(a)} is now {change_value(b)}" for a, b in list(respelled.items())[:3])
        text = f"Values of `{after.name}` are spelled differently: {pairs}."
        first, second = next(iter(respelled.items()))
        yield pair.change("spelling", text, len(respelled) / len(was), first, second)
    if pair.role == "reference":
        yield from _new_references(pair, was, now, (rows, later), rest_before)
        return
    fewest = min(was.values())
    new: dict[Scalar, int] = {}
    risen: dict[Scalar, int] = {}
    for value, count in now.items():
        if value in was or value in respelled.values():
            continue
        more = count / later > rest_before / rows
        proven = more and significance_of_shares(rest_before, rows, count, later) > pair.needed
        # If no text value was rare before, a new one is unlikely to have been missed: fewer rows are enough.
        likely = before.family == "text" and fewest >= 10 and count >= 8 and len(was) > 1
        if column_has_all_values(before) and (proven or likely):
            new[value] = count
        elif proven and count / later - rest_before / rows > 0.02:
            risen[value] = count
    gone = {v: n for v, n in was.items() if v not in now and v not in respelled and column_has_all_values(after)}
    gone = {v: n for v, n in gone.items() if significance_of_shares(n, rows, 0, later) > pair.needed}
    if new:
        text = f"`{after.name}` has {_listed(new, later, 'a new value', 'new values')}."
        yield pair.change("new-value", text, math.sqrt(sum(new.values()) / later), None, next(iter(new)))
    if gone:
        text = f"`{after.name}` no longer has {_listed(gone, rows, 'the value', 'the values')}."
        yield pair.change("vanished-value", text, math.sqrt(sum(gone.values()) / rows), next(iter(gone)), None)
    if 0 < len(risen) < 3:  # More of them mean a column with fewer distinct values, not a new default value.
        value, count = next(iter(risen.items()))
        text = (
            f"{change_value(value)} now makes up {change_share(count / later)} of `{after.name}`; "
            f"{_unseen(before, value)}."
        )
        yield pair.change("spike", text, count / later * 2, None, value)
    yield from _mix(pair, was, now, (rows, later), (rest_before, rest_after))


def _mix(
    pair: ChangePair, was: dict[Scalar, int], now: dict[Scalar, int], rows: tuple[int, int], rest: tuple[int, int]
) -> Iterator[Change]:
    """Find known values in other proportions."""
    both = [v for v in was if v in now]
    if column_has_all_values(pair.before) and column_has_all_values(pair.after):
        first, second = sum(was[v] for v in both), sum(now[v] for v in both)
        if len(both) < 2 or not first or not second:
            return
        moved = sum(abs(was[v] / first - now[v] / second) for v in both) / 2
        if moved < SMALL or significance_of_counts([(was[v], now[v]) for v in both]) <= pair.needed:
            return
        most = max(both, key=lambda v: abs(was[v] / first - now[v] / second))
        text = (
            f"The mix of `{pair.after.name}` changed: {change_value(most)} went from "
            f"{change_share(was[most] / rows[0])} to "
            f"{change_share(now[most] / rows[1])}."
        )
        yield pair.change("mix", text, moved * 2.5, round(was[most] / rows[0], 6), round(now[most] / rows[1], 6))
        return
    for value in both:
        share, later = was[value] / rows[0], now[value] / rows[1]
        certain = significance_of_shares(was[value], rows[0], now[value], rows[1]) > pair.needed
        if certain and later - share > SMALL:
            name = pair.after.name
            text = (
                f"{change_value(value)} now makes up {change_share(later)} of `{name}`; before it was "
                f"{change_share(share)}."
            )
            yield pair.change("spike", text, later * 2, share, value)
            return
        if certain and share - later > SMALL:
            text = (
                f"{change_value(value)} in `{pair.after.name}` went from {change_share(share)} to "
                f"{change_share(later)}."
            )
            yield pair.change("mix", text, (share - later) * 2, round(share, 6), round(later, 6))
            return
    for value, count in was.items():
        share = count / rows[0]
        if value in now or share - rest[1] / rows[1] < SMALL:
            continue
        if significance_of_shares(count, rows[0], rest[1], rows[1]) > pair.needed:
            text = (
                f"{change_value(value)} in `{pair.after.name}` fell from {change_share(share)} and is no "
                "longer a frequent value."
            )
            yield pair.change("mix", text, share, round(share, 6), 0)
            return


def _listed(values: dict[Scalar, int], rows: int, one: str, many: str) -> str:
    shown = [f"{change_value(v)} ({change_share(n / rows)} of the rows)" for v, n in values.items()]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"{one if len(shown) == 1 else many} {', '.join(shown[:3])}{more}"


def _new_references(
    pair: ChangePair, was: dict[Scalar, int], now: dict[Scalar, int], rows: tuple[int, int], rest: int
) -> Iterator[Change]:
    """Find a referenced value that many rows have and that none, or only few, had before.

    Other proportions are not compared: new customers and their orders are expected.
    """
    new = {}
    for value, count in now.items():
        grown = count / rows[1] - rest / rows[0]
        if value not in was and grown > SMALL and significance_of_shares(rest, rows[0], count, rows[1]) > pair.needed:
            new[value] = count
    if not new:
        return
    name, first = pair.after.name, next(iter(new))
    text = f"`{name}` has {_listed(new, rows[1], 'a new value', 'new values')}."
    if not column_has_all_values(pair.before):
        share = change_share(new[first] / rows[1])
        text = f"{change_value(first)} now makes up {share} of `{name}`; {_unseen(pair.before, first)}."
    yield pair.change("new-value", text, math.sqrt(sum(new.values()) / rows[1]), None, first)


def _unseen(before: ColumnProfile, value: Scalar) -> str:
    """Say how rare a value was that is not among the frequent values of the earlier profile."""
    least, greatest = before.min, before.max
    numbers = profile_number(value), profile_number(least), profile_number(greatest)
    outside = False
    if before.family != "text" and None not in numbers:
        outside = not numbers[1] <= numbers[0] <= numbers[2]  # type: ignore[operator]
    elif isinstance(value, str) and isinstance(least, str) and isinstance(greatest, str):
        outside = not least <= value <= greatest
    if outside:
        return "it did not occur before"
    return f"before it was not among the {len(before.top)} most frequent values"


def _respelled(
    was: dict[Scalar, int], now: dict[Scalar, int], rows: int, later: int, needed: float
) -> dict[Scalar, Scalar]:
    """Map values that vanished or became rare to new ones that differ only in case, spaces or Unicode encoding."""
    spelled = {_plain(v): v for v in was if isinstance(v, str)}
    found: dict[Scalar, Scalar] = {}
    for value, count in now.items():
        former = spelled.get(_plain(value)) if isinstance(value, str) and value not in was else None
        if former is None or significance_of_shares(0, rows, count, later) <= needed:
            continue
        if now.get(former, 0) / later < 0.5 * was[former] / rows:
            found[former] = value
    return found


def _plain(value: str) -> str:
    return "".join(unicodedata.normalize("NFKC", value).casefold().split())


def _texts(pair: ChangePair) -> Iterator[Change]:
    """Find changes in empty strings, lengths and patterns of text."""
    before, after, name = pair.before, pair.after, pair.after.name
    rows, later = pair.values(before), pair.values(after)
    if before.lengths is not None and after.lengths is not None and rows and later:
        was, now = before.lengths.empty, after.lengths.empty
        floor = 0.0 if was == 0 else 0.02
        if now / later - was / rows > floor and significance_of_shares(was, rows, now, later) > pair.needed:
            text = f"Empty strings in `{name}` went from {change_share(was / rows)} to {change_share(now / later)}."
            yield pair.change("empty-text", text, math.sqrt(now / later), was, now)
        yield from _lengths(pair, rows, later)
        yield from _spaces(pair, rows, later)
    yield from _forms(pair)


def _spaces(pair: ChangePair, rows: int, later: int) -> Iterator[Change]:
    """Find values that newly start or end with a space; readers hardly see it, but joins and filters miss them."""
    was = pair.before.lengths.padded if pair.before.lengths else None
    now = pair.after.lengths.padded if pair.after.lengths else None
    if was is None or now is None:
        return
    share, after = was / rows, now / later
    if after - share > (0.0 if was == 0 else 0.02) and significance_of_shares(was, rows, now, later) > pair.needed:
        former = f"{change_share(share)} did" if was else "none did"
        text = f"{change_share(after)} of `{pair.after.name}` now start or end with a space; {former} before."
        yield pair.change("spaces", text, math.sqrt(after), was, now)


def _lengths(pair: ChangePair, rows: int, later: int) -> Iterator[Change]:
    before, after = pair.before.lengths, pair.after.lengths
    if before is None or after is None or before.mean <= 0:
        return
    gap = abs(after.mean - before.mean)
    # Bhatia-Davis inequality: no distribution on [min, max] with this mean has a larger deviation.
    low, high = min(before.min, after.min), max(before.max, after.max)
    mean = (before.mean + after.mean) / 2
    deviation = math.sqrt(max(0.0, (high - mean) * (mean - low)))
    if gap < 0.1 * before.mean or significance_of_means(gap, deviation, rows, later) <= pair.needed:
        return
    cut = after.max < 0.8 * before.max and after.mean < before.mean
    text = f"`{pair.after.name}` now has {after.mean:.3g} characters on average ({before.mean:.3g} before)"
    text += f" and at most {after.max:,} ({before.max:,} before). Truncated?" if cut else "."
    strength = gap / before.mean + (0.5 if cut else 0.0)
    yield pair.change("length", text, strength, round(before.mean, 3), round(after.mean, 3))


def _forms(pair: ChangePair) -> Iterator[Change]:
    if pair.before.family != "text" or pair.after.family != "text":
        return
    was, now = ({(p.kind, p.form): p.share for p in side.patterns} for side in (pair.before, pair.after))
    # Patterns are searched among the distinct values.
    rows = min(pair.values(pair.before, pair.before.provenance.patterns), pair.before.distinct or 0)
    later = min(pair.values(pair.after, pair.after.provenance.patterns), pair.after.distinct or 0)
    moved: list[tuple[float, str]] = []
    for form in sorted({*was, *now}, key=str):
        share, after = was.get(form, 0.0), now.get(form, 0.0)
        sure, sure_after = was.get(form, min(after, UNSEEN)), now.get(form, min(share, UNSEEN))
        certain = significance_of_shares(round(sure * rows), rows, round(sure_after * later), later) > pair.needed
        if certain and abs(after - share) > 0.05:
            name = f"{form[0]} {form[1]}" if form[1] else form[0]
            moved.append((after - share, f"{name} went from {change_share(share)} to {change_share(after)}"))
    moved.sort(key=lambda m: (-abs(m[0]), m[0]))
    if moved:
        text = f"The format of `{pair.after.name}` changed: {'; '.join(words for _, words in moved[:2])} of the values."
        yield pair.change("format", text, abs(moved[0][0]))


def _cardinality(pair: ChangePair) -> Iterator[Change]:
    before, after = pair.before, pair.after
    if before.distinct is None or after.distinct is None or before.unique or after.unique:
        return
    if column_has_all_values(before) and column_has_all_values(after):
        return  # `_values` already compared the values themselves.
    if before.distinct == 0 or 0.75 < after.distinct / before.distinct < 1.34:
        return
    rows, later = pair.values(before), pair.values(after)
    if significance_of_distinct(before.distinct, rows, after.distinct, later) > pair.needed:
        text = f"`{after.name}` now has {after.distinct:,} distinct values ({before.distinct:,} before)."
        strength = abs(math.log10(max(1, after.distinct) / before.distinct))
        yield pair.change("cardinality", text, strength, before.distinct, after.distinct)


Check = Callable[[ChangePair], Iterator[Change]]
_WHOLE: tuple[Check, ...] = (_emptied, _filled, _constant)
_PARTS: tuple[Check, ...] = (
    _nulls, _duplicates, number_drift, number_outliers_drift, number_precision_drift, number_extremes_drift,
    unusual_number_drift, _times,
    _dates, _values, _texts, _cardinality,
)  # fmt: skip


def column_resemblance(pair: ChangePair) -> float:
    """Return how likely two columns of different names are the same one, 0 to 1, by their profiles alone."""
    before, after = pair.before, pair.after
    if before.family != after.family or before.rows is None or after.rows is None:
        return 0.0
    if any(c.kind not in ("type", "nullable") for c in find_column_drift(pair)):
        return 0.0
    points = [1.0 if before.type == after.type else 0.6]
    points.append(_near(before.null_share, after.null_share, 1.0))
    points.append(_near(before.distinct, after.distinct, max(before.distinct or 0, after.distinct or 0)))
    if before.top and after.top and min(before.top[0].share, after.top[0].share) > 0.02:
        was, now = ({t.value for t in side.top} for side in (before, after))
        points.append(len(was & now) / max(1, min(len(was), len(now))))
    one, other = quantile_axis(before), quantile_axis(after)
    if one and other:
        points.append(max(0.0, 1 - 4 * kolmogorov_distance(one, other)))
    if before.lengths and after.lengths:
        points.append(_near(before.lengths.mean, after.lengths.mean, max(before.lengths.mean, after.lengths.mean)))
    return sum(points) / len(points)


def _near(one: float | None, other: float | None, scale: float) -> float:
    if one is None or other is None:
        return 0.5
    return max(0.0, 1 - 2 * abs(one - other) / scale) if scale else 1.0
