"""The values that a number of the text may state: cells, aggregates, and bounded arithmetic over them.

Every candidate has a cost that says how far-fetched it is. The label next to the number decides which rows are near,
the words around it which columns and which operations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from etude.runtime.number_check.evidence import COUNT_WORDS, EvidenceColumn, EvidenceTable, singular
from etude.runtime.number_check.mentions import TIME_UNITS, WORDS, Mention, Period, scale_of, word_set
from etude.runtime.number_check.passage import Anchors, Passage, quarter_of

WORD = re.compile(r"[^\W\d_]+")
GENERIC_WORDS = word_set("name id key avg mean sum total n count num number of the per by value label line text a in")
_OPERANDS = 40
_LARGE = 60
_STATED = frozenset({"stated", "derived"})
"""Kinds of operands that are numbers of the text: cells, or values that were computed themselves."""
_UP = (
    r"(?:up|grew|grown|grow(?:s|ing)?|growth|rose|risen|ris(?:e|es|ing)|increas\w*|gain\w*|climb\w*|"
    r"jump\w*|surg\w*|soar\w*|"
    r"higher|more|larger|bigger|greater|above|ahead|uplift|added|adding|expand\w*|longer|faster|beat\w*|exceed\w*|over)"
)
_DOWN = (
    r"(?:down|fell|fallen|fall(?:s|ing)?|drop\w*|declin\w*|decreas\w*|los[st]\w*|los(?:es|ing)|slip\w*|"
    r"dip\w*|shr[aiu]nk\w*|"
    r"lower|less|fewer|smaller|below|behind|reduc\w*|shorter|cut|miss\w*|short|outflow\w*|negative|minus|deficit)"
)
CHANGE = re.compile(
    rf"\b(?:{_UP}|{_DOWN}|chang\w*|compar\w*|vs|versus|differ\w*|improv\w*|outpac\w*|lead\w*|cagr|swing|gap|per year|"
    r"gestiegen|gewachsen|mehr|weniger|plus|moins|más|menos|aument\w*)\b|[+\u2212-]\s*$",
    re.I,
)
SHARE = re.compile(
    r"\b(?:share\w*|account\w*|represent\w*|contribut\w*|mak\w+ up|made up|compris\w*|portion|proportion|percentage|"
    r"rate|concentrat\w*|total|remaining|rest|others?|together|combined|overall|all|only|convert\w*|"
    r"reach\w*|got|get)\b",
    re.I,
)
_PART_OF = re.compile(r"[\s)*_]*(?:share\s+)?(?:of|der|des|de|del|du)\b", re.I)
_OF_TOTAL = re.compile(
    r"[\s)*_]*of\s+(?:the\s+|our\s+|its\s+)?(?:total|all|overall|everything|whole|year|company)\b", re.I
)
TOTAL = re.compile(
    r"\b(?:total\w*|overall|altogether|combined|together|all|entire|sum\w*|in aggregate|full[- ]year|"
    r"between them|each of|"
    r"amount\w* to|add\w* up|insgesamt|gesamt\w*|zusammen|au total|en total|ensemble|across|net)\b",
    re.I,
)
_WHOLE = re.compile(
    r"\d[\d.,]*[\s)*_]*(?:\w+\s+)?(?:of|out of|von|de|sur|/)\s+(?:the\s+|all\s+|our\s+|a total of\s+|"
    r"un total de\s+|den\s+|les\s+)*[*_]*$",
    re.I,
)
_DIFFERENCE = re.compile(
    r"\b(?:difference|gap|spread|swing|lead|margin)\s+(?:of|is|was|between .{3,40} (?:is|was|"
    r"of))\s+(?:about\s+|roughly\s+|only\s+|just\s+)?[$€£*_~]*$",
    re.I,
)
_STATISTIC = re.compile(r"\b(?:average[sd]?|mean|median|avg|total\w*)[^\w,;.]+(?:\w+[^\w,;.]+){0,4}$", re.I)
AVERAGE = re.compile(
    r"\b(?:average\w*|averag\w+|mean|avg|typical\w*|per|each|a year|annual\w*|cagr|compound\w*|weighted|apiece|every|"
    r"schnitt|durchschnitt\w*|moyenne|promedio|media|pro|par|por|a head|implies)\b|[ø/]",
    re.I,
)
MEDIAN = re.compile(r"\b(?:median\w*|middle|typical\w*|half)\b", re.I)
REST = re.compile(
    r"\b(?:remain\w*|rest|others?|excluding|except|without|leaves?|left|balance|not|filled|complete\w*|"
    r"lose[sn]?|losing|loss|lost|un\w+)\b",
    re.I,
)
_TOGETHER = re.compile(
    r"\b(?:together|combined|these|those|both|between them|make up|made up|account\w*|sum|total\w*|they|"
    r"add\w* up|plus|and|"
    r"contribut\w*|jointly|collectively|satisfied|or)\b",
    re.I,
)
_LARGEST = re.compile(
    r"\b(?:top|largest|biggest|highest|leading|leads?|leader\w*|best|first|main|most|max\w*|peak\w*|"
    r"strongest|longest|oldest|wins?|ahead)\b",
    re.I,
)
_SMALLEST = re.compile(
    r"\b(?:bottom|smallest|lowest|worst|last|weakest|least|fewest|min\w*|shortest|youngest|cheapest|trail\w*|only)\b",
    re.I,
)
_RANGE = re.compile(r"\b(?:between|rang\w*|spread|band|varies|vary|spans?)\b", re.I)
_FEW = "two|three|four|five|six|seven|eight|nine|ten|twelve|twenty"
_CHOSEN = re.compile(
    r"\b(top|bottom|first|last|largest|biggest|highest|lowest|smallest|leading|best|worst|other|these|the|next)"
    rf"[\s-]+(\d{{1,3}}|{_FEW})\b"
    rf"|\b(\d{{1,2}}|{_FEW})\s+(?:\w+\s+)?(largest|biggest|highest|smallest|lowest|best|leading|top)\b",
    re.I,
)
_APPOSED_NUMBER = re.compile(
    r"\d[\d.,]*[\s)*_]*(?:,|\bor\b|\(|\bi\.e\.|\babout\b|\broughly\b|=)[\s,(]*(?:(?:or|about|i\.e\.|roughly|some|~)[\s,]*)*$",
    re.I,
)
_THAN = re.compile(
    r"[\s)*_]*(?:higher|lower|more|less|fewer|larger|smaller|greater|bigger|longer|shorter)\b[^.;,]{0,40}?\bthan\b",
    re.I,
)
_WEIGHTED = re.compile(r"\bweight\w*[^;]*$", re.I)
_TEMPORAL = re.compile(
    r"\b(?:rose|risen|fell|fallen|grew|grown|increased|decreased|declined|dropped|climbed|jumped|slipped|shrank)"
    r"(?:\s+(?:by|about|around|roughly|nearly|almost|just|only|some|an?|another|\w+ly))*[\s~*_$€£]*$",
    re.I,
)
_QUARTILES = re.compile(r"\b(?:interquartile|iqr|quartiles?)\b", re.I)
_SIGMA = re.compile(r"\b(?:standard deviations?|sd|sigma|z-score)\b", re.I)
_RATIO = re.compile(r"\b(?:times|for every|ratio|one in|1 in|per|each|fold|twice|as many|as much)\b", re.I)
_LOOKS_BACK = re.compile(
    r"\b(?:these|those|they|them|together|combined|both|their|the (?:two|three|four|five|six))\b", re.I
)
_SYNONYMS = [
    word_set("revenue sale turnover income earn earned earning spend spent umsatz sold sell bring make made take took"),
    word_set("headcount people employee staff person head size"),
    word_set("visit visitor traffic"),
    word_set("price cost priced worth"),
    word_set("unit sold quantity qty copy item"),
    word_set("order bestellung commande pedido purchase"),
    word_set("customer client kunde buyer"),
    word_set("salary pay paid wage payroll pays"),
    word_set("duration second minute hour time long take took last lasted wait ms millisecond"),
    word_set("rating rated score star"),
    word_set("return returned refund"),
    word_set("churn churned left leave lost"),
    word_set("invoice bill factura"),
    word_set("respondent people chose person"),
    word_set("volume share traded"),
    word_set("close closed closing"),
    word_set("goal scored scorer score"),
    word_set("flow inflow outflow took"),
    word_set("missing null empty"),
    word_set("user people person signup visitor"),
    word_set("trip ride journey"),
    word_set("track song"),
]
_MONEY = word_set(
    "revenue price amount cost sale value spend spent profit income turnover fee salary budget usd eur gbp total"
)


@dataclass(frozen=True)
class Operand:
    """A value that arithmetic starts from: a cell (`row` >= 0), an aggregate of rows, or a number stated nearby."""

    value: float
    row_cost: float
    col_cost: float
    table: int
    column: int
    row: int
    rows: frozenset[int]
    what: str
    unit: str = ""
    kind: str = "cell"
    exact: object = None
    at: int = -1
    """Where a stated number ends in the text."""

    @property
    def cost(self) -> float:
        """How far-fetched it is that the number refers to this value."""
        return self.row_cost + self.col_cost


class Candidate(NamedTuple):
    """A value that the number may state. `sign` is 0 if the sign says nothing, 1 if it must fit the words."""

    value: float
    cost: float
    because: str
    sign: int = 0
    operand: Operand | None = None


@dataclass
class Cues:
    """What the words around a number say about how it was computed."""

    sentence: str
    local: str
    after: str
    before: str

    def __post_init__(self) -> None:
        words = re.sub(r"\bm(?:ak|ad)\w+ up\b", "share", self.local)
        self.part = bool(_PART_OF.match(self.after))
        self.sharing = self.part or bool(SHARE.search(words))
        self.changing = bool(CHANGE.search(words)) and not self.part
        self.statistic = bool(_STATISTIC.search(self.before))
        self.total = bool(TOTAL.search(self.sentence))
        self.average = bool(AVERAGE.search(re.sub(r"^[\s)*_]*(?:each|apiece)\b", "", self.after) + " | " + self.before))
        self.per = self.average or bool(AVERAGE.search(self.sentence))
        self.median = bool(MEDIAN.search(self.sentence))
        self.rest = bool(REST.search(self.sentence))
        self.together = bool(_TOGETHER.search(self.sentence))
        self.largest = bool(_LARGEST.search(self.sentence))
        self.smallest = bool(_SMALLEST.search(self.sentence))
        self.whole = bool(_WHOLE.search(self.before))
        self.apposed = bool(_APPOSED_NUMBER.search(self.before))
        self.difference = bool(_DIFFERENCE.search(self.before))
        self.range = bool(_RANGE.search(self.local)) or (not self.changing and bool(re.search(r"\bfrom\b", self.local)))
        self.ratio = bool(_RATIO.search(self.local))
        self.sigma = bool(_SIGMA.search(self.sentence))


class Search:
    """Finds the candidates for the numbers of one passage."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.tables = passage.tables
        self.stated: dict[int, list[Operand]] = {}
        """Verified numbers by sentence, as operands for the numbers near them."""

    def record(self, mention: Mention, operand: Operand | None, value: float) -> None:
        """Keep a verified number as an operand for others."""
        unit = (
            "percent" if mention.kind in ("percent", "points") else mention.unit if mention.unit in TIME_UNITS else ""
        )
        base = operand or Operand(value, 0, 0, -1, -1, -1, frozenset(), mention.text)
        how = "stated" if operand is not None or mention.kind == "date" else "derived"
        kept = replace(
            base, value=value, unit=unit or base.unit, kind=how, what=mention.text, exact=None, at=mention.end
        )
        self.stated.setdefault(self.passage.sentence(mention.start), []).append(kept)

    def cues(self, mention: Mention) -> Cues:
        """Return what the words around a number say."""
        before, after = self.passage.around(mention, 60, 50)
        sentence = self.passage.sentence_text(self.passage.sentence(mention.start))
        return Cues(sentence, f"{before} | {after}", after, before)

    # -- columns

    @cached_property
    def _column_words(self) -> list[list[frozenset[str]]]:
        return [[_widen(column.words - GENERIC_WORDS) for column in table.columns] for table in self.tables]

    def column_costs(self, mention: Mention, t: int) -> dict[int, float]:
        """Return how far-fetched each measure of a table is, by the words near the number."""
        table, passage = self.tables[t], self.passage
        measures = [c for c, column in enumerate(table.columns) if column.is_measure]
        if not measures:
            return {}
        index = passage.sentence(mention.start)
        before, after = passage.around(mention, 40, 36)
        header = passage.header(mention)
        beside = re.match(r"[\s)*_%-]*([^\W\d]+(?:[\s-]+[^\W\d]+)?)", after)
        leading = re.search(
            r"([^\W\d]+(?:[\s-]+[^\W\d]+){0,2})[\s:=(*_]*(?:of|is|was|at|are|were|ist|est)?[\s:(*_$€£~]*$", before
        )
        places = [
            (0.0, header or (beside[1] if beside else "")),
            (0.05, "" if header else leading[1] if leading else ""),
            (0.15, f"{before} {mention.text} {after}"),
            (0.3, passage.sentence_text(index)),
            (0.5, f"{passage.question} {passage.sentence_text(index - 1)}"),
        ]
        words = [{singular(w) for w in WORD.findall(text.lower())} for _, text in places]
        costs: dict[int, float] = {}
        for c in measures:
            for (cost, _), found in zip(places, words):
                if self._column_words[t][c] & found:
                    costs[c] = cost
                    break
        named = bool(costs) and min(costs.values()) < 0.4
        certain = bool(costs) and min(costs.values()) == 0.0
        for c in measures:
            column = table.columns[c]
            costs.setdefault(c, 0.2 if len(measures) == 1 else 0.9 if named else 0.5)
            if certain and costs[c] > 0:
                costs[c] = max(costs[c], 0.7) + 0.8
            if mention.unit == "money" and column.words & _MONEY:
                costs[c] = max(0.0, costs[c] - 0.3)
            elif mention.unit == "money" and column.whole and any(o.words & _MONEY for o in table.columns):
                costs[c] += 2.0
        return costs

    # -- operands

    def operands(self, mention: Mention, cues: Cues) -> list[Operand]:
        """Return the values that a number may refer to, nearest first."""
        found: list[Operand] = []
        for t, table in enumerate(self.tables):
            anchors = self.passage.anchors(mention, t)
            columns = self.column_costs(mention, t)
            far = 0.3 if table.kind == "thread" else 0.0
            if (
                table.kind == "schema"
                and table.rows == 1
                and not re.search(r"\btables?\b", f"{cues.before[-20:]}{cues.after[:20]}")
            ):
                far = 1.5
            found += self._cells(mention, t, table, anchors, columns, cues, far)
            if table.kind == "result" and (not table.printed or table.listed):
                found += self._aggregates(t, table, anchors, columns, cues)
                found += self._groups(mention, t, table, anchors, columns, cues)
                found += self._spans(t, table, anchors)
                found.append(_count_operand(t, table, cues))
        found += self._stated_near(mention)
        found.sort(key=lambda o: o.cost)
        return found

    def _cells(
        self,
        mention: Mention,
        t: int,
        table: EvidenceTable,
        anchors: Anchors,
        columns: dict[int, float],
        cues: Cues,
        far: float,
    ) -> Iterator[Operand]:
        labelled = bool(anchors.primary)
        for c, cost in columns.items():
            column = table.columns[c]
            window = _window(mention) if table.rows > _LARGE else None
            for row, value in column.numbers.items():
                row_cost = anchors.costs.get(row)
                if (
                    row_cost is None
                    and window
                    and not window[0] <= abs(value) <= window[1]
                    and row not in column.extremes
                ):
                    continue  # Too far to be the number, and nothing says that it was used to compute it.
                if row_cost is not None and cues.total and not labelled:
                    row_cost += 0.8
                if row_cost is None:
                    row_cost = 0.0 if table.rows == 1 else 5.0 if anchors.strong else 2.6 if labelled else 1.6
                    if table.rows <= 3 and not anchors.strong and not table.printed:
                        row_cost = min(row_cost, 0.8 if labelled or table.rows == 3 else 0.5)
                    if cues.total and table.rows > 1 and not table.printed:
                        row_cost += 1.0
                    if table.printed and table.rows > 1 and not anchors.strong:
                        row_cost = 1.7 if labelled else 1.3
                    extremes = column.extremes if table.complete and len(column.numbers) > 1 else ()
                    if extremes and row in (extremes[0], extremes[-1]):
                        cue = cues.largest if row == extremes[0] else cues.smallest
                        if not anchors.strong:
                            row_cost = min(row_cost, 0.5 if cue or cues.range else 1.4)
                        elif cue:
                            row_cost = min(row_cost, 2.0)
                    if table.periods and not labelled and table.complete and row in (0, table.rows - 1):
                        row_cost = min(row_cost, 0.7 if cues.changing or cues.ratio else 1.3)
                    if (
                        cues.statistic
                        and table.rows > 1
                        and not table.printed
                        and not column.words & {"avg", "mean", "average", "median"}
                    ):
                        row_cost += 1.2
                yield Operand(
                    value, row_cost + far, cost, t, c, row, frozenset({row}), _name(table, c, row), _unit(column),
                    exact=column.exact[row],
                )  # fmt: skip

    def _aggregates(
        self, t: int, table: EvidenceTable, anchors: Anchors, columns: dict[int, float], cues: Cues
    ) -> Iterator[Operand]:
        if not table.complete or table.rows < 2:
            return
        extra = 0.4 if anchors.strong else 0.0
        every = frozenset(range(table.rows))
        for c, cost in columns.items():
            column = table.columns[c]
            if len(column.numbers) < 2 or not math.isfinite(column.total):
                continue
            unit = _unit(column)
            if column.adds_up:
                yield Operand(
                    column.total, (0.2 if cues.total or cues.whole else 0.7) + extra, cost, t, c, -1, every,
                    f"the total of {column.name}", unit, "sum",
                )  # fmt: skip
            mean = column.total / len(column.numbers)
            yield Operand(
                mean,
                (0.3 if cues.average else 1.6) + extra,
                cost,
                t,
                c,
                -2,
                every,
                f"the mean of {column.name}",
                unit,
                "mean",
            )
            middle = column.descending
            half = len(middle) // 2
            median = middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
            yield Operand(
                median,
                (0.2 if cues.median else 2.6) + extra,
                cost,
                t,
                c,
                -3,
                every,
                f"the median of {column.name}",
                unit,
                "median",
            )

    def _groups(
        self, mention: Mention, t: int, table: EvidenceTable, anchors: Anchors, columns: dict[int, float], cues: Cues
    ) -> Iterator[Operand]:
        """Yield sums and means of some of the rows: the named ones, a period, the largest, the others."""
        direct = anchors.strong and not (_TOGETHER.search(cues.before[-30:] + cues.after[:20]) or cues.total)
        for what, rows, cost in self.row_groups(mention, t, cues):
            near = cost + (0.8 if direct else 0.0)
            for c, col_cost in columns.items():
                column = table.columns[c]
                values = [column.numbers[row] for row in rows if row in column.numbers]
                if not values:
                    continue
                kept, name, unit = frozenset(rows), f"{column.name} of {what}", _unit(column)
                if column.adds_up:
                    yield Operand(math.fsum(values), near, col_cost, t, c, -4, kept, name, unit, "sum")
                if len(values) > 1:
                    extra = 0.1 if cues.average else 1.0
                    yield Operand(
                        math.fsum(values) / len(values),
                        near + extra,
                        col_cost,
                        t,
                        c,
                        -5,
                        kept,
                        f"the mean {name}",
                        unit,
                        "mean",
                    )

    def row_groups(self, mention: Mention, t: int, cues: Cues) -> list[tuple[str, list[int], float]]:
        """Return the groups of rows that a sentence speaks of, each with how far-fetched it is."""
        passage, table = self.passage, self.tables[t]
        index = passage.sentence(mention.start)
        labels = passage.labels_in(index, t)
        found: list[tuple[str, list[int], float]] = []
        near = [
            x
            for x in passage._nearest(mention, [x for x in labels if x.end <= mention.start or x.start >= mention.end])[
                0
            ]
        ]
        for label in labels:
            if len(label.rows) > 1:
                close = 0.1 if label in near else 0.5
                found.append((passage.text[label.start : label.end], list(label.rows), close))
        for group, cost in (
            (near, 0.1),
            (labels, 0.4),
            (passage.labels_in(index - 1, t), 0.7 if _LOOKS_BACK.search(cues.sentence) else 1.4),
        ):
            rows = list(dict.fromkeys(row for x in group if len(x.rows) == 1 for row in x.rows))
            if 2 <= len(rows) <= 30:
                found.append(("the named rows", rows, cost if cues.together else cost + 0.6))
                for cut in (rows[1:], rows[:-1]) if 3 <= len(rows) <= 6 else ():
                    found.append(("some of the named rows", cut, cost + 1.1))
        if _LOOKS_BACK.search(cues.sentence):
            rows = list(
                dict.fromkeys(
                    row
                    for back in range(index, max(-1, index - 4), -1)
                    for x in passage.labels_in(back, t)
                    if len(x.rows) == 1
                    for row in x.rows
                )
            )
            if 2 <= len(rows) <= 30:
                found.append(("the rows named so far", rows, 0.8))
        for label in passage.asked:
            if label.table == t and 1 < len(label.rows) < table.rows:
                found.append((passage.question[label.start : label.end], list(label.rows), 0.5 if not labels else 0.8))
        found += self._bounded(mention, t, index)
        both = list(dict.fromkeys(row for x in labels for row in x.rows))
        if any(len(x.rows) > 1 for x in labels) and len(labels) > 1 and len(both) < table.rows:
            found.append(("the named rows", both, 0.6))
        if table.periods and len(labels) >= 2:
            rows = [x.rows[0] for x in labels if len(x.rows) == 1]
            if len(rows) == 2 and abs(rows[0] - rows[1]) > 1:
                found.append(("the rows between", list(range(min(rows), max(rows) + 1)), 1.0))
            for first, last in pairwise(labels):
                gap = passage.text[first.end : last.start]
                if len(first.rows) == len(last.rows) == 1 and re.fullmatch(r"\s?(?:[-\u2013]|to|through|and)\s?", gap):
                    ends = sorted((first.rows[0], last.rows[0]))
                    close = min(abs(mention.start - last.end), abs(first.start - mention.end)) < 12
                    found.append(("the rows between", list(range(ends[0], ends[1] + 1)), 0.3 if close else 0.9))
        found += self._selected(t, cues, index)
        if table.complete:
            named = sorted({row for _, rows, cost in found for row in rows if cost < 1})
            single = sorted({row for x in labels for row in x.rows})
            for taken in {tuple(named), tuple(single)}:
                rest = [row for row in range(table.rows) if row not in taken]
                if taken and rest:
                    found.append(("the other rows", rest, 0.4 if cues.rest else 1.6))
            if cues.rest:
                earlier = [x for x in passage.labels_in(index - 1, t) if len(x.rows) == 1][:1]
                largest = {column.extremes[0] for column in table.measures if column.extremes}
                for left_out in {*(x.rows[0] for x in earlier), *largest}:
                    kept = [row for row in range(table.rows) if row != left_out]
                    found.append((f"all but {table.row_label(left_out)}", kept, 0.7))
            for what, rows, cost in list(found):
                rest = [row for row in range(table.rows) if row not in rows]
                if rest and cost <= 0.5 and what != "the other rows" and cues.rest:
                    found.append((f"all but {what}", rest, 0.5))
        return found

    def _bounded(self, mention: Mention, t: int, index: int) -> Iterator[tuple[str, list[int], float]]:
        """Yield the rows beyond a bound that this sentence or the one before it states, as in `under 10,000`."""
        table, passage = self.tables[t], self.passage
        if not table.complete or table.rows < 3:
            return
        for other in passage.mentions:
            away = index - passage.sentence(other.start)
            if other is mention or other.hedge not in ("over", "under") or away not in (0, 1, 2) or not other.readings:
                continue
            bound, sign = float(other.readings[0].value), 1 if other.hedge == "over" else -1
            for c in self.column_costs(mention, t):
                column = table.columns[c]
                rows = [r for r, v in column.numbers.items() if (v * column.factor - bound) * sign > 0]
                if 1 < len(rows) < table.rows:
                    yield f"those with {column.name} beyond {bound:g}", rows, 0.5 + 0.2 * away

    def _selected(self, t: int, cues: Cues, index: int) -> Iterator[tuple[str, list[int], float]]:
        """Yield the `n` largest or smallest rows if the sentence says `top n`, in the order of each measure."""
        table, text = self.tables[t], cues.sentence
        shown = re.search(r"\b(?:shown|listed|displayed|above|below)\b", text, re.I)
        if not table.complete and shown:
            yield "the rows shown", list(range(table.rows)), 0.4
        for match in _CHOSEN.finditer(text):
            word, number = (match[1] or match[4]).lower(), (match[2] or match[3]).lower()
            n = int(number) if number.isdigit() else WORDS.get(number, 0)
            if not 1 < n <= table.rows or (n == table.rows and table.complete):
                continue
            low = word in ("bottom", "last", "lowest", "smallest", "worst")
            cost = 0.3 if word not in ("other", "these", "the", "next") else 1.0
            if not table.complete and (low or n != table.rows):
                continue  # The rows after the first ones are not known.
            orders = {tuple(range(n))} if not low else {tuple(range(table.rows - n, table.rows))}
            for column in table.measures:
                ordered = sorted(column.numbers, key=column.numbers.__getitem__, reverse=not low)
                orders.add(tuple(sorted(ordered[:n])))
            named = {row for x in self.passage.labels_in(index, t) if len(x.rows) == 1 for row in x.rows}
            for rows in list(orders)[:4]:
                if len(named) == n and named != set(rows):
                    continue  # The sentence names other rows than these.
                yield f"the {word} {n}", list(rows), cost

    def _spans(self, t: int, table: EvidenceTable, anchors: Anchors) -> Iterator[Operand]:
        """Yield the time between two dates of a row, and between the first and the last row."""
        dated = [(c, column) for c, column in enumerate(table.columns) if column.moments]
        for i, (c, left) in enumerate(dated[:4]):
            for _, right in dated[i + 1 : 4]:
                gaps = {
                    r: abs((right.moments[r] - left.moments[r]).total_seconds())
                    for r in left.moments
                    if r in right.moments
                }
                for row, seconds in list(gaps.items())[:200]:
                    cost = anchors.costs.get(
                        row, 0.0 if table.rows == 1 else 5.0 if anchors.strong else 2.6 if anchors.primary else 1.2
                    )
                    yield Operand(
                        seconds,
                        cost,
                        0.1,
                        t,
                        c,
                        row,
                        frozenset({row}),
                        f"the time from {left.name} to {right.name}",
                        "second",
                        "span",
                    )
                if len(gaps) > 1:
                    total = math.fsum(gaps.values())
                    yield Operand(
                        total / len(gaps), 0.5, 0.2, t, c, -2, frozenset(gaps), "the mean time", "second", "span"
                    )
                    yield Operand(total, 0.7, 0.2, t, c, -1, frozenset(gaps), "the total time", "second", "span")
            moments = sorted(left.moments.values())
            if len(moments) > 1 and table.complete:
                seconds = (moments[-1] - moments[0]).total_seconds()
                yield Operand(
                    seconds,
                    0.3,
                    0.1,
                    t,
                    c,
                    -1,
                    frozenset(left.moments),
                    f"the time from first to last {left.name}",
                    "second",
                    "span",
                )
                named = [left.moments[row] for row, cost in anchors.costs.items() if cost < 1.3 and row in left.moments]
                for a, b in [*pairwise(named[:4]), *([(min(named), max(named))] if len(named) > 2 else [])]:
                    yield Operand(
                        abs((b - a).total_seconds()),
                        0.5,
                        0.2,
                        t,
                        c,
                        -6,
                        frozenset(),
                        "the time between the named rows",
                        "second",
                        "span",
                    )

    def _stated_near(self, mention: Mention) -> Iterator[Operand]:
        index = self.passage.sentence(mention.start)
        for back, cost in ((0, 0.15), (1, 0.7), (2, 1.1), (3, 1.3), (4, 1.4)):
            for operand in self.stated.get(index - back, [])[:12]:
                close = back == 0 and 0 <= mention.start - operand.at < 12
                yield replace(operand, row_cost=0.0 if close else cost, col_cost=0.0)

    # -- candidates

    def candidates(self, mention: Mention) -> list[Candidate]:
        """Return the values that a number may state, with their costs."""
        cues = self.cues(mention)
        operands = self.operands(mention, cues)
        found = [c for operand in operands for c in self._direct(mention, operand, cues)]
        limited = operands[:_OPERANDS]
        found += self._pairs(mention, limited, cues)
        found += self._within_rows(mention, operands, cues)
        if mention.kind == "number":
            found += self._steps(mention, cues)
            found += self._statistics(mention, cues)
        if mention.kind == "percent":
            found += self._shares(mention, operands, cues)
        if mention.kind in ("percent", "points"):
            extra = 0.2 if cues.rest else 1.3
            found += [
                Candidate(100 - c.value, c.cost + extra, f"100% less {c.because}")
                for c in found
                if 0 < c.value < 100 and c.cost < (0.9 if cues.rest else 0.5) and c.sign <= 0
            ]
            found += self._average_changes(mention, cues)
        return [c for c in found if math.isfinite(c.value)]

    def _direct(self, mention: Mention, o: Operand, cues: Cues) -> Iterator[Candidate]:
        column = self.tables[o.table].columns[o.column] if o.table >= 0 and o.column >= 0 else None
        printed = o.table >= 0 and self.tables[o.table].printed
        cost, what = o.cost, o.what
        if o.kind in ("mean", "median") and _WEIGHTED.search(self.passage.around(mention, 400, 0)[0]):
            return
        if o.kind in _STATED and o.unit == "percent" and mention.kind == "percent" and cues.rest:
            yield Candidate(100 - o.value, cost + 0.3, f"100% less {what}")
        if o.kind in _STATED and mention.kind == "number" and cost < 0.5:
            yield from _converted(mention, o, cues)
        if o.kind in _STATED and not (mention.word and mention.kind == "percent"):
            return  # A number that is repeated follows from the same values again.
        if (
            o.kind in ("sum", "mean", "median")
            and o.row in (-1, -2, -3)
            and o.table >= 0
            and not (cues.total or cues.average or cues.whole)
        ):
            cost += 1.0 if self.passage.anchors(mention, o.table).strong else 0.0
        if mention.kind in ("percent", "points"):
            if o.unit == "percent":
                yield Candidate(o.value, cost + (0.0 if o.kind not in _STATED else 0.3), what, -1, o)
                return
            if column is not None and column.is_fraction:
                yield Candidate(100 * o.value, cost, what, -1, o)
            elif printed:
                yield Candidate(100 * o.value, cost + 0.3, what, -1, o)
            if column is not None and (column.is_percent or printed or column.may_be_percent):
                yield Candidate(o.value, cost + (0.0 if column.is_percent else 0.4), what, -1, o)
            return
        if mention.kind == "times":
            if column is not None and (
                column.words & {"ratio", "multiple", "factor", "fold"} or printed or column.whole
            ):
                yield Candidate(o.value, cost + (0.0 if not column.whole else 0.4), what, 0, o)
            return
        if mention.unit in TIME_UNITS:
            seconds = float(TIME_UNITS[mention.unit])
            if o.unit in TIME_UNITS:
                yield Candidate(o.value * float(TIME_UNITS[o.unit]) / seconds, cost, what, 0, o)
            elif o.kind not in _STATED:
                yield Candidate(o.value, cost + 0.5, what, 0, o)
            if o.kind == "span" and mention.unit == "day":
                yield Candidate(o.value / seconds + 1, cost + 0.6, f"{what}, both days included", 0, o)
            return
        if o.kind == "span":
            for unit in ("hour", "minute", "day"):
                yield Candidate(o.value / float(TIME_UNITS[unit]), cost + 0.8, f"{what} in {unit}s", 0, o)
            days = o.value / 86400
            yield Candidate(days + 1, cost + 0.9, f"{what} in days, both included", 0, o)
            if days > 300:
                years = days / 365.2425
                near = 0.2 if re.match(r"[\s*_-]*(?:years?|Jahre?|ans|años)\b", cues.after) else 0.5
                yield Candidate(years, cost + near, f"{what} in years", 0, o)
                yield Candidate(math.floor(years + 0.002), cost + near, f"{what} in full years", 0, o)
            if days > 25 and o.row >= 0 and re.match(r"[\s*_-]*(?:months?|Monate|mois|meses)\b", cues.after):
                yield Candidate(days / 30.437, cost + 0.3, f"{what} in months", 0, o)
            return
        extra = 0.0
        if column is not None and column.is_percent and not column.whole and not printed:
            extra = 0.3
        if mention.unit == "money" and column is not None and column.words & {"pct", "percent", "percentage"}:
            extra = 2.0
        yield Candidate(o.value, cost + extra, what, -1, o)
        if column is not None and column.factor != 1:
            yield Candidate(o.value * column.factor, cost, what, -1, o)
        elif (
            column is not None
            and (scale := float(scale_of(mention))) >= 1000
            and not column.words & (COUNT_WORDS - {"total"})
            and not column.whole
            and max(map(abs, column.numbers.values()), default=0) < 20 * scale / 1000
        ):
            yield Candidate(o.value * scale, cost + 0.3, f"{what}, which is in that unit", -1, o)
        if o.unit in TIME_UNITS:
            for unit in ("minute", "hour", "second", "day"):
                yield Candidate(
                    o.value * float(TIME_UNITS[o.unit] / TIME_UNITS[unit]), cost + 0.9, f"{what} in {unit}s", 0, o
                )

    def _pairs(self, mention: Mention, operands: Sequence[Operand], cues: Cues) -> Iterator[Candidate]:
        for i, a in enumerate(operands):
            for b in operands[i + 1 :]:
                cost = self._pair_cost(a, b)
                if cost is None or cost > 3.6:
                    continue
                yield from self._combine(mention, a, b, cost, cues)

    def _pair_cost(self, a: Operand, b: Operand) -> float | None:
        """Return how far-fetched it is to compute with two values, or None if that makes no sense."""
        column = max(a.col_cost, b.col_cost)
        for o in (a, b):
            if o.kind == "cell" and o.row_cost >= 1.3 and o.table >= 0 and self.tables[o.table].rows > 1:
                column += 0.5
        stated = (a.kind in _STATED) + (b.kind in _STATED)
        if stated:
            if a.what == b.what and a.value == b.value:
                return None
            return a.row_cost + b.row_cost + column + (0.0 if stated == 2 else 0.3)
        if a.table == b.table:
            if a.row == b.row and a.rows == b.rows:
                return max(a.row_cost, b.row_cost) + 0.6 * (a.col_cost + b.col_cost)
            if a.column == b.column:
                if a.rows == b.rows:
                    return max(a.row_cost, b.row_cost) + 1.0 + column  # The total, the mean and the median.
                return a.row_cost + 0.8 * b.row_cost + column
            if self.tables[a.table].rows <= 2 or "count" in (a.kind, b.kind):
                return a.row_cost + b.row_cost + column
            return a.row_cost + b.row_cost + column + 1.2 if self.tables[a.table].printed else None
        if a.table < 0 or b.table < 0:
            return a.row_cost + b.row_cost + column + 0.5
        left, right = self.tables[a.table], self.tables[b.table]
        if (
            a.column >= 0
            and b.column >= 0
            and left.columns[a.column].name.lower() == right.columns[b.column].name.lower()
        ):
            same = a.row < 0 and a.row == b.row
            if a.row >= 0 and b.row >= 0:
                same = left.row_label(a.row) == right.row_label(b.row)
            return max(a.row_cost, b.row_cost) + column if same else a.row_cost + b.row_cost + column + 0.8
        if (
            left.rows == 1
            or right.rows == 1
            or left.kind != "result"
            or right.kind != "result"
            or left.printed
            or right.printed
        ):
            return a.row_cost + b.row_cost + column + 0.3
        if a.row >= 0 and b.row >= 0 and left.row_label(a.row) == right.row_label(b.row):
            return max(a.row_cost, b.row_cost) + column + 0.3
        return None

    def _combine(self, mention: Mention, a: Operand, b: Operand, cost: float, cues: Cues) -> Iterator[Candidate]:
        x, y = a.value, b.value
        same_column = (a.table == b.table and a.column == b.column) or a.kind in _STATED or b.kind in _STATED
        ordered = self._in_order(a, b)
        percents = a.unit == b.unit == "percent"
        if "count" in (a.kind, b.kind) and mention.kind in ("points", "times"):
            return
        if (than := self._compared_with(mention, a, b, cues)) is not None and mention.kind == "percent":
            first, base = than
            if base.value:
                change = 100 * (first.value - base.value) / abs(base.value)
                yield Candidate(change, cost, f"{first.what} compared with {base.what}", 1)
            return
        if mention.kind == "percent":
            change = 0.0 if cues.changing else 0.5 if not cues.sharing else 1.3
            share = 0.0 if cues.sharing else 0.4 if not cues.changing or cues.apposed else 1.6
            if not percents or cues.changing:
                nested = a.rows and b.rows and (a.rows < b.rows or b.rows < a.rows) and same_column
                extra = 1.0 if nested and a.kind != "mean" and b.kind != "mean" else 0.0
                timed = bool(ordered) and _TEMPORAL.search(cues.before) is not None
                if x and not (timed and ordered == -1):
                    yield Candidate(
                        100 * (y - x) / abs(x),
                        cost + change + extra,
                        f"change from {a.what} to {b.what}",
                        1 if ordered == 1 else 2,
                    )
                if y and not (timed and ordered == 1):
                    yield Candidate(
                        100 * (x - y) / abs(y),
                        cost + change + extra,
                        f"change from {b.what} to {a.what}",
                        1 if ordered == -1 else 2,
                    )
            apart = bool(a.rows and b.rows) and not a.rows & b.rows and (a.table, a.column) == (b.table, b.column)
            if a.kind == b.kind == "stated" and apart and x > 0 and y > 0 and not mention.word:
                for part in (a, b):
                    yield Candidate(
                        100 * part.value / (x + y), cost + share / 4, f"{part.what} as a share of {a.what} and {b.what}"
                    )
            if not percents and "mean" not in (a.kind, b.kind) and not self._whole_of(a, b):
                disjoint = a.rows and b.rows and not a.rows & b.rows and same_column
                for part, whole in ((a, b), (b, a)):
                    if self._is_money(part) != self._is_money(whole) and not same_column:
                        continue
                    if whole.value and abs(part.value) <= abs(whole.value) * 3:
                        inside = part.rows < whole.rows or whole.kind in _STATED or part.kind in _STATED
                        extra = 0.0 if inside or not same_column else 0.6 if disjoint else 0.3
                        if _OF_TOTAL.match(cues.after) and whole.kind == "sum" and whole.row != -1:
                            extra += 1.0
                        yield Candidate(
                            100 * part.value / whole.value,
                            cost + share + extra,
                            f"{part.what} as a share of {whole.what}",
                        )
            if percents:
                yield Candidate(y - x, cost + 0.5, f"difference of {a.what} and {b.what}", 2)
            return
        if mention.kind == "points":
            scale = 100 if self._fraction(a) and self._fraction(b) and not percents else 1
            yield Candidate(scale * (y - x), cost, f"difference of {a.what} and {b.what}", 1 if ordered == 1 else 2)
            return
        if mention.kind == "times":
            if same_column and a.rows and b.rows and (a.rows < b.rows or b.rows < a.rows):
                cost += 0.8 if -1 in (a.row, b.row) or "mean" in (a.kind, b.kind) else 1.8
            if x:
                yield Candidate(y / x, cost, f"ratio of {b.what} to {a.what}")
            if y:
                yield Candidate(x / y, cost, f"ratio of {a.what} to {b.what}")
            return
        yield from self._amounts(mention, a, b, cost, cues, same_column)

    def _compared_with(self, mention: Mention, a: Operand, b: Operand, cues: Cues) -> tuple[Operand, Operand] | None:
        """Return which value is compared with which in `A is 5% higher than B`; None if the sentence is another."""
        if not _THAN.match(cues.after) or a.table != b.table or a.column != b.column or a.row < 0 or b.row < 0:
            return None
        labels = self.passage.labels_in(self.passage.sentence(mention.start), a.table)
        before = {row for x in labels if x.end <= mention.start for row in x.rows}
        after = {row for x in labels if x.start >= mention.end for row in x.rows}
        if a.row in before and b.row in after and a.row not in after and b.row not in before:
            return a, b
        if b.row in before and a.row in after and b.row not in after and a.row not in before:
            return b, a
        return None

    def _amounts(
        self, mention: Mention, a: Operand, b: Operand, cost: float, cues: Cues, same_column: bool
    ) -> Iterator[Candidate]:
        if (a.unit == "percent") != (b.unit == "percent") and (a.kind in _STATED or b.kind in _STATED):
            part, whole = (a, b) if a.unit == "percent" else (b, a)
            yield Candidate(part.value * whole.value / 100, cost + 1.2, f"{part.what} of {whole.what}")
            return
        factor = 1.0
        if mention.unit in TIME_UNITS:
            if a.unit in TIME_UNITS and b.unit in TIME_UNITS:
                factor = float(TIME_UNITS[a.unit] / TIME_UNITS[mention.unit])
            else:
                for time, other in ((a, b), (b, a)):
                    if time.unit in TIME_UNITS and other.value:
                        factor = float(TIME_UNITS[time.unit] / TIME_UNITS[mention.unit])
                        yield Candidate(time.value / other.value * factor, cost + 0.4, f"{time.what} per {other.what}")
                        yield Candidate(
                            time.value * other.value * factor, cost + 0.6, f"{time.what} times {other.what}"
                        )
                if a.unit in TIME_UNITS or b.unit in TIME_UNITS:
                    return
                cost += 0.8 if not self._printed(a) and not self._printed(b) else 1.8
        left, right = self._scale(a), self._scale(b)
        x, y = a.value * left, b.value * right
        compared = 0.0 if cues.changing else 0.9
        kinds = {a.kind, b.kind}
        # A sum or difference with a far smaller value, or with a count of rows, says nothing.
        trivial = "count" in kinds or min(abs(x), abs(y)) < 0.005 * max(abs(x), abs(y))
        if not trivial and (same_column or a.table != b.table or a.row == b.row):
            nested = a.rows and b.rows and (a.rows < b.rows or b.rows < a.rows)
            extra = 0.2 if nested and cues.rest else 1.2 if nested else 0.0
            yield Candidate(
                (y - x) * factor,
                cost + (0.2 if cues.rest else compared) + extra,
                f"difference of {a.what} and {b.what}",
                2,
            )
            if left != 1:
                yield Candidate(
                    (y - x) / left * factor, cost + compared + extra, f"difference of {a.what} and {b.what}", 2
                )
            if not (a.rows & b.rows and a.column == b.column) and "mean" not in kinds:
                summed = 0.2 if cues.together or cues.total else 1.2
                yield Candidate((x + y) * factor, cost + summed, f"sum of {a.what} and {b.what}")
                if left != 1:
                    yield Candidate((x + y) / left, cost + summed, f"sum of {a.what} and {b.what}")
        if cues.difference:
            return
        per = 0.0 if cues.average or cues.ratio else 0.3 if cues.per else 0.9
        if mention.unit != "money" or not same_column or kinds & _STATED:
            for top, bottom in ((a, b), (b, a)):
                if top.kind == "count" or re.match(r"\s*(?:months|quarters|years)\b", cues.after):
                    continue
                if under := bottom.value * self._scale(bottom):
                    over = top.value * self._scale(top)
                    within = replace(top, kind="quotient") if a.row == b.row >= 0 and a.table == b.table else None
                    yield Candidate(over / under * factor, cost + per, f"{top.what} per {bottom.what}", 0, within)
                    if (base := _per_base(self.passage.text)) > 1:
                        yield Candidate(
                            over / under * base,
                            cost + per + 0.2,
                            f"{top.what} per {base:,.0f} {bottom.what}",
                            0,
                            within,
                        )
        if "count" in kinds and not cues.per:
            return
        if not same_column or ("stated" in kinds and "derived" not in kinds):
            yield Candidate(x * y * factor, cost + 0.6, f"product of {a.what} and {b.what}")

    def _is_money(self, o: Operand) -> bool:
        if o.table < 0 or o.column < 0:
            return False
        return bool(self.tables[o.table].columns[o.column].words & (_MONEY - {"total", "value", "amount"}))

    def _printed(self, o: Operand) -> bool:
        return o.table >= 0 and self.tables[o.table].printed

    def _whole_of(self, a: Operand, b: Operand) -> bool:
        return a.table == b.table and a.column == b.column and -1 in (a.row, b.row) and "sum" in (a.kind, b.kind)

    def _shares(self, mention: Mention, operands: Sequence[Operand], cues: Cues) -> Iterator[Candidate]:
        """Yield the shares of values in the total of their column."""
        share = 0.1 if cues.sharing else 0.4 if not cues.changing else 1.2
        for o in operands:
            if o.table < 0 or o.column < 0 or o.row == -1 or o.kind not in ("cell", "sum", "stated"):
                continue
            table = self.tables[o.table]
            column = table.columns[o.column]
            if table.kind != "result" or (table.printed and not table.listed) or table.rows < 2:
                continue
            if not column.adds_up:
                continue
            for other in self.tables if not table.complete else ():
                if other is not table and other.kind == "result" and not other.printed and other.complete:
                    for same in other.measures:
                        if same.name.lower() == column.name.lower() and same.total > o.value > 0 and same.adds_up:
                            yield Candidate(
                                100 * o.value / same.total,
                                o.cost + share + 0.3,
                                f"share of {o.what} in the total of {other.name}",
                            )
            if table.complete and column.total > 0:
                yield Candidate(100 * o.value / column.total, o.cost + share, f"share of {o.what} in the total")

    def _statistics(self, mention: Mention, cues: Cues) -> Iterator[Candidate]:
        """Yield what follows from the lines of `describe()`: the interquartile range, distances in deviations."""
        for t, table in enumerate(self.tables):
            if not table.printed:
                continue
            lines = {str(v).strip().lower(): row for row, v in enumerate(table.columns[0].values)}
            for c, cost in self.column_costs(mention, t).items():
                numbers = table.columns[c].numbers
                quarter, three = (numbers.get(lines.get(name, -1)) for name in ("25%", "75%"))
                if quarter is not None and three is not None and _QUARTILES.search(cues.sentence):
                    yield Candidate(three - quarter, cost + 0.3, "the interquartile range")
                mean, deviation = (numbers.get(lines.get(name, -1)) for name in ("mean", "std"))
                if mean is not None and deviation and cues.sigma:
                    for value in numbers.values():
                        yield Candidate((value - mean) / deviation, cost + 0.5, "a distance in standard deviations", 2)

    def _within_rows(self, mention: Mention, operands: Sequence[Operand], cues: Cues) -> Iterator[Candidate]:
        """Yield sums of products, weighted means, ranges of quotients, and sums of all measures of a row."""
        if mention.kind not in ("number", "percent"):
            return
        for t, table in enumerate(self.tables):
            measures = [c for c, column in enumerate(table.columns) if column.is_measure][:5]
            if table.printed or table.kind != "result" or len(measures) < 2 or not 2 <= table.rows <= 400:
                continue
            costs = self.column_costs(mention, t)
            anchors = self.passage.anchors(mention, t)
            groups: list[tuple[str, list[int], float]] = (
                [("all rows", list(range(table.rows)), 0.3 if not anchors.strong else 0.8)] if table.complete else []
            )
            groups += [g for g in self.row_groups(mention, t, cues) if g[2] < 1][:4]
            for i, c in enumerate(measures):
                for d in measures[i + 1 :]:
                    yield from self._weighted(mention, table, c, d, groups, (costs[c] + costs[d]) / 2, cues)
                    if cues.range and table.complete and not anchors.strong:
                        yield from self._quotient_range(table, c, d, (costs[c] + costs[d]) / 2)

    def _weighted(
        self,
        mention: Mention,
        table: EvidenceTable,
        c: int,
        d: int,
        groups: list[tuple[str, list[int], float]],
        cost: float,
        cues: Cues,
    ) -> Iterator[Candidate]:
        left, right = table.columns[c], table.columns[d]
        percent = mention.kind == "percent"
        for what, rows, group_cost in groups:
            pairs = [(left.numbers[r], right.numbers[r]) for r in rows if r in left.numbers and r in right.numbers]
            if len(pairs) < 2:
                continue
            product = math.fsum(x * y for x, y in pairs)
            if not percent:
                base = cost + group_cost + (0.3 if cues.total or cues.average else 0.7)
                scale = 1.0
                unit = left.unit or right.unit
                if mention.unit in TIME_UNITS and unit:
                    scale = float(TIME_UNITS[unit] / TIME_UNITS[mention.unit])
                yield Candidate(product * scale, base, f"sum of {left.name} times {right.name} of {what}")
            for weight, value in ((left, right), (right, left)):
                total = math.fsum(weight.numbers[r] for r in rows if r in weight.numbers and r in value.numbers)
                if total and (not percent or value.is_fraction or value.is_percent):
                    scale = 100 if percent and value.is_fraction else 1
                    base = cost + group_cost + (0.2 if cues.average or cues.total else 0.9)
                    yield Candidate(scale * product / total, base, f"mean of {value.name} weighted by {weight.name}")

    def _quotient_range(self, table: EvidenceTable, c: int, d: int, cost: float) -> Iterator[Candidate]:
        left, right = table.columns[c].numbers, table.columns[d].numbers
        for top, bottom in ((left, right), (right, left)):
            quotients = [top[r] / bottom[r] for r in top if bottom.get(r)]
            if len(quotients) > 1:
                for value in (min(quotients), max(quotients)):
                    yield Candidate(value, cost + 0.6, "the range of a quotient")

    def _average_changes(self, mention: Mention, cues: Cues) -> Iterator[Candidate]:
        for t, table in enumerate(self.tables):
            if (
                table.printed
                or table.kind != "result"
                or not table.complete
                or not 2 < table.rows <= 2000
                or not table.periods
            ):
                continue
            for c, cost in self.column_costs(mention, t).items():
                values = list(table.columns[c].numbers.values())
                if len(values) < 2 or min(values) <= 1e-300:
                    continue
                steps = [100 * (b - a) / a for a, b in pairwise(values)]
                extra = 0.2 if cues.average else 1.2
                yield Candidate(
                    math.fsum(steps) / len(steps), cost + extra, f"average change of {table.columns[c].name}", 2
                )
                compound = 100 * ((values[-1] / values[0]) ** (1 / (len(values) - 1)) - 1)
                yield Candidate(compound, cost + extra, f"compound change of {table.columns[c].name}", 2)
                if cues.changing:
                    for value in (max(steps), min(steps)):
                        yield Candidate(value, cost + 0.7, f"largest change of {table.columns[c].name}", 2)
                anchors = self.passage.anchors(mention, t)
                rows = list(table.columns[c].numbers)
                first, last = (_sortable(table.periods.get(row, Period())) for row in (rows[0], rows[-1]))
                for (_, row), step in zip(pairwise(rows), steps) if first < last else ():
                    if row in anchors.costs and anchors.costs[row] < 1.3:
                        yield Candidate(
                            step,
                            cost + anchors.costs[row] + (0.3 if cues.changing else 0.9),
                            "change from the row before",
                            1,
                        )

    def _steps(self, mention: Mention, cues: Cues) -> Iterator[Candidate]:
        """Yield the differences between a named row, or the last one, and the row before it."""
        last = re.search(r"\b(?:last|latest|recent|final)\b", cues.sentence, re.I)
        for t, table in enumerate(self.tables):
            if table.printed or table.kind != "result":
                continue
            anchors = self.passage.anchors(mention, t)
            for c, cost in self.column_costs(mention, t).items():
                if re.search(r"\b(?:steps?|intervals?|increments?)\s+of\s+$", cues.before, re.I):
                    gaps = {abs(b - a) for a, b in pairwise(table.columns[c].numbers.values())}
                    if len(gaps) == 1:
                        yield Candidate(gaps.pop(), cost + 0.2, "the step from row to row")
                numbers = table.columns[c].numbers
                for before, row in pairwise(numbers) if table.periods else ():
                    near = anchors.costs.get(row, 0.6 if last and row == table.rows - 1 else 9.0)
                    if near < 1.3:
                        extra = 0.2 if cues.changing or mention.signed else 1.0
                        scale = table.columns[c].factor
                        yield Candidate(
                            (numbers[row] - numbers[before]) * scale,
                            cost + near + extra,
                            "difference from the row before",
                            2,
                        )

    def _in_order(self, a: Operand, b: Operand) -> int:
        """Return 1 if `a` is earlier than `b`, -1 if it is later, and 0 if that is not known."""
        if a.table != b.table or a.table < 0 or a.row < 0 or b.row < 0:
            return 0
        moments = self.tables[a.table].periods
        if a.row not in moments or b.row not in moments or a.row == b.row:
            return 0
        first, second = (_sortable(moments[row]) for row in (a.row, b.row))
        return (first < second) - (first > second)

    def _fraction(self, o: Operand) -> bool:
        return o.table >= 0 and o.column >= 0 and self.tables[o.table].columns[o.column].is_fraction

    def _scale(self, o: Operand) -> float:
        return (
            self.tables[o.table].columns[o.column].factor
            if o.table >= 0 and o.column >= 0 and o.kind not in _STATED
            else 1.0
        )


