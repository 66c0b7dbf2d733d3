"""Origins of figures: the model says by expressions where numbers come from that no result has as they stand.

The check of numbers can only guess which arithmetic a sentence means. The model knows it, so it is asked once, while
the text of its answer is kept. A figure whose expression has the value that the text states is proven. One whose
expression has another value is false, and goes back to the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from etude.entities import Figure
from etude.errors import Invalid
from etude.runtime.expression import ColumnUse, ExpressionRows, Scalar, evaluate_expression
from etude.runtime.figures import split_figure_format, write_figure
from etude.runtime.number_check.check import CheckedNumber, NumberCheckVerdict, quote_mention
from etude.runtime.number_check.computed_figures import ComputedFigure, find_cells_of_others
from etude.runtime.number_check.mentions import TIME_UNITS, Mention, mention_scale
from etude.runtime.number_check.precision import is_rounded_beyond_precision, rounding_intervals, significant_digits

_LONG = 4
"""Significant digits of a number that also states a value in thousands, millions or billions."""
MOST = 20
"""Figures of an answer whose origins are asked for."""
DOUBTFUL = 0.3
"""How many figures may be expected to be about something else before the model is asked."""
ASKED = (
    "Your answer is kept. It is not clear which results these figures come from. Call `answer` with `origins` alone: "
    "for each number, the expression over results that the sentence means, such as "
    '{"1": "sum(r1.revenue[0:4]) / sum(r1.revenue)"}, or null if it follows from none. '
    "If a figure is wrong, write the answer again instead."
)


@dataclass(frozen=True)
class TracedNumbers:
    """A verdict after the origins of its figures were computed."""

    verdict: NumberCheckVerdict
    figures: tuple[Figure, ...] = ()
    """The figures that their expressions prove."""
    differences: tuple[str, ...] = ()
    """A line for each figure whose expression has another value."""


def figures_without_origin(verdict: NumberCheckVerdict) -> list[CheckedNumber]:
    """Return the figures whose origins are asked for: if nothing explains one, that one and all inferred ones."""
    doubted = [c for c in verdict.mentions if _can_have_origin(c.mention) and c.doubt]
    enough = sum(c.doubt for c in doubted) >= DOUBTFUL
    return doubted[:MOST] if enough and not verdict.refuted else []


def ask_for_origins(verdict: NumberCheckVerdict, quote: Callable[[str], str] = "\n{}".format) -> str:
    """Return the request for the origins of figures; empty if none is needed.

    `quote` marks the words of the answer as data, which they may repeat.
    """
    asked = [
        f"{number}. `{c.mention.text}` in `{quote_mention(verdict.text, c.mention)}`"
        for number, c in enumerate(figures_without_origin(verdict), 1)
    ]
    return ASKED + quote("\n".join(asked)) if asked else ""


def trace_origins(
    verdict: NumberCheckVerdict, origins: Mapping[str, str | None], results: Mapping[str, ExpressionRows]
) -> TracedNumbers:
    """Compute the origins that the model gave for the figures of this text, and compare them with it."""
    asked = {c.mention.start: str(n) for n, c in enumerate(figures_without_origin(verdict), 1)}
    checked, figures, differences = [], [], []
    given = {
        c.mention.start: origin
        for c in verdict.mentions
        if (origin := _evaluate(origins.get(asked.get(c.mention.start, "")) or "", results))
    }
    misplaced = _misplaced(verdict, given)
    for c in verdict.mentions:
        origin = given.get(c.mention.start)
        if origin is None:
            checked.append(c)
            continue
        why = misplaced.get(c.mention.start, "")
        if not states_value(c.mention, origin.value):
            why = f"your expression `{origin.expression}` is {write_figure(origin.value, '')}"
        if not why:
            checked.append(_proven(c, origin))
            figures.append(_figure(c.mention, origin))
        else:
            checked.append(replace(c, verified=False, because=why, contradicted=True, doubt=0.0))
            differences.append(f"- `{c.mention.text}` in `{quote_mention(verdict.text, c.mention)}`: {why}.")
    traced = replace(verdict, mentions=tuple(checked))
    return TracedNumbers(traced, tuple(figures), tuple(differences))


def _misplaced(verdict: NumberCheckVerdict, origins: Mapping[int, _Origin]) -> dict[int, str]:
    """Return the figures whose origins are about other rows than the words around them, each with the reason."""
    if verdict.passage is None:
        return {}
    figures = [
        ComputedFigure(c.mention.start, c.mention.end, _as_number(o.value), o.references, o.skeleton)
        for c in verdict.mentions
        if (o := origins.get(c.mention.start))
    ]
    return find_cells_of_others(verdict.passage, figures)


def find_known_origins(
    verdict: NumberCheckVerdict, origins: Sequence[str], results: Mapping[str, ExpressionRows]
) -> TracedNumbers:
    """Prove figures of a text that was written again by origins that the model gave for the text before."""
    known = [origin for expression in origins if (origin := _evaluate(expression, results))]
    checked, figures = [], []
    for c in verdict.mentions:
        fitting = [
            o for o in known if not c.verified and _can_have_origin(c.mention) and states_value(c.mention, o.value)
        ]
        checked.append(_proven(c, fitting[0]) if fitting else c)
        figures += [_figure(c.mention, fitting[0])] if fitting else []
    return TracedNumbers(replace(verdict, mentions=tuple(checked)), tuple(figures))


def states_value(mention: Mention, value: Scalar) -> bool:
    """Return whether a number of a text states a value, at the precision that it is written with."""
    if mention.period is not None:
        parts = [mention.period.year, mention.period.month, mention.period.day]
        stated = [int(part) for part in str(value)[:10].split("-") if part.isdigit()]
        return any(parts) and all(part in (None, own) for part, own in zip(parts, stated))
    number = _as_number(value)
    if number is None:
        return str(value).casefold() == mention.text.casefold()
    if mention.kind == "times" and number:
        number = max(number, 1 / number, key=abs) if abs(number) < 1 else number  # `a factor of 4` for 0.25
    sizes = [abs(number), abs(number) * 100] if mention.kind in ("percent", "points") else [abs(number)]
    if mention.kind == "percent":
        sizes.append(abs(number - 1) * 100)  # `grew by 12%` for a quotient of 1.12
    # `$13 million` for 13, or `$34,251` for 0.034251, in columns of millions or billions.
    if mention_scale(mention) > 1 or (mention.kind == "number" and significant_digits(mention) >= _LONG):
        sizes += [abs(number) * factor for factor in (10**3, 10**6, 10**9)]
    if mention.unit in TIME_UNITS:  # `1 h 10 min` for a value in seconds or in minutes
        sizes += [abs(number) * other / TIME_UNITS[mention.unit] for other in TIME_UNITS.values()]
    for size in sizes:
        if not is_rounded_beyond_precision(mention, float(size)):
            for low, high in rounding_intervals(mention):
                bottom, top = sorted((abs(low), abs(high)))
                if (0 if low < 0 < high else bottom) <= size <= top:
                    return True
    return False


def _as_number(value: Scalar) -> Decimal | None:
    """Return a number, also one that a result keeps as text; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d{1,30}(?:\.\d{1,30})?\s*%?\s*", value):
        return Decimal(value.strip().rstrip("% "))
    return value if isinstance(value, Decimal) else None


