"""A query as data: typed, checked field by field, and independent of the engine that will run it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from etude.entities import Entity
from etude.errors import Invalid
from etude.validation import FieldValidationError, find_field_validation_error, quote_invalid_value

MAX_CHARS = 100_000
MAX_DEPTH = 32
MAX_ITEMS = 100
MAX_VALUES = 10_000
MAX_INTEGER = 2**63 - 1
MAX_NAME_BYTES = 63
"""Postgres truncates longer names, so two of them could become the same."""

Json = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")

ArithmeticOp = Literal["+", "-", "*", "/"]
CompareOp = Literal["=", "!=", "<", "<=", ">", ">="]
MatchOp = Literal["like", "ilike", "starts_with", "ends_with", "contains"]
InOp = Literal["in", "not in"]
NullOp = Literal["is null", "is not null"]
Part = Literal["year", "quarter", "month", "week", "day", "weekday", "hour"]
Grain = Literal["day", "week", "month", "quarter", "year"]
AggregateFn = Literal["count", "sum", "avg", "min", "max", "median", "quantile", "stddev", "correlation"]
WindowFn = Literal["rank", "dense_rank", "row_number", "previous", "total", "running"]


class Node(Entity):
    """A part of a plan: frozen and closed; fields such as `as` are written as JSON names them."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


def _choose(what: str, kinds: Mapping[type, str], keys: Mapping[str, str]) -> Discriminator:
    """Choose the member of a union that a value is meant to be: by its type, or by a key that only it has."""
    # Tags are in angle brackets, to distinguish them from field names in the path of an error.

    def tag(value: Any) -> str | None:
        if isinstance(value, BaseModel):
            return f"<{type(value).__name__}>"
        if not isinstance(value, dict):
            return next((f"<{name}>" for kind, name in kinds.items() if isinstance(value, kind)), None)
        if "plan" in value and "plan" in keys:
            return f"<{keys['plan']}>"
        if isinstance(op := value.get("op"), str) and f"op {op}" in keys:
            return f"<{keys[f'op {op}']}>"
        return next((f"<{name}>" for key, name in keys.items() if key in value), None)

    return Discriminator(tag, custom_error_type="choice", custom_error_message=what)


def _check_scalar(value: Any) -> Any:
    if value is None:
        raise PydanticCustomError("scalar", 'A value cannot be null; test for null with the op "is null".')
    if not isinstance(value, str | bool | int | float):
        raise PydanticCustomError("scalar", "Write text, a number, true or false here.")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise PydanticCustomError("scalar", "A whole number must fit in 64 bits.")
    if isinstance(value, float) and not isfinite(value):
        raise PydanticCustomError("scalar", "A number must be finite.")
    if isinstance(value, str) and any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value):
        raise PydanticCustomError("scalar", "Text must be Unicode without U+0000; engines store no other.")
    return value


def _check_output_name(name: str) -> str:
    if "\0" in name or len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        raise PydanticCustomError("name", f"A name has at most {MAX_NAME_BYTES} bytes and no U+0000.")
    return name


Scalar = Annotated[str | bool | int | float, BeforeValidator(_check_scalar)]
Number = Annotated[
    Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)], BeforeValidator(_check_scalar)
]
Text = Annotated[str, Field(strict=True), BeforeValidator(_check_scalar)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=1_000)]
"""A table or column as the catalog names it; a column may be written with its table: `orders.status`."""
OutputName = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_check_output_name)]
Whole = Annotated[int, Field(strict=True, le=MAX_INTEGER)]

# --- expressions: a string is a column, a number is itself, the rest are objects


class ColumnRef(Node):
    """A column by its exact name, for names that contain a dot, or with its table in a separate field."""

    column: Name
    table: Name | None = None


class Value(Node):
    """A constant; needed for text where a plain string would be a column."""

    value: Scalar


class Arithmetic(Node):
    """`args` combined from left to right. Division is never whole-number division, and by zero gives null."""

    op: ArithmeticOp
    args: Annotated[tuple[Expr, ...], Field(min_length=2, max_length=MAX_ITEMS)]


