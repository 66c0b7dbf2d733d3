"""Figures that a model writes as expressions over results: `{{ r1.revenue[0] / r2.total[0] | 0.1% }}`.

The format is a sample of the number: `1,234.5`, `1.234,5`, `0.1%`, `$1,234`, `1.2M`, `1.5x`; or it is a format of
Python. Such a figure is true by construction, and the answer records where it came from.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal

from etude.entities import Figure
from etude.errors import Invalid
from etude.runtime.expression import ExpressionRows, Scalar, evaluate_expression
from etude.runtime.number_check.computed_figures import ComputedFigure
from etude.runtime.number_check.mentions import find_number_mentions

OPEN, CLOSE = "{{", "}}"
MAX_FIGURES = 300
FIGURES_FAILED = "These figures of your answer cannot be computed:"
_LONG = Context(prec=100)
_SCALES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "thousand": 3, "million": 6, "billion": 9}
_SAMPLE = re.compile(
    r"(?P<before>[^\d#]*?)(?P<plus>\+)?(?P<digits>[\d#](?:[\d#.,'\u00a0\u202f ]*[\d#])?)"
    r"(?P<scale>\s?(?:k|K|M|B|bn|thousand|million|billion)\b)?(?P<after>[^\d#]*)$"
)
_ROUND = re.compile(r"round(?:\(\s*(\d{1,2})?\s*\))?")
_PYTHON = re.compile(r"(?P<plus>\+)?(?P<comma>,)?(?:\.(?P<places>\d{1,2}))?(?P<kind>[fd%])?$")


@dataclass(frozen=True)
class Rendered:
    """A text with its figures filled in. `errors` has a sentence for each figure that could not be computed."""

    text: str
    figures: tuple[Figure, ...]
    errors: tuple[str, ...] = ()
    computed: tuple[ComputedFigure, ...] = ()
    """The same figures, with what their expressions use."""


def render_figures(text: str, results: Mapping[str, ExpressionRows]) -> Rendered:
    """Replace each expression of a text by its value."""
    pieces: list[str] = []
    figures: list[Figure] = []
    computed: list[ComputedFigure] = []
    errors: list[str] = []
    at = length = 0
    for start, end in _find_figures(text):
        pieces.append(text[at:start])
        length += len(pieces[-1])
        at, written = end, text[start:end]
        try:
            if len(figures) >= MAX_FIGURES:
                raise Invalid(f"an answer has at most {MAX_FIGURES} figures.")
            shown, figure, used = _fill(written[len(OPEN) : -len(CLOSE)], results)
        except Invalid as error:
            errors.append(f"`{written}`: {error.message}")
            shown = "…"
        else:
            figures.append(figure.model_copy(update={"start": length, "end": length + len(shown)}))
            computed.append(replace(used, start=length, end=length + len(shown)))
        pieces.append(shown)
        length += len(shown)
    rest = text[at:]
    if OPEN in rest:
        errors.append(f"`{rest[rest.index(OPEN) :][:60]}`: `{CLOSE}` is missing.")
        rest = rest[: rest.index(OPEN)] + "…"
    return Rendered("".join([*pieces, rest]), tuple(figures), tuple(errors), tuple(computed))


def _find_figures(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each expression starts and ends, in linear time: without a `}}` no later `{{` is closed either."""
    at = 0
    while (start := text.find(OPEN, at)) >= 0 and (end := text.find(CLOSE, start + len(OPEN))) >= 0:
        at = end + len(CLOSE)
        yield start, at


def move_figures(figures: Sequence[Figure], text: str, changed: str) -> tuple[Figure, ...]:
    """Return the figures at their places in a text to which marks were added."""
    moved, at = [], 0
    for figure in figures:
        found = changed.find(text[figure.start : figure.end], max(at, figure.start))
        if found >= 0:
            moved.append(figure.model_copy(update={"start": found, "end": found + figure.end - figure.start}))
            at = found + figure.end - figure.start
    return tuple(moved)