def _can_have_origin(mention: Mention) -> bool:
    return mention.kind not in ("ordinal", "time")


@dataclass(frozen=True)
class _Origin:
    """An expression with its value and the results that it uses."""

    expression: str
    value: Scalar
    results: tuple[str, ...]
    references: tuple[ColumnUse, ...]
    skeleton: str


def _evaluate(expression: str, results: Mapping[str, ExpressionRows]) -> _Origin | None:
    """Return an expression with its value; None if it cannot be computed, or from no result."""
    inside, _ = split_figure_format(expression.strip().removeprefix("{{").removesuffix("}}").strip())
    try:
        outcome = evaluate_expression(inside, results) if inside else None
    except Invalid:
        return None
    if outcome is None or not outcome.results:
        return None
    return _Origin(inside.strip(), outcome.value, outcome.results, outcome.references, outcome.skeleton)


def _proven(checked: CheckedNumber, origin: _Origin) -> CheckedNumber:
    return replace(checked, verified=True, because=origin.expression, contradicted=False, doubt=0.0)


def _figure(mention: Mention, origin: _Origin) -> Figure:
    exact = f"{origin.value:f}" if isinstance(origin.value, Decimal) else str(origin.value)
    return Figure(
        start=mention.start,
        end=mention.end,
        text=mention.text,
        value=exact,
        result=", ".join(origin.results),
        expression=origin.expression,
    )
