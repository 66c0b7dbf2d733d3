"""Numbers that count: rows, distinct values, named rows, rows beyond a bound, rows that share a value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from etude.plurals import singular_of_plural
from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.column_costs import GENERIC_WORDS, WORD
from etude.runtime.number_check.dimension import ROWS
from etude.runtime.number_check.evidence import EvidenceColumn, EvidenceTable
from etude.runtime.number_check.mentions import TIME_UNITS, WORDS, Mention
from etude.runtime.number_check.number_search import NumberSearch
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.passage import Label
from etude.runtime.number_check.precision import is_whole_mention

_ROWS = frozenset(
    {"row", "record", "result", "entry", "line", "item", "value", "case", "observation", "group", "category"}
)
_ABOVE = re.compile(
    r"\b(?:above|over|more than|exceed\w*|at least|greater than|higher|beyond|surpass\w*|or more|or \w+er|past|"
    r"pass(?:ed|es)?|top(?:ped|s)|reach\w*|clear(?:ed|s)?)\b|[>≥]",
    re.I,
)
_BELOW = re.compile(
    r"\b(?:below|under|less than|fewer than|at most|lower|short of|or less|or fewer|up to)\b|[<≤]", re.I
)
_RISES = re.compile(r"\b(?:grew|growth|increas\w*|rose|rise|gains?|gained|up)\b", re.I)
_FALLS = re.compile(r"\b(?:declin\w*|decreas\w*|fell|drop\w*|dips?|falls?|down|shrank|lost|loss\w*)\b", re.I)
_SINGLE = re.compile(r"\b(?:a single|single|only one|just one|exactly one|one each|once|only a single|sole)\b", re.I)
_NONE = re.compile(r"\b(?:no|none|zero|never|out of stock|without|nothing)\b", re.I)
_EQUAL = re.compile(r"\b(?:each|exactly|tied?|same|only|just|with|have|has|had)\b", re.I)
_MEETS = re.compile(r"\b(?:met|meet\w*|beat\w*|exceed\w*|above|hit|reach\w*|over|surpass\w*|more|higher|ahead)\b", re.I)
_MISSES = re.compile(r"\b(?:miss\w*|below|under|short|fail\w*|less|lower|behind|not)\b", re.I)
_AVERAGE = re.compile(r"\b(?:average|mean|that)\b", re.I)
_THESE = re.compile(
    r"\b(?:these|those|together|they|combined|the (?:two|three|four|five|six|seven|eight|nine|ten))\b", re.I
)
_REST = re.compile(r"\b(?:remain\w*|rest|others?|more|further|else|additional)\b", re.I)


def counts_things(search: NumberSearch, mention: Mention) -> bool:
    """Return whether a number word counts what a column names, as in `five departments`: it is not a difference."""
    if not mention.word or mention.kind != "number" or mention.unit:
        return False
    follows = re.match(r"[\s*_]+([^\W\d_]+)", search.passage.around(mention, 0, 30)[1])
    noun = singular_of_plural(follows[1].lower()) if follows else ""
    columns = [c for table in search.tables if table.kind == "result" for c in table.columns]
    named = any(noun in c.words - GENERIC_WORDS for c in columns if not c.is_measure)
    return bool(noun) and named and not any(noun in c.words for c in columns if c.is_measure)


def count_candidates(search: NumberSearch, mention: Mention) -> Iterator[Candidate]:
    """Yield the counts that a whole number may state; `ten wins` is rather a value if there is a measure `wins`."""
    after = search.passage.around(mention, 0, 30)[1]
    follows = re.match(r"(?:\s+(?:out )?of (?:the |all )?[\d,]+)?[\s*_]+([^\W\d_]+)", after)
    noun = singular_of_plural(follows[1].lower()) if follows else ""
    measured = noun and any(
        noun in column.words - GENERIC_WORDS
        for t, table in enumerate(search.tables)
        if table.kind == "result" and search.passage.anchors(mention, t).primary
        for column in table.measures
    )
    rows = Operand(0.0, 0.0, 0.0, -1, -1, -1, frozenset(), "rows", ROWS)
    each = re.match(r"[^.;]{0,24}\beach\b", after, re.I) is not None
    index = search.passage.sentence(mention.start)
    listed = [x for x in search.passage.labels_in(index) if x.end <= mention.start and x.strong]
    differ = each and len({len(x.rows) for x in listed}) > 1
    for candidate in _counts(search, mention):
        if differ and candidate.because.startswith("rows with"):
            continue  # `China and Peru have three each` says the count of both.
        yield candidate._replace(cost=candidate.cost + (1.5 if measured else 0.0), like=rows)


def _counts(search: NumberSearch, mention: Mention) -> Iterator[Candidate]:
    if (
        mention.kind != "number"
        or mention.unit in (set(TIME_UNITS) - {"day", "week"})
        or mention.unit == "money"
        or not is_whole_mention(mention)
    ):
        return
    passage = search.passage
    index = passage.sentence(mention.start)
    text, previous = passage.sentence_text(index), passage.sentence_text(index - 1)
    nouns = _nouns(search, mention)
    if not passage.header(mention):
        yield from _lines(passage.text, text)
    for t, table in enumerate(passage.tables):
        if table.printed or table.kind == "thread":
            continue
        labels = passage.labels_in(index, t)
        thing = any((column.words - GENERIC_WORDS) & nouns for column in table.columns if not column.is_measure)
        about = thing or bool(nouns & _ROWS) or bool(_words(table.name) & nouns)
        if table.kind == "result":
            others = re.search(r"\b(?:other|remaining|next|more)\s+$", passage.around(mention, 16, 0)[0], re.I)
            every = re.search(r"\b(?:the|all|these|die|les|las|los)\s+$", passage.around(mention, 8, 0)[0], re.I)
            alone = re.match(r"\s+(?:have|had|are|were|together|combined)\b", passage.around(mention, 0, 12)[1])
            cost = 2.2 if others else 0.2 if about else 0.4 if every and alone else 0.8
            yield Candidate(table.row_count, cost, f"rows of {table.name}")
        yield Candidate(
            len(table.columns),
            0.2 if nouns & {"column", "field", "variable", "attribute"} else 3.0,
            f"columns of {table.name}",
        )
        if table.kind != "result":
            continue
        yield from _named(search, mention, t, table, labels)
        for what, active, cost in search.active_near(mention, t):
            yield Candidate(len(active), cost, what)
        if not table.complete:
            continue
        rest = 0.4 if _REST.search(text) else 1.6
        named = {row for x in labels for row in x.rows}
        before = {row for x in passage.labels_in(index - 1, t) for row in x.rows}
        for rows in (named, before, named | before):
            if rows and len(rows) < table.rows:
                yield Candidate(table.rows - len(rows), rest, "the other rows")
        without = re.search(r"\b(?:without|excluding|except|leaving|besides|apart)\b", text, re.I)
        if without and re.match(r"\s+(?:others?|remaining)\b", passage.around(mention, 0, 12)[1]):
            for filled in {len(column.numbers) for column in table.measures}:
                yield Candidate(filled - 1, 0.4, "all rows but one")
        for other in passage.mentions:
            if (
                other is not mention
                and other.kind == "number"
                and other.readings
                and abs(passage.sentence(other.start) - index) <= 1
            ):
                n = other.readings[0].value
                if n == int(n) and 1 < n < table.rows:
                    yield Candidate(table.rows - int(n), rest + 0.2, f"the rows besides {n}")
        for column in table.columns:
            yield from _of_column(search, mention, table, column, nouns, text, previous)
        yield from _compared(table, text)
        yield from _periods_between(search, mention, t, table)


def _lines(answer: str, text: str) -> Iterator[Candidate]:
    """Yield the lines of the answer's own Markdown table, and how many of them have a sign."""
    lines = [line for line in answer.split("\n") if line.lstrip().startswith("|")][2:]
    if len(lines) < 2:
        return
    yield Candidate(len(lines), 0.5, "lines of the answer's table")
    falls = sum(re.search(r"\|\s*[-\u2212]\s?[$€£]?\d", line) is not None for line in lines)
    rises = sum(re.search(r"\|\s*\+\s?[$€£]?\d", line) is not None for line in lines)
    if falls and (_FALLS.search(text) or _BELOW.search(text)):
        yield Candidate(falls, 0.5, "lines of the answer's table that fall")
    if rises and (_RISES.search(text) or _ABOVE.search(text)):
        yield Candidate(rises, 0.5, "lines of the answer's table that rise")


