"""Expressions over the results of a run, such as `sum(r1.revenue) / r2.total[0]`, computed exactly and without `eval`.

r1.revenue[0]               a cell by row number, from 0; -1 is the last row
r1.revenue[country='USA']   a cell by label; conditions: = != < <= > >= in (...) like '%x%', joined by `and` (`&`, a
                            comma) and `or`; both sides may be computed: [revenue > mean(r1.revenue)]
r1.revenue[0:3]             several rows by number, as in Python
r1.revenue where year = 3   several rows by a condition, as in SQL
r1.revenue                  a column; also r1["net revenue"] or r1.`net revenue`
sum min max mean median stddev count distinct abs round, + - * / and parentheses, on single values or whole columns
r1.revenue.sum()            the same as sum(r1.revenue)
count(r1), len(r1)          the number of rows; the difference of two dates is a number of days
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import NoReturn

from etude.errors import Invalid
from etude.similar_names import similar_names

Scalar = Decimal | str | dt.date | dt.datetime | bool | None
MAX_CHARS = 600
MAX_DEPTH = 24
MAX_ROWS = 200_000
_EXACT = Context(prec=60, Emax=100_000, Emin=-100_000, traps=[InvalidOperation, DivisionByZero, Overflow])
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?)
    |(?P<name>[^\W\d]\w*)
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)
    |(?P<mark><=|>=|!=|<>|==|&&|[-+*/().,:&\[\]=<>]))""",
    re.X,
)