_LENGTHS = {
    "m": 1.0, "metre": 1.0, "meter": 1.0, "ft": 0.3048, "feet": 0.3048, "foot": 0.3048, "km": 1000.0, "mi": 1609.344,
    "mile": 1609.344, "cm": 0.01, "inch": 0.0254, "in": 0.0254, "kilometre": 1000.0, "kilometer": 1000.0, "yd": 0.9144,
    "nm": 1852.0,
}  # fmt: skip
_WEIGHTS = {"kg": 1.0, "g": 0.001, "lb": 0.45359237, "pound": 0.45359237, "oz": 0.0283495, "tonne": 1000.0}
_MEASURE = re.compile(r"[\s-]*([A-Za-z]+)")


def _converted(mention: Mention, o: Operand, cues: Cues) -> Iterator[Candidate]:
    """Yield a number of the sentence in another unit: `185 minutes, i.e. 3 hours 5`, `14,219 ft (4,334 m)`."""
    if mention.unit in TIME_UNITS:
        if o.unit in TIME_UNITS:
            factor = float(TIME_UNITS[o.unit] / TIME_UNITS[mention.unit])
            if factor != 1:
                yield Candidate(o.value * factor, o.cost + 0.1, f"{o.what} in {mention.unit}s")
        return
    written = re.search(r"[A-Za-z]+$", mention.text)
    follows = written or _MEASURE.match(cues.after)
    own = singular(follows.group().strip(" -").lower()) if follows else ""
    for units in (_LENGTHS, _WEIGHTS):
        if own in units:
            for unit, size in units.items():
                if unit != own and re.search(rf"\d[\s-]*{unit}s?\b", cues.sentence, re.I):
                    yield Candidate(o.value * size / units[own], o.cost + 0.2, f"{o.what} in {own}")


