"""Compile a plan to SQL through a syntax tree: the same plan and catalog give the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from sqlglot import exp

from etude.entities import Catalog
from etude.errors import Invalid, LimitExceeded
from etude.similar_names import similar_names
from etude.sources.column_kind import Kind
from etude.sources.plan import sql_expressions as sql
from etude.sources.plan.plan_scope import PlanScope, open_plan_scope, plan_scope_column, plan_scope_table
from etude.sources.plan.query_plan import (
    Aggregate,
    AggregateFn,
    And,
    Arithmetic,
    AsNumber,
    Between,
    Case,
    ColumnRef,
    Compare,
    DatePart,
    DaysBetween,
    Expr,
    Filter,
    InList,
    Match,
    Member,
    Named,
    Not,
    NullTest,
    Operand,
    Or,
    Order,
    QueryPlan,
    SelectItem,
    Single,
    TimeGrain,
    Top,
    Value,
    Window,
)
from etude.sources.plan.sql_expressions import DIALECTS, Typed

_COMPARE: dict[str, type[exp.Binary]] = {
    "=": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE,
}  # fmt: skip
QUANTILES = ("median", "quantile")
MOST_NODES = 30_000
"""Nodes of all parts of a plan together: some parts are written more than once, and so nested ones multiply."""
# A context variable, because plans are compiled inside plans, through many calls.
_nodes_left: ContextVar[int] = ContextVar("nodes_left")
_ARITHMETIC: dict[str, type[exp.Binary]] = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul}


@dataclass(frozen=True)
class NameFrame:
    """What names mean at one point of a query."""

    dialect: str
    find: Callable[[str | ColumnRef], Typed]
    catalog: Catalog
    known: tuple[tuple[Expr, Typed], ...] = ()
    """Whole expressions that have a value at that point."""
    ties: tuple[Typed, ...] = ()
    """The expressions that distinguish the rows."""
    windows: bool = False
    """Whether values that depend on other rows are allowed."""


@dataclass(frozen=True)
class PlanMeasure:
    """An aggregate before it is SQL: its function, and its operand in terms of rows (None counts rows)."""

    fn: AggregateFn
    operand: exp.Expr | None
    distinct: bool
    result: Typed
    """Kind, label and name of the aggregate; its SQL is filled in by `_settle`."""
    other: exp.Expr | None = None
    """The second operand of a correlation."""
    at: float = 0.5
    """The part of the values that a quantile divides off; a median is the quantile at one half."""


def compile_plan(plan: QueryPlan, catalog: Catalog, dialect: str | None = None) -> str:
    """Return the SQL of the plan for the catalog's engine; raise `Invalid` if the plan is wrong."""
    target = dialect or catalog.dialect
    if target not in DIALECTS:
        raise Invalid(f"Plans cannot be compiled to `{target}`.", hint=f"Supported dialects: {', '.join(DIALECTS)}.")
    token = _nodes_left.set(MOST_NODES)
    try:
        return _query(plan, catalog, target)[0].sql(dialect=target)
    finally:
        _nodes_left.reset(token)


def _count_nodes(tree: exp.Expr) -> None:
    """Count the nodes of a part; raise `LimitExceeded` if the parts have too many together."""
    left = _nodes_left.get()
    for _ in tree.walk():
        left -= 1
        if left < 0:
            raise LimitExceeded(
                f"The SQL of the plan has more than {MOST_NODES:,} parts.",
                hint="Nest fewer expressions, or compute them in steps.",
                limit="plan",
            )
    _nodes_left.set(left)


def _query(plan: QueryPlan, catalog: Catalog, dialect: str) -> tuple[exp.Select, list[Typed]]:
    """Return the query and its output columns."""
    query, outputs = _whole_query(plan, catalog, dialect)
    _count_nodes(query)
    return query, outputs


