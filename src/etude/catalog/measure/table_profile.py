"""Measure a table by one of three plans: read it completely, by the engine one column at a time, or partly sampled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etude.catalog.measure import statements
from etude.catalog.measure.column_profile import (
    TEXTS,
    first_rows_column_provenance,
    hash_count_column_provenance,
    sample_column_provenance,
)
from etude.catalog.measure.distribution import (
    Stats,
    are_iso_dates,
    distribution_date_gap,
    distribution_distinct_count,
    distribution_outlier_fences,
    distribution_scalars,
    measure_distribution,
    round_distribution_statistic,
)
from etude.catalog.measure.source_reader import SourceReader
from etude.catalog.measure.statements import BUCKETS, MEASURED, ORDERED, QUANTILES, Center
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.measure.type_families import settled_type_family, type_family_of
from etude.catalog.model import EXACT, NUMERIC, ColumnProvenance, Lengths, Outliers, Provenance, profile_number
from etude.entities import Table
from etude.errors import STOPS, EtudeError, UnknownTable

SMALL_ROWS = 20_000
"""Tables with at most this many rows are read completely, unless they are too wide."""
SMALL_CELLS = 1_000_000
SMALL_BYTES = 64 << 20
WHOLE = {"limit": SMALL_ROWS * 2, "bytes": SMALL_BYTES}
"""The limits for reading a small table, which may have grown since it was counted."""
FEW_VALUES = 20_000
"""Columns with at most this many distinct values are measured from all their groups."""
LOOK_ROWS = 5_000
"""Rows of the sample that decides how to measure each column and provides patterns and sample rows."""
SAMPLE_ROWS = 100_000
"""Rows of the sample for a table too large to be measured exactly."""
TOGETHER = 10
"""Columns in one statement: more of them need more memory and are slower."""


@dataclass(frozen=True)
class Bounds:
    """The maximum rows of a table that is read completely, and of one that its engine measures exactly."""

    small_rows: int
    exact_rows: int


def draft_table_profile(reader: SourceReader, table: Table, sql: str, rows: int | None) -> TableDraft:
    """Create the draft of a table, with the expressions that read its columns."""
    expressions = [
        statements.statement_column_expression(reader.dialect, c.name, type_family_of(reader.dialect, c.type), c.type)
        for c in table.columns
    ]
    return TableDraft(table, sql, rows or 0, expressions=expressions)


def read_table_profile_ahead(reader: SourceReader, draft: TableDraft, rows: int | None, bounds: Bounds) -> None:
    """Start to read the table that will be measured next, if it is small."""
    if rows is not None and _is_small(draft, rows, bounds):
        reader.read_ahead(statements.rows_statement(draft.sql, draft.expressions), **WHOLE)


def measure_table_profile(reader: SourceReader, draft: TableDraft, rows: int | None, bounds: Bounds) -> None:
    """Read a small table completely; measure a larger one column by column."""
    if rows is None:
        rows = int(reader.rows(statements.count_statement([(0, draft.sql)]))[0][1])
    draft.rows = rows
    if not (_is_small(draft, rows, bounds) and _measure_whole(reader, draft)):
        _measure_columns(reader, draft, bounds)


def _is_small(draft: TableDraft, rows: int, bounds: Bounds) -> bool:
    return rows <= bounds.small_rows and rows * len(draft.expressions) <= SMALL_CELLS


def _measure_whole(reader: SourceReader, draft: TableDraft) -> bool:
    """Read all rows and measure them here; False if there are too many after all."""
    result = reader.read_small(statements.rows_statement(draft.sql, draft.expressions), **WHOLE)
    if result is None:
        return False
    draft.take(result)
    draft.complete = True
    draft.rows = result.row_count
    for expression, column, info in zip(draft.expressions, draft.frame, result.columns):
        draft.stats.append(
            measure_distribution(*distribution_distinct_count(column), expression.family, info.type, TEXTS)
        )
        draft.provenance.append(ColumnProvenance(patterns=_of_texts(draft.stats[-1])))
    return True


def _of_texts(stats: Stats) -> Provenance | None:
    """Return the provenance of patterns: exact if all distinct texts were examined."""
    if stats.distinct is not None and len(stats.texts) >= stats.distinct:
        return EXACT
    return sample_column_provenance(len(stats.texts))


def _measure_columns(reader: SourceReader, draft: TableDraft, bounds: Bounds) -> None:
    exact = draft.rows <= bounds.exact_rows
    draft.plan = "exact" if exact else "sampled"
    _take_sample(reader, draft, LOOK_ROWS if exact else SAMPLE_ROWS)
    blank = ColumnProvenance(distinct=None, moments=None, quantiles=None, top=None)
    draft.stats = [Stats(e.family, draft.rows, 0) for e in draft.expressions]
    draft.provenance = [blank] * len(draft.expressions)
    looks = [_look(draft, i) for i in range(len(draft.expressions))]
    scanned, centered = [], []
    for i, look in enumerate(looks):
        try:
            few = _by_groups(reader, draft, i) if 2 * (look.distinct or 0) <= look.rows - look.nulls else False
            if few:
                continue
            if exact:
                _by_summary(reader, draft, i, look)
                centered.append(i)
            else:
                scanned.append(i)
        except STOPS:
            raise
        except EtudeError as error:
            draft.skip_column(i, error)
    _by_scan(reader, draft, scanned, looks)
    _by_spread(reader, draft, [i for i in (*centered, *scanned) if draft.stats[i].family in NUMERIC])
    # The catalog's count may be out of date.
    measured = (s.rows for i, s in enumerate(draft.stats) if i not in draft.unmeasured)
    draft.rows = next(measured, draft.rows)


def _take_sample(reader: SourceReader, draft: TableDraft, rows: int) -> None:
    """Put a sample of rows into the draft; the first rows if the engine cannot sample, as for most views."""
    can_sample = reader.dialect != "postgres" or draft.table.kind == "table"
    if can_sample:
        try:
            draft.take(
                reader.read(statements.sample_statement(reader.dialect, draft.sql, draft.expressions, rows, draft.rows))
            )
            return
        except (*STOPS, UnknownTable):
            raise
        except EtudeError as error:
            draft.notes.append(f"No sample could be taken: {error.message}")
    draft.take(reader.read(statements.head_statement(reader.dialect, draft.sql, draft.expressions, rows)))
    draft.drawn = False
    draft.notes.append(f"The sample is the first {draft.sample_rows:,} rows.")


def _look(draft: TableDraft, i: int) -> Stats:
    return measure_distribution(
        *distribution_distinct_count(draft.frame[i]), draft.expressions[i].family, draft.kinds[i], TEXTS
    )


def _by_groups(reader: SourceReader, draft: TableDraft, i: int) -> bool:
    """Measure a column of few distinct values from its groups; False if there are too many."""
    query = statements.groups_statement(reader.dialect, draft.sql, draft.expressions[i], FEW_VALUES)
    result = reader.read_small(query, limit=FEW_VALUES + 1, bytes=SMALL_BYTES)
    if result is None or result.row_count > FEW_VALUES:
        return False
    values, counts = TableDraft.columns_of(result)[:2]
    draft.stats[i] = measure_distribution(values, counts, draft.expressions[i].family, result.columns[0].type, TEXTS)
    draft.provenance[i] = ColumnProvenance(patterns=_of_texts(draft.stats[i]))
    return True


def _by_summary(reader: SourceReader, draft: TableDraft, i: int, look: Stats) -> None:
    """Measure a column of many distinct values in the engine; mean and outliers come later."""
    expression = draft.expressions[i]
    # MySQL compares text loosely, and has types for dates.
    dates = expression.family == "text" and reader.dialect != "mysql" and are_iso_dates(look.texts)
    ordered = expression.family in ORDERED or dates
    result = reader.read(statements.summary_statement(reader.dialect, draft.sql, expression, ordered))
    columns = dict(zip((c.name for c in result.columns), TableDraft.columns_of(result)))
    kinds = {c.name: c.type for c in result.columns}
    first = {name: distribution_scalars(column[:1], kinds[name])[0] for name, column in columns.items()}
    stats = Stats(
        settled_type_family(expression.family, columns["top_value"].type), _int(first["n"]), _int(first["nulls"])
    )
    stats.distinct, stats.repeated = _int(first["d"]), _int(first["most"]) > 1
    tops = zip(
        distribution_scalars(columns["top_value"], kinds["top_value"]), distribution_scalars(columns["top_count"], "")
    )
    stats.top = [(value, _int(count)) for value, count in tops if count is not None]
    if stats.nulls and stats.distinct and stats.repeated:
        # The most frequent group may be the nulls.
        stats.repeated = stats.top[0][1] > 1
    _take_fields(stats, first, "")
    if ordered:
        stats.quantiles = [first[f"q{k}"] for k in range(QUANTILES + 1)] if stats.least is not None else []
    _finish_summary(stats, look)
    draft.stats[i] = stats
    draft.provenance[i] = ColumnProvenance(patterns=sample_column_provenance(len(look.texts)))


def _take_fields(stats: Stats, first: dict[str, Any], suffix: str) -> None:
    """Read the fields that a summary and a scan have in common."""
    stats.least, stats.greatest = first.get(f"least{suffix}"), first.get(f"greatest{suffix}")
    if stats.family in NUMERIC:
        stats.zeros, stats.negatives = _int(first[f"zeros{suffix}"]), _int(first[f"negatives{suffix}"])
    nans, infinities = _int(first.get(f"nans{suffix}")), _int(first.get(f"infinities{suffix}"))
    if stats.family == "float" or nans or infinities:
        stats.nans, stats.infinities = nans, infinities
    shortest = first.get(f"shortest{suffix}")
    if stats.family in MEASURED and shortest is not None:
        values = stats.rows - stats.nulls
        stats.lengths = Lengths(
            min=_int(shortest),
            max=_int(first[f"longest{suffix}"]),
            mean=round_distribution_statistic(_int(first[f"letters{suffix}"]) / values),
            empty=_int(first[f"blank{suffix}"]),
            padded=_int(first[f"padded{suffix}"]) if stats.family == "text" else None,
        )


def _finish_summary(stats: Stats, look: Stats) -> None:
    stats.texts = look.texts
    if stats.family in ("date", "timestamp") and stats.quantiles:
        stats.gap_s = distribution_date_gap(stats.quantiles[QUANTILES // 2], stats.greatest, stats.distinct)


def _int(value: Any) -> int:
    return int(value) if value is not None else 0


def _by_scan(reader: SourceReader, draft: TableDraft, chosen: Sequence[int], looks: Sequence[Stats]) -> None:
    """Measure columns of many values in a table too large to group: exact counts, the rest approximate or sampled."""
    for part in _parts(chosen):
        query = statements.scan_statement(reader.dialect, draft.sql, [draft.expressions[i] for i in part])
        try:
            result = reader.read(query)
        except STOPS:
            raise
        except EtudeError as error:
            for i in part:
                draft.skip_column(i, error)
            continue
        kinds = {c.name: c.type for c in result.columns}
        first = {
            name: distribution_scalars(column, kinds[name])[0]
            for name, column in zip(kinds, TableDraft.columns_of(result))
        }
        for position, i in enumerate(part):
            draft.stats[i], draft.provenance[i] = _scanned(reader.dialect, draft, looks[i], first, position)


def _scanned(
    dialect: str, draft: TableDraft, look: Stats, first: dict[str, Any], position: int
) -> tuple[Stats, ColumnProvenance]:
    values = _int(first[f"c{position}"])
    stats = replace(look, rows=_int(first["n"]), nulls=_int(first["n"]) - values, repeated=None)
    all_counted = dialect == "sqlite"  # see `_in_first_bucket`
    stats.distinct = min(_int(first[f"d{position}"]) * (1 if all_counted else BUCKETS), values)
    if all_counted:
        stats.repeated = stats.distinct < values
    elif stats.distinct * (1 + (hash_count_column_provenance(stats.distinct).error or 0)) < values or (look.repeated):
        stats.repeated = True
    _take_fields(stats, first, str(position))
    scale = values / max(look.rows - look.nulls, 1)
    stats.top = [(value, round(count * scale)) for value, count in look.top if count > 1]
    stats.outliers, stats.mean, stats.stddev, stats.listed = None, None, None, []
    _finish_summary(stats, look)
    of_sample = (
        sample_column_provenance(draft.sample_rows) if draft.drawn else first_rows_column_provenance(draft.sample_rows)
    )
    provenance = ColumnProvenance(
        distinct=EXACT if all_counted else hash_count_column_provenance(stats.distinct),
        quantiles=of_sample,
        top=of_sample if stats.top else None,
        patterns=sample_column_provenance(len(look.texts)),
    )
    return stats, provenance


def _by_spread(reader: SourceReader, draft: TableDraft, chosen: Sequence[int]) -> None:
    """Measure mean, standard deviation and outliers of numeric columns, whose median and extremes are known by now."""
    centers = {i: center for i in chosen if (center := _center(draft.stats[i])) is not None}
    for part in _parts(list(centers)):
        query = statements.spread_statement(
            reader.dialect, draft.sql, [(draft.expressions[i], centers[i]) for i in part]
        )
        try:
            row = reader.rows(query)[0]
        except STOPS:
            raise
        except EtudeError as error:
            draft.column_notes |= {i: (f"mean and outliers not measured: {error.message}",) for i in part}
            continue
        for position, i in enumerate(part):
            _take_spread(draft.stats[i], centers[i], row[position * 4 : position * 4 + 4])


def _center(stats: Stats) -> Center | None:
    """Return the median of a column and a scale that turns its values into whole numbers of less than 62 bits."""
    if not stats.quantiles:
        return None
    ends = profile_number(stats.least), profile_number(stats.greatest)
    middle, lower, upper = (profile_number(stats.quantiles[QUANTILES * k // 4]) for k in (2, 1, 3))
    if middle is None or lower is None or upper is None or ends[0] is None or ends[1] is None:
        return None
    reach = max(ends[1] - middle, middle - ends[0])
    if not math.isfinite(reach):
        return None
    exponent = 60 - (math.frexp(reach)[1] if reach > 0 else 0)
    if not -1000 < exponent < 1000:
        return None
    low, high = distribution_outlier_fences(lower, upper) or (-1e308, 1e308)
    return Center(middle, 2.0**exponent, low, high)


def _take_spread(stats: Stats, center: Center, sums: Sequence[Any]) -> None:
    if sums[0] is None:
        return
    n = stats.rows - stats.nulls - (stats.nans or 0) - (stats.infinities or 0)
    # The unit of the squares is 31 bits coarser than that of the sum.
    total, squares, unit = float(sums[0]) * 2.0**-31, float(sums[1]), center.scale * 2.0**-31
    stats.mean = round_distribution_statistic(center.middle + total / unit / n)
    if n > 1:
        stats.stddev = round_distribution_statistic(math.sqrt(max(squares - total * total / n, 0.0) / (n - 1)) / unit)
    if center.high < 1e308:
        stats.outliers = Outliers(
            low=round_distribution_statistic(center.low),
            high=round_distribution_statistic(center.high),
            below=_int(sums[2]),
            above=_int(sums[3]),
        )


def _parts(chosen: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(chosen), TOGETHER):
        yield chosen[start : start + TOGETHER]
