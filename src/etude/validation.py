"""Readable validation errors: the field, its value unless secret, the reason, and a suggestion for a typo.

Every `ValidationError` that is shown to a user, a client or a model passes through here.
"""

from __future__ import annotations

import difflib
import json
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ForwardRef, Literal, Protocol, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from etude.errors import Invalid
from etude.redaction import MASK, holds_redacted_values, redact_value

SHOWN = 80
"""The most characters of a value that are shown."""
QUOTED = 2_000
"""Characters and values of an input that is quoted. A larger one is described: redacting it would take long, and a part
of it may show a secret that the whole does not."""
LONGEST_STEP = 200
"""Characters of a name of a field that are shown and compared."""
_MOMENT = "such as `2026-01-31T12:00:00Z`"
_OBJECTS = ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type")
_REASONS = {
    "int_type": "it must be a whole number",
    "int_parsing": "it must be a whole number",
    "int_parsing_size": "it must be a whole number of at most 64 bits",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "decimal_parsing": "it must be a number",
    "finite_number": "it must be finite: neither NaN nor infinity",
    "string_type": "it must be text",
    "string_sub_type": "it must be text",
    "string_unicode": "it must be valid Unicode",
    "bytes_type": "it must be bytes",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "list_type": "it must be a list",
    "tuple_type": "it must be a list",
    "set_type": "it must be a list",
    "frozen_set_type": "it must be a list",
    "iterable_type": "it must be a list",
    **{kind: "it must be an object with named fields" for kind in _OBJECTS},
    "none_required": "it must be left out",
    "date_type": "it must be a date such as `2026-01-31`",
    "date_parsing": "it must be a date such as `2026-01-31`",
    "date_from_datetime_parsing": "it must be a date such as `2026-01-31`",
    "date_from_datetime_inexact": "it must be a date without a time, such as `2026-01-31`",
    "datetime_type": f"it must be a date and time {_MOMENT}",
    "datetime_parsing": f"it must be a date and time {_MOMENT}",
    "datetime_from_date_parsing": f"it must be a date and time {_MOMENT}",
    "timezone_aware": f"it must have a time zone, {_MOMENT}",
    "path_type": "it must be a path",
    "url_parsing": "it must be a URL",
    "url_type": "it must be a URL",
    "json_type": "it must be JSON",
}
_COMPARED = {
    "greater_than": "it must be more than {gt}",
    "greater_than_equal": "it must be {ge} or more",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be {le} or less",
    "multiple_of": "it must be a multiple of {multiple_of}",
    "string_pattern_mismatch": "it must match the pattern `{pattern}`",
    "json_invalid": "it is not valid JSON: {error}",
}


class HasValidationErrors(Protocol):
    """An error that `explain_validation` accepts: a `ValidationError` of pydantic or FastAPI."""

    def errors(self) -> Sequence[Any]:
        """Return the details of each error."""


@dataclass(frozen=True)
class FieldValidationError:
    """An error of one field."""

    kind: Literal["missing", "unknown", "wrong"]
    field: str
    """Its path, such as `limits.rows` or `where[0].op`; empty for the whole object."""
    value: str
    """The value as text in backticks; empty if there is none or it is a secret."""
    reason: str
    """A clause, such as "it must be 1 or more"."""
    known: tuple[str, ...] = ()
    """The valid fields of the object that has the unknown or missing field."""
    loc: tuple[int | str, ...] = ()
    type: str = ""
    """The error type of pydantic."""

    @property
    def near(self) -> str:
        """The known field that is most similar to an unknown one; empty if none is similar."""
        last = str(self.loc[-1]) if self.loc else ""
        return next(iter(difflib.get_close_matches(last, self.known, n=1)), "") if self.kind == "unknown" else ""

    def advise(self, otherwise: str = "") -> str:
        """Return what to do; `otherwise` if the error itself suggests nothing."""
        if self.near:
            return f"Did you mean `{self.field.removesuffix(str(self.loc[-1]))}{self.near}`?"
        if self.kind == "missing":
            return "Add it."
        if self.kind == "unknown" and not otherwise:
            return f"Known here: {', '.join(f'`{name}`' for name in self.known)}." if self.known else "Leave it out."
        return otherwise

    def say(self, where: str) -> str:
        """Return the error as a sentence; `where` names the field, such as "The setting `limits.rows`"."""
        match self.kind:
            case "missing":
                return f"{where} is missing."
            case "unknown":
                return f"{where} is not known."
        return f"{where} cannot be {self.value}: {self.reason}." if self.value else f"{where}: {self.reason}."


