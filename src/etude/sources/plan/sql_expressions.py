"""SQL expressions for each engine: constants, division, dates, patterns, quantiles, windows, order mean the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Literal

from sqlglot import exp

from etude.errors import Invalid
from etude.sources.column_kind import Kind
from etude.sources.plan.query_plan import AggregateFn, Grain, MatchOp, Part, WindowFn

Nulls = Literal["first", "last"]
DIALECTS = ("duckdb", "postgres", "mysql", "sqlite")
TEMPORAL: frozenset[Kind] = frozenset({"date", "timestamp", "timestamptz"})

TYPES: dict[Kind, str] = {
    "number": "double",
    "text": "text",
    "boolean": "boolean",
    "flag": "tinyint(1)",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "other": "other",
}
"""A type for each kind, for columns that a plan computes."""
_SHOWN: dict[Kind, str] = {
    "number": "a number",
    "text": "text",
    "boolean": "true or false",
    "flag": "true or false",
    "date": "a date",
    "timestamp": "a date with a time",
    "timestamptz": "a date with a time",
}


@dataclass(frozen=True)
class Typed:
    """A piece of SQL, the kind of its value, its label in errors, and its own name, if it has one."""

    ast: exp.Expr
    kind: Kind
    label: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.label} is {_SHOWN.get(self.kind, 'of another type')}"


def require_same_expression_kind(left: Typed, right: Typed) -> None:
    """Refuse two values that no engine, or not every engine, can compare."""
    groups = (TEMPORAL, {"number", "flag"}, {"boolean", "flag"}, {"text"})
    if "other" in (left.kind, right.kind) or any(left.kind in g and right.kind in g for g in groups):
        return
    raise Invalid(f"{left}, but {right}.", hint="Compare values of the same kind.")


def identifier_expression(name: str) -> exp.Identifier:
    """Return the name as a quoted identifier, with quotes in it escaped."""
    return exp.to_identifier(name, quoted=True)


def _call(name: str, *args: exp.Expr) -> exp.Expr:
    # Anonymous, so that sqlglot writes the engine's function as it is and does not translate it.
    return exp.Anonymous(this=name, expressions=list(args))


def _text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def _number(value: float) -> exp.Expr:
    return exp.Literal.number(value)


def cast_to_double(ast: exp.Expr) -> exp.Expr:
    """Cast to double: engines round averages and quotients of whole numbers and decimals differently."""
    return exp.cast(ast, exp.DataType.Type.DOUBLE)


def number_expression(ast: exp.Expr, dialect: str) -> exp.Expr:
    """Return the number that a text holds."""
    if dialect == "duckdb":
        return exp.TryCast(this=ast, to=exp.DataType.build("double"))
    return exp.cast(ast, exp.DataType.Type.DOUBLE)


def division_expression(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return a quotient: 1 divided by 2 is 0.5, and division by zero is null."""
    divisor = exp.Nullif(this=right, expression=_number(0))
    return exp.Div(this=cast_to_double(left), expression=divisor, typed=True, safe=False)


# --- constants


def literal_expression(value: str | float) -> Typed:
    """Return a constant with its own kind."""
    if isinstance(value, bool):
        return Typed(exp.Boolean(this=value), "boolean", f"`{str(value).lower()}`")
    if isinstance(value, str):
        return Typed(_text(value), "text", f"`{value}`")
    return Typed(_number(value), "number", f"`{value}`")


def constant_expression(value: str | float, like: Typed, dialect: str) -> exp.Expr:
    """Return a constant to compare with `like`; raise `Invalid` if it is of another kind."""
    own = literal_expression(value)
    if like.kind in TEMPORAL and isinstance(value, str):
        return _moment(value, like, dialect)
    if like.kind in ("other", own.kind) or (like.kind == "flag" and own.kind in ("number", "boolean")):
        return own.ast
    raise Invalid(f"{like}, but {own.label} is {_SHOWN[own.kind]}.", hint=_constant_hint(value, like))