def _periods_between(search: NumberSearch, mention: Mention, t: int, table: EvidenceTable) -> Iterator[Candidate]:
    """Yield the years, quarters or months from the first to the last row, or between the named rows."""
    words = {
        singular_of_plural(w.lower()) for w in WORD.findall(mention.text + search.passage.around(mention, 0, 24)[1])[:3]
    }
    units = {"year": 12, "quarter": 3, "month": 1}
    index = search.passage.sentence(mention.start)
    named = [x.rows[0] for x in search.passage.labels_in(index, t) if len(x.rows) == 1 and x.rows[0] in table.periods]
    ends = [(min(named), max(named))] if len(set(named)) == 2 else []
    if table.periods and mention.readings[0].value != table.rows - 1:  # That is more likely a wrong count of rows.
        ends.append((min(table.periods), max(table.periods)))
    for first, last in ends:
        a, b = table.periods[first], table.periods[last]
        if a.year and b.year:
            months = abs(12 * (b.year - a.year) + (b.month or 3 * (b.quarter or 0)) - (a.month or 3 * (a.quarter or 0)))
            for unit, size in units.items():
                if unit in words:
                    yield Candidate(months / size, 0.3, "the time between the rows")


def _nouns(search: NumberSearch, mention: Mention) -> frozenset[str]:
    _, after = search.passage.around(mention, 0, 60)
    phrase = re.split(r"[.;:()\n|]|\b(?:that|which|who|while|were|was|are|is|have|has|had|with)\b", after)[0]
    words = [singular_of_plural(word.lower()) for word in WORD.findall(phrase)[:6]]
    before = search.passage.around(mention, 24, 0)[0]
    return frozenset(words) | frozenset(singular_of_plural(w.lower()) for w in WORD.findall(before)[-1:])