class DatePart(Node):
    """A part of a date as a number; `week` is the ISO week, `weekday` runs from 1 (Monday) to 7."""

    part: Part
    of: Expr


class TimeGrain(Node):
    """The first day of the day, ISO week (Monday), month, quarter or year that a date is in."""

    grain: Grain
    of: Expr


class When(Node):
    """One branch of a case."""

    when: Filter
    then: Expr


class Case(Node):
    """The `then` of the first branch whose `when` holds, or `else`, or null."""

    case: Annotated[tuple[When, ...], Field(min_length=1, max_length=MAX_ITEMS)]
    otherwise: Expr | None = Field(default=None, alias="else")


class DaysBetween(Node):
    """Whole days from the first date to the second; negative if the second is earlier."""

    days_between: tuple[Expr, Expr]


class AsNumber(Node):
    """A text that holds a number, as that number; what a text without a number gives depends on the engine."""

    number: Expr


class Single(Node):
    """The one value of a plan that has one column and, because it aggregates without groups, one row."""

    plan: QueryPlan


class Window(Node):
    """A value that depends on other rows of the result, or of those with the same `per`; only in `select`.

    `rank`, `dense_rank` and `row_number` count in the order of `by`; `previous` is `of` in the row before;
    `total` and `running` add `of` up, over all rows or up to this one.
    """

    window: WindowFn
    of: Expr | None = None
    per: Annotated[tuple[Expr, ...], Field(max_length=MAX_ITEMS)] = ()
    by: Expr | None = None
    desc: bool = Field(default=False, strict=True)

    @model_validator(mode="after")
    def _complete(self) -> Window:
        needs_of, needs_by = self.window in ("previous", "total", "running"), self.window != "total"
        if needs_of != (self.of is not None):
            verb = "needs" if needs_of else "takes no"
            raise PydanticCustomError("operand", '`{window}` {verb} "of".', {"window": self.window, "verb": verb})
        if needs_by != (self.by is not None):
            verb = "needs" if needs_by else "takes no"
            raise PydanticCustomError("operand", '`{window}` {verb} "by".', {"window": self.window, "verb": verb})
        return self


_EXPRESSION_KEYS = {
    "case": "Case",
    "days_between": "DaysBetween",
    "number": "AsNumber",
    "window": "Window",
    "plan": "Single",
    "part": "DatePart",
    "grain": "TimeGrain",
    "op": "Arithmetic",
    "args": "Arithmetic",
    "column": "ColumnRef",
    "value": "Value",
}
Expr = TypeAliasType(
    "Expr",
    Annotated[
        Annotated[Name, Tag("<name>")]
        | Annotated[Number, Tag("<number>")]
        | Annotated[ColumnRef, Tag("<ColumnRef>")]
        | Annotated[Value, Tag("<Value>")]
        | Annotated[Arithmetic, Tag("<Arithmetic>")]
        | Annotated[DatePart, Tag("<DatePart>")]
        | Annotated[TimeGrain, Tag("<TimeGrain>")]
        | Annotated[Case, Tag("<Case>")]
        | Annotated[DaysBetween, Tag("<DaysBetween>")]
        | Annotated[AsNumber, Tag("<AsNumber>")]
        | Annotated[Single, Tag("<Single>")]
        | Annotated[Window, Tag("<Window>")],
        _choose(
            'Write a column name, a number, or an object with "column", "value", "op" and "args", '
            '"part" and "of", "grain" and "of", "case", "days_between", "number", "plan" or "window".',
            kinds={str: "name", int: "number", float: "number"},
            keys=_EXPRESSION_KEYS,
        ),
    ],
)

Operand = TypeAliasType(
    "Operand",
    Annotated[
        Annotated[Scalar, Tag("<scalar>")]
        | Annotated[ColumnRef, Tag("<ColumnRef>")]
        | Annotated[Value, Tag("<Value>")]
        | Annotated[Arithmetic, Tag("<Arithmetic>")]
        | Annotated[DatePart, Tag("<DatePart>")]
        | Annotated[TimeGrain, Tag("<TimeGrain>")]
        | Annotated[Case, Tag("<Case>")]
        | Annotated[DaysBetween, Tag("<DaysBetween>")]
        | Annotated[AsNumber, Tag("<AsNumber>")]
        | Annotated[Single, Tag("<Single>")]
        | Annotated[Window, Tag("<Window>")],
        _choose(
            'Write text, a number, true or false; or an object such as {"column": "name"} for a column.',
            kinds={object: "scalar"},
            keys=_EXPRESSION_KEYS,
        ),
    ],
)