class ExpressionRows:
    """The rows of one result, as expressions read them."""

    def __init__(self, name: str, columns: Sequence[str], rows: Callable[[], Sequence[tuple[object, ...]]]) -> None:
        self.name = name
        self.columns = tuple(columns)
        self._read = rows
        self._rows: Sequence[tuple[object, ...]] | None = None

    @property
    def rows(self) -> Sequence[tuple[object, ...]]:
        """All rows; they are read when they are first needed."""
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    def position(self, column: str) -> int:
        """Return the position of a column; case and separators do not matter if the name is still unique."""
        if column in self.columns:
            return self.columns.index(column)
        wanted = _loose(column)
        near = [i for i, name in enumerate(self.columns) if _loose(name) == wanted]
        if len(near) == 1:
            return near[0]
        close = similar_names(column, self.columns, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"its columns are {', '.join(self.columns)}."
        raise Invalid(f"`{self.name}` has no column `{column}`; {hint}")


@dataclass(frozen=True)
class _Column:
    """Several values."""

    values: tuple[Scalar, ...]


_Value = Scalar | _Column


@dataclass(frozen=True)
class ColumnUse:
    """A place of an expression that names a column: of some rows, or of all if `rows` is None."""

    result: str
    column: str
    rows: tuple[int, ...] | None
    sliced: bool = False
    """Whether the rows are several by number, such as `[0:3]`."""
    divides: bool = False
    """Whether the column is part of what is divided by."""


@dataclass(frozen=True)
class Outcome:
    """The value of an expression and the results that it used."""

    value: Scalar
    results: tuple[str, ...]
    places: int | None = None
    """The decimals of the value if the expression is a call of `round`."""
    references: tuple[ColumnUse, ...] = ()
    skeleton: str = ""
    """The expression without the rows that it chooses: `r1.cows / r1.cattle`."""


def evaluate_expression(expression: str, results: Mapping[str, ExpressionRows]) -> Outcome:
    """Return the value of an expression; raises `Invalid` with a sentence that says what is wrong."""
    if len(expression) > MAX_CHARS:
        raise Invalid(f"an expression has at most {MAX_CHARS} characters; this one has {len(expression)}.")
    reader = _Reader(expression, results)
    try:
        value = reader.read()
    except (ArithmeticError, ValueError):
        raise Invalid(f"`{expression.strip()}` cannot be computed: it divides by zero or is too large.") from None
    if isinstance(value, _Column):
        if len(value.values) != 1:
            raise Invalid(
                f"`{expression.strip()}` is {len(value.values):,} values; choose a row, such as `[0]`, or use sum(...)."
            )
        value = value.values[0]
    if value is None:
        raise Invalid(f"`{expression.strip()}` is null.")
    return Outcome(value, tuple(reader.used), reader.places, tuple(reader.references), reader.skeleton())


class _Reader:
    """Reads an expression from left to right and computes it on the way."""

    def __init__(self, text: str, results: Mapping[str, ExpressionRows]) -> None:
        self._text = text
        self._results = results
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self._within: ExpressionRows | None = None
        """The result whose rows a condition chooses: names are its columns."""
        self._counting = False
        """Whether no rows at all are a value too: there are 0 of them."""
        self._chosen: list[range] = []
        """The tokens that choose rows."""
        self.used: dict[str, None] = {}
        self.references: list[ColumnUse] = []
        self.places: int | None = None

    def read(self) -> _Value:
        value = self._sum()
        if self._at < len(self._tokens):
            self._fail(f"`{self._tokens[self._at][1]}` is not expected there")
        return value

    def skeleton(self) -> str:
        """Return the expression without the rows that it chooses."""
        left = (t for i, (_, t) in enumerate(self._tokens) if not any(i in chosen for chosen in self._chosen))
        return " ".join(left)

    # -- tokens

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *marks: str) -> str:
        found = self._peek()
        if found and (found.lower() if self._tokens[self._at][0] == "name" else found) in marks:
            self._at += 1
            return found.lower()
        return ""

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            self._fail(f"`{mark}` is missing")

    def _next(self, *kinds: str) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            self._fail("it ends too early")
        kind, text = self._tokens[self._at]
        if kind not in kinds:
            self._fail(f"`{text}` is not expected there")
        self._at += 1
        return kind, text

    def _fail(self, why: str) -> NoReturn:
        raise Invalid(f"`{self._text.strip()}` cannot be read: {why}.")

    # -- arithmetic

    def _sum(self) -> _Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("it has too many parentheses")
        value = self._product()
        while sign := self._take("+", "-"):
            value = self._combine(sign, value, self._product())
        self._depth -= 1
        return value

    def _product(self) -> _Value:
        value = self._signed()
        while sign := self._take("*", "/"):
            before = len(self.references)
            value = self._combine(sign, value, self._signed())
            if sign == "/":
                self.references[before:] = [replace(r, divides=not r.divides) for r in self.references[before:]]
        return value

    def _signed(self) -> _Value:
        negative = False
        while sign := self._take("-", "+"):
            negative ^= sign == "-"
        value = self._atom()
        return self._combine("-", Decimal(0), value) if negative else value

    def _combine(self, sign: str, left: _Value, right: _Value) -> _Value:
        if isinstance(left, _Column) or isinstance(right, _Column):
            wide = [len(v.values) for v in (left, right) if isinstance(v, _Column)]
            if len(set(wide)) > 1:
                self._fail(f"the columns have {wide[0]:,} and {wide[1]:,} rows")
            lefts = left.values if isinstance(left, _Column) else (left,) * wide[0]
            rights = right.values if isinstance(right, _Column) else (right,) * wide[0]
            pairs = zip(lefts, rights, strict=True)
            return _Column(tuple(None if a is None or b is None else self._compute(sign, a, b) for a, b in pairs))
        return self._compute(sign, left, right)

    def _compute(self, sign: str, left: Scalar, right: Scalar) -> Scalar:
        if sign == "-" and (days := _days_between(left, right)) is not None:
            return days
        a, b = self._number(left), self._number(right)
        match sign:
            case "+":
                return _EXACT.add(a, b)
            case "-":
                return _EXACT.subtract(a, b)
            case "*":
                return _EXACT.multiply(a, b)
        if not b:
            self._fail("it divides by zero")
        return _EXACT.divide(a, b)

    def _number(self, value: Scalar) -> Decimal:
        if isinstance(value, Decimal):
            return value
        if value is None:
            self._fail("one of its values is null")
        if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+(?:\.\d+)?\s*", value):
            return Decimal(value.strip())
        self._fail(f"`{str(value)[:40]}` is not a number")

    # -- values

    def _atom(self) -> _Value:
        if self._take("("):
            value = self._sum()
            self._need(")")
            return value
        kind, text = self._next("number", "name", "text")
        if kind == "number":
            return Decimal(text)
        if kind == "text":
            return _unquote(text)
        if self._peek() == "(":
            return self._function(text)
        if self._within is not None and not (text in self._results and self._peek() in (".", "[")):
            return self._values_within(self._within, text)
        return self._reference(text)

    def _function(self, name: str) -> _Value:
        whole = self._at == 1
        self._need("(")
        if name.lower() in ("count", "len") and self._peek() in self._results and self._bare_result():
            return Decimal(len(self._use(self._next("name")[1], closing=True).rows))
        outer, self._counting = self._counting, name.lower() in _COUNTS
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._counting = outer
        self._need(")")
        return self._apply(name, arguments, whole)

    def _apply(self, name: str, arguments: Sequence[_Value], whole: bool = False) -> _Value:
        """Return the value of a function; `whole` if nothing stands before it."""
        compute, name = _FUNCTIONS.get(name.lower()), name.lower()
        if compute is None:
            self._fail(f"there is no function `{name}`; there are {', '.join(_FUNCTIONS)}")
        if name == "round":
            rounded, places = _round(self._number(_single(arguments[0])), arguments[1:])
            if whole and self._at == len(self._tokens):
                self.places = max(places, 0)
            return rounded
        if name == "abs":
            return abs(self._number(_single(arguments[0])))
        flat = [v for a in arguments for v in (a.values if isinstance(a, _Column) else (a,))]
        if name == "len":
            return Decimal(len(flat))
        flat = [v for v in flat if v is not None]
        if name == "count":
            return Decimal(len(flat))
        if name == "distinct":
            unique = dict.fromkeys(flat)
            return _Column(tuple(unique)) if self._counting else Decimal(len(unique))
        if not flat:
            self._fail(f"`{name}` has no values")
        if name in ("min", "max") and not any(isinstance(v, Decimal) for v in flat):
            return (min if name == "min" else max)(flat, key=str)
        return compute([self._number(v) for v in flat])

    def _bare_result(self) -> bool:
        return self._at + 1 < len(self._tokens) and self._tokens[self._at + 1][1] == ")"

    def _use(self, name: str, closing: bool = False) -> ExpressionRows:
        if name not in self._results:
            known = ", ".join(self._results) or "none yet"
            raise Invalid(f"there is no result `{name}`; the results are: {known}.")
        if closing:
            self._need(")")
        self.used[name] = None
        return self._results[name]

    def _reference(self, name: str) -> _Value:
        first = self._at == 1
        result, column, rows = self._use(name), None, None
        single = sliced = False
        while not self._is_method(result, column) and (mark := self._take(".", "[")):
            if mark == ".":
                column = self._column_name(result, column)
            elif self._tokens[self._at : self._at + 1] and self._quoted_column(column):
                column = self._column_name(result, column)
                self._need("]")
            else:
                if rows is not None:
                    self._fail("it chooses rows twice")
                opened = self._at - 1
                rows, single = self._rows(result)
                self._need("]")
                self._chosen.append(range(opened, self._at))
                sliced = any(text == ":" for _, text in self._tokens[opened : self._at])
        if rows is None and self._within is None and (opened := self._at) < len(self._tokens) and self._take("where"):
            rows = self._rows_by_conditions(result)  # `sum(r1.wins where r1.country = 'Peru')`
            self._chosen.append(range(opened, self._at))
        if column is None and self._is_method(result, column) and self._peek_at(1).lower() in ("count", "len"):
            self._method()
            return Decimal(len(rows if rows is not None else result.rows))
        if column is None and rows is not None and self._counting:
            return _Column(tuple(Decimal(i) for i in rows))  # `count(r1[city='Oslo'])`
        if column is None:
            self._fail(f"`{name}` needs a column, such as `{name}.{result.columns[0] if result.columns else 'x'}`")
        chosen = [result.rows[i] for i in rows] if rows is not None else result.rows
        if self._within is None:  # Columns of a condition only choose rows.
            used = None if rows is None else tuple(rows)
            self.references.append(ColumnUse(name, result.columns[column], used, sliced))
        values = tuple(_scalar(row[column]) for row in chosen)
        value: _Value = values[0] if single or (len(values) == 1 and not self._counting) else _Column(values)
        while self._is_method(result, column):
            called, arguments = self._method()
            value = self._apply(called, [value, *arguments], first)
        return value

    def _peek_at(self, further: int) -> str:
        return self._tokens[self._at + further][1] if self._at + further < len(self._tokens) else ""

    def _is_method(self, result: ExpressionRows, column: int | None) -> bool:
        """Return whether a function is called as a method comes next, such as `.sum()`."""
        named = self._peek() == "." and self._peek_at(2) == "("
        return named and (column is not None or self._peek_at(1) not in result.columns)

    def _method(self) -> tuple[str, list[_Value]]:
        self._need(".")
        _, name = self._next("name")
        self._need("(")
        arguments = [] if self._peek() == ")" else [self._sum()]
        self._need(")")
        return name, arguments

    def _quoted_column(self, column: int | None) -> bool:
        kind, _ = self._tokens[self._at]
        closes = self._at + 1 < len(self._tokens) and self._tokens[self._at + 1][1] == "]"
        return column is None and kind == "text" and closes

    def _column_name(self, result: ExpressionRows, column: int | None) -> int:
        if column is not None:
            self._fail("it names two columns")
        kind, text = self._next("name", "text")
        return result.position(_unquote(text) if kind == "text" else text)

    def _rows(self, result: ExpressionRows) -> tuple[list[int], bool]:
        """Return the chosen rows, and whether it is one row by number."""
        index = self._row_number()
        if self._take(":"):
            end = self._row_number()
            numbers = list(range(len(result.rows)))[index:end]
            if not numbers:
                self._fail(f"`{result.name}` has {len(result.rows):,} rows, and none of them is chosen")
            return numbers, False
        if index is not None:
            if not -len(result.rows) <= index < len(result.rows):
                self._fail(f"`{result.name}` has {len(result.rows):,} rows, counted from 0; {index} is not one")
            return [index % len(result.rows)], True
        return self._rows_by_conditions(result), False

    def _rows_by_conditions(self, result: ExpressionRows) -> list[int]:
        start = self._at
        chosen = set(self._all_of(result))
        while self._take("or"):
            chosen |= set(self._all_of(result))
        counted = self._counting or self._peek_at(2).lower() in _COUNTS
        if not chosen and not counted:
            said = " ".join(text for _, text in self._tokens[start : self._at])
            raise Invalid(f"no row of `{result.name}` has {said}.")
        return sorted(chosen)

    def _all_of(self, result: ExpressionRows) -> list[int]:
        """Return the rows that satisfy all conditions up to the next `or`."""
        outer, counting = self._within, self._counting
        self._within, self._counting = result, False
        rows = set(range(len(result.rows)))
        while True:
            closes = bool(self._take("("))
            rows &= self._condition(len(result.rows))
            if closes:
                self._need(")")
            if not self._take("and", ",", "&", "&&"):
                self._within, self._counting = outer, counting
                return sorted(rows)

    def _row_number(self) -> int | None:
        """Return the number of a row, if one comes next."""
        number = self._peek_at(1) if self._peek() == "-" else self._peek()
        if not number.isdigit() or len(number) > 9:
            return None
        negative = bool(self._take("-"))
        self._next("number")
        return -int(number) if negative else int(number)

    def _condition(self, rows: int) -> set[int]:
        """Return the rows that satisfy a condition; both sides may be computed from columns of the result."""
        left = self._column_of(self._left_side(), rows)
        sign = self._take("=", "==", "!=", "<>", "<", "<=", ">", ">=", "in", "like", "ilike")
        if not sign:
            self._fail("a condition compares a column with a value, such as `[country='USA']`")
        if sign == "in":
            self._need("(")
            values = [self._column_of(self._sum(), rows)]
            while self._take(","):
                values.append(self._column_of(self._sum(), rows))
            self._need(")")
            return {i for i, v in enumerate(left) if any(_equal(v, listed[i]) for listed in values)}
        right = self._column_of(self._sum(), rows)
        if sign in ("like", "ilike"):
            pattern = [part.casefold() for part in str(right[0]).split("%")] if rows else []
            return {i for i, v in enumerate(left) if v is not None and _is_like(str(v).casefold(), pattern)}
        return {i for i, (v, w) in enumerate(zip(left, right, strict=True)) if _compare(sign, v, w)}

    def _left_side(self) -> _Value:
        """Return the left side of a condition, where a text is the name of a column."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind == "text" and self._within is not None:
            self._at += 1
            return self._values_within(self._within, _unquote(text))
        return self._sum()

    def _column_of(self, value: _Value, rows: int) -> tuple[Scalar, ...]:
        if not isinstance(value, _Column):
            return (value,) * rows
        if len(value.values) != rows:
            self._fail(f"a condition compares {len(value.values):,} values with {rows:,} rows")
        return value.values

    def _values_within(self, result: ExpressionRows, name: str) -> _Column:
        position = result.position(name)
        return _Column(tuple(_scalar(row[position]) for row in result.rows))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Invalid(f"`{text.strip()}` cannot be read: `{text[at : at + 10].strip()}` is not expected there.")
        yield match.lastgroup or "", match[match.lastgroup or 0]
        at = match.end()


def _unquote(text: str) -> str:
    mark = text[0]
    return text[1:-1].replace(mark * 2, mark)


def _loose(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.casefold()).strip("_")


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, str | bool | Decimal | dt.date):
        return value if not isinstance(value, Decimal) or value.is_finite() else None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        exact = Decimal(repr(value))
        return exact if exact.is_finite() else None
    return str(value)


def _single(value: _Value) -> Scalar:
    if isinstance(value, _Column):
        raise Invalid("`abs` and `round` take one value; choose a row, such as `[0]`.")
    return value


def _round(value: Decimal, places: Sequence[_Value]) -> tuple[Decimal, int]:
    wanted = _single(places[0]) if places else Decimal(0)
    if not isinstance(wanted, Decimal) or wanted != int(wanted) or not -20 <= wanted <= 20:
        raise Invalid("`round` takes a number of places between -20 and 20.")
    return value.quantize(Decimal(1).scaleb(-int(wanted)), ROUND_HALF_UP, _EXACT), int(wanted)


def _days_between(left: Scalar, right: Scalar) -> Decimal | None:
    a, b = _moment(left), _moment(right)
    if a is None or b is None:
        return None
    gap = a.replace(tzinfo=None) - b.replace(tzinfo=None)
    seconds = Decimal(gap.days * 86400 + gap.seconds) + Decimal(gap.microseconds) / 1_000_000
    return _EXACT.divide(seconds, Decimal(86400))


def _moment(value: Scalar) -> dt.datetime | None:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
        try:
            return dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    return None


def _equal(value: Scalar, wanted: Scalar) -> bool:
    if value is None or wanted is None:
        return value is wanted
    if isinstance(value, Decimal) and isinstance(wanted, Decimal):
        return value == wanted
    return str(value).casefold() == str(wanted).casefold()


def _compare(sign: str, value: Scalar, wanted: Scalar) -> bool:
    if sign in ("=", "=="):
        return _equal(value, wanted)
    if sign in ("!=", "<>"):
        return not _equal(value, wanted)
    if value is None or wanted is None:
        return False
    if isinstance(value, Decimal) and isinstance(wanted, Decimal):
        order = (value > wanted) - (value < wanted)
    else:
        order = (str(value) > str(wanted)) - (str(value) < str(wanted))
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]


def _is_like(text: str, parts: Sequence[str]) -> bool:
    """Return whether a text has the parts of a pattern such as `%x%` in their order."""
    if len(parts) == 1:
        return text == parts[0]
    at = len(parts[0])
    if not text.startswith(parts[0]):
        return False
    for part in parts[1:-1]:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - at >= len(parts[-1]) and text.endswith(parts[-1])


def _total(values: Sequence[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value)
    return total


def _mean(values: Sequence[Decimal]) -> Decimal:
    return _EXACT.divide(_total(values), Decimal(len(values)))


def _median(values: Sequence[Decimal]) -> Decimal:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else _mean(ordered[half - 1 : half + 1])


def _stddev(values: Sequence[Decimal]) -> Decimal:
    if len(values) < 2:
        raise Invalid("`stddev` needs two values or more.")
    mean = _mean(values)
    squares = [_EXACT.multiply(_EXACT.subtract(v, mean), _EXACT.subtract(v, mean)) for v in values]
    return _EXACT.sqrt(_EXACT.divide(_total(squares), Decimal(len(values) - 1)))


_COUNTS = ("count", "len", "distinct")
_FUNCTIONS: dict[str, Callable[[Sequence[Decimal]], Decimal]] = {
    "sum": _total,
    "min": min,
    "max": max,
    "mean": _mean,
    "avg": _mean,
    "median": _median,
    "stddev": _stddev,
    "count": lambda values: Decimal(len(values)),
    "len": lambda values: Decimal(len(values)),
    "distinct": lambda values: Decimal(len(set(values))),
    "abs": lambda values: abs(values[0]),
    "round": lambda values: values[0],
}