def _key(value: object) -> str:
    """Return a value as text; a number too long to be written is as good as any other."""
    try:
        return str(value)
    except ValueError:
        return "a long number"


def _words(name: str) -> frozenset[str]:
    return frozenset(singular_of_plural(word) for word in WORD.findall(name.lower()))


def _named(
    search: NumberSearch, mention: Mention, t: int, table: EvidenceTable, labels: list[Label]
) -> Iterator[Candidate]:
    passage = search.passage
    index = passage.sentence(mention.start)
    line = passage.text[passage.text.rfind("\n", 0, mention.start) + 1 : mention.start].lstrip()
    if line.startswith("|"):
        return
    here = list(dict.fromkeys(row for x in passage.labels_in(index, t) if len(x.rows) == 1 for row in x.rows))
    if len(here) >= 2:
        yield Candidate(len(here), 0.3, "rows named in the sentence")
    for label in passage.labels_in(index, t):
        if len(label.rows) > 1:
            yield Candidate(len(label.rows), 0.2, f"rows with {passage.text[label.start : label.end]}")
    back = {row for x in passage.labels_in(index - 1, t) for row in x.rows}
    if len(back) >= 2:
        yield Candidate(len(back), 0.9, "rows named in the sentence before")
    so_far = {
        row for earlier in range(max(0, index - 3), index + 1) for x in passage.labels_in(earlier, t) for row in x.rows
    }
    if len(so_far) >= 2:
        yield Candidate(len(so_far), 0.6 if _THESE.search(passage.sentence_text(index)) else 1.4, "rows named so far")
    listed: set[int] = set()
    for later in range(index + 1, min(index + 13, len(passage.starts))):
        listed |= {row for x in passage.labels_in(later, t) for row in x.rows}
    if len(listed) >= 2:
        yield Candidate(len(listed), 0.9, "rows listed below")