# --- filters


class Compare(Node):
    """A comparison; a string in `value` is text (or a date), `{"column": ...}` is another column."""

    column: Expr
    op: CompareOp
    value: Operand


class Match(Node):
    r"""Text that matches; in `like` and `ilike`, `%` is any text, `_` one character, `\` escapes both."""

    column: Expr
    op: MatchOp
    value: Text


class InList(Node):
    """One of the values, or none of them."""

    column: Expr
    op: InOp
    value: Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=MAX_VALUES)]


class Member(Node):
    """One of the values that a plan of one column returns, or none of them."""

    column: Expr
    op: InOp
    plan: QueryPlan


class Between(Node):
    """From the first value to the second, both included."""

    column: Expr
    op: Literal["between"]
    value: tuple[Operand, Operand]


class NullTest(Node):
    """Whether there is a value."""

    column: Expr
    op: NullOp


class And(Node):
    """All of the filters hold."""

    filters: Annotated[tuple[Filter, ...], Field(min_length=1, max_length=MAX_ITEMS, alias="and")]


class Or(Node):
    """At least one of the filters holds."""

    filters: Annotated[tuple[Filter, ...], Field(min_length=1, max_length=MAX_ITEMS, alias="or")]


class Not(Node):
    """The filter does not hold."""

    filter: Filter = Field(alias="not")


_FILTER_OPS = {
    **dict.fromkeys(get_args(CompareOp), "Compare"),
    **dict.fromkeys(get_args(MatchOp), "Match"),
    **dict.fromkeys(get_args(InOp), "InList"),
    "between": "Between",
    **dict.fromkeys(get_args(NullOp), "NullTest"),
}
Filter = TypeAliasType(
    "Filter",
    Annotated[
        Annotated[Compare, Tag("<Compare>")]
        | Annotated[Match, Tag("<Match>")]
        | Annotated[InList, Tag("<InList>")]
        | Annotated[Member, Tag("<Member>")]
        | Annotated[Between, Tag("<Between>")]
        | Annotated[NullTest, Tag("<NullTest>")]
        | Annotated[And, Tag("<And>")]
        | Annotated[Or, Tag("<Or>")]
        | Annotated[Not, Tag("<Not>")],
        _choose(
            'Write {"column": ..., "op": ..., "value": ...}, {"and": [...]}, {"or": [...]} or {"not": ...}.',
            kinds={},
            keys={f"op {op}": name for op, name in _FILTER_OPS.items()}
            | {"plan": "Member", "and": "And", "or": "Or", "not": "Not", "column": "Compare"},
        ),
    ],
)
Filters = Annotated[
    Annotated[Filter, Tag("<filter>")]
    | Annotated[Annotated[tuple[Filter, ...], Field(min_length=1, max_length=MAX_ITEMS)], Tag("<all>")],
    Discriminator(lambda value: "<all>" if isinstance(value, list | tuple) else "<filter>"),
]
"""One filter, or a list of filters that must all hold."""

# --- the parts of a plan


class TableRef(Node):
    """A table of the catalog, optionally under another name."""

    table: Name
    alias: OutputName | None = Field(default=None, alias="as")


class PlanRef(Node):
    """The rows of another plan, as a table of that name."""

    plan: QueryPlan
    alias: OutputName = Field(alias="as")


class JoinPlan(Node):
    """The rows of another plan to join, on pairs of equal columns."""

    plan: QueryPlan
    alias: OutputName = Field(alias="as")
    kind: Literal["inner", "left"] = "inner"
    on: Annotated[tuple[tuple[ColumnName, ColumnName], ...], Field(min_length=1, max_length=MAX_ITEMS)]