def explain_validation(
    error: HasValidationErrors,
    whole: str,
    *,
    model: Any = None,
    name: Callable[[str], str] | None = None,
    containers: bool = True,
    hint: str = "",
    **details: Any,
) -> Invalid:
    """Return the `Invalid` error for a failed validation.

    `whole` says what was validated, such as "the script `a.json`". `model` is the type it was validated against, which
    has the names of fields. `name` describes a field, given its path. If `containers` is False, objects and lists are
    not shown, because they may hold a secret under any name. `hint` is used if the error itself suggests nothing.
    """
    problem = find_field_validation_error(error, model, containers)
    if not problem.field:
        where = whole[:1].upper() + whole[1:]
    else:
        where = name(problem.field) if name else f"`{problem.field}` of {whole}"
    return Invalid(problem.say(where), hint=problem.advise(hint), **details)


def find_field_validation_error(
    error: HasValidationErrors, model: Any = None, containers: bool = True
) -> FieldValidationError:
    """Return the most helpful of the errors."""
    # A misspelt field can also cause a missing one; the misspelling is the more helpful error.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    loc = tuple(step[:LONGEST_STEP] if isinstance(step, str) else step for step in first["loc"])
    kind = str(first["type"])
    path, holders = _walk(model, loc)
    match kind:
        case "missing":
            return FieldValidationError("missing", path, "", "it is missing", _field_names(holders), loc, kind)
        case "extra_forbidden" | "unexpected_keyword_argument":
            return FieldValidationError("unknown", path, "", "it is not known", _field_names(holders), loc, kind)
    value = "" if _may_hide(kind, first.get("input"), containers) else _show(first.get("input"), loc, model)
    return FieldValidationError("wrong", path, value, _reason(first), (), loc, kind)