def _whole_query(plan: QueryPlan, catalog: Catalog, dialect: str) -> tuple[exp.Select, list[Typed]]:
    scope = open_plan_scope(plan, catalog, lambda inner: _query(inner, catalog, dialect))
    query, frame = _read(scope), NameFrame(dialect, scope.find, catalog)
    if plan.where is not None:
        query.where(_all(plan.where, frame), copy=False)
    if plan.group_by or plan.aggregate:
        query, outputs, frame = _group(plan, query, frame)
    else:
        outputs = _outputs(plan.select, replace(frame, windows=True)) or _every_column(scope)
        frame = replace(frame, ties=_sortable(outputs))
    _check_names(outputs)
    if plan.top:
        query = _keep_top(plan, plan.top, query, outputs, dialect)
        outputs = _passed_on(outputs, "_ranked")
        frame = NameFrame(dialect, partial(_find_output, outputs), catalog, ties=_sortable(outputs))
    query.select(*(_aliased(output) for output in outputs), copy=False)
    return _sort_and_cut(plan, query, outputs, frame), outputs


def _read(scope: PlanScope) -> exp.Select:
    first, *others = scope.joined
    query = exp.Select().from_(plan_scope_table(first), copy=False)
    for joined in others:
        on = exp.and_(*(exp.EQ(this=left.ast, expression=right.ast) for left, right in joined.on), copy=False)
        query.join(plan_scope_table(joined), on=on, join_type=joined.kind, copy=False)
    return query


# --- the columns of the result


def _outputs(items: Sequence[SelectItem], frame: NameFrame) -> list[Typed]:
    values = []
    for item in items:
        value = _expression(item.expr if isinstance(item, Named) else item, frame)
        if not isinstance(item, Named) and not value.name:
            raise Invalid(f"{value.label} has no name.", hint='Write {"expr": ..., "as": "a name"}.')
        values.append((value, item.alias if isinstance(item, Named) else None))
    return _named(values)


def _every_column(scope: PlanScope) -> list[Typed]:
    return _named(
        [(plan_scope_column(joined, column), None) for joined in scope.joined for column in joined.table.columns]
    )


def _named(values: Sequence[tuple[Typed, str | None]]) -> list[Typed]:
    """Prefix columns of the same name with their tables, unless the plan names them."""
    counts = Counter(value.name.lower() for value, alias in values if not alias)
    outputs = []
    for value, alias in values:
        name = alias or value.name
        if not alias and counts[name.lower()] > 1 and (table := value.ast.text("table")):
            name = f"{table}.{name}"
        outputs.append(replace(value, name=name))
    return outputs


def _check_names(outputs: Sequence[Typed]) -> None:
    counts = Counter(output.name.lower() for output in outputs)
    for output in outputs:
        if counts[output.name.lower()] > 1:
            raise Invalid(f"Two columns of the result are named `{output.name}`.", hint='Name one of them with "as".')


def _aliased(output: Typed) -> exp.Expr:
    return exp.Alias(this=output.ast.copy(), alias=sql.identifier_expression(output.name))


def _lookup(outputs: Sequence[Typed], ref: str | ColumnRef) -> Typed | None:
    name = ref if isinstance(ref, str) else ref.column if ref.table is None else ""
    exact = [output for output in outputs if output.name == name]
    return next(iter(exact or [o for o in outputs if o.name.lower() == name.lower()]), None)


def _find_output(outputs: Sequence[Typed], ref: str | ColumnRef) -> Typed:
    if found := _lookup(outputs, ref):
        return found
    name = ref if isinstance(ref, str) else ref.column
    near = similar_names(name, [output.name for output in outputs], n=1)
    shown = ", ".join(f"`{output.name}`" for output in outputs)
    hint = f"Did you mean `{near[0]}`?" if near else f'Use one of {shown}, or add it to "select".'
    raise Invalid(f"`{name}` is not a column of the result.", hint=hint)


# --- expressions


def _expression(expr: Expr, frame: NameFrame) -> Typed:
    made = _any_expression(expr, frame)
    _count_nodes(made.ast)
    return made