def _of_column(
    search: NumberSearch,
    mention: Mention,
    table: EvidenceTable,
    column: EvidenceColumn,
    nouns: frozenset[str],
    text: str,
    previous: str,
) -> Iterator[Candidate]:
    filled = [value for value in column.values if value is not None]
    named = bool((column.words - GENERIC_WORDS) & nouns)
    others = re.search(r"\b(?:other|remaining)\s+$", search.passage.around(mention, 16, 0)[0], re.I)
    if filled and not others and (not column.is_measure or column.whole):
        tally = Counter(_key(value) for value in filled)
        yield Candidate(
            len(tally),
            0.2 if named and not column.is_measure else 1.2 if not column.is_measure else 2.6,
            f"distinct values of {column.name}",
        )
        if not column.is_measure and len(tally) < len(filled):
            for value, n in tally.most_common(12):
                yield Candidate(n, 0.4 if value.lower() in text.lower() else 1.9, f"rows with {value}")
    missing = len(column.values) - len(filled)
    if missing:
        yield Candidate(missing, 0.8, f"missing values of {column.name}")
        yield Candidate(len(filled), 1.0, f"values of {column.name}")
    if not column.is_measure:
        return
    numbers = list(column.numbers.values())
    words = {singular_of_plural(w) for w in WORD.findall(text.lower())}
    near = 0.0 if (column.words - GENERIC_WORDS) & words else 0.15
    said = text if _ABOVE.search(text) or _BELOW.search(text) else search.passage.question
    yield from _inside(search, mention, column, text)
    for bound, cost in _bounds(search, mention, column, text, previous):
        for pattern, sign in ((_ABOVE, 1), (_BELOW, -1)):
            if pattern.search(said):
                yield Candidate(
                    sum((n - bound) * sign > 0 for n in numbers),
                    cost + near,
                    f"rows with {column.name} beyond {bound:g}",
                )
                if cost < 0.6:
                    yield Candidate(
                        sum((n - bound) * sign >= 0 for n in numbers),
                        cost + near + 0.1,
                        f"rows with {column.name} of {bound:g} or beyond",
                    )
    if _SINGLE.search(text):
        yield Candidate(sum(n == 1 for n in numbers), 0.2 + near, f"rows with one {column.name}")
    if 0 < sum(n != 0 for n in numbers) < len(numbers):
        yield Candidate(sum(n != 0 for n in numbers), 1.0 + near, f"rows with some {column.name}")
    if _NONE.search(text):
        yield Candidate(sum(n == 0 for n in numbers), 0.2 + near, f"rows without {column.name}")
    if not column.whole:
        for other in search.passage.mentions:
            if other is not mention and other.kind == "number" and other.readings and not is_whole_mention(other):
                away = search.passage.sentence(other.start) - search.passage.sentence(mention.start)
                equal = sum(f"{n:.9g}" == f"{float(other.readings[0].value):.9g}" for n in numbers)
                if away == 0 and equal:
                    yield Candidate(equal, 0.3 + near / 2, f"rows with a {column.name} of {other.text}")
    if column.whole and _EQUAL.search(text):
        for whole in _whole_numbers(search, mention, text):
            yield Candidate(sum(n == whole for n in numbers), 0.5 + near, f"rows with a {column.name} of {whole}")
    if any(n < 0 for n in numbers):
        yield Candidate(
            sum(n > 0 for n in numbers),
            (0.4 if _RISES.search(text) else 1.5) + near,
            f"rows with a positive {column.name}",
        )
        yield Candidate(
            sum(n < 0 for n in numbers),
            (0.4 if _FALLS.search(text) else 1.5) + near,
            f"rows with a negative {column.name}",
        )
    if table.periods:
        steps = [b - a for a, b in pairwise(numbers)]
        for pattern, sign in ((_RISES, 1), (_FALLS, -1)):
            if pattern.search(text):
                yield Candidate(
                    sum(step * sign > 0 for step in steps), 0.5 + near, f"rows in which {column.name} changes"
                )