def quote_invalid_value(value: Any) -> str:
    """Return the value as JSON in backticks, cut to a length that fits into a sentence."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str).encode(errors="backslashreplace").decode()
    except RecursionError:
        text = "..."
    return f"`{text[: SHOWN - 3]}...`" if len(text) > SHOWN else f"`{text}`"


def _may_hide(kind: str, value: Any, containers: bool) -> bool:
    """True if the value may contain a secret that no field name reveals."""
    unread = isinstance(value, str | bytes) and kind in _OBJECTS  # an object as text, whose fields are unknown
    return kind == "json_invalid" or unread or (not containers and isinstance(value, Mapping | list | tuple))


def _show(value: Any, loc: Sequence[int | str], model: Any) -> str:
    hidden = _hidden_names(model)

    def hides(key: str) -> bool:
        return key in hidden or holds_redacted_values(key)

    if any(hides(step) for step in loc if isinstance(step, str)):
        return ""
    plain = _plain(value)
    if not _is_short(plain):
        return _describe_large(plain)
    shown = redact_value(plain, hides)
    return "" if shown == MASK else quote_invalid_value(shown)


def _is_short(value: Any) -> bool:
    """Return whether a value has few characters and parts; looks at no more of it than that needs."""
    left, waiting = QUOTED, [value]
    while waiting and left > 0:
        part = waiting.pop()
        left -= len(part) if isinstance(part, str | bytes) else 1
        if isinstance(part, Mapping | list | tuple) and len(part) < left:
            waiting += [*part, *part.values()] if isinstance(part, Mapping) else part
        elif isinstance(part, Mapping | list | tuple):
            return False
    return left > 0


def _describe_large(value: Any) -> str:
    if isinstance(value, str | bytes):
        return f"{'a text' if isinstance(value, str) else 'data'} of {len(value):,} characters"
    size = f"{len(value):,}" if isinstance(value, Mapping | list | tuple) else "many"
    return f"an object of {size} fields" if isinstance(value, Mapping) else f"a list of {size} items"


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def _reason(error: Mapping[str, Any]) -> str:
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind in _REASONS:
        return _REASONS[kind]
    if kind in _COMPARED:
        return _COMPARED[kind].format_map({key: _whole(value) for key, value in context.items()})
    match kind:
        case "literal_error" | "enum":
            return f"it must be {_code(str(context['expected']))}"
        case "union_tag_invalid":
            return f"its {_code(context['discriminator'])} must be one of {_code(context['expected_tags'])}"
        case "union_tag_not_found":
            return f"it needs {_code(context['discriminator'])}"
        case "string_too_short" | "string_too_long" | "too_short" | "too_long":
            return _length(kind, context)
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
    return text.replace("Input should", "it should")


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _code(text: str) -> str:
    return text.replace("'", "`")


def _length(kind: str, context: Mapping[str, Any]) -> str:
    unit = "character" if "string" in kind else "item"
    if kind.endswith("short"):
        fewest = context["min_length"]
        return "it must not be empty" if fewest == 1 else f"it must have at least {fewest:,} {unit}s"
    most = context["max_length"]
    return f"it must have at most {most:,} {unit}{'' if most == 1 else 's'}"


# -- the fields of models


def _walk(model: Any, loc: Sequence[int | str]) -> tuple[str, list[type[BaseModel]]]:
    """Return the path as the user wrote it, and the models that have its last field.

    The `loc` of pydantic also names members of unions, which are not part of the input; only fields and keys are kept.
    """
    path, here = "", list(_members(model))
    holders = [t for t in here if _is_model(t)]
    for at, step in enumerate(loc):
        following = [member for kind in here for inner in _enter(kind, step) for member in _members(inner)]
        if isinstance(step, int):
            path += f"[{step}]"
        elif following or not here or (at == len(loc) - 1 and not _is_tag(step, here)):
            path += f".{step}" if path else step
        else:  # the name of a member of a union
            here = [t for t in here if _is_model(t) and step in (t.__name__, f"<{t.__name__}>")] or here
            holders = [t for t in here if _is_model(t)] or holders
            continue
        if at < len(loc) - 1:
            here = following
            holders = [t for t in here if _is_model(t)]
    return path, holders


def _is_tag(step: str, here: Sequence[Any]) -> bool:
    return step.startswith("<") or step.partition("[")[0] in (
        *("str", "int", "float", "bool", "none", "date", "datetime", "list", "tuple", "dict", "constrained-str"),
        *(
            "constrained-int",
            "constrained-float",
            "function-after",
            "function-before",
            "function-wrap",
            "lax-or-strict",
        ),
        *(getattr(t, "__name__", "") for t in here),
    )


def _members(kind: Any) -> Iterator[Any]:
    """Yield the types that a value may have: the members of a union, without their annotations."""
    origin = get_origin(kind)
    if hasattr(kind, "__value__"):  # a named alias
        yield from _members(kind.__value__)
    elif origin is Annotated:
        yield from _members(get_args(kind)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(kind):
            yield from _members(member)
    elif kind is not None:
        yield kind


def _enter(kind: Any, step: int | str) -> Iterator[Any]:
    """Yield the type of an item or field of a type."""
    if _is_model(kind):
        for name, field in kind.model_fields.items():
            if step in (name, field.alias):
                yield _annotation(kind, field)
        return
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(step, int) and origin in (list, tuple, set, frozenset, Sequence) and inner:
        yield inner[0] if origin is not tuple or inner[-1] is ... else inner[min(step, len(inner) - 1)]
    elif isinstance(step, str) and origin in (dict, Mapping) and inner:
        yield inner[1]


def _annotation(model: type[BaseModel], field: FieldInfo) -> Any:
    """Return the type of a field. A forward reference of a recursive model is looked up in its module."""
    kind: Any = field.annotation
    return getattr(sys.modules[model.__module__], kind.__forward_arg__, None) if isinstance(kind, ForwardRef) else kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _field_names(models: Sequence[type[BaseModel]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.alias or name for m in models for name, field in m.model_fields.items()))


def _hidden_names(model: Any) -> frozenset[str]:
    """Return the names of fields with `repr=False`, at any depth."""
    found: set[str] = set()
    waiting, seen = list(_members(model)), set()
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        if _is_model(kind):
            for name, field in kind.model_fields.items():
                if not field.repr:
                    found |= {name, field.alias or name}
                waiting += _members(_annotation(kind, field))
        else:
            waiting += [member for inner in get_args(kind) for member in _members(inner)]
    return frozenset(found)