def _any_expression(expr: Expr, frame: NameFrame) -> Typed:
    for known, value in frame.known:
        if known == expr and not isinstance(expr, str):
            return replace(value, ast=value.ast.copy())
    match expr:
        case str() | ColumnRef():
            found = frame.find(expr)
            return replace(found, ast=found.ast.copy())
        case int() | float():
            return sql.literal_expression(expr)
        case Value():
            return sql.literal_expression(expr.value)
        case Arithmetic():
            return _arithmetic(expr, frame)
        case DatePart(part=part, of=of):
            inner = _expression(of, frame)
            return _derived(inner, sql.date_part_expression(inner, part, frame.dialect), "number", part)
        case TimeGrain(grain=grain, of=of):
            inner = _expression(of, frame)
            return _derived(inner, sql.date_trunc_expression(inner, grain, frame.dialect), "date", grain)
        case Case():
            return _case(expr, frame)
        case DaysBetween(days_between=(first, second)):
            days = sql.days_between_expression(_expression(first, frame), _expression(second, frame), frame.dialect)
            return Typed(days, "number", "the days between")
        case AsNumber(number=of):
            inner = _expression(of, frame)
            return replace(inner, ast=sql.number_expression(inner.ast, frame.dialect), kind="number")
        case Single(plan=plan):
            return _single(plan, frame)
        case Window():
            return _window(expr, frame)
    assert_never(expr)


def _derived(inner: Typed, ast: exp.Expr, kind: Kind, what: str) -> Typed:
    return Typed(ast, kind, f"the {what} of {inner.label}", inner.name and f"{inner.name}_{what}")


def _arithmetic(expr: Arithmetic, frame: NameFrame) -> Typed:
    values = [_expression(arg, frame) for arg in expr.args]
    for value in values:
        if value.kind not in ("number", "flag", "other"):
            raise Invalid(f"{value}; `{expr.op}` needs numbers.", hint="Use columns that hold numbers.")
    total = _wrapped(values[0].ast)
    for value in values[1:]:
        right = _wrapped(value.ast)
        total = (
            sql.division_expression(total, right)
            if expr.op == "/"
            else _ARITHMETIC[expr.op](this=total, expression=right)
        )
    return Typed(total, "number", f" {expr.op} ".join(value.label for value in values))


def _wrapped(ast: exp.Expr) -> exp.Expr:
    return exp.paren(ast, copy=False) if isinstance(ast, exp.Binary) else ast


def _single(plan: QueryPlan, frame: NameFrame) -> Typed:
    if plan.group_by or not plan.aggregate:
        raise Invalid("A plan used as one value cannot have groups.", hint='Give it "aggregate" and no "group_by".')
    query, output = _one_column(plan, frame)
    return Typed(query.subquery(copy=False), output.kind, f"the {output.label}")


def _one_column(plan: QueryPlan, frame: NameFrame) -> tuple[exp.Select, Typed]:
    query, outputs = _query(plan, frame.catalog, frame.dialect)
    if len(outputs) != 1:
        shown = ", ".join(f"`{output.name}`" for output in outputs)
        raise Invalid(f"A plan inside an expression must have one column, not {shown}.", hint='Name one in "select".')
    return query, outputs[0]


def _window(expr: Window, frame: NameFrame) -> Typed:
    if not frame.windows:
        raise Invalid(f"`{expr.window}` depends on other rows.", hint='Use it in "select" only.')
    inner = replace(frame, windows=False)
    of = _expression(expr.of, inner) if expr.of is not None else None
    if of is not None and expr.window != "previous":
        _check_operand("sum", of)
    per = [_expression(key, inner).ast for key in expr.per]
    order = []
    if expr.by is not None:
        order = sql.order_expression(_expression(expr.by, inner).ast, expr.desc, "last", frame.dialect)
    ast = sql.window_function_expression(expr.window, of.ast if of else None, per, order)
    kind: Kind = of.kind if of and expr.window == "previous" else "number"
    return Typed(ast, kind, f"the {expr.window}")