def _inside(search: NumberSearch, mention: Mention, column: EvidenceColumn, text: str) -> Iterator[Candidate]:
    """Count the rows between two numbers of the sentence."""
    if not re.search(r"\bbetween\b|\bfrom\b", text, re.I):
        return
    index = search.passage.sentence(mention.start)
    others = [
        float(m.readings[0].value)
        for m in search.passage.mentions
        if m is not mention and m.kind == "number" and m.readings and search.passage.sentence(m.start) == index
    ]
    for low, high in pairwise(others[:6]):
        count = sum(low <= n * column.factor <= high for n in column.numbers.values())
        if low < high and count:
            yield Candidate(count, 0.4, f"rows with {column.name} from {low:g} to {high:g}, beyond neither")


def _bounds(
    search: NumberSearch, mention: Mention, column: EvidenceColumn, text: str, previous: str
) -> Iterator[tuple[float, float]]:
    """Yield the bounds that a sentence compares with: other numbers of the sentence, or the average."""
    index = search.passage.sentence(mention.start)
    for other in search.passage.mentions:
        if other is mention or not other.readings or other.kind not in ("number", "percent"):
            continue
        away = index - search.passage.sentence(other.start)
        if away in (0, 1):
            for reading in other.readings:
                yield float(reading.value) / column.factor, 0.3 if away == 0 else 0.9
                if column.factor != 1:
                    yield float(reading.value), 0.4
                if other.kind == "percent":
                    yield float(reading.value) / 100, 0.4
    for word in re.findall(r"\b(?:above|below|over|under|than)\s+(?:an?\s+)?([a-z]+)\b", text, re.I):
        if word.lower() in WORDS:
            yield float(WORDS[word.lower()]), 0.3
    if column.numbers and _AVERAGE.search(text + previous):
        yield column.total / len(column.numbers), 0.4


def _whole_numbers(search: NumberSearch, mention: Mention, text: str) -> Iterator[int]:
    index = search.passage.sentence(mention.start)
    for other in search.passage.mentions:
        if (
            other is not mention
            and other.kind == "number"
            and other.readings
            and search.passage.sentence(other.start) == index
        ):
            value = other.readings[0].value
            if value == int(value):
                yield int(value)
    for word in re.findall(
        r"\b(?:with|have|has|had|of)\s+(?:only |just |exactly )?(one|two|three|four|five)\b", text, re.I
    ):
        yield WORDS[word.lower()]


def _compared(table: EvidenceTable, text: str) -> Iterator[Candidate]:
    """Count the rows in which one measure is above another, as in `three regions met their target`."""
    measures = table.measures[:5]
    for i, left in enumerate(measures):
        for right in measures[i + 1 :]:
            rows = [r for r in left.numbers if r in right.numbers]
            more = sum(left.numbers[r] > right.numbers[r] for r in rows)
            fewer = sum(left.numbers[r] < right.numbers[r] for r in rows)
            if left.whole != right.whole or left.unit != right.unit:
                continue
            met = 0.5 if _MEETS.search(text) or _MISSES.search(text) else 2.4
            for count in {more, fewer, len(rows) - more, len(rows) - fewer}:
                yield Candidate(count, met, f"rows in which {left.name} and {right.name} compare so")