class Join(Node):
    """A table to join: on pairs of equal columns, or, without `on`, along the foreign keys of the catalog."""

    table: Name
    alias: OutputName | None = Field(default=None, alias="as")
    kind: Literal["inner", "left"] = "inner"
    on: Annotated[tuple[tuple[ColumnName, ColumnName], ...], Field(max_length=MAX_ITEMS)] = ()
    along: Literal["keys"] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Join:
        if self.on and self.along:
            raise PydanticCustomError("join", 'Give either "on" or "along", not both.')
        return self


class Named(Node):
    """An expression and the name of the column it becomes."""

    expr: Expr
    alias: OutputName = Field(alias="as")


class Aggregate(Node):
    """A measure over a group's rows, or those that pass `filter`; `count` without `of` counts rows.

    `quantile` needs `at`, between 0 and 1, and interpolates; `correlation` needs `with`, the second number; `stddev` is
    that of a sample.
    """

    fn: AggregateFn
    of: Expr | None = None
    other: Expr | None = Field(default=None, alias="with")
    at: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    distinct: bool = Field(default=False, strict=True)
    filter: Filters | None = None
    alias: OutputName | None = Field(default=None, alias="as")

    @model_validator(mode="after")
    def _has_operand(self) -> Aggregate:
        if self.of is None and (self.fn != "count" or self.distinct):
            what = "count with distinct" if self.fn == "count" else self.fn
            raise PydanticCustomError("operand", '`{what}` needs "of": the column to use.', {"what": what})
        if self.distinct and self.fn in ("median", "quantile", "stddev", "correlation"):
            raise PydanticCustomError("operand", "`{fn}` cannot be distinct.", {"fn": self.fn})
        for fn, field, value in (("quantile", "at", self.at), ("correlation", "with", self.other)):
            if (self.fn == fn) != (value is not None):
                verb = "needs" if self.fn == fn else "takes no"
                raise PydanticCustomError(
                    "operand", '`{fn}` {verb} "{field}".', {"fn": self.fn, "verb": verb, "field": field}
                )
        return self


class Top(Node):
    """Keep the `n` rows with the highest `by` (the lowest, with `lowest`) for each value of `per`, or of all rows.

    With `ties`, also keep the rows whose `by` equals that of the last one kept.
    """

    n: Annotated[Whole, Field(ge=1)]
    per: Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)] = ()
    by: Name
    lowest: bool = Field(default=False, strict=True)
    ties: bool = Field(default=False, strict=True)


class Order(Node):
    """A key to sort by."""

    by: Expr
    desc: bool = Field(default=False, strict=True)
    nulls: Literal["first", "last"] = "last"


def _tag_select_item(value: Any) -> str:
    return "<Named>" if isinstance(value, Named) or (isinstance(value, dict) and "expr" in value) else "<expr>"


ColumnName = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[ColumnRef, Tag("<ColumnRef>")],
    _choose('Write a column name or {"column": ..., "table": ...}.', {str: "name"}, {"column": "ColumnRef"}),
]
From = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[TableRef, Tag("<TableRef>")] | Annotated[PlanRef, Tag("<PlanRef>")],
    _choose(
        'Write a table name, {"table": ..., "as": ...} or {"plan": ..., "as": ...}.',
        {str: "name"},
        {"table": "TableRef", "plan": "PlanRef"},
    ),
]
JoinItem = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[Join, Tag("<Join>")] | Annotated[JoinPlan, Tag("<JoinPlan>")],
    _choose(
        'Write a table name, {"table": ..., "on": [...]} or {"plan": ..., "as": ..., "on": [...]}.',
        {str: "name"},
        {"table": "Join", "plan": "JoinPlan"},
    ),
]
SelectItem = Annotated[
    Annotated[Expr, Tag("<expr>")] | Annotated[Named, Tag("<Named>")],
    Discriminator(_tag_select_item),
]
OrderItem = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[Order, Tag("<Order>")],
    _choose('Write a column name or {"by": ..., "desc": true}.', {str: "name"}, {"by": "Order"}),
]
Items = Annotated[tuple[Item, ...], Field(max_length=MAX_ITEMS)]