def _constant_hint(value: str | float, like: Typed) -> str:
    if like.kind == "text":
        return f'Write the value as text: "{value}".'
    if like.kind == "number":
        return "Write the value as a number, without quotes."
    if like.kind in TEMPORAL:
        return 'Write the value as "YYYY-MM-DD", or compare a date part such as {"part": "year", "of": ...}.'
    return "Write true or false."


def _moment(value: str, like: Typed, dialect: str) -> exp.Expr:
    moment = _parse_moment(value, like)
    if like.kind == "date":
        shown = moment.date().isoformat()
        return _text(shown) if dialect == "sqlite" else exp.cast(_text(shown), "date")
    if moment.tzinfo and dialect in ("mysql", "sqlite"):
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    if dialect == "sqlite":
        return _text(moment.isoformat(" ", "milliseconds"))
    to = {"mysql": "datetime(6)"}.get(dialect, like.kind)
    return exp.cast(_text(moment.isoformat(" ")), exp.DataType.build(to, dialect=dialect))


def _parse_moment(value: str, like: Typed) -> datetime:
    try:
        # fromisoformat also accepts 20240131 and 2024-W05-3, which no engine does.
        if not re.match(r"\d{4}-\d\d-\d\d(?!\d)", value):
            raise ValueError
        moment = datetime.fromisoformat(value)
    except ValueError:
        form = "YYYY-MM-DD" if like.kind == "date" else "YYYY-MM-DD or YYYY-MM-DD HH:MM:SS"
        raise Invalid(f"`{value}` is not a date.", hint=f"{like}; write the value as {form}.") from None
    if like.kind == "timestamptz":
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment.tzinfo:
        raise Invalid(f"`{value}` has a time zone, but {like.label} has none.", hint="Remove the time zone.")
    if like.kind == "date" and moment.time() != time():
        raise Invalid(f"`{value}` has a time, but {like}.", hint="Remove the time.")
    return moment


# --- dates


def comparable_expression(typed: Typed, kind: Kind, dialect: str) -> exp.Expr:
    """Return the value in a form that compares correctly with any value of `kind`."""
    if typed.kind not in TEMPORAL:
        return typed.ast
    if dialect == "sqlite":
        # SQLite keeps dates as text; `2024-01-31` and `2024-01-31T00:00:00` are equal only in one form.
        if kind == "date":
            return _call("DATE", typed.ast)
        return _call("STRFTIME", _text("%Y-%m-%d %H:%M:%f"), typed.ast)
    return typed.ast if kind == typed.kind else _clock(typed, dialect)


def _clock(typed: Typed, dialect: str) -> exp.Expr:
    """Date and time in UTC, so that the answer does not depend on the time zone of the connection."""
    if typed.kind == "timestamptz" and dialect in ("duckdb", "postgres"):
        return exp.AtTimeZone(this=typed.ast, zone=_text("UTC"))
    return typed.ast


def _require_date(typed: Typed, what: str, dialect: str) -> None:
    if typed.kind in TEMPORAL or typed.kind == "other" or (dialect == "sqlite" and typed.kind == "text"):
        return
    raise Invalid(f"{typed}; `{what}` needs a date.", hint="Use a date or timestamp column.")


def date_part_expression(typed: Typed, part: Part, dialect: str) -> exp.Expr:
    """Return a part of a date as a whole number."""
    _require_date(typed, part, dialect)
    if part == "hour" and typed.kind == "date":
        raise Invalid(f"{typed}; it has no hour.", hint="Use a timestamp column.")
    ast = _clock(typed, dialect)
    if dialect == "sqlite":
        return _sqlite_part(ast, part)
    if dialect == "mysql" and part == "week":
        return _call("WEEK", ast, _number(3))
    if dialect == "mysql" and part == "weekday":
        return exp.Add(this=_call("WEEKDAY", ast), expression=_number(1))
    found = exp.Extract(this=exp.var("ISODOW" if part == "weekday" else part.upper()), expression=ast)
    return exp.cast(found, "int") if dialect == "postgres" else found