def _case(expr: Case, frame: NameFrame) -> Typed:
    branches = [(_condition(when.when, frame), _expression(when.then, frame)) for when in expr.case]
    values = [value for _, value in branches]
    case = exp.Case()
    for condition, value in branches:
        case.append("ifs", exp.If(this=condition, true=value.ast))
    if expr.otherwise is not None:
        values.append(_expression(expr.otherwise, frame))
        case.set("default", values[-1].ast)
    for value in values[1:]:
        sql.require_same_expression_kind(values[0], value)
    return Typed(case, values[0].kind, "the case")


# --- filters


def _all(filters: Filter | Sequence[Filter], frame: NameFrame) -> exp.Expr:
    listed = filters if isinstance(filters, tuple) else (filters,)
    return exp.and_(*(_condition(item, frame) for item in listed), copy=False)


def _condition(item: Filter, frame: NameFrame) -> exp.Expr:
    match item:
        case And(filters=filters):
            return exp.and_(*(_condition(part, frame) for part in filters), copy=False)
        case Or(filters=filters):
            return exp.or_(*(_condition(part, frame) for part in filters), copy=False)
        case Not(filter=inner):
            return exp.not_(_condition(inner, frame), copy=False)
        case Compare(op=op):
            left, right = _sides(item.column, (item.value,), frame)
            return _COMPARE[op](this=left, expression=right[0])
        case Between(value=bounds):
            left, right = _sides(item.column, bounds, frame)
            return exp.Between(this=left, low=right[0], high=right[1])
        case InList(op=op, value=choices):
            left, right = _sides(item.column, choices, frame)
            return _negated(exp.In(this=left, expressions=right), op == "not in")
        case Member(op=op, plan=plan):
            return _member(item, op, plan, frame)
        case Match(op=op, value=pattern):
            return sql.pattern_expression(_expression(item.column, frame), op, pattern, frame.dialect)
        case NullTest(op=op):
            value = _expression(item.column, frame).ast
            return _negated(exp.Is(this=value, expression=exp.Null()), op == "is not null")
    assert_never(item)


def _member(item: Member, op: str, plan: QueryPlan, frame: NameFrame) -> exp.Expr:
    left = _expression(item.column, frame)
    query, output = _one_column(plan, frame)
    sql.require_same_expression_kind(left, output)
    # If one of the values is null, "not in" would hold for no row.
    value = _passed_on([output], "_values")[0].ast
    inner = exp.Select().from_(query.subquery(sql.identifier_expression("_values"), copy=False), copy=False)
    inner.select(value, copy=False)
    inner.where(exp.not_(exp.Is(this=value.copy(), expression=exp.Null()), copy=False), copy=False)
    return _negated(exp.In(this=left.ast, query=inner.subquery(copy=False)), op == "not in")


def _negated(condition: exp.Expr, negate: bool) -> exp.Expr:
    return exp.not_(condition, copy=False) if negate else condition


def _sides(column: Expr, operands: Sequence[Operand], frame: NameFrame) -> tuple[exp.Expr, list[exp.Expr]]:
    """Return both sides of a comparison, in comparable form."""
    left = _expression(column, frame)
    values = [_operand(operand, frame) for operand in operands]
    kinds = {value.kind for value in values if isinstance(value, Typed)} | {left.kind}
    # A date beside a timestamp, or a timestamp with a zone beside one without, compare as timestamps.
    shared: Kind = left.kind if len(kinds) == 1 or left.kind not in sql.TEMPORAL else "timestamp"
    right = []
    for value in values:
        if isinstance(value, Typed):
            sql.require_same_expression_kind(left, value)
            right.append(sql.comparable_expression(value, shared, frame.dialect))
        else:
            right.append(sql.constant_expression(value, replace(left, kind=shared), frame.dialect))
    return sql.comparable_expression(left, shared, frame.dialect), right


def _operand(operand: Operand, frame: NameFrame) -> str | float | Typed:
    """Return a constant, which the other side will interpret, or an expression."""
    if isinstance(operand, str | int | float):
        return operand
    return operand.value if isinstance(operand, Value) else _expression(operand, frame)


# --- groups


