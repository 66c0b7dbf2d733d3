"""Numbers that the search by labels leaves open, but that no reader would doubt.

They follow from the numbers beside them (`183 (1.1%)` after `16,044 rentals`), count what the answer itself lists
(`two caveats`), or are cells of a result that no label contradicts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations

from etude.plurals import singular_of_plural
from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.column_costs import WORD
from etude.runtime.number_check.evidence import EvidenceTable
from etude.runtime.number_check.mentions import Mention, mention_word_set
from etude.runtime.number_check.number_search import NumberSearch
from etude.runtime.number_check.precision import (
    direction_of_precision,
    is_rounded_beyond_precision,
    rounding_intervals,
    significant_digits,
)
from etude.runtime.number_check.wording import REST

_POINTS = mention_word_set(
    "caveat reason thing point way step note factor takeaway observation finding question option explanation "
    "conclusion insight remark limitation exception issue problem detail aspect fact key pattern example surprise "
    "warning assumption hypothesis possibility highlight message lesson time side end hand grund punkt hinweis"
)
_SMALL = 12
_ANAPHORA = re.compile(r"\b(?:these|those|both|the same|between the)\s+$", re.I)
_APPOSED = re.compile(
    r"[\s*_)]*(?:[^\W\d]+[\s*_-]+){0,4}?(?:[(,=→]|\bor\b|\bi\.e\.|\bsoit\b|\balso\b|\bequal to\b|\bd\.\s?h\.)[\s,(]*"
    r"(?:(?:or|about|i\.e\.|roughly|some|only|just|around|nearly|almost|soit|~|≈)[\s,]*)*",
    re.I,
)
_AVERAGE = re.compile(r"\b(?:average|mean|schnitt|durchschnitt\w*|moyenne|promedio|media)\b", re.I)
_OF = re.compile(
    r"(?P<part>\d[\d,.]*)[*_]*\s(?:[^\W\d]+\s){0,2}?(?:of|out of|in|von|sur)\s(?:the\s|all\s)?[*_]*"
    r"(?P<whole>\d[\d,.]*)[*_]*(?:\s[^\W\d]+){0,2}\s?(?:\(|→|=|,? i\.e\.)\s?(?:about\s|roughly\s|~)?[*_]*$",
    re.I,
)
_COMPARED = re.compile(
    r"[\s)*_]*(?:below|above|more|less|fewer|higher|lower|under|over|up|down|larger|smaller)\b", re.I
)
_NEAR, _FAR = 0.5, 0.2
"""How many accidental matches may be expected if the text ties the number to others, and if they are only near."""


class StatedNumber:
    """A verified number of the text with the value that it stands for."""

    def __init__(self, mention: Mention, value: float, sentence: int, match: Candidate | None) -> None:
        self.mention, self.value, self.sentence, self.match = mention, value, sentence, match

    @property
    def sort(self) -> str:
        """What is measured, as far as the text shows it: only numbers of one sort are added."""
        if self.mention.kind in ("percent", "points"):
            return "percent"
        return self.mention.unit


def take_second_look(search: NumberSearch, mention: Mention, stated: list[StatedNumber]) -> str:
    """Explain a number that nothing explained so far; else empty."""
    if mention.kind in ("date", "ordinal", "time") or not mention.readings:
        return ""
    return (
        _is_said(search, mention)
        or _is_rhetoric(search, mention)
        or _apposed(search, mention, stated)
        or _follows(search, mention, stated)
        or _plain_cell(search, mention)
    )


def take_second_look_at_parts(search: NumberSearch, mention: Mention) -> str:
    """Explain why a percentage is wrong that stands behind its own two numbers, as in `106 in 202 (51.0%)`."""
    if mention.kind != "percent" or mention.word or mention.signed:
        return ""
    match = _OF.search(search.passage.around(mention, 70, 0)[0])
    if match is None or re.match(r"[\s*_)]*(?:more|less|higher|lower|of)\b", search.passage.around(mention, 0, 12)[1]):
        return ""
    if re.fullmatch(r"(?:19|20)\d\d", match["whole"]):
        return ""  # `481.45 in 2022 (7%)`
    part, whole = (_plain_number(match[name]) for name in ("part", "whole"))
    if part is None or not whole or part > whole or _fits(mention, 100 * part / whole):
        return ""
    return f"{match['part']} of {match['whole']} is {100 * part / whole:.4g}%"


def _plain_number(text: str) -> float | None:
    plain = text.rstrip(".,")
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d{1,2})?", plain):
        return float(plain.replace(",", ""))
    return None


def _is_said(search: NumberSearch, mention: Mention) -> str:
    """Return whether a number repeats an earlier message or a range of the schema, and is long enough to be known."""
    if significant_digits(mention) < (1 if mention.kind == "percent" else 2):
        return ""
    said = any((mention.kind, reading.value) in search.said for reading in mention.readings)
    return "in an earlier message or in the description of the data" if said else ""


_GUESSED_COUNT = "may count rows that no column names"


def _is_rhetoric(search: NumberSearch, mention: Mention) -> str:
    """Return whether a small number counts what the answer lists or names again."""
    if mention.kind != "number" or not (mention.word or (mention.text.isdigit() and not mention.unit)):
        return ""
    if not 1 <= mention.readings[0].value <= _SMALL:
        return ""
    before, after = search.passage.around(mention, 16, 40)
    nouns = [singular_of_plural(word.lower()) for word in WORD.findall(re.split(r"[.;:,()\n|]", after)[0])[:3]]
    if any(noun in _POINTS for noun in nouns) and not mention.signed:
        return "counts the points of the answer"
    if mention.word and _ANAPHORA.search(before):
        return "names again what was named before"
    results = [table for table in search.tables if table.kind == "result"]
    things = {word for table in results for column in table.columns if not column.is_measure for word in column.words}
    counted = any(noun in things for noun in nouns) or any(
        table.name.lower().startswith(tuple(nouns)) for table in results
    )
    if (
        mention.word
        and not counted
        and not re.match(r"\s*(?:of\b|:)", after)
        and mention.readings[0].value <= max((t.rows for t in results), default=0)
    ):
        return _GUESSED_COUNT
    if before.endswith("(") and after.startswith(")") and not mention.word:
        number = int(mention.readings[0].value)
        beside = f"({number + 1})" if number == 1 else f"({number - 1})"
        return "numbers a point of the answer" if beside in search.passage.text else ""
    return ""


def _fits(mention: Mention, value: float) -> bool:
    if not math.isfinite(value) or is_rounded_beyond_precision(mention, value):
        return False
    for low, high in rounding_intervals(mention):
        slack = 1e-9 * max(abs(value), abs(float(high)))
        bottom, top = sorted((abs(float(low)), abs(float(high))))
        if bottom - slack <= abs(value) <= top + slack:
            return True
    return False


def _accidents(mention: Mention, values: list[float]) -> float:
    """Return how many of some values a random number of this form would match."""
    low, high = next(iter(rounding_intervals(mention)))
    width, middle = abs(float(high - low)), abs(float(high + low)) / 2
    if not width or not middle:
        return 1.0
    near = {round(abs(v) / width) for v in values if middle / 1.5 <= abs(v) <= middle * 1.5}
    return len(near) * width / max(middle * 1.5 - middle / 1.5, width)


def _apposed(search: NumberSearch, mention: Mention, stated: list[StatedNumber]) -> str:
    """Explain a share or a ratio that stands behind its part: `183 (1.1%)`, `$106 million on $41 million (2.6x)`."""
    if mention.kind not in ("percent", "times"):
        return ""
    index = search.passage.sentence(mention.start)
    before = [s for s in stated if s.mention.end <= mention.start and s.sort != "percent"]
    if not before:
        return ""
    last = before[-1]
    if last.sentence != index or not _APPOSED.fullmatch(search.passage.text[last.mention.end : mention.start]):
        return ""
    scale = 100 if mention.kind == "percent" else 1
    wholes = {s.mention.text: s.value for s in before[-9:-1] if index - s.sentence <= 3}
    match = last.match
    operand = match.operand if match else None
    if operand is not None and operand.table >= 0:
        table = search.tables[operand.table]
        for column in table.columns:
            if column.is_measure:
                if table.complete and column.adds_up:
                    wholes[f"the total of {column.name}"] = column.total * column.factor
                if operand.row in column.numbers:
                    wholes[f"{column.name} of the row"] = column.numbers[operand.row] * column.factor
        for other in search.tables:
            if other.kind == "result" and other.rows == 1 and not other.printed:
                wholes |= {column.name: column.total * column.factor for column in other.measures}
    values = {}
    compared = _COMPARED.match(search.wording(mention).after)
    for what, whole in wholes.items():
        if whole and last.value:
            if not compared:
                values[f"{last.mention.text} as a share of {what}"] = scale * last.value / whole
            if mention.kind == "times":
                values[f"{what} as a multiple of {last.mention.text}"] = whole / last.value
            elif compared or mention.signed:
                values[f"change from {what} to {last.mention.text}"] = scale * (last.value - whole) / abs(whole)
    return _best(mention, values, _NEAR)


def _best(mention: Mention, values: dict[str, float], most: float) -> str:
    for what, value in values.items():
        if _fits(mention, value) and _accidents(mention, list(values.values())) <= most:
            return what
    return ""


def _follows(search: NumberSearch, mention: Mention, stated: list[StatedNumber]) -> str:
    """Explain a number by the verified numbers near it, if the words say how it was computed."""
    wording = search.wording(mention)
    index = search.passage.sentence(mention.start)
    sort = StatedNumber(mention, 0.0, index, None).sort
    near = [s for s in stated if s.mention is not mention and (-1 <= index - s.sentence <= 2 or _is_mean(s))][-14:]
    own = [s for s in near if s.sentence == index]
    if mention.kind == "number":
        same = [s for s in near if s.sort == sort or (not sort and not s.sort)]
        values = dict(_amounts(search, mention, same, wording.sentence))
        listed = _listed(search, [s for s in own if s.mention.end <= mention.start and s.mention.kind == "number"])
        if _AVERAGE.search(f"{wording.before} {wording.after}") and len(listed) > 1:
            mean = sum(s.value for s in listed) / len(listed)
            if _fits(mention, mean):
                return f"the mean of the {len(listed)} numbers before it"
        return _best(mention, values, _FAR if len(own) < 2 else _NEAR)
    if mention.kind == "points":
        percents = [s for s in stated if s.sort == "percent"][-20:]
        named = {row for x in search.passage.labels_in(index) for row in x.rows}
        labelled = [s for s in percents if named & _rows(s)] if named else []
        return _best(mention, _pairwise(labelled or percents, lambda a, b: a - b, "difference"), _NEAR)
    amounts = [s for s in near if s.sort != "percent"]
    if mention.kind == "times":
        values = _pairwise(amounts, lambda a, b: a / b if b else 0.0, "ratio")
        values |= _pairwise(amounts, lambda a, b: b / a if a else 0.0, "ratio back")
        return _best(mention, values, _FAR)
    values = {}
    if wording.changing or mention.signed:
        up = direction_of_precision(search.passage, mention)
        values |= _pairwise(amounts, lambda a, b: 100 * (b - a) / abs(a) if a else 0.0, "change")
        if not mention.signed:
            values |= _pairwise(amounts, lambda a, b: 100 * (a - b) / abs(b) if b else 0.0, "change back")
        values = {what: value for what, value in values.items() if value * up >= 0}
    if wording.sharing or not wording.changing:
        values |= _pairwise(amounts, lambda a, b: 100 * a / (a + b) if a + b else 0.0, "share of both")
        values |= _pairwise(amounts, lambda a, b: 100 * b / (a + b) if a + b else 0.0, "share of both, back")
        values |= _pairwise(amounts, lambda a, b: 100 * min(a, b) / max(a, b) if min(a, b) > 0 else 0.0, "share")
    if REST.search(wording.sentence) or mention.word:
        values |= {f"100% less {s.mention.text}": 100 - s.value for s in near if s.sort == "percent"}
    return _best(mention, values, _NEAR if mention.word else _FAR)


def _is_mean(stated: StatedNumber) -> bool:
    """Return whether a number is a mean of all rows, which later numbers are often compared with."""
    return stated.match is not None and stated.match.because.startswith(("the mean of", "mean of"))


def _listed(search: NumberSearch, before: list[StatedNumber]) -> list[StatedNumber]:
    """Return the last numbers that are listed together, as in `3, 11 and 1 days`."""
    listed: list[StatedNumber] = []
    for s in reversed(before):
        gap = search.passage.text[s.mention.end : listed[-1].mention.start] if listed else ""
        if listed and not re.fullmatch(r"[\s,]*(?:(?:and|und|et|y)\s+)?", gap):
            break
        listed.append(s)
    return listed


def _rows(stated: StatedNumber) -> set[int]:
    operand = stated.match.operand or stated.match.like if stated.match else None
    return set(operand.rows) if operand else set()


def _amounts(
    search: NumberSearch, mention: Mention, near: list[StatedNumber], sentence: str
) -> Iterator[tuple[str, float]]:
    """Yield the differences, sums and complements of numbers of one sort that the sentence may mean."""
    if search.says(mention, "difference") or REST.search(sentence):
        yield from _pairwise(near, lambda a, b: a - b, "difference").items()
    if search.says(mention, "sum"):
        yield from _pairwise(near, lambda a, b: a + b, "sum").items()
    if REST.search(sentence) or re.search(r"\bno\b", sentence):
        counts = [s for s in near if s.value == int(s.value)] if all(abs(s.value) < 1e15 for s in near) else []
        for whole in counts[-8:]:
            for a, b in combinations([s for s in counts[-8:] if s is not whole and s.value < whole.value], 2):
                what = f"{whole.mention.text} less {a.mention.text} and {b.mention.text}"
                yield what, whole.value - a.value - b.value


def _pairwise(near: list[StatedNumber], step: Callable[[float, float], float], name: str) -> dict[str, float]:
    return {
        f"{name} of {a.mention.text} and {b.mention.text}": step(a.value, b.value)
        for a, b in combinations(near, 2)
        if a.value != b.value
    }


def _plain_cell(search: NumberSearch, mention: Mention) -> str:
    """Explain a number that is a cell, if its column is named, or it is long enough, and no label says otherwise."""
    if mention.kind not in ("number", "percent") or mention.hedge or (mention.word and mention.kind == "percent"):
        return ""
    digits = significant_digits(mention)
    wording = search.wording(mention)
    for t, table in enumerate(search.tables):
        anchors = search.passage.anchors(mention, t)
        if table.kind != "result" or anchors.conflict or wording.statistic:
            continue
        labelled = anchors.strong or anchors.named
        for c, column in enumerate(table.columns):
            rows = [row for row, value in column.numbers.items() if _fits(mention, value) and value == round(value, 6)]
            if not rows or not column.is_measure or (mention.kind == "percent" and not column.is_percent):
                continue
            others = list(column.numbers.values())
            far = labelled or any(search.passage.is_unnamed(mention, t, row) for row in rows)
            if far and (digits < 3 or anchors.direct or _accidents(mention, others) > _FAR):
                continue
            named = search.column_costs(mention, t).get(c, 9.0) <= 0.05
            rare = digits >= 4 or (digits >= 2 and _is_short(table)) or labelled
            if rare or (named and mention.kind == "number" and _is_short(table)):
                return f"{column.name} of {table.row_label(rows[0])}"
    return ""


def _is_short(table: EvidenceTable) -> bool:
    return table.rows * len(table.measures) <= 40
