"""The number check: compare every number in an answer's text with the computed results.

A number is verified if it equals a value of a result at the precision it is written with, or follows from values by
bounded arithmetic. The label next to a number decides which rows it may come from, the words around it which columns
and which operations. In a large result nearly every percentage is the ratio of some two values, so a match is rejected
if it is far-fetched and enough other values were as likely for one of them to match by chance.

A number that does not follow is one of two things. It is contradicted if the label next to it has another value; the
answer then goes back to the model. Otherwise it is only untraced: the model is asked for its origin (`origins.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import combinations

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.candidates import list_derived_candidates, list_direct_candidates
from etude.runtime.number_check.computed_figures import ComputedFigure, doubt_of_figure, find_misplaced_figures
from etude.runtime.number_check.counts import count_candidates, counts_things
from etude.runtime.number_check.evidence import HUGE, Evidence, EvidenceTable, evidence_tables
from etude.runtime.number_check.given import collect_given, find_given
from etude.runtime.number_check.lookup import look_up_derived_value
from etude.runtime.number_check.mentions import (
    MARK,
    TIME_UNITS,
    Mention,
    Period,
    Reading,
    break_long_runs,
    find_number_mentions,
    resolve_mention_readings,
)
from etude.runtime.number_check.number_search import NumberSearch
from etude.runtime.number_check.operands import Operand, collect_operands
from etude.runtime.number_check.passage import Passage
from etude.runtime.number_check.precision import (
    direction_of_precision,
    direction_of_verb,
    is_rounded_beyond_precision,
    is_whole_mention,
    rounding_intervals,
)
from etude.runtime.number_check.second_look import (
    StatedNumber,
    take_second_look,
    take_second_look_at_parts,
)
from etude.runtime.number_check.standing import doubt_of_match
from etude.runtime.number_check.unknown_names import find_unknown_names

__all__ = [
    "Evidence",
    "Mention",
    "NumberCheckVerdict",
    "check_numbers",
    "explain_verdict",
    "find_number_mentions",
    "mark_unverified",
    "quote_mention",
]

LONGEST_ANSWER = 50_000
"""Characters of an answer that are checked."""
LONGEST_GIVEN = 20_000
"""Characters of the question, of each earlier message and of each piece of code that are searched for numbers."""
SEARCHED = 200
"""Numbers of an answer that may follow from several cells; later ones are only looked up in the results."""
_PASSES = 4
_PLAIN = 0.5
"""The cost up to which a match needs no proof that it is not an accident."""
_UNTIED = 0.3
"""How doubtful a number is that only those beside it explain."""


@dataclass(frozen=True)
class CheckedNumber:
    """A mentioned number with its verdict. `because` says where the number comes from, or why it was not found."""

    mention: Mention
    verified: bool
    because: str
    contradicted: bool = False
    """Whether the label next to the number has another value, so that the number or the label is wrong."""
    doubt: float = 0.0
    """How likely the check is wrong about the number, from 0 to 1. If doubts add up, the model is asked for origins."""


@dataclass(frozen=True)
class NumberCheckVerdict:
    """The result of checking one text, number by number."""

    text: str
    mentions: tuple[CheckedNumber, ...]
    passage: Passage | None = field(default=None, repr=False, compare=False)
    """The text as the check reads it, with its results; None if it has no numbers."""

    @property
    def unverified(self) -> tuple[CheckedNumber, ...]:
        """The numbers that were not found."""
        return tuple(checked for checked in self.mentions if not checked.verified)

    @property
    def contradicted(self) -> tuple[CheckedNumber, ...]:
        """The numbers that a result contradicts."""
        return tuple(checked for checked in self.mentions if checked.contradicted)

    @property
    def refuted(self) -> bool:
        """Whether an expression or the text itself shows that a number is wrong, whatever the labels mean."""
        return any(checked.contradicted and not checked.doubt for checked in self.mentions)

    @property
    def ok(self) -> bool:
        """Whether every number was found."""
        return not self.unverified

    @property
    def sends_back(self) -> bool:
        """Whether the model should write the answer again, because a result contradicts it."""
        return bool(self.contradicted)


def _beginning(text: str, longest: int = LONGEST_GIVEN) -> str:
    """Return the part of a text that is read. It ends between two words, so that no number is cut."""
    return text if len(text) <= longest else text[:longest].rpartition(" ")[0] or text[:longest]


def check_numbers(
    text: str,
    results: Sequence[Evidence],
    question: str = "",
    context: Sequence[str] = (),
    schema: str = "",
    thread: Sequence[str] = (),
    computed: Sequence[tuple[int, int]] = (),
    figures: Sequence[ComputedFigure] = (),
) -> NumberCheckVerdict:
    """Look for each number of `text` in `results`, in the question and in what the model was shown.

    `context` holds the code that was run and the messages of the user. `schema` is the description of the tables that
    the model saw, and `thread` the earlier messages of the conversation. `computed` are the places of figures that
    etude computed itself, and `figures` what their expressions use.
    """
    said = break_long_runs(_beginning(text, LONGEST_ANSWER))
    written = find_number_mentions(said)
    if not written:
        return NumberCheckVerdict(text, ())
    question, context, thread = _beginning(question), [*map(_beginning, context)], [*map(_beginning, thread)]
    bare = said.replace(MARK, "")
    mentions = resolve_mention_readings(find_number_mentions(bare))
    tables = [table for result in results for table in evidence_tables(result)]
    tables += [*_schema_tables(schema), *_thread_tables(thread)]
    passage = Passage(bare, mentions, tables, question)
    given = collect_given(question, [*context, *_schema_names(schema)], tables)
    given.periods += [m.period for said in thread for m in find_number_mentions(said) if m.period]
    given.periods += [day for shown in (schema, *(r.text for r in results)) for day in _shown_days(shown)]
    search = NumberSearch(passage)
    for said in thread:
        search.said |= {(m.kind, r.value) for m in find_number_mentions(said[:20_000])[:400] for r in m.readings}
    for low, high in re.findall(r"(-?\d[\d,]*(?:\.\d+)?)\.\.(-?\d[\d,]*(?:\.\d+)?)", schema[:200_000]):
        search.said |= {("number", Decimal(end.replace(",", ""))) for end in (low, high)}
    found: dict[int, str] = {}
    for i, mention in enumerate(written):
        if any(start <= mention.start and mention.end <= end for start, end in computed):
            found[i] = "computed from an expression"
    for i, mention in enumerate(mentions):
        if i in found:
            if mention.readings and mention.kind != "date":
                search.record(mention, None, float(mention.readings[0].value))
        elif because := find_given(passage, given, mention):
            found[i] = because
            if mention.kind in ("number", "percent") and mention.readings:
                search.record(mention, None, float(mention.readings[0].value))
    used: dict[int, Candidate] = {}
    # Each pass may use the numbers that the one before it verified.
    changed: set[int] | None = None
    for _ in range(_PASSES):
        new: list[tuple[int, Candidate]] = []
        for i, mention in enumerate(mentions):
            if i in found or mention.kind == "date":
                continue
            index = passage.sentence(mention.start)
            if changed is not None and not any(index - back in changed for back in range(-1, 5)):
                continue
            for reading in _other_kinds(passage, mention):
                if match := _find(search, reading, deep=i < SEARCHED):
                    new.append((i, match))
                    break
        changed = {passage.sentence(mentions[i].start) for i, _ in new}
        for i, match in new:
            found[i], used[i] = match.because, match
            search.record(mentions[i], match, match.value)
            if match.operand is not None:
                search.activate(mentions[i], match.operand.table, match.operand.rows, match.because)
        if not new:
            break
    found |= _thresholds(passage, found)
    explained = _second_look(search, found, used)
    found |= explained
    false = {i: why for i, mention in enumerate(mentions) if (why := take_second_look_at_parts(search, mention))}
    false |= {i: why for i, match in used.items() if (why := _is_not_of_each(search, mentions[i], match))}
    strange = find_unknown_names(passage, used, [*context, schema, *thread])
    strange |= false
    for i in strange:
        found.pop(i, None)
    for i in [*_repeated(passage, used), *_reversed(passage)]:
        found.pop(i, None)
    for (start, end), why in find_misplaced_figures(passage, figures).items():
        for i, mention in enumerate(written):
            if start < mention.end and mention.start < end:
                found.pop(i, None)
                false[i] = why
    doubts = {(f.start, f.end): doubt_of_figure(passage, f) for f in figures}
    checked = []
    for i, (mention, plain) in enumerate(zip(written, mentions)):
        if i in found:
            doubt = _UNTIED if i in explained else doubt_of_match(search, plain, used[i]) if i in used else 0.0
            own = [d for (start, end), d in doubts.items() if start < mention.end and mention.start < end]
            checked.append(CheckedNumber(mention, True, found[i], doubt=max(own, default=doubt)))
        else:
            value = false.get(i) or (_own_value(search, plain) if _is_plainly_labelled(passage, plain) else "")
            doubt = 0.0 if i in false else 1.0
            checked.append(CheckedNumber(mention, False, value or strange.get(i) or _NOT_FOUND, bool(value), doubt))
    return NumberCheckVerdict(text, tuple(checked), passage)


def _second_look(search: NumberSearch, found: dict[int, str], used: dict[int, Candidate]) -> dict[int, str]:
    """Explain numbers by those beside them, in two rounds: the second may use what the first explained."""
    passage, explained = search.passage, dict[int, str]()
    for _ in range(2):
        stated = [
            StatedNumber(m, _value(m, used.get(i)), passage.sentence(m.start), used.get(i))
            for i, m in enumerate(passage.mentions)
            if (i in found or i in explained)
            and m.readings
            and m.kind in ("number", "percent", "points")
            and abs(_value(m, used.get(i))) < HUGE
        ]
        for i, mention in enumerate(passage.mentions[:SEARCHED]):
            if i in found or i in explained or not (because := take_second_look(search, mention, stated)):
                continue
            if not _own_value(search, mention):
                explained[i] = because
    return explained


def _value(mention: Mention, match: Candidate | None) -> float:
    """Return the value behind a verified number."""
    return match.value if match else float(mention.readings[0].value)


def _find(search: NumberSearch, mention: Mention, deep: bool = True) -> Candidate | None:
    """Return the candidate that a number states, unless a match is likely by chance alone.

    Values that follow from several cells are looked for only if `deep`.
    """
    if mention.kind == "ordinal":
        return None
    if mention.parts:  # `3/4 regions` may be two counts.
        halves = [_find(search, _whole(mention, part)) for part in mention.parts]
        if all(halves):
            return halves[0]
    if any(search.passage.anchors(mention, t).conflict for t in range(len(search.tables))):
        return None
    if (huge := _find_huge(search, mention)) is not None:
        return huge
    direction = direction_of_precision(search.passage, mention)
    bounds = [(float(low), float(high)) for low, high in rounding_intervals(mention)]
    operands = collect_operands(search, mention, search.wording(mention))
    counts = counts_things(search, mention)
    candidates = [*list_direct_candidates(search, mention, operands), *count_candidates(search, mention)]
    candidates = [c for c in candidates if _is_said(search, mention, c, counts)]
    plain = [c for c in candidates if c.cost <= _PLAIN and _fits(mention, c, direction, bounds)]
    if plain and not any(_belongs_elsewhere(search, mention, match) for match in plain):
        best = min(plain, key=lambda c: c.cost)
        return best._replace(chance=_chance(bounds[0], candidates, best.cost))
    if not deep:
        return None
    derived = list_derived_candidates(search, mention, operands, candidates)
    candidates += [c for c in derived if _is_said(search, mention, c, counts)]
    matches = sorted((c for c in candidates if _fits(mention, c, direction, bounds)), key=lambda c: c.cost)
    elsewhere = any(_belongs_elsewhere(search, mention, match) for match in matches)
    for match in matches[:12]:
        if _belongs_elsewhere(search, mention, match) or (elsewhere and match.cost > 1.5):
            continue
        vague = mention.word and mention.kind in ("times", "percent") and match.cost <= 1.4
        chance = _chance(bounds[0], candidates, match.cost)
        if match.cost <= _PLAIN or vague or chance <= _allowed(match.cost):
            return match._replace(chance=chance)
    return look_up_derived_value(search, mention, bool(_own_value(search, mention)))


def _is_said(search: NumberSearch, mention: Mention, candidate: Candidate, counts: bool) -> bool:
    """Return whether the text says the step of a candidate; a number that counts things is not a difference."""
    if counts and candidate.because.startswith("difference of "):
        return False
    return not candidate.step or search.says(mention, candidate.step)


def _find_huge(search: NumberSearch, mention: Mention) -> Candidate | None:
    """Find a number that is too large to compute with as it stands in a cell."""
    for reading in mention.readings:
        if abs(reading.value) > HUGE:
            for table in search.tables:
                for column in table.columns:
                    if any(isinstance(v, int | Decimal) and Decimal(v) == reading.value for v in column.huge.values()):
                        return Candidate(math.inf, 0.0, f"{table.name}.{column.name}")
    return None


_OR_MORE = re.compile(r"(?:\s+[^\W\d]+)?\s+(?:or|and)\s+(?:more|less|fewer|over|above|below|under|\w+er)\b", re.I)
_BOUND = re.compile(
    r"\b(?:tops?|clears?|cleared|beats?|broke|passed|passes|pass|topped|reach\w*|threshold)\s+(?:the\s+)?[*_$€£]*$",
    re.I,
)


def _thresholds(passage: Passage, found: dict[int, str]) -> dict[int, str]:
    """Accept a bound that the answer chose itself if the sentence has the right count of rows beyond it."""
    counted = {
        (passage.sentence(passage.mentions[i].start), match[1])
        for i, because in found.items()
        if (match := re.search(r" (?:beyond|of) ([\d.e+-]+)", because))
    }
    accepted = {}
    for i, mention in enumerate(passage.mentions):
        index = passage.sentence(mention.start)
        if i in found or mention.kind not in ("number", "percent") or not mention.readings:
            continue
        before, after = passage.around(mention, 24, 24)
        bound = mention.hedge in ("over", "under") or bool(_BOUND.search(before) or _OR_MORE.match(after))
        if (
            bound
            and _is_round(mention)
            and (
                (index, f"{float(mention.readings[0].value):g}") in counted
                or _counts_beyond(passage, index, mention) & _wholes(passage, index, mention)
            )
        ):
            accepted[i] = "a bound with a correct count of rows beyond it"
    return accepted


def _is_round(mention: Mention) -> bool:
    """Return whether a number has at most two digits that are not zero, as bounds do that somebody chose."""
    return len(mention.readings[0].value.normalize().as_tuple().digits) <= 2


def _wholes(passage: Passage, index: int, mention: Mention) -> set[int]:
    """Return the other whole numbers of a sentence that may be counts."""
    return {
        int(m.readings[0].value)
        for m in passage.mentions
        if m is not mention and m.kind == "number" and m.readings and passage.sentence(m.start) == index
        and m.readings[0].step == 1
    }  # fmt: skip


def _counts_beyond(passage: Passage, index: int, mention: Mention) -> set[int]:
    value = float(mention.readings[0].value)
    counts = set()
    for table in passage.tables:
        for column in table.measures if table.kind == "result" and table.complete else ():
            above = sum(v * column.factor > value for v in column.numbers.values())
            counts |= {above, len(column.numbers) - above} - {0, len(column.numbers)}
    return counts


_FROM_TO = re.compile(r"(?P<words>(?:\b[a-z]+\s+){1,3})from\s+[$€£*_]*$", re.I)


def _reversed(passage: Passage) -> Iterator[int]:
    """Yield the second number of `fell from 2,089 to 4,237`, which rose."""
    for i, first in enumerate(passage.mentions):
        verb = _FROM_TO.search(passage.text[max(0, first.start - 40) : first.start])
        sign = next(filter(None, map(direction_of_verb, verb["words"].split())), 0) if verb else 0
        if not sign or not first.readings or first.kind not in ("number", "percent"):
            continue
        for j in range(i + 1, min(i + 3, len(passage.mentions))):
            second = passage.mentions[j]
            gap = passage.text[first.end : second.start]
            if second.kind == first.kind and second.readings and re.search(r"\bto\s+[\w~ ]{0,12}[$€£*_]*$", gap):
                change = second.readings[0].value - first.readings[0].value
                if len(gap) < 40 and change * sign < 0 and not re.search(r"[.;]\s", gap):
                    yield j
                break


_AGAIN = re.compile(r"\b(?:its|their|these|those|same|all|the|of|both|each|another|other)\s+[$€£]?$", re.I)


def _repeated(passage: Passage, used: dict[int, Candidate]) -> Iterator[int]:
    """Yield numbers that occur twice in one sentence for the same value: one of them replaces another."""
    for i, j in combinations(used, 2):
        a, b = passage.mentions[i], passage.mentions[j]
        if a.text != b.text or a.kind != b.kind or a.word or used[i].because != used[j].because:
            continue
        if sum(c.isdigit() for c in a.text) < 2 or passage.sentence(a.start) != passage.sentence(b.start):
            continue
        if not any(_AGAIN.search(passage.text[max(0, m.start - 16) : m.start]) for m in (a, b)):
            yield from (i, j)


_FACTOR = re.compile(r"\b(?:factor of|multiplied by|multiple of)\s+(?:about\s|roughly\s)?[*_]*$", re.I)
_FACTOR_AFTER = re.compile(r"-?(?:fache|fold)\b|\s(?:mal so|fois plus|veces)\b", re.I)
_POINTS_AFTER = re.compile(r"[\s*_]*(?:points?|Punkte?n?|puntos|punti)\b", re.I)


def _other_kinds(passage: Passage, mention: Mention) -> Iterator[Mention]:
    """Yield a number as it was read, and as what it may be too: a factor, a count of times, percentage points."""
    yield _as_duration(mention)
    before, after = passage.around(mention, 30, 24)
    if mention.kind == "number" and (_FACTOR.search(before) or _FACTOR_AFTER.match(after)):
        yield replace(mention, kind="times")
    if mention.kind == "number" and _POINTS_AFTER.match(after) and "%" in passage.text:
        yield replace(mention, kind="points")
    if mention.kind == "times" and is_whole_mention(mention) and not re.match(r"\s*(?:as|more|the|that)\b", after):
        yield replace(mention, kind="number")


def _as_duration(mention: Mention) -> Mention:
    """Return a duration such as `35:45` as a number of seconds."""
    return replace(mention, kind="number", unit="second") if mention.kind == "time" else mention


def _whole(mention: Mention, value: int) -> Mention:
    return replace(mention, kind="number", readings=(Reading(Decimal(value), Decimal(1)),), parts=())


def _fits(mention: Mention, candidate: Candidate, direction: int, bounds: list[tuple[float, float]]) -> bool:
    value = candidate.value
    if is_rounded_beyond_precision(mention, value):
        return False
    if candidate.sign == 1 and direction and value and (value > 0) != (direction > 0):
        return False
    for low, high in bounds:
        slack = 1e-12 * max(abs(value), abs(low), 1e-12)
        if candidate.sign in (1, 2):
            bottom, top = sorted((abs(low), abs(high)))
            if (0.0 if low < 0 < high else bottom) - slack <= abs(value) <= top + slack:
                return True
        elif low - slack <= value <= high + slack:
            return (
                candidate.sign != -1
                or direction >= 0
                or value < 0
                or mention.kind != "percent"
                or not _is_change(candidate)
            )
        elif candidate.sign == -1 and value < 0 and direction < 0 and low - slack <= -value <= high + slack:
            return True
    return False


def _is_change(candidate: Candidate) -> bool:
    return candidate.operand is not None and any(w in candidate.because.lower() for w in ("change", "growth", "return"))


def _chance(bounds: tuple[float, float], candidates: Sequence[Candidate], cost: float) -> float:
    """Return how likely it is that a number of this size matches one of the candidates up to a cost by chance."""
    low, high = bounds
    width, middle = abs(high - low), abs(high + low) / 2
    if width == 0:  # Written to more digits than a float has.
        return 0.0
    bottom, top = middle / 1.5, middle * 1.5
    if middle <= 1.5 * width:
        return 0.1  # Zero, or nearly so.
    bins = {round(abs(c.value) / width) for c in candidates if c.cost <= cost + 0.05 and bottom <= abs(c.value) <= top}
    return len(bins) * width / max(top - bottom, width)


def _allowed(cost: float) -> float:
    """Return the chance of an accident that is acceptable for a candidate of a cost."""
    for most, chance in ((0.9, 0.8), (1.3, 0.6), (1.8, 0.3), (2.4, 0.1)):
        if cost <= most:
            return chance
    return 0.0


def _belongs_elsewhere(search: NumberSearch, mention: Mention, match: Candidate) -> bool:
    """Return whether a number is the value of another row than the one that the label next to it names."""
    operand = match.operand
    if operand is None or operand.kind not in ("cell", "quotient") or operand.row < 0:
        return False
    table = search.tables[operand.table]
    if table.rows < 2 or table.printed:
        return False
    anchors = search.passage.anchors(mention, operand.table)
    if _is_other_column(search, mention, operand) or search.passage.is_unnamed(mention, operand.table, operand.row):
        return True
    if not (anchors.strong or anchors.named) or anchors.costs.get(operand.row, 9.0) <= (0.7 if anchors.direct else 1.3):
        return False
    column = table.columns[operand.column]
    return any(row in column.numbers for row in anchors.primary)


def _is_other_column(search: NumberSearch, mention: Mention, operand: Operand) -> bool:
    """Return whether the words at a number name one column, and the value is of another column of the same row."""
    costs = search.column_costs(mention, operand.table)
    named = [c for c, cost in costs.items() if cost <= 0.05]
    if operand.kind != "cell" or operand.column in named or len(named) != 1 or costs.get(operand.column, 0.0) < 0.7:
        return False
    return operand.row in search.tables[operand.table].columns[named[0]].numbers


_EACH = re.compile(r"[\s*_)]*(?:[^\W\d_]+\s+){0,2}(?:each|apiece)\b", re.I)


def _is_not_of_each(search: NumberSearch, mention: Mention, match: Candidate) -> str:
    """Say which of several named rows has another value than a number that they have `each`."""
    operand = match.operand
    if operand is None or operand.kind != "cell" or operand.table < 0 or not _EACH.match(search.wording(mention).after):
        return ""
    table, anchors = search.tables[operand.table], search.passage.anchors(mention, operand.table)
    column = table.columns[operand.column]
    if table.name_column is None or len(anchors.primary) < 2 or operand.row not in anchors.primary:
        return ""
    for row in sorted(anchors.primary):
        if row in column.numbers and column.numbers[row] != column.numbers[operand.row]:
            return f"for {table.row_label(row)}, {table.name} has {column.exact[row]} ({column.name})"
    return ""


def _is_plainly_labelled(passage: Passage, mention: Mention) -> bool:
    """Return whether only small words stand between a number and its label, and no hedge such as `about`."""
    if re.match(r"\s*(?:vs\.?|versus|against|to|and|compared with)\s+[$€£]?\d", passage.around(mention, 0, 16)[1]):
        return False  # `twice as many papers as patents: 10 vs 5`
    return not mention.hedge and any(passage.anchors(mention, t).direct for t in range(len(passage.tables)))


def _own_value(search: NumberSearch, mention: Mention) -> str:
    """Return what the label next to a number says in the results, if that is clear; else empty."""
    if not mention.readings or mention.kind not in ("number", "percent") or mention.unit in TIME_UNITS:
        return ""
    wording = search.wording(mention)
    written = abs(float(mention.readings[0].value))
    for t, table in enumerate(search.tables):
        anchors = search.passage.anchors(mention, t)
        if table.printed or table.kind != "result" or not anchors.strong or len(anchors.primary) != 1:
            continue
        [row] = anchors.primary
        costs = search.column_costs(mention, t)
        fitting = {c: cost for c, cost in costs.items() if row in table.columns[c].numbers}
        if mention.kind == "percent":
            fitting = {c: cost for c, cost in fitting.items() if table.columns[c].is_percent}
        if not fitting:
            continue
        best = min(fitting, key=fitting.__getitem__)
        clear = fitting[best] <= 0.25 and sum(cost <= fitting[best] + 0.1 for cost in fitting.values()) == 1
        column = table.columns[best]
        own = abs(column.numbers[row]) * (100 if mention.kind == "percent" and column.is_fraction else 1)
        elsewhere = any(
            c.operand is not None and c.operand.kind == "cell" and c.operand.table == t and c.operand.row != row
            for c in list_direct_candidates(search, mention, collect_operands(search, mention, wording))
            if _fits(mention, c, 0, [(float(a), float(b)) for a, b in rounding_intervals(mention)])
        )
        near = own and 0.5 <= written / own <= 2
        if (elsewhere and (clear or len(fitting) <= 3)) or (
            clear and near and not wording.changing and not wording.average
        ):
            return f"for {table.row_label(row)}, {table.name} has {column.exact[row]} ({column.name})"
    return ""


def mark_unverified(text: str, verdict: NumberCheckVerdict) -> str:
    """Return the text with a mark after each number that was not found; numbers already marked stay as they are."""
    marked = _mark(verdict)
    if text not in (verdict.text, marked):
        raise ValueError("the verdict belongs to another text")
    return marked


def explain_verdict(verdict: NumberCheckVerdict, quote: Callable[[str], str] = "\n{}".format) -> str:
    """Return the instructions for a model whose answer goes back to it; empty if it does not.

    `quote` marks the words of the answer and values of results as data.
    """
    if not verdict.sends_back:
        return ""
    found = [
        f"- `{c.mention.text}` in `{quote_mention(verdict.text, c.mention)}`: {c.because}."
        for c in verdict.contradicted
    ]
    return (
        f"The results contradict your answer:{quote(chr(10).join(found))}\n"
        "Write the answer again. Use the values of the results, rounded correctly, each with its own label. If you "
        "need a value that was not computed, compute it with a tool first; otherwise leave the number out."
    )


def quote_mention(text: str, mention: Mention) -> str:
    """Return the words around a number: the model's own, on one line and without marks of code."""
    start = max(text.rfind("\n", 0, mention.start) + 1, mention.start - 50)
    end = text.find("\n", mention.end, mention.end + 25)
    words = text[start : end if end >= 0 else mention.end + 25]
    return re.sub(r"[\s`]+", " ", words).strip()