def _group(plan: QueryPlan, query: exp.Select, rows: NameFrame) -> tuple[exp.Select, list[Typed], NameFrame]:
    row_keys = _outputs(plan.group_by, rows)
    for key in row_keys:
        if not key.ast.find(exp.Column):
            raise Invalid(f"{key.label} is the same in every row.", hint="Group by a column.")
    measures = [_measure(item, rows) for item in plan.aggregate]
    query, keys, aggregates = _settle(query, row_keys, measures, rows.dialect)
    query.group_by(*(key.ast.copy() for key in keys), copy=False)

    def find(ref: str | ColumnRef) -> Typed:
        return _lookup([*aggregates, *keys], ref) or _find_key(ref, rows, row_keys, keys, aggregates)

    exprs = [item.expr if isinstance(item, Named) else item for item in plan.group_by]
    frame = NameFrame(rows.dialect, find, rows.catalog, tuple(zip(exprs, keys, strict=True)), tuple(keys))
    if plan.having is not None:
        query.having(_all(plan.having, frame), copy=False)
    chosen = [item.expr if isinstance(item, Named) else item for item in plan.select]
    shown = {expr.lower() for expr in chosen if isinstance(expr, str)}
    rest = [aggregate for aggregate in aggregates if aggregate.name.lower() not in shown]
    return query, (_outputs(plan.select, replace(frame, windows=True)) or keys) + rest, frame


def _find_key(
    ref: str | ColumnRef, rows: NameFrame, row_keys: list[Typed], keys: list[Typed], aggregates: list[Typed]
) -> Typed:
    try:
        column = rows.find(ref)
    except Invalid:
        name = ref if isinstance(ref, str) else ref.column
        if near := similar_names(name, [a.name for a in aggregates], n=1, cutoff=0.8):
            raise Invalid(f"`{name}` is not a column of the groups.", hint=f"Did you mean `{near[0]}`?") from None
        raise
    for row_key, key in zip(row_keys, keys, strict=True):
        if row_key.ast == column.ast:
            return key
    raise Invalid(f"{column.label} is neither grouped nor aggregated.", hint='Add it to "group_by", or aggregate it.')


def _measure(item: Aggregate, rows: NameFrame) -> PlanMeasure:
    of = None if item.of is None else _expression(item.of, rows)
    if of:
        _check_operand(item.fn, of)
    operand = of.ast if of else None
    if item.filter is not None:
        counted = exp.Literal.number(1) if operand is None else operand
        operand = exp.Case(ifs=[exp.If(this=_all(item.filter, rows), true=counted)])
    other = None if item.other is None else _expression(item.other, rows)
    if other:
        _check_operand(item.fn, other)
    words = [item.fn, "distinct" if item.distinct else "", of.name if of else ""]
    name = item.alias or "_".join(word for word in words if word)
    kind: Kind = of.kind if of and item.fn in ("min", "max") else "number"
    result = Typed(exp.Null(), kind, f"`{name}`", name)
    at = 0.5 if item.at is None else item.at
    return PlanMeasure(item.fn, operand, item.distinct, result, other.ast if other else None, at)


def _check_operand(fn: AggregateFn, of: Typed) -> None:
    if fn not in ("count", "min", "max") and of.kind not in ("number", "flag", "other"):
        raise Invalid(f"{of}; `{fn}` needs a number.", hint="Use count, min or max, or a column of numbers.")
    if fn in ("min", "max") and of.kind == "boolean":
        raise Invalid(f"{of}; `{fn}` needs an order.", hint='Use count with a "filter".')


def _settle(
    query: exp.Select, keys: list[Typed], measures: list[PlanMeasure], dialect: str
) -> tuple[exp.Select, list[Typed], list[Typed]]:
    """Return keys and aggregates as SQL; over prepared rows if the engine needs them."""
    placed = any(measure.fn in QUANTILES for measure in measures) and not sql.has_quantile_expression(dialect)
    # MySQL does not recognise a grouped expression in HAVING, nor always in SELECT.
    computed = dialect == "mysql" and any(not isinstance(key.ast, exp.Column) for key in keys)
    if not placed and not computed:
        asts = [_measured(m, m.operand, m.other, dialect) for m in measures]
    else:
        query, keys, asts = _prepare_rows(query, keys, measures, dialect)
    return query, keys, [replace(m.result, ast=ast) for m, ast in zip(measures, asts, strict=True)]