def _fill(inside: str, results: Mapping[str, ExpressionRows]) -> tuple[str, Figure, ComputedFigure]:
    expression, sample = split_figure_format(inside)
    outcome = evaluate_expression(expression, results)
    if not outcome.results:
        raise Invalid("it uses no result; write a column of one, such as `r1.total[0]`.")
    if not sample and outcome.places is not None:
        sample = f",.{outcome.places}f"
    shown = write_figure(outcome.value, sample)
    value = f"{outcome.value:f}" if isinstance(outcome.value, Decimal) else str(outcome.value)
    used = ", ".join(outcome.results)
    figure = Figure(start=0, end=0, text=shown, value=value, result=used, expression=expression.strip())
    number = outcome.value if isinstance(outcome.value, Decimal) else None
    return shown, figure, ComputedFigure(0, 0, number, outcome.references, outcome.skeleton, sample)


def split_figure_format(inside: str) -> tuple[str, str]:
    """Return an expression and its format, which comes after `|` or `:` outside of quotes and brackets."""
    depth, quote = 0, ""
    for at, sign in enumerate(inside):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        elif sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif sign in "|:" and depth <= 0:
            return inside[:at], inside[at + 1 :].strip().strip("'\"").removeprefix(":").strip()
    return inside, ""


def computed_spans(text: str, figures: Sequence[Figure]) -> list[tuple[int, int]]:
    """Return the places of a text that etude computed: each figure, with a sign or a unit beside it.

    A number that has other digits than those of figures is not computed.
    """
    spans = [(figure.start, figure.end) for figure in figures]
    for mention in find_number_mentions(text) if figures else ():
        own = [figure for figure in figures if figure.start < mention.end and mention.start < figure.end]
        inside = {at for figure in own for at in range(figure.start, figure.end)}
        places = range(mention.start, mention.end)
        if own and not any(text[at].isdigit() for at in places if at not in inside):
            spans.append((mention.start, mention.end))
    return spans


def write_figure(value: Scalar, sample: str) -> str:
    """Return a value in the format of a sample; without one, with thousands separators and at most two decimals."""
    if not isinstance(value, Decimal):
        return _write_text(value)
    if not sample:
        whole = value == value.to_integral_value()
        return f"{_round(value, 0 if whole else 2):,f}"
    if jinja := _ROUND.fullmatch(sample):
        sample = f",.{jinja[1] or 0}f"
    if (python := _PYTHON.match(sample)) and not sample.isdigit():
        percent, places = python["kind"] == "%", python["places"]
        digits = int(places) if places else 0 if percent or python["kind"] == "d" or not python["kind"] else 6
        rounded = _round(value * 100 if percent else value, digits)
        sign = "+" if python["plus"] and rounded > 0 else ""
        return f"{sign}{rounded:,f}{'%' if percent else ''}" if python["comma"] else f"{sign}{rounded:f}{'%' * percent}"
    match = _SAMPLE.match(sample)
    if match is None:
        raise Invalid(f"the format `{sample}` is not a sample of a number, such as `1,234.5` or `0.1%`.")
    group, point, places = _separators(match["digits"])
    scaled = value
    if "%" in match["after"]:
        scaled = _LONG.multiply(scaled, Decimal(100))
    if scale := (match["scale"] or "").strip():
        scaled = scaled.scaleb(-_SCALES[scale], _LONG)
    rounded = _round(scaled, places)
    body = f"{abs(rounded):,f}" if group else f"{abs(rounded):f}"
    body = "".join({",": group, ".": point}.get(c, c) for c in body)
    sign = "-" if rounded < 0 else "+" if match["plus"] and rounded > 0 else ""
    return f"{sign}{match['before'].replace('-', '')}{body}{match['scale'] or ''}{match['after']}"


def _round(value: Decimal, places: int) -> Decimal:
    if value.adjusted() > 60:
        raise Invalid("the value is too large to write.")
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _LONG)


def _separators(digits: str) -> tuple[str, str, int]:
    """Return the thousands separator, the decimal point and the decimals that a sample shows."""
    marks = [c for c in digits if not c.isdigit() and c != "#"]
    if not marks:
        return "", ".", 0
    last = marks[-1]
    after = len(digits) - digits.rindex(last) - 1
    if len(set(marks)) == 2:
        return marks[0], last, after
    lead = digits.split(last, maxsplit=1)[0]
    if last in ",' \u00a0\u202f" and after == 3 and lead != "0":
        return last, "," if last in " \u00a0\u202f" else ".", 0
    if last == "." and after == 3 and (len(marks) > 1 or (lead not in ("0", "#") and lead == "1")):
        return ".", ",", 0
    return "", last if last in ".," else ".", after


def _write_text(value: Scalar) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    return str(value)