def _sqlite_part(ast: exp.Expr, part: Part) -> exp.Expr:
    def whole(code: str, of: exp.Expr) -> exp.Expr:
        return exp.cast(_call("STRFTIME", _text(code), of), "int")

    def ratio(ast: exp.Expr, add: int, by: int) -> exp.Expr:
        total = exp.paren(exp.Add(this=ast, expression=_number(add)), copy=False)
        return exp.Div(this=total, expression=_number(by), typed=True, safe=False)

    match part:
        case "quarter":
            return exp.paren(ratio(whole("%m", ast), 2, 3), copy=False)
        case "week":
            # The ISO week of a date is the one of its Thursday; %V needs SQLite 3.46.
            thursday = _call("DATE", ast, _text("-3 days"), _text("weekday 4"))
            return exp.paren(ratio(whole("%j", thursday), 6, 7), copy=False)
        case "weekday":
            # %w counts from Sunday; going back a day makes Monday 0.
            monday_first = whole("%w", _call("DATE", ast, _text("-1 days")))
            return exp.paren(exp.Add(this=monday_first, expression=_number(1)), copy=False)
    return whole({"year": "%Y", "month": "%m", "day": "%d", "hour": "%H"}[part], ast)


def date_trunc_expression(typed: Typed, grain: Grain, dialect: str) -> exp.Expr:
    """Return the first day of the period that a date is in, as a date."""
    _require_date(typed, grain, dialect)
    ast = _clock(typed, dialect)
    if dialect == "sqlite":
        return _sqlite_trunc(ast, grain)
    if dialect == "mysql":
        return _mysql_trunc(ast, grain)
    if typed.kind == "date" and dialect == "postgres":
        # Without it, Postgres would convert through the time zone of the connection.
        ast = exp.cast(ast, "timestamp")
    return exp.cast(_call("DATE_TRUNC", _text(grain), ast), "date")


def _sqlite_trunc(ast: exp.Expr, grain: Grain) -> exp.Expr:
    match grain:
        case "week":
            return _call("DATE", ast, _text("-6 days"), _text("weekday 1"))
        case "quarter":
            into = exp.Mod(
                this=exp.paren(exp.Sub(this=_call("STRFTIME", _text("%m"), ast), expression=_number(1))),
                expression=_number(3),
            )
            back = exp.DPipe(this=exp.DPipe(this=_text("-"), expression=exp.paren(into)), expression=_text(" months"))
            return _call("DATE", ast, _text("start of month"), back)
        case "day":
            return _call("DATE", ast)
    return _call("DATE", ast, _text(f"start of {grain}"))


def _mysql_trunc(ast: exp.Expr, grain: Grain) -> exp.Expr:
    day = exp.cast(ast, "date")
    new_year = _call("MAKEDATE", _call("YEAR", ast), _number(1))

    def step(start: exp.Expr, by: exp.Expr, unit: str) -> exp.Expr:
        return _call("DATE_ADD", start, exp.Interval(this=exp.paren(by), unit=exp.var(unit)))

    match grain:
        case "day":
            return day
        case "week":
            return step(day, exp.Neg(this=_call("WEEKDAY", ast)), "DAY")
        case "month":
            return step(day, exp.Sub(this=_number(1), expression=_call("DAYOFMONTH", ast)), "DAY")
        case "quarter":
            return step(new_year, exp.Sub(this=_call("QUARTER", ast), expression=_number(1)), "QUARTER")
    return new_year


def days_between_expression(first: Typed, second: Typed, dialect: str) -> exp.Expr:
    """Whole days from one date to another, whatever the time of day."""
    for typed in (first, second):
        _require_date(typed, "days_between", dialect)
    start, end = _clock(first, dialect), _clock(second, dialect)
    if dialect == "sqlite":
        days = [_call("JULIANDAY", _call("DATE", ast)) for ast in (end, start)]
        return exp.cast(exp.paren(exp.Sub(this=days[0], expression=days[1]), copy=False), "int")
    if dialect == "mysql":
        return _call("DATEDIFF", end, start)
    return exp.paren(exp.Sub(this=exp.cast(end, "date"), expression=exp.cast(start, "date")), copy=False)