def _measured(measure: PlanMeasure, operand: exp.Expr | None, other: exp.Expr | None, dialect: str) -> exp.Expr:
    if measure.fn in QUANTILES and operand is not None:
        return sql.quantile_expression(operand, measure.at, dialect)
    if measure.fn == "correlation" and operand is not None and other is not None:
        return sql.correlation_expression(operand, other, dialect)
    return sql.aggregate_expression(measure.fn, operand, measure.distinct, dialect)


def _prepare_rows(
    query: exp.Select, keys: list[Typed], measures: list[PlanMeasure], dialect: str
) -> tuple[exp.Select, list[Typed], list[exp.Expr]]:
    """Return rows with keys and operands as columns; operands of a quantile also get a row number and a count."""
    asts = []
    partition = [key.ast for key in keys]
    columns = {f"key_{n}": key.ast for n, key in enumerate(keys)}
    for n, measure in enumerate(measures):
        if measure.operand is None:
            asts.append(sql.aggregate_expression(measure.fn, None, False, dialect))
            continue
        columns[f"value_{n}"] = measure.operand
        if measure.other is not None:
            columns[f"other_{n}"] = measure.other
        if measure.fn not in QUANTILES:
            asts.append(_measured(measure, _inner(f"value_{n}"), _inner(f"other_{n}"), dialect))
            continue
        order = sql.order_expression(measure.operand.copy(), False, "last", dialect)
        columns[f"place_{n}"] = sql.over_window_expression(exp.RowNumber(), [ast.copy() for ast in partition], order)
        count = exp.Count(this=measure.operand.copy())
        columns[f"count_{n}"] = sql.over_window_expression(count, [ast.copy() for ast in partition], [])
        asts.append(_middle(n) if measure.at == 0.5 else _between_places(n, measure.at))
    query.select(
        *(exp.alias_(ast.copy(), sql.identifier_expression(name)) for name, ast in columns.items()), copy=False
    )
    outer = exp.Select().from_(query.subquery(sql.identifier_expression("_rows"), copy=False), copy=False)
    return outer, [replace(key, ast=_inner(f"key_{n}")) for n, key in enumerate(keys)], asts


def _inner(name: str, table: str = "_rows") -> exp.Expr:
    return exp.Column(this=sql.identifier_expression(name), table=sql.identifier_expression(table))


def _middle(n: int) -> exp.Expr:
    """Return the average of the middle one or two values: those whose doubled row number is in count .. count + 2."""
    place = exp.Mul(this=_inner(f"place_{n}"), expression=exp.Literal.number(2))
    high = exp.Add(this=_inner(f"count_{n}"), expression=exp.Literal.number(2))
    inside = exp.Between(this=place, low=_inner(f"count_{n}"), high=high)
    return exp.Avg(this=exp.Case(ifs=[exp.If(this=inside, true=sql.cast_to_double(_inner(f"value_{n}")))]))


def _between_places(n: int, at: float) -> exp.Expr:
    """Return a quantile: the values on both sides of its place, each weighted by how near it is."""
    last = exp.Sub(this=_inner(f"count_{n}"), expression=exp.Literal.number(1))
    place = exp.Add(
        this=exp.Mul(this=exp.paren(last), expression=exp.Literal.number(at)), expression=exp.Literal.number(1)
    )
    away = exp.Abs(this=exp.Sub(this=_inner(f"place_{n}"), expression=exp.paren(place)))
    near = exp.paren(exp.Sub(this=exp.Literal.number(1), expression=away))
    part = exp.Mul(this=sql.cast_to_double(_inner(f"value_{n}")), expression=near)
    inside = exp.LT(this=away.copy(), expression=exp.Literal.number(1))
    return exp.Sum(this=exp.Case(ifs=[exp.If(this=inside, true=part)]))


# --- top, order and limit


