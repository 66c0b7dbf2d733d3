"""Build a column's profile from its statistics: derived facts, patterns, masked personal data, provenance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from etude.catalog.keys.key_names import key_name_word_set, key_name_words
from etude.catalog.measure.distribution import Stats
from etude.catalog.measure.patterns import find_patterns
from etude.catalog.measure.pii import MASK_FROM, find_pii, mask_pii_value
from etude.catalog.measure.statements import BUCKETS
from etude.catalog.model import (
    ColumnProfile,
    ColumnProvenance,
    Family,
    Freshness,
    Histogram,
    PiiHint,
    Provenance,
    Scalar,
    TopValue,
    profile_datetime,
)
from etude.entities import Column

TEXTS = 200
"""The maximum number of distinct texts of a column that are searched for patterns."""
_CONFIDENCE = 0.99
_CHANGED = key_name_word_set("updated update modified changed loaded ingested synced refreshed processed")
_HAPPENED = key_name_word_set(
    "created inserted added logged recorded event order transaction date time timestamp at ts"
)
_NOT_NEWS = key_name_word_set("birth dob born birthday expire expiry expiration due end until valid scheduled planned")


def sample_column_provenance(rows: int) -> Provenance:
    """Return the provenance of a sample, with the error bound of its shares at 99% (Dvoretzky-Kiefer-Wolfowitz)."""
    error = math.sqrt(math.log(2 / (1 - _CONFIDENCE)) / (2 * max(rows, 1)))
    detail = f"a sample of {rows:,} rows; ranks and shares within {error:.2%} at {_CONFIDENCE:.0%} confidence"
    return Provenance(method="sampled", rows=rows, error=round(error, 6), detail=detail)


def first_rows_column_provenance(rows: int) -> Provenance:
    """Return the provenance of the first rows, used if the engine cannot sample; they have no error bound."""
    return Provenance(method="sampled", rows=rows, detail=f"the first {rows:,} rows, not random: no error bound")


def hash_count_column_provenance(distinct: int) -> Provenance:
    """Return the provenance of a distinct count from one bucket of hashes: three standard deviations."""
    error = 3 * math.sqrt((BUCKETS - 1) / max(distinct, 1))
    detail = f"counted in one of {BUCKETS} buckets of hashes; within {error:.2%} at 99.7% confidence"
    return Provenance(method="approximate", error=round(error, 6), detail=detail)


def profile_column(
    table: str, column: Column, stats: Stats, provenance: ColumnProvenance, notes: Sequence[str] = ()
) -> ColumnProfile:
    """Build the profile of one column, with suspected personal data masked."""
    patterns = find_patterns(stats.texts)
    pii = find_pii(table, column.name, stats.family, patterns)
    values = stats.rows - stats.nulls
    blank = stats.lengths.empty if stats.lengths else 0
    unique = None if stats.repeated is None else values > 0 and not stats.repeated
    profile = ColumnProfile(
        name=column.name,
        type=column.type,
        family=stats.family,
        nullable=column.nullable,
        comment=column.comment,
        rows=stats.rows,
        nulls=stats.nulls,
        distinct=stats.distinct,
        unique=unique,
        constant=stats.distinct == 1 and stats.nulls == 0 and provenance.distinct is not None,
        empty=stats.rows > 0 and values == blank,
        min=stats.least,
        max=stats.greatest,
        mean=stats.mean,
        stddev=stats.stddev,
        zeros=stats.zeros,
        negatives=stats.negatives,
        nans=stats.nans,
        infinities=stats.infinities,
        quantiles=tuple(stats.quantiles),
        histogram=_histogram(stats),
        outliers=stats.outliers,
        top=tuple(TopValue(value=v, count=c, share=round(c / values, 6)) for v, c in stats.top),
        lengths=stats.lengths,
        patterns=patterns,
        pii=pii,
        typical_gap_s=stats.gap_s,
        provenance=_fitting(provenance, stats, bool(patterns)),
        notes=tuple(notes),
    )
    return _masked(profile)


def unmeasured_column_profile(column: Column, family: Family, notes: Sequence[str] = ()) -> ColumnProfile:
    """Build the profile of a column that was not measured: only its declaration."""
    return ColumnProfile(
        name=column.name,
        type=column.type,
        family=family,
        nullable=column.nullable,
        comment=column.comment,
        provenance=ColumnProvenance(distinct=None, moments=None, quantiles=None, top=None),
        notes=tuple(notes),
    )


def _fitting(provenance: ColumnProvenance, stats: Stats, patterns: bool) -> ColumnProvenance:
    """Return the provenance without the groups that the column does not have."""
    absent: dict[str, None] = {}
    if not stats.quantiles:
        absent["quantiles"] = None
    if stats.mean is None:
        absent["moments"] = None
    if not patterns:
        absent["patterns"] = None
    return provenance.model_copy(update=absent)


def _histogram(stats: Stats) -> Histogram | None:
    if stats.listed:
        return Histogram(
            kind="values", edges=tuple(v for v, _ in stats.listed), counts=tuple(float(c) for _, c in stats.listed)
        )
    if not stats.quantiles:
        return None
    finite = stats.rows - stats.nulls - (stats.nans or 0) - (stats.infinities or 0)
    share = finite / (len(stats.quantiles) - 1)
    edges, counts = [stats.quantiles[0]], [0.0]
    for value in stats.quantiles[1:]:
        counts[-1] += share
        if value != edges[-1]:
            edges.append(value)
            counts.append(0.0)
    if len(edges) == 1:
        return Histogram(kind="values", edges=tuple(edges), counts=(float(finite),))
    # Values on the last edge belong to the bin before it.
    last = counts.pop()
    counts[-1] += last
    return Histogram(edges=tuple(edges), counts=tuple(round(c, 2) for c in counts))


def choose_column_mask(pii: Sequence[PiiHint]) -> str | None:
    """Return the kind of personal data that decides the mask, or None."""
    return pii[0].kind if pii and pii[0].confidence >= MASK_FROM else None


def _masked(profile: ColumnProfile) -> ColumnProfile:
    kind = choose_column_mask(profile.pii)
    if kind is None:
        return profile
    hidden = tuple(v.model_copy(update={"value": mask_pii_value(kind, v.value)}) for v in profile.top)
    # Quantiles are values of single rows, so they are removed too.
    gone = {
        "quantiles": (),
        "histogram": None,
        "min": mask_pii_value(kind, profile.min),
        "max": mask_pii_value(kind, profile.max),
    }
    return profile.model_copy(update={"top": hidden, "masked": True, **gone})


def find_column_freshness(columns: Sequence[ColumnProfile]) -> Freshness | None:
    """Find the date column that best shows when a table last changed, by its name and its share of nulls."""
    best: tuple[tuple[int, float], ColumnProfile] | None = None
    for column in columns:
        rank = _rank(column)
        if rank is not None and (best is None or rank > best[0]):
            best = rank, column
    if best is None:
        return None
    found = best[1]
    return Freshness(column=found.name, newest=str(found.max), oldest=str(found.min), typical_gap_s=found.typical_gap_s)


def _rank(column: ColumnProfile) -> tuple[int, float] | None:
    tokens = set(key_name_words(column.name))
    if column.masked or tokens & _NOT_NEWS or not column.rows or profile_datetime(column.max) is None:
        return None
    # The largest text is the newest date only in formats that sort like text.
    in_text = any(p.share >= 0.95 and p.form in ("%Y-%m-%d", "ISO 8601") for p in column.patterns)
    if column.family not in ("date", "timestamp") and not in_text:
        return None
    full = 1 - (column.nulls or 0) / column.rows
    if full < 0.5:
        return None
    return (2 if tokens & _CHANGED else 1 if tokens & _HAPPENED else 0), round(full, 3)


def mask_row_columns(columns: Sequence[ColumnProfile], row: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Mask the values of masked columns in a row, and remove those of columns that were not measured."""
    return tuple(
        None if c.rows is None else mask_pii_value(choose_column_mask(c.pii) or "", v) if c.masked else v
        for c, v in zip(columns, row)
    )