class QueryPlan(Node):
    """One query over one source: which rows and columns, grouped and measured how, in which order."""

    source: From = Field(alias="from")
    joins: Items[JoinItem] = ()
    select: Items[SelectItem] = ()
    where: Filters | None = None
    group_by: Items[SelectItem] = ()
    aggregate: Items[Aggregate] = ()
    having: Filters | None = None
    top: Top | None = None
    order_by: Items[OrderItem] = ()
    limit: Annotated[Whole, Field(ge=1)] | None = None
    offset: Annotated[Whole, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _bounded(self) -> QueryPlan:
        _check_depth(self)
        return self

    @model_validator(mode="after")
    def _coherent(self) -> QueryPlan:
        if self.having is not None and not (self.group_by or self.aggregate):
            raise PydanticCustomError("plan", '"having" filters groups; use "where", or add "group_by" or "aggregate".')
        if self.offset and not (self.limit and self.order_by):
            raise PydanticCustomError("plan", '"offset" needs "limit" and "order_by", or the page could hold any rows.')
        return self


def plan_schema() -> Json:
    """Return the JSON Schema of a plan."""
    schema = QueryPlan.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def parse_plan(text_or_dict: str | bytes | Json) -> QueryPlan:
    """Return the plan that the JSON describes; `Invalid` names the field, the value and what to do."""
    data = _load(text_or_dict)
    try:
        return QueryPlan.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None


def _load(text_or_dict: str | bytes | Json) -> Json:
    if isinstance(text_or_dict, dict):
        _check_depth(text_or_dict)
    try:
        text = json.dumps(text_or_dict) if isinstance(text_or_dict, dict) else text_or_dict
        if len(text) > MAX_CHARS:
            raise Invalid(
                f"The plan has {len(text)} characters; at most {MAX_CHARS} are allowed.",
                hint="Shorten lists of values, or load them as a table and join it.",
            )
        data = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The plan is not JSON: {error}.", hint='Write one object, such as {"from": "orders"}.') from None
    except RecursionError:
        raise _too_deep() from None
    except TypeError as error:
        raise Invalid(f"The plan is not JSON: {error}.", hint="Use text, numbers, true, false and lists.") from None
    if not isinstance(data, dict):
        raise Invalid(
            f"The plan is {quote_invalid_value(data)}, not an object.",
            hint='Write an object, such as {"from": "orders"}.',
        )
    _check_depth(data)
    return data


def _too_deep() -> Invalid:
    return Invalid(
        f"The plan is nested deeper than {MAX_DEPTH} levels.",
        hint='Flatten it: "and", "or" and "args" take many items in one list.',
    )


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, BaseModel):
        yield from node.__dict__.values()
    elif isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list | tuple):
        yield from node


def _check_depth(root: Any) -> None:
    """Check the depth level by level, so that the check itself cannot overflow the stack."""
    level = [root]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise _too_deep()


def _explain(error: ValidationError) -> Invalid:
    problem = find_field_validation_error(error, QueryPlan)
    where = f"`{problem.field}`" if problem.field else "The plan"
    message, hint = _words(problem, where)
    return Invalid(message, hint=hint, path=problem.field or None)


def _words(problem: FieldValidationError, where: str) -> tuple[str, str]:
    """Return what is wrong, and a hint that says what to write instead: models use it to correct a plan."""
    listed = ", ".join(f"`{name}`" for name in problem.known)
    match problem.type:
        case "missing":
            return f"{where} is missing.", f"Add it; allowed here: {listed}."
        case "extra_forbidden":
            near = f"Did you mean `{problem.near}`?" if problem.near else f"Allowed here: {listed}."
            return f"{where} is not a field of a plan.", near
        case "literal_error" if problem.loc[-2:] == ("<Compare>", "op"):
            return f"{where} is {problem.value}.", f"Write one of {', '.join(f'`{op}`' for op in _FILTER_OPS)}."
        case "too_short":
            return f"{where} is empty.", "Give at least one item, or leave the field out."
        case "choice" | "scalar" | "name" | "plan" | "join" | "operand":
            return f"{where} cannot be {problem.value}.", f"{problem.reason}."
    return f"{where} cannot be {problem.value}.", f"{problem.reason[:1].upper()}{problem.reason[1:]}."