def _keep_top(plan: QueryPlan, top: Top, query: exp.Select, outputs: list[Typed], dialect: str) -> exp.Select:
    """Keep the top rows of each group; without an order in the plan, sort by group and rank."""
    place = _free("_place", outputs)
    ranked = _rank(top, query, outputs, place, dialect)
    kept = exp.Select().from_(ranked.subquery(sql.identifier_expression("_ranked"), copy=False), copy=False)
    number = _inner(place, "_ranked")
    kept.where(exp.LTE(this=number, expression=exp.Literal.number(top.n)), copy=False)
    if not plan.order_by:
        usual = [_find_output(_passed_on(outputs, "_ranked"), name).ast for name in top.per]
        for ast in [*usual, number.copy()]:
            kept.order_by(*sql.order_expression(ast, False, "last", dialect), copy=False)
    return kept


def _rank(top: Top, query: exp.Select, outputs: list[Typed], place: str, dialect: str) -> exp.Select:
    """Return the rows with their ranks; the other columns break ties in `by`."""
    rows = _passed_on(outputs, "_rows")
    named = [replace(output, name=row.ast.name) for output, row in zip(outputs, rows, strict=True)]
    query.select(*(_aliased(output) for output in named), copy=False)
    per = [_find_output(rows, name) for name in top.per]
    by = _find_output(rows, top.by)
    order = sql.order_expression(by.ast, not top.lowest, "last", dialect)
    for row in _sortable(rows) if not top.ties else ():
        if row not in (by, *per):
            order += sql.order_expression(row.ast.copy(), False, "last", dialect)
    number = sql.over_window_expression(
        exp.Rank() if top.ties else exp.RowNumber(), [key.ast.copy() for key in per], order
    )
    ranked = exp.Select().from_(query.subquery(sql.identifier_expression("_rows"), copy=False), copy=False)
    return ranked.select(
        *(row.ast.copy() for row in rows), exp.alias_(number, sql.identifier_expression(place)), copy=False
    )


def _passed_on(outputs: list[Typed], table: str) -> list[Typed]:
    """Return the outputs of a subquery as columns for the outer query."""
    # In SQLite, a column of a subquery named TRUE or FALSE is read as the constant, even if quoted.
    names = [_free(f"{o.name}_", outputs) if o.name.lower() in ("true", "false") else o.name for o in outputs]
    return [replace(o, ast=_inner(name, table)) for o, name in zip(outputs, names, strict=True)]


def _free(name: str, outputs: list[Typed]) -> str:
    while _lookup(outputs, name):
        name += "_"
    return name


def _sort_and_cut(plan: QueryPlan, query: exp.Select, outputs: list[Typed], frame: NameFrame) -> exp.Select:
    sorting = replace(frame, find=lambda ref: _lookup(outputs, ref) or frame.find(ref))
    items = [Order(by=item) if isinstance(item, str) else item for item in plan.order_by]
    keys = [(_expression(item.by, sorting), item) for item in items]
    for key, item in keys:
        if not _varies(key):
            raise Invalid(f"{key.label} is the same in every row.", hint="Order by a column.")
        query.order_by(*sql.order_expression(key.ast, item.desc, item.nulls, frame.dialect), copy=False)
    if plan.limit is not None:
        if keys:
            _break_ties(query, [key for key, _ in keys], frame)
        query.limit(plan.limit, copy=False)
    return query.offset(plan.offset, copy=False) if plan.offset else query


def _sortable(values: Sequence[Typed]) -> tuple[Typed, ...]:
    # Some types, such as JSON in Postgres, have no order.
    return tuple(value for value in values if value.kind != "other")


def _varies(value: Typed) -> bool:
    # A bare number in ORDER BY would be the position of a column.
    return value.ast.find(exp.Column, exp.AggFunc) is not None


def _break_ties(query: exp.Select, keys: list[Typed], frame: NameFrame) -> None:
    """Make the order total; otherwise the rows that a limit keeps could change from run to run."""
    for tie in frame.ties:
        if _varies(tie) and all(tie.ast != key.ast for key in keys):
            query.order_by(*sql.order_expression(tie.ast.copy(), False, "last", frame.dialect), copy=False)