# --- patterns


def pattern_expression(typed: Typed, op: MatchOp, value: str, dialect: str) -> exp.Expr:
    """Return whether text matches a pattern; all but `ilike` are case-sensitive."""
    if typed.kind not in ("text", "other"):
        raise Invalid(f"{typed}; `{op}` needs text.", hint="Compare it with =, <, > or between.")
    pattern = _pattern(op, value)
    ast = typed.ast
    if dialect == "sqlite" and op != "ilike":
        # LIKE in SQLite ignores case; GLOB does not.
        return exp.Glob(this=ast, expression=_text(_to_glob(pattern)))
    if dialect == "mysql":
        # The column's own collation may ignore case and accents.
        utf8 = exp.cast(ast, exp.DataType(this=exp.DataType.Type.CHARACTER_SET, kind=exp.var("utf8mb4")))
        ast = exp.Collate(this=utf8, expression=exp.var("utf8mb4_bin"))
    like, escaped = _to_like(pattern)
    right: exp.Expr = _text(like)
    if op == "ilike":
        ast, right = exp.Lower(this=ast), exp.Lower(this=right)
    found = exp.Like(this=ast, expression=right)
    return exp.Escape(this=found, expression=_text("!")) if escaped else found


def _pattern(op: MatchOp, value: str) -> list[tuple[str, bool]]:
    """Return the characters, each with whether it is a wildcard."""
    if op in ("like", "ilike"):
        found = re.findall(r"\\([%_\\])|(.)", value, re.DOTALL)
        return [(quoted or char, not quoted and char in "%_") for quoted, char in found]
    plain, any_text = [(char, False) for char in value], ("%", True)
    before = [] if op == "starts_with" else [any_text]
    after = [] if op == "ends_with" else [any_text]
    return before + plain + after


def _to_like(pattern: list[tuple[str, bool]]) -> tuple[str, bool]:
    # `!` rather than a backslash, which some engines and settings require to be doubled.
    escaped = any(char in "%_\\" and not wild for char, wild in pattern)
    if not escaped:
        return "".join(char for char, _ in pattern), False
    return "".join(f"!{char}" if char in "%_!" and not wild else char for char, wild in pattern), True


def _to_glob(pattern: list[tuple[str, bool]]) -> str:
    wildcards = {"%": "*", "_": "?"}
    return "".join(wildcards[c] if wild else f"[{c}]" if c in "*?[" else c for c, wild in pattern)


# --- measures and order


_FUNCTIONS: dict[str, type[exp.Func]] = {
    "count": exp.Count,
    "sum": exp.Sum,
    "avg": exp.Avg,
    "min": exp.Min,
    "max": exp.Max,
}


def has_quantile_expression(dialect: str) -> bool:
    """Return whether the engine has medians and quantiles of its own."""
    return dialect in ("duckdb", "postgres")


def aggregate_expression(fn: AggregateFn, operand: exp.Expr | None, distinct: bool, dialect: str) -> exp.Expr:
    """Return an aggregate over `operand`, or over the rows without one."""
    if operand is None:
        return exp.Count(this=exp.Star())
    if fn == "stddev":
        return _deviation(cast_to_double(operand), dialect)
    if fn == "avg":
        operand = cast_to_double(operand)
    body = exp.Distinct(expressions=[operand]) if distinct else operand
    return _FUNCTIONS[fn](this=body)