_NOT_FOUND = "not in any computed result"


def _schema_tables(schema: str) -> list[EvidenceTable]:
    """Return the row counts and column counts of the tables that the model was shown."""
    rows: list[tuple[object, ...]] = []
    tables = 0
    for line in schema[:200_000].splitlines():
        head = re.match(r"(?P<name>[\w.\"` -]+?)\s*(?:\(|:\s*)(?:about\s+)?(?P<rows>[\d,]+)\s+rows?\b", line)
        if head:
            rows.append((head["name"].strip(), int(head["rows"].replace(",", "")), 0))
        elif rows and re.match(r"\s+\S", line):
            rows[-1] = (*rows[-1][:2], int(str(rows[-1][2])) + 1)
        elif re.match(r"[^\W\d]\w*$", line.strip()) or re.match(r"[^\W\d][\w.]*\s*(?:--|\()", line):
            tables += 1
    if not rows:
        return []
    shown = Evidence("schema", ("table", "rows", "columns"), rows)
    found = list(evidence_tables(shown))
    count = re.search(r"(\d+) tables", schema)
    total = int(count[1]) if count else len(rows)
    found += list(evidence_tables(Evidence("schema", ("tables",), [(total,)])))
    for table in found:
        table.kind = "schema"
    return found


def _shown_days(text: str) -> Iterator[Period]:
    """Yield the days that the model was shown, such as the range of a column in the schema."""
    for year, month, day in re.findall(r"(?<![\d-])(\d{4})-(\d\d)-(\d\d)(?!\d)", text[:200_000]):
        yield Period(int(year), month=int(month), day=int(day))


