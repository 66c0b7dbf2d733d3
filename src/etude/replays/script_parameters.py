"""Parameters: literals of the question that the query contains in a place where another value means the same question.

One example is little evidence, so the rules are strict. A literal is a parameter only if the question has it once, and
if the query has it only as the limit of its rows or compared with one column. A year may also stand as the first or
last day of that year, or the first day of the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from etude.replays.asked_question import QuestionUnit
from etude.replays.guards import guard_family
from etude.replays.script import Form, Parameter, Slot
from etude.sources.quoting import quote_identifier, quote_literal, quote_table
from etude.sources.sql_parsing import parse_one_sql, tokenize_sql

if TYPE_CHECKING:
    from etude.entities import Catalog, Table

MOST_ROWS = 10_000
"""The greatest limit that a question may ask for."""
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T]00:00(?::00(?:\.0+)?)?)?")


@dataclass(frozen=True)
class _Literal:
    """A literal of a query: its place, its value, and the column that it is compared with."""

    start: int
    end: int
    value: str
    is_text: bool
    column: tuple[str, str] | None
    limit: bool


def find_script_parameters(
    sql: str, dialect: str, units: Sequence[QuestionUnit], tables: Mapping[str, Table]
) -> tuple[tuple[Parameter, ...], tuple[Slot, ...]]:
    """Return the parameters of a query with their places in it."""
    try:
        literals = _find_literals(sql, dialect, tables)
    except Exception:  # a query that sqlglot cannot read has no parameters
        return (), ()
    parameters: list[Parameter] = []
    slots: list[Slot] = []
    for position, unit in enumerate(units):
        if unit.kind not in ("number", "date", "quoted", "name"):
            continue
        if sum(u.value.lower() == unit.value.lower() for u in units) != 1:
            continue
        made = _make(position, unit, literals, sql, units)
        if made is not None and made[0].name not in {p.name for p in parameters}:
            parameters.append(made[0])
            slots += made[1]
    if len({(s.start, s.end) for s in slots}) != len(slots):
        return (), ()  # two literals of the question in one place of the query
    return tuple(parameters), tuple(sorted(slots, key=lambda slot: slot.start))


def _find_literals(sql: str, dialect: str, tables: Mapping[str, Table]) -> list[_Literal]:
    from sqlglot import exp
    from sqlglot.tokenizer_core import TokenType

    tree = parse_one_sql(sql, dialect)
    short = {name.rpartition(".")[2].lower(): name for name in tables}
    aliases = {t.alias_or_name.lower(): short.get(t.name.lower()) for t in tree.find_all(exp.Table)}
    roles: list[tuple[str, bool, tuple[str, str] | None, bool]] = []
    for node in tree.walk(bfs=False):
        if isinstance(node, exp.Literal):
            roles.append((node.this, node.is_string, _compared(node, aliases, tables), _is_limit(node)))
    tokens = [t for t in tokenize_sql(sql, dialect) if t.token_type in (TokenType.NUMBER, TokenType.STRING)]
    literals = []
    for token in tokens:
        text = token.token_type == TokenType.STRING
        same = [r for r in roles if r[0] == token.text and r[1] == text]
        columns = {r[2] for r in same}
        column = next(iter(columns)) if len(columns) == 1 else None
        limit = bool(same) and all(r[3] for r in same)
        literals.append(_Literal(token.start, token.end + 1, token.text, text, column, limit))
    return literals


def _compared(node: Any, aliases: Mapping[str, str | None], tables: Mapping[str, Table]) -> tuple[str, str] | None:
    """Return the column that a literal is compared with."""
    from sqlglot import exp

    inner, outer = node, node.parent
    while isinstance(outer, exp.Cast | exp.Paren | exp.Neg | exp.Date | exp.TsOrDsToDate):
        inner, outer = outer, outer.parent
    if isinstance(outer, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        other = outer.expression if outer.this is inner else outer.this
    elif isinstance(outer, exp.Between | exp.In) and outer.this is not inner:
        if isinstance(outer, exp.In) and len(outer.expressions) != 1:
            return None
        other = outer.this
    else:
        return None
    while isinstance(other, exp.Cast | exp.Paren | exp.Year | exp.Extract | exp.Lower | exp.Upper):
        if isinstance(other, exp.Extract):
            if other.name.upper() != "YEAR":
                return None
            other = other.expression
        elif isinstance(other, exp.Lower | exp.Upper):
            return None
        else:
            other = other.this
    if not isinstance(other, exp.Column):
        return None
    wanted = other.name.lower()
    named = aliases.get(other.table.lower()) if other.table else None
    found = [
        (name, c.name)
        for name in ([named] if named else tables)
        for c in tables[name].columns
        if c.name.lower() == wanted
    ]
    return found[0] if len(found) == 1 else None


def _is_limit(node: Any) -> bool:
    from sqlglot import exp

    return isinstance(node.parent, exp.Limit | exp.Fetch)


def _make(
    position: int, unit: QuestionUnit, literals: Sequence[_Literal], sql: str, units: Sequence[QuestionUnit]
) -> tuple[Parameter, list[Slot]] | None:
    value = unit.value
    if unit.kind == "number" and re.fullmatch(r"(19|20)\d\d", value):
        return _year(position, int(value), literals, sql)
    if unit.kind == "number":
        places = [x for x in literals if not x.is_text and _same_number(x.value, value)]
        if not places or count_parameter_in_query(sql, value.replace(",", "")) != len(places):
            return None
        if len(places) == 1 and places[0].limit and re.fullmatch(r"\d{1,4}", value):
            return _parameter("limit", "limit", unit, position, places, "number")
        whole = re.fullmatch(r"[\d,]+", value) is not None
        kind = "integer" if whole else "number"
        return _parameter("", kind, unit, position, places, "number")
    if unit.kind == "date":
        places = [x for x in literals if x.is_text and x.value == value]
        if not places or count_parameter_in_query(sql, value) != len(places):
            return None
        return _parameter("", "date", unit, position, places, "date")
    places = [x for x in literals if x.is_text and x.value == value]
    if not places or count_parameter_in_query(sql, value) != len(places):
        return None
    return _parameter("", "text", unit, position, places, "text")


def _year(position: int, year: int, literals: Sequence[_Literal], sql: str) -> tuple[Parameter, list[Slot]] | None:
    forms: dict[str, Form] = {
        f"{year}-01-01": "year_start",
        f"{year}-12-31": "year_end",
        f"{year + 1}-01-01": "next_year_start",
    }
    places: list[tuple[_Literal, Form]] = []
    for literal in literals:
        if not literal.is_text and literal.value == str(year):
            places.append((literal, "year"))
        elif literal.is_text and (found := _DATE.fullmatch(literal.value)):
            day = "-".join(found.groups())
            if day not in forms:
                return None  # a date that does not follow from the year alone
            if literal.value != day:
                return None
            places.append((literal, forms[day]))
    if not places or count_parameter_in_query(sql, str(year)) != sum(str(year) in x.value for x, _ in places):
        return None
    columns = {x.column for x, _ in places}
    if len(columns) != 1 or None in columns or {f for _, f in places} == {"next_year_start"}:
        return None
    table, column = next(iter(columns)) or ("", "")
    made = Parameter(name="year", kind="year", default=str(year), position=position, table=table, column=column)
    return made, [Slot(start=x.start, end=x.end, parameter="year", form=form) for x, form in places]


def _parameter(
    name: str, kind: Any, unit: QuestionUnit, position: int, places: Sequence[_Literal], form: Form
) -> tuple[Parameter, list[Slot]] | None:
    columns = {x.column for x in places}
    if kind != "limit" and (len(columns) != 1 or None in columns or any(x.limit for x in places)):
        return None
    table, column = (next(iter(columns)) or ("", "")) if kind != "limit" else ("", "")
    name = name or re.sub(r"\W", "_", column.lower()) or kind
    made = Parameter(name=name, kind=kind, default=unit.value, position=position, table=table, column=column)
    return made, [Slot(start=x.start, end=x.end, parameter=name, form=form) for x in places]


def count_parameter_in_query(sql: str, value: str) -> int:
    """Return how often a value occurs in a query at all, also as a part of names and of other literals."""
    if value.replace(".", "").isdigit():
        return len(re.findall(rf"(?<![\d.]){re.escape(value)}(?![\d]|\.\d)", sql))
    return sql.lower().count(value.lower())


def _same_number(one: str, other: str) -> bool:
    try:
        return Decimal(one) == Decimal(other.replace(",", ""))
    except InvalidOperation:
        return False


def bound_parameters(
    parameters: Sequence[Parameter], catalog: Catalog, run: Callable[[str], Any]
) -> tuple[Parameter, ...]:
    """Return the parameters with the least and greatest values of their columns; drop those of the wrong type."""
    bounded = []
    for parameter in parameters:
        if parameter.kind == "limit":
            bounded.append(parameter)
            continue
        table = catalog.table(parameter.table)
        column = next((c for c in table.columns if c.name == parameter.column), None) if table else None
        if column is None or not _fits(parameter, guard_family(column.type)):
            continue
        if parameter.kind == "text":
            bounded.append(parameter)
            continue
        name = quote_identifier(column.name, catalog.dialect)
        least, most = run(f"SELECT min({name}), max({name}) FROM {quote_table(parameter.table, catalog.dialect)}")[0]
        if least is not None:
            bounded.append(parameter.model_copy(update={"low": _plain(least), "high": _plain(most)}))
    return tuple(bounded)


def _fits(parameter: Parameter, family: str) -> bool:
    match parameter.kind:
        case "integer" | "number":
            return family == "number"
        case "year":
            return family in ("time", "number")
        case "date":
            return family == "time"
        case _:
            return family == "text"


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def check_parameter_value(
    parameter: Parameter, value: str, catalog: Catalog, run: Callable[[str], Any], in_cell: bool = False
) -> str | None:
    """Return None if the value can stand for the parameter, otherwise a sentence that says why not.

    With `in_cell`, the value goes into a query that is a text in Python.
    """
    if value == parameter.default:
        return None
    if in_cell and re.search(r"[\"'\\{}]|[^ -~\u00a0-\uffff]", value):
        return f"`{value}` cannot be written in the code."
    place = f"`{parameter.table}.{parameter.column}`"
    try:
        match parameter.kind:
            case "limit":
                fits = value.isdigit() and 1 <= int(value) <= MOST_ROWS
                return None if fits else f"{value} is not a number of rows between 1 and {MOST_ROWS:,}."
            case "integer" | "number":
                number = Decimal(value.replace(",", ""))
                if parameter.kind == "integer" and number != int(number):
                    return f"{value} is not a whole number."
                fits = Decimal(parameter.low or "NaN") <= number <= Decimal(parameter.high or "NaN")
            case "year":
                low, high = (int((end or "")[:4]) for end in (parameter.low, parameter.high))
                fits = re.fullmatch(r"(19|20)\d\d", value) is not None and low <= int(value) <= high
            case "date":
                day = date.fromisoformat(value).isoformat()
                fits = (parameter.low or "")[:10] <= day <= (parameter.high or "")[:10]
            case _:
                return _check_text(parameter, value, catalog, run)
    except (ValueError, ArithmeticError):
        return f"`{value}` is not a {parameter.kind}."
    return None if fits else f"`{value}` is outside of {place}, which is from {parameter.low} to {parameter.high}."


def _check_text(parameter: Parameter, value: str, catalog: Catalog, run: Callable[[str], Any]) -> str | None:
    """Look the value up: it must be exactly one value of its column, and of no other text column of the table."""
    table = catalog.table(parameter.table)
    if table is None:
        return f"The table `{parameter.table}` is gone."
    texts = [c for c in table.columns if guard_family(c.type) == "text" and not c.type.upper().startswith("BOOL")]
    wanted = quote_literal(value.strip().lower(), catalog.dialect)
    listed = []
    for column in texts:
        name = quote_identifier(column.name, catalog.dialect)
        listed.append(f"count(DISTINCT CASE WHEN lower(trim({name})) = {wanted} THEN {name} END)")
    column_name, literal = quote_identifier(parameter.column, catalog.dialect), quote_literal(value, catalog.dialect)
    exact = f"count(CASE WHEN {column_name} = {literal} THEN 1 END)"
    row = run(f"SELECT {exact}, {', '.join(listed)} FROM {quote_table(table.name, catalog.dialect)}")[0]
    found = dict(zip((c.name for c in texts), row[1:], strict=True))
    if not row[0]:
        return f"`{value}` is not a value of `{parameter.table}.{parameter.column}`."
    if found[parameter.column] != 1 or sum(bool(n) for n in found.values()) != 1:
        return f"`{value}` may mean several values of `{parameter.table}`."
    return None


def fill_parameter_slots(code: str, slots: Sequence[Slot], values: Mapping[str, str], dialect: str) -> str:
    """Return the code with these values in its slots; values were checked before."""
    parts, at = [], 0
    for slot in slots:
        parts += [code[at : slot.start], _write(values[slot.parameter], slot.form, dialect)]
        at = slot.end
    return "".join([*parts, code[at:]])


def _write(value: str, form: Form, dialect: str) -> str:
    match form:
        case "number":
            return str(Decimal(value.replace(",", "")))
        case "year":
            return str(int(value))
        case "year_start":
            return quote_literal(f"{int(value):04}-01-01", dialect)
        case "year_end":
            return quote_literal(f"{int(value):04}-12-31", dialect)
        case "next_year_start":
            return quote_literal(f"{int(value) + 1:04}-01-01", dialect)
        case "python":
            return repr(value)
        case _:
            return quote_literal(value, dialect)
