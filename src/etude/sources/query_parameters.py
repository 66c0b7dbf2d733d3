"""Parameters of queries: values that travel beside the text. The engine binds them; they are never pasted."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from etude.errors import Invalid
from etude.similar_names import similar_names

Params = Sequence[Any] | Mapping[str, Any]
"""Values for `?` or `$1` in their order, or for `$name` and `:name` by name."""
Encoded = list[Any] | dict[str, Any]
"""The same as JSON."""
MOST = 10_000
MOST_BYTES = 8 << 20
"""The largest size of all values together: they travel to the engine in one message."""
_NAMES = re.compile(r"[A-Za-z_]\w*")


def encode_query_params(params: Params | None) -> Encoded | None:
    """Return the values as JSON, which messages and records carry; None if there are none."""
    if params is None or (isinstance(params, list | tuple | Mapping) and not params):
        return None
    if isinstance(params, list | tuple | Mapping):
        _check_size(params)
    if isinstance(params, Mapping):
        for name in params:
            if not isinstance(name, str) or not _NAMES.fullmatch(name):
                raise Invalid(f"`{str(name)[:80]}` cannot name a parameter.", hint="Use letters, digits and `_`.")
        return {name: _encode(value, f"${name}") for name, value in params.items()}
    if not isinstance(params, list | tuple):
        raise Invalid(
            f"Parameters are a list or a dict, not {type(params).__name__}.",
            hint="db.sql('... WHERE x = ?', [1]) or db.sql('... WHERE x = $x', {'x': 1})",
        )
    if len(params) > MOST:
        raise Invalid(f"A query takes {MOST:,} parameters at most, not {len(params):,}.", hint="Register a table.")
    return [_encode(value, f"{i}") for i, value in enumerate(params, 1)]


def _check_size(params: Params) -> None:
    values = params.values() if isinstance(params, Mapping) else params
    flat = (v for value in values for v in (value if isinstance(value, list | tuple) else (value,)))
    size = sum(
        len(v) if isinstance(v, str | bytes | bytearray) else memoryview(v).nbytes if isinstance(v, memoryview) else 8
        for v in flat
    )
    if size > MOST_BYTES:
        raise Invalid(
            f"The parameters of the query have {size:,} bytes; {MOST_BYTES:,} is the most.",
            hint="Register a table with the values, and join it.",
            bytes=size,
            most=MOST_BYTES,
        )


def _encode(value: Any, where: str, nested: bool = False) -> Any:
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "item"):
        value = value.item()
    if type(value).__name__ in ("NaTType", "NAType"):  # how pandas writes null
        return None
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"type": "float", "value": repr(value)}
        case Decimal():
            return {"type": "decimal", "value": str(value)}
        case dt.datetime():
            return {"type": "timestamp", "value": value.isoformat()}
        case dt.date():
            return {"type": "date", "value": value.isoformat()}
        case dt.time():
            return {"type": "time", "value": value.isoformat()}
        case dt.timedelta():
            return {"type": "interval", "value": [value.days, value.seconds, value.microseconds]}
        case bytes() | bytearray() | memoryview():
            return {"type": "bytes", "value": bytes(value).hex()}
        case uuid.UUID():
            return {"type": "uuid", "value": str(value)}
        case list() | tuple() if not nested:
            return {"type": "list", "value": [_encode(v, where, nested=True) for v in value]}
        case _:
            raise Invalid(
                f"The parameter {where} is a {type(value).__name__}, which a query cannot take.",
                hint="Pass a number, a text, a date or time, bytes, None, or a list of these.",
            )


def decode_query_params(encoded: Any) -> Params | None:
    """Return the values that `encode_query_params` wrote; raise `Invalid` if they were written by something else."""
    try:
        if isinstance(encoded, dict):
            return {name: _decode(value) for name, value in encoded.items()}
        return [_decode(value) for value in encoded] if encoded else None
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise Invalid("The parameters of the query cannot be read.", hint="Pass a list or a dict of values.") from None


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    text = value["value"]
    match value["type"]:
        case "float":
            return float(text)
        case "decimal":
            return Decimal(text)
        case "timestamp":
            return dt.datetime.fromisoformat(text)
        case "date":
            return dt.date.fromisoformat(text)
        case "time":
            return dt.time.fromisoformat(text)
        case "interval":
            return dt.timedelta(*text)
        case "bytes":
            return bytes.fromhex(text)
        case "uuid":
            return uuid.UUID(text)
        case _:
            return [_decode(v) for v in text]


# An unclosed quote or comment is one lexeme to the end of the text. If it did not match, the search would scan to the
# end again from the next character: quadratic time.
_QUOTED = r"'(?:[^']|'')*+(?:'|\Z)|\"(?:[^\"]|\"\")*+(?:\"|\Z)"
_ESCAPED = r"'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z)"
_BACKTICKS = r"`[^`]*+(?:`|\Z)"
_COMMENTS = r"--[^\n]*|/\*(?:.*?\*/|.*)"
_DOLLARS = r"\$(?P<tag>[A-Za-z_]\w*|)\$(?:.*?\$(?P=tag)\$|.*)"
_MARKS = r"(?P<mark>\?\d*|\$\d+|[$:][A-Za-z_]\w*)"
_SKIPPED = {
    "duckdb": rf"{_QUOTED}|{_COMMENTS}|{_DOLLARS}|::|[^\W\d][\w$]*",
    "postgres": rf"[eE]{_ESCAPED}|{_QUOTED}|{_COMMENTS}|{_DOLLARS}|::|\?\?|\?[|&]|[^\W\d][\w$]*",
    "mysql": rf"{_ESCAPED}|\"(?:[^\"\\]|\\.|\"\")*+(?:\"|\\?\Z)|{_BACKTICKS}|{_COMMENTS}|#[^\n]*|[^\W\d][\w$]*",
    "sqlite": rf"{_QUOTED}|{_BACKTICKS}|\[[^\]]*+(?:\]|\Z)|{_COMMENTS}|[^\W\d][\w$]*",
}
_TOKENS = {dialect: re.compile(rf"(?P<skip>{skip})|{_MARKS}", re.DOTALL) for dialect, skip in _SKIPPED.items()}


def place_query_params(sql: str, params: Params, dialect: str) -> tuple[str, tuple[Any, ...]]:
    """Return the text with the engine's own marks for parameters, and the values in the order of these marks.

    The guard checks the text after this, and that text runs. So a mark that is found in a wrong place changes what the
    query means, but not what it may do.
    """
    tokens = _TOKENS.get(dialect)
    if tokens is None:
        raise Invalid(f"Queries in the dialect `{dialect}` take no parameters.", hint="Write the values into it.")
    places: Any = _NamedPlaces(params) if isinstance(params, Mapping) else _OrderedPlaces(params)
    numbered = dialect in ("duckdb", "postgres")
    values: list[Any] = []
    numbers: dict[Any, int] = {}

    def replace(found: re.Match[str]) -> str:
        mark = found["mark"]
        if mark is None:
            return "?" if found[0] == "??" else found[0]
        key = places.key_of(mark)
        if key is None:
            return mark
        if not numbered or key not in numbers:
            values.append(places.value_of(key))
            numbers[key] = len(values)
        # With blanks, so that nothing before or after it can become a part of it.
        return f" ${numbers[key]} " if numbered else " ? "

    text = tokens.sub(replace, sql)
    places.check_all_used(set(numbers))
    return text, tuple(values)


class _OrderedPlaces:
    """Values in an order, for `?` and `$1`."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        self._count = 0
        self._styles: set[bool] = set()

    def key_of(self, mark: str) -> int | None:
        number = mark[1:]
        if number and not number.isdigit():
            return None  # the engine or the guard says what is wrong with it
        self._styles.add(bool(number))
        if len(self._styles) > 1:
            raise Invalid("The query has both `?` and numbered parameters.", hint="Use one of the two.")
        self._count += 1
        # A longer number has no value either, and Python refuses to read one of thousands of digits.
        return int(number[:9]) if number else self._count

    def value_of(self, key: int) -> Any:
        if not 1 <= key <= len(self._values):
            raise Invalid(
                f"The query has a parameter {key}, but {len(self._values)} values were given.",
                hint="Give one value for each parameter.",
            )
        return self._values[key - 1]

    def check_all_used(self, used: set[int]) -> None:
        unused = sorted(set(range(1, len(self._values) + 1)) - used)
        if unused:
            raise Invalid(
                f"{len(self._values)} values were given, but the query has {len(used)} parameters.",
                hint="Write `?` or `$1` in the query for each value.",
            )


class _NamedPlaces:
    """Values by name, for `$name` and `:name`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def key_of(self, mark: str) -> str | None:
        name = mark[1:]
        if name in self._values:
            return name
        # After a colon there may also be a slice or a cast, so only `$` is certain to name a parameter.
        if mark[0] == "$" and not name.isdigit():
            near = similar_names(name, self._values, n=1)
            hint = f"Did you mean `${near[0]}`?" if near else f"Given: {', '.join(self._values)}."
            raise Invalid(f"The parameter `${name}` has no value.", hint=hint)
        return None

    def value_of(self, key: str) -> Any:
        return self._values[key]

    def check_all_used(self, used: set[str]) -> None:
        unused = [name for name in self._values if name not in used]
        if unused:
            raise Invalid(
                f"The query does not use the parameter `{unused[0]}`.",
                hint=f"Write `${unused[0]}` or `:{unused[0]}` in the query, or leave the value out.",
            )