def _schema_names(schema: str) -> list[str]:
    return [re.sub(r"(?<![\w.])[\d,]+(?!\w)", " ", schema[:200_000])] if schema else []


def _thread_tables(thread: Sequence[str]) -> list[EvidenceTable]:
    """Return the numbers of earlier messages, each labelled with the clause around it."""
    rows: list[tuple[object, ...]] = []
    for text in thread:
        for mention in find_number_mentions(text[:20_000])[:400]:
            if mention.readings and mention.kind in ("number", "percent", "times", "points"):
                start = max(0, mention.start - 60)
                label = re.split(r"[.;\n]", text[start : mention.start])[-1].strip()
                value = mention.readings[0].value
                percent = mention.kind in ("percent", "points")
                rows.append((label, None if percent else value, value if percent else None))
    if not rows:
        return []
    found = list(evidence_tables(Evidence("thread", ("said", "figure", "percentage"), rows)))
    for table in found:
        table.kind = "thread"
    return found


def _mark(verdict: NumberCheckVerdict) -> str:
    pieces, at = [], 0
    for checked in verdict.unverified:
        end = checked.mention.end
        if verdict.text[end : end + 1] == "`":  # Inside backticks the mark would become part of the value.
            end += 1
        pieces.append(verdict.text[at:end])
        if not verdict.text.startswith(MARK, end):
            pieces.append(MARK)
        at = end
    return "".join([*pieces, verdict.text[at:]])
