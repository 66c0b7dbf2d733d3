"""The conformance suite of sources: what `etude check source` runs. It reads, and checks that writes are refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etude.conformance import CheckResult, Failed, run_conformance_checks
from etude.entities import Limits
from etude.errors import Cancelled, EtudeError, InvalidQuery, LimitExceeded, Refused, UnknownTable
from etude.sources.source import Source

_DIGITS = "(" + " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10)) + ")"
_MILLION = f"SELECT a.d AS x FROM {', '.join(f'{_DIGITS} {n}' for n in 'abcefg')}"
_ENDLESS = f"SELECT count(*) FROM {', '.join(f'{_DIGITS} t{n}' for n in range(13))} WHERE t0.d + t12.d = 7"
LATE_S = 3.0
"""How late a query may end."""


def check_source(source: Source) -> Iterator[CheckResult]:
    """Run every check, one result each; a failing check does not stop the others."""
    yield from run_conformance_checks(CHECKS, source)


def _query(source: Source, sql: str, **limits: Any) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    stream = source.query(sql, Limits(**limits), describe=True)
    rows: list[tuple[Any, ...]] = []
    for batch in stream.batches:
        rows += zip(*(c.to_pylist() for c in batch.columns), strict=True)
    return rows, stream.end


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


def _refused(source: Source, sql: str, *kinds: type[EtudeError]) -> None:
    try:
        _query(source, sql, timeout_s=60)
    except kinds:
        return
    raise Failed(f"expected {kinds[0].__name__}, but this ran: {sql}")


def _values_and_nulls(source: Source) -> str:
    rows, _ = _query(source, "SELECT 1 AS a, NULL AS b, 'x' AS c UNION ALL SELECT 2, NULL, 'y' ORDER BY 1")
    _expect([(int(a), b, c) for a, b, c in rows], [(1, None, "x"), (2, None, "y")], "two rows")
    return "integers, text and nulls come back unchanged"


def _no_rows(source: Source) -> str:
    rows, end = _query(source, "SELECT 1 AS a WHERE 1 = 0")
    _expect((rows, end["row_count"], end["truncated"]), ([], 0, False), "an empty result")
    return "an empty result keeps its columns"


def _catalog(source: Source) -> str:
    catalog = source.catalog()
    for table in catalog.tables[:20]:
        if not table.columns:
            raise Failed(f"`{table.name}` has no columns")
    return f"{len(catalog.tables)} tables, dialect {catalog.dialect}"


def _every_table_reads(source: Source) -> str:
    from sqlglot import exp

    catalog = source.catalog()
    for table in catalog.tables[:20]:
        named = exp.select("*").from_(exp.to_table(table.name, dialect=catalog.dialect)).limit(1)
        stream = source.query(named.sql(dialect=catalog.dialect, identify=True), Limits(rows=1))
        seen = [b.schema.names for b in stream.batches]
        _expect(seen[0], [c.name for c in table.columns], f"columns of `{table.name}`")
    return f"{min(len(catalog.tables), 20)} tables read"


def _streams(source: Source) -> str:
    started = time.perf_counter()
    stream = source.query(_MILLION, Limits(timeout_s=120, rows=0, bytes=0))
    count = largest = 0
    for batch in stream.batches:
        count += batch.num_rows
        largest = max(largest, batch.num_rows)
    _expect(count, 1_000_000, "rows of a million-row result")
    if largest > 500_000:
        raise Failed(f"a batch held {largest:,} rows: the result was not streamed")
    return f"a million rows, {count / (time.perf_counter() - started):,.0f} rows/s"


def _caps(source: Source) -> str:
    rows, end = _query(source, _MILLION, limit=1000)
    _expect((len(rows), end["row_count"], end["truncated"]), (1000, 1000, True), "the first rows")
    for limits in ({"rows": 999_999}, {"bytes": 100_000}):
        try:
            _, end = _query(source, _MILLION, **limits)
        except LimitExceeded:
            continue
        raise Failed(f"a million rows passed the limits {limits}: {end['row_count']:,} rows, {end['bytes']:,} bytes")
    return "a result above a limit of rows or bytes fails, and is cut only on request"


def _parameters(source: Source) -> str:
    hostile = "x' OR 1 = 1 --"
    stream = source.query("SELECT 1 AS a WHERE 2 = ? AND 'x' <> ?", Limits(), params=[2, hostile])
    _expect([b.num_rows for b in stream.batches if b.num_rows], [1], "a row by its parameters")
    stream = source.query("SELECT 1 AS a WHERE 'x' = ?", Limits(), params=[hostile])
    _expect([b.num_rows for b in stream.batches if b.num_rows], [], "no row by a hostile parameter")
    _refused(source, "SELECT 1 AS a WHERE 2 = ?", Refused, InvalidQuery)
    return "values of parameters are bound, and a parameter without a value is refused"


def _timeout(source: Source) -> str:
    started = time.perf_counter()
    _limited(source, timeout_s=1.0)
    took = time.perf_counter() - started
    if took > 1 + LATE_S:
        raise Failed(f"a limit of 1 s ended the query after {took:.1f} s")
    _query(source, "SELECT 1 AS a")
    return f"a limit of 1 s held after {took:.2f} s"


def _limited(source: Source, timeout_s: float) -> None:
    try:
        _query(source, _ENDLESS, timeout_s=timeout_s)
    except LimitExceeded:
        return
    raise Failed("an endless query ended by itself")


def _cancel(source: Source) -> str:
    stream = source.query(_ENDLESS, Limits(timeout_s=60))
    timer = threading.Timer(0.5, stream.cancel)
    timer.start()
    started = time.perf_counter()
    try:
        list(stream.batches)
    except Cancelled:
        took = time.perf_counter() - started - 0.5
    else:
        raise Failed("an endless query ended by itself")
    finally:
        timer.cancel()
    if took > LATE_S:
        raise Failed(f"cancel took {took:.1f} s")
    _query(source, "SELECT 1 AS a")
    return f"the engine stopped {took * 1000:.0f} ms after the cancel, and answered the next query"


def _read_only(source: Source) -> str:
    attempts = (
        "CREATE TABLE etude_check (a INT)",
        "DROP TABLE etude_check",
        "SELECT 1; SELECT 2",
        "SET x = 1",
    )
    for sql in attempts:
        _refused(source, sql, Refused, InvalidQuery)
    return "writes, settings and second statements are refused"


def _unknown_names(source: Source) -> str:
    _refused(source, "SELECT * FROM etude_check_no_such_table", UnknownTable)
    _refused(source, "SELECT etude_check_no_such_function(1)", Refused)
    _refused(source, "SELEC 1", InvalidQuery, Refused)
    return "unknown tables, functions and syntax are refused with a reason"


def _estimate(source: Source) -> str:
    tables = [t for t in source.catalog().tables if (t.row_count or 0) > 10 and t.kind == "table"]
    if not tables:
        return "no table is large enough to try"
    from sqlglot import exp

    named = exp.select("*").from_(exp.to_table(tables[0].name, dialect=source.catalog().dialect))
    sql = named.sql(dialect=source.catalog().dialect, identify=True)
    _, end = _query(source, sql, limit=1)
    if not end["estimate"].get("scan_rows"):
        raise Failed(f"no estimate for a scan of `{tables[0].name}`: {end['estimate']}")
    try:
        _query(source, sql, limit=1, scan_rows=1)
    except LimitExceeded:
        return f"{end['estimate']['scan_rows']:,} rows expected; a budget of 1 refused it before it ran"
    raise Failed("a budget of 1 row did not stop a scan")


CHECKS: dict[str, Callable[[Source], str]] = {
    "values and nulls": _values_and_nulls,
    "empty result": _no_rows,
    "catalog": _catalog,
    "tables": _every_table_reads,
    "streaming": _streams,
    "caps": _caps,
    "parameters": _parameters,
    "timeout": _timeout,
    "cancel": _cancel,
    "read-only": _read_only,
    "unknown names": _unknown_names,
    "estimate and budget": _estimate,
}