def quantile_expression(operand: exp.Expr, at: float, dialect: str) -> exp.Expr:
    """Return the value below which this part of the values lies; between two values, it is interpolated."""
    operand = cast_to_double(operand)
    if dialect == "duckdb":
        return exp.Median(this=operand) if at == 0.5 else exp.func("quantile_cont", operand, _number(at))
    order = exp.Order(expressions=[exp.Ordered(this=operand, nulls_first=False)])
    return exp.WithinGroup(this=exp.PercentileCont(this=_number(at)), expression=order)


def _deviation(operand: exp.Expr, dialect: str) -> exp.Expr:
    if dialect != "sqlite":
        return exp.StddevSamp(this=operand)
    count = exp.Count(this=operand.copy())
    squares = _squares(operand, operand.copy(), count)
    fewer = exp.paren(exp.Sub(this=count.copy(), expression=_number(1)))
    return exp.Sqrt(this=division_expression(exp.Greatest(this=squares, expressions=[_number(0)]), fewer))


def correlation_expression(left: exp.Expr, right: exp.Expr, dialect: str) -> exp.Expr:
    """Return Pearson's coefficient of two numbers, over the rows that have both."""
    left, right = cast_to_double(left), cast_to_double(right)
    if dialect in ("duckdb", "postgres"):
        return exp.Corr(this=left, expression=right)
    both = exp.Is(this=exp.Mul(this=left, expression=right), expression=exp.Null())
    one, two = (exp.Case(ifs=[exp.If(this=exp.Not(this=both.copy()), true=each.copy())]) for each in (left, right))
    count = exp.Count(this=exp.Mul(this=one.copy(), expression=two.copy()))
    spread = exp.Mul(this=exp.paren(_squares(one, one, count)), expression=exp.paren(_squares(two, two, count)))
    return division_expression(_squares(one, two, count), exp.Sqrt(this=spread))


def _squares(left: exp.Expr, right: exp.Expr, count: exp.Expr) -> exp.Expr:
    """Return the sum of the products of deviations from the means."""
    product = exp.Sum(this=exp.Mul(this=left.copy(), expression=right.copy()))
    sums = exp.Mul(this=exp.Sum(this=left.copy()), expression=exp.Sum(this=right.copy()))
    return exp.Sub(this=product, expression=division_expression(sums, count.copy()))


def order_expression(ast: exp.Expr, desc: bool, nulls: Nulls, dialect: str) -> list[exp.Ordered]:
    """Return sort keys that put nulls where the plan says."""
    if dialect != "mysql":
        return [exp.Ordered(this=ast, desc=desc, nulls_first=nulls == "first")]
    # MySQL has no NULLS FIRST: an extra key sorts nulls from values. `nulls_first` states MySQL's own order.
    is_null = exp.Is(this=ast.copy(), expression=exp.Null())
    apart = exp.Ordered(this=is_null, desc=nulls == "first", nulls_first=nulls != "first")
    return [apart, exp.Ordered(this=ast, desc=desc, nulls_first=not desc)]


_RANKS: dict[str, type[exp.Func]] = {"rank": exp.Rank, "dense_rank": exp.DenseRank, "row_number": exp.RowNumber}


def window_function_expression(
    fn: WindowFn, operand: exp.Expr | None, partition: list[exp.Expr], order: list[exp.Ordered]
) -> exp.Expr:
    """Return a window function over the rows of a partition."""
    if fn in _RANKS:
        return over_window_expression(_RANKS[fn](), partition, order)
    assert operand is not None  # noqa: S101 - the model requires it
    if fn == "previous":
        return over_window_expression(exp.Lag(this=operand), partition, order)
    found = over_window_expression(exp.Sum(this=operand), partition, order)
    if fn == "running":
        # ROWS, because the default frame would include all tied rows.
        spec = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
        found.set("spec", spec)
    return found


def over_window_expression(function: exp.Expr, partition: list[exp.Expr], order: list[exp.Ordered]) -> exp.Expr:
    """Return a window function over the rows of a partition, in an order if it has one."""
    keys = exp.Order(expressions=order) if order else None
    return exp.Window(this=function, partition_by=partition, order=keys, over="OVER")