def _per_base(text: str) -> float:
    """Return what a rate is stated for: a thousand in `per 1,000 inhabitants`; 1 if nothing is said."""
    match = re.search(r"\bper\s+(million|thousand|hundred|1,?000,?000|100,?000|10,?000|1,?000|100)\b", text, re.I)
    words = {"million": 1e6, "thousand": 1e3, "hundred": 1e2}
    return words.get(match[1].lower()) or float(match[1].replace(",", "")) if match else 1.0


def _count_operand(t: int, table: EvidenceTable, cues: Cues) -> Operand:
    count = float(table.row_count)
    return Operand(
        count,
        0.8 if cues.average else 1.3,
        0.0,
        t,
        -1,
        -7,
        frozenset(range(table.rows)),
        f"the number of rows of {table.name}",
        "",
        "count",
    )


def _window(mention: Mention) -> tuple[float, float] | None:
    """Return the range of values that are near a number, in its own unit or as a fraction; None if units may differ."""
    if not mention.readings or mention.unit in TIME_UNITS:
        return None
    values = [abs(float(r.value)) for r in mention.readings]
    low, high = min(values), max(values)
    return (low / 150 if mention.kind in ("percent", "points") else low / 1.6, high * 1.6)


def _widen(words: frozenset[str]) -> frozenset[str]:
    return words.union(*(group for group in _SYNONYMS if group & words))


def _unit(column: EvidenceColumn) -> str:
    return column.unit or ("percent" if column.is_percent and not column.is_fraction else "")


def _name(table: EvidenceTable, c: int, row: int) -> str:
    return f"{table.columns[c].name} of {table.row_label(row)}" if table.rows > 1 else table.columns[c].name


def _sortable(period: Period) -> tuple[int, int, int]:
    return period.year or 0, period.month or 3 * (quarter_of(period) or 2 * (period.half or 0)), period.day or 0
