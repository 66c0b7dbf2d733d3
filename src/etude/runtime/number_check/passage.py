"""A text as the check reads it: sentences, labels near each number, columns that words name, and periods of time."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from etude.plurals import singular_of_plural
from etude.runtime.number_check.evidence import EvidenceColumn, EvidenceTable, evidence_name_words
from etude.runtime.number_check.mentions import WORDS, Mention, Period, mention_word_set
from etude.runtime.number_check.other_names import other_names
from etude.runtime.number_check.periods import period_covers, written_periods

_LONGEST_SENTENCE = 2000
"""Characters of a sentence that are searched for words, once for each of its numbers."""
_SENTENCE_END = re.compile(
    r"\n+(?=\s*(?:[-*+>|#•]|\d+[.)]|$))|(?<=[.!?:;|*])\n+|\n\s*\n|"
    r"(?<=[.!?])(?<!\bvs\.)(?<!\bapprox\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bca\.)(?<!\bNo\.)[\"')*_]*\s+(?=[^\sa-zäöüß])(?![A-Z][a-z]{1,4}\.\s)"
)
_WORD = re.compile(r"[^\W_]+")
_JOINED = re.compile(
    r"[\s,&/()*_`'\"]*(?:and|or|und|et|y|e|oder|plus)?[\s*_`'\"]*(?:the|der|die|das|la|le|les|el)?\s*", re.I
)
_BREAK = re.compile(
    r"[,;:]|[.](?=\s)|\b(?:and|while|but|whereas|followed|versus|against|compared|und|et|y|mais|pero|"
    r"aber)\b|[()\u2014\u2013]",
    re.I,
)
_BELONGS_AFTER = re.compile(
    r"[\s)*_]*(?:[^\W\d]+\s+){0,3}?(?:in|from|for|by|of|at|on|to|aus|von|im|en|de|du|des|"
    r"del)\s+(?:the\s+)?[*_`\"'(]*$|\s*\(\s*$",
    re.I,
)
_APPOSED = re.compile(r"[\s*_”“\"'\u2019]*(?:[(]\s*|from\s+|in\s+(?:the\s+)?|(?<=['\u2019])s\s+)[*_”“\"'\u2018]*", re.I)
_DIRECT = re.compile(
    r"[\s(:*_,'\u2019|=$€£-]*(?:s\b)?(?:[\s(:*_,|=$€£-]*\b(?:with|at|of|had|has|have|made|makes|earned|is|"
    r"was|are|were|by|for|from|in|"
    r"on|only|about|around|roughly|nearly|almost|over|just|a|an|the|sold|selling|took|takes|gets|got|"
    r"leads|follows|comes|next|"
    r"second|third|first|close|behind|then|total|reached|scored|recorded|brought|spent|paid|pays|totaling|"
    r"totalling|it|its|"
    r"still|even|also|mit|hat|avec|con|tiene)\b)*[\s(:*_,|=$€£-]*",
    re.I,
)
_SHIFT = re.compile(
    r"\b(?:day|week|month|quarter|year) (?:after|before)\b|\bthe (?:next|following|previous|preceding|prior)\b|"
    r"\b(?:second|third|fourth|fifth|last|first) place\b|\brunners?-up\b|\bversus\b|"
    r"\binstead of\b|\brather than\b|\bvs\b|\bcompared (?:with|to)\b|"
    r";\s|\bthe\s+(?:overall\s+)?(?:average|mean|median)\b|"
    r"\bsteps? of\b|\bthe (?:second|third)\b|\b(?:without|excluding|except|ignoring|apart from|besides)\b|"
    r"\b(?:than|above|below|over|under|from|to|of|versus|against)\s+(?:that of\s+)?the\s+(?:\w+\s+)?(?:lowest|highest|"
    r"smallest|largest|best|worst|cheapest|peak|average|mean|median|minimum|maximum|weakest|strongest|overall|next)\b",
    re.I,
)
_SPAN = re.compile(r"\s*(?:[-\u2013\u2192]|to|and|till?|until|through|bis|und|à|a|al?)\s*", re.I)
_QUARTER = re.compile(r"\bquarters?\b|\bQ[1-4]\b|\bquartal|\btrimest", re.I)
_HALF = re.compile(r"\b(?:first|second) half\b|\bhalves\b|\bhalbjahr|\bsemest", re.I)
_FILLERS = mention_word_set("to the of a an")
_COMMON = mention_word_set(
    "other others total all none no yes unknown new old high low medium mean min max count std first last true false "
    "and the for per with from avg name date year month day week value top bottom best worst more less average median "
    "active open closed paid home free main local both each single one two three line label male female"
)
HOURS = mention_word_set("hour h hr stunde heure hora")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
STATISTICS = {
    "mean": ("mean", "average", "averages", "averaged", "avg"),
    "50%": ("median",),
    "std": ("std", "standard deviation", "sd"),
    "min": ("min", "minimum", "lowest", "smallest", "youngest", "cheapest"),
    "max": ("max", "maximum", "highest", "largest", "oldest", "biggest"),
    "count": ("count", "records", "rows", "observations"),
    "25%": ("first quartile", "lower quartile", "25th percentile"),
    "75%": ("third quartile", "upper quartile", "75th percentile"),
}


@dataclass(frozen=True)
class Label:
    """A place in the text that names rows of a table. A weak label is only part of a name, or a common word."""

    start: int
    end: int
    table: int
    rows: tuple[int, ...]
    strong: bool
    column: int = -1
    """The column that the label is from."""


@dataclass(frozen=True)
class Anchors:
    """The rows of one table that a number may refer to, with how far-fetched that is: 0 is the label next to it."""

    costs: dict[int, float]
    primary: frozenset[int]
    """The rows of the label next to the number."""
    strong: bool
    """Whether the label next to the number is a whole name."""
    named: bool = False
    """Whether the label next to the number is a whole name of several rows."""
    direct: bool = False
    """Whether only small words stand between that label and the number."""
    conflict: bool = False
    """Whether two labels next to the number, such as a name and its city, are of different rows."""


class Passage:
    """An answer, its numbers and the tables that they are checked against."""

    def __init__(self, text: str, mentions: Sequence[Mention], tables: list[EvidenceTable], question: str) -> None:
        self.text, self.mentions, self.tables, self.question = text, mentions, tables, question
        self.starts = [0, *(match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text))]
        self.labels = sorted(_find_labels(text, mentions, tables), key=lambda label: (label.start, -label.end))
        self.misdated = _misdated(self, mentions)
        """The dates of another row than the only one that their sentence names."""
        wrong = {(m.start, m.end) for m in self.misdated}
        self.labels = [x for x in self.labels if x.column >= 0 or (x.start, x.end) not in wrong]
        self.asked = list(_find_labels(question, (), tables))
        self._anchors: dict[tuple[int, int, int], Anchors] = {}

    def sentence(self, position: int) -> int:
        """Return the index of the sentence at a position."""
        return bisect_right(self.starts, position) - 1

    def bounds(self, index: int) -> tuple[int, int]:
        """Return the start and the end of a sentence."""
        return self.starts[index], self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)

    def sentence_text(self, index: int) -> str:
        """Return the text of a sentence, or the beginning of a very long one; empty before the first."""
        if index < 0:
            return ""
        start, end = self.bounds(index)
        return self.text[start : min(end, start + _LONGEST_SENTENCE)]

    def around(self, mention: Mention, before: int, after: int) -> tuple[str, str]:
        """Return the text before and after a number, within its sentence."""
        start, end = self.bounds(self.sentence(mention.start))
        return (
            self.text[max(start, mention.start - before) : mention.start],
            self.text[mention.end : min(end, mention.end + after)],
        )

    def labels_in(self, index: int, table: int | None = None) -> list[Label]:
        """Return the labels of a sentence."""
        start, end = self.bounds(index) if index >= 0 else (0, 0)
        return [x for x in self.labels if start <= x.start < end and (table is None or x.table == table)]

    def spans(self, index: int, table: int) -> list[frozenset[int]]:
        """Return the rows from one that a sentence names to the next that it names: `from January to March`."""
        labels = [x for x in self.labels_in(index, table) if len(x.rows) == 1]
        pairs = [(a.rows[0], b.rows[0]) for a, b in pairwise(labels) if _SPAN.fullmatch(self.text[a.end : b.start])]
        spans = [frozenset(range(a, b + 1)) for a, b in pairs if a + 1 < b]
        spans += [frozenset(range(a, b)) for a, b in pairs if a + 2 < b]  # `from 7 to 9` may end at 9 o'clock.
        months = self.tables[table].months
        for pattern, size in ((_QUARTER, 3), (_HALF, 6)):
            if months and pattern.search(self.sentence_text(index)):
                spans += [frozenset(months[first : first + size]) for first in range(0, 12, size)]
        return spans

    @cached_property
    def all_spans(self) -> dict[int, list[frozenset[int]]]:
        """The spans of all sentences, by table."""
        return {t: [s for i in range(len(self.starts)) for s in self.spans(i, t)] for t in range(len(self.tables))}

    @cached_property
    def named_rows(self) -> dict[int, list[int]]:
        """The rows of each table that a label of the text names alone, in the order of the text."""
        found: dict[int, list[int]] = {}
        for label in self.labels:
            if len(label.rows) == 1 and label.rows[0] not in found.setdefault(label.table, []):
                found[label.table].append(label.rows[0])
        return found

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\n", self.text))]

    def header(self, mention: Mention) -> str:
        """Return the heading above a number in a Markdown table; empty elsewhere."""
        line = bisect_right(self._lines, mention.start) - 1
        start = self._lines[line]
        if not self.text[start:].lstrip().startswith("|"):
            return ""
        cell = self.text[start : mention.start].count("|")
        while line and self.text[self._lines[line - 1] :].lstrip().startswith("|"):
            line -= 1
        head = self.text[self._lines[line] :].split("\n")[0].split("|")
        return head[cell] if cell < len(head) else ""

    def _above(self, mention: Mention, table: int) -> list[Label]:
        """Return the labels in the heading above a number: the columns of a Markdown table may be rows of a result."""
        header = self.header(mention).strip()
        if not header:
            return []
        at = self.text.rfind("\n\n", 0, mention.start) + 1
        start = self.text.find(header, at, mention.start)
        return [x for x in self.labels if x.table == table and start <= x.start and x.end <= start + len(header)]

    def anchors(self, mention: Mention, table: int) -> Anchors:
        """Return the rows that a number may refer to, by the labels around it."""
        key = (mention.start, mention.end, table)
        if key not in self._anchors:
            self._anchors[key] = self._find_anchors(mention, table)
        return self._anchors[key]

    def _find_anchors(self, mention: Mention, table: int) -> Anchors:
        index = self.sentence(mention.start)
        own = [x for x in self.labels_in(index, table) if x.end <= mention.start or x.start >= mention.end]
        own = own or self._above(mention, table)
        costs: dict[int, float] = {}

        def allow(labels: Sequence[Label], cost: float) -> None:
            for label in labels:
                extra = 0.0 if len(label.rows) == 1 else 0.6
                for row in label.rows[:60]:
                    costs[row] = min(costs.get(row, 9.0), cost + extra)

        first, second = self._nearest(mention, own)
        first, conflict = self._intersect(first, own)
        allow(first, 0.0)
        allow(second, 0.9)
        allow(own[:1], 0.8)
        allow(own, 1.2)
        if not own:
            previous = self.labels_in(index - 1, table)
            allow(previous[-1:], 0.4)
            allow(previous, 0.9)
            allow([x for x in self.asked if x.table == table], 0.7)
            for back in range(2, 5):
                allow(self.labels_in(index - back, table) if index - back >= 0 else [], 1.5)
        else:
            same = re.search(r"\bsame\b", self.sentence_text(index), re.I)
            allow(self.labels_in(index - 1, table), 0.6 if same else 1.6)
            allow([x for x in self.asked if x.table == table], 1.4)
        primary = frozenset(row for label in first for row in label.rows)
        strong = bool(first) and all(x.strong and len(x.rows) == 1 for x in first)
        shifted = self._is_shifted(mention, first)
        named = len(first) == 1 and first[0].strong and len(first[0].rows) > 1 and not shifted
        strong = strong and not shifted
        return Anchors(costs, primary, strong, named, self._is_direct(mention, first), conflict)

    def is_unnamed(self, mention: Mention, table: int, row: int) -> bool:
        """Return whether a row has a name that the text never mentions, while the sentence names other rows."""
        column = self.tables[table].name_column
        if column is None or self.tables[table].rows < 2:
            return False
        if any(x.table == table and row in x.rows for x in [*self.labels, *self.asked]):
            return False
        index = self.sentence(mention.start)
        named = [x for x in self.labels_in(index, table) if x.column == column and x.end <= mention.start]
        return bool(named) and _SHIFT.search(self.text[named[-1].end : mention.start]) is None

    def _is_shifted(self, mention: Mention, first: list[Label]) -> bool:
        """Return whether the words before a number speak of the row after a label: `the day after had 22`."""
        before = [x.end for x in first if x.end <= mention.start]
        return bool(before) and _SHIFT.search(self.text[max(before) : mention.start]) is not None

    def _is_direct(self, mention: Mention, first: list[Label]) -> bool:
        if not first:
            return False
        before = [x for x in first if x.end <= mention.start]
        gap = self.text[max(x.end for x in before) : mention.start] if before else ""
        if not before:
            gap = self.text[mention.end : min(x.start for x in first)]
        return len(gap) < 40 and _DIRECT.fullmatch(gap) is not None

    def _intersect(self, first: list[Label], own: list[Label]) -> tuple[list[Label], bool]:
        """Combine labels of two columns that stand together, as in `Ana (Madrid)`, and say whether they disagree."""
        if len(first) != 1:
            return first, False
        [label] = first
        for other in sorted(own, key=lambda x: abs(x.start - label.start)):
            near, far = (other, label) if other.start < label.start else (label, other)
            if (
                other.column == label.column
                or near.end > far.start
                or not _APPOSED.fullmatch(self.text[near.end : far.start])
            ):
                continue
            rows = tuple(row for row in label.rows if row in other.rows)
            if not rows:
                return [near], near.strong and far.strong
            label = Label(near.start, far.end, label.table, rows, near.strong or far.strong, near.column)
        return [label], False

    def _nearest(self, mention: Mention, own: list[Label]) -> tuple[list[Label], list[Label]]:
        """Return the labels that a number most likely belongs to, and those that it may also belong to."""
        before = [x for x in own if x.end <= mention.start]
        after = [x for x in own if x.start >= mention.end]
        left = self._group(before[::-1], backwards=True)
        right = self._group(after, backwards=False)
        between = bool(right) and any(
            mention.end <= m.start < min(x.start for x in right)
            for m in self.mentions
            if m.kind not in ("date", "ordinal")
        )
        if not left or not right:
            apart = between or (
                not left
                and bool(right)
                and re.search("[;,]", self.text[mention.end : min(x.start for x in right)]) is not None
            )
            return (left or right, []) if left or not apart else ([], right)
        gap_left = self.text[max(x.end for x in left) : mention.start]
        gap_right = self.text[mention.end : min(x.start for x in right)]
        breaks_left, breaks_right = len(_BREAK.findall(gap_left)), len(_BREAK.findall(gap_right))
        used = any(max(x.end for x in left) <= m.start < mention.start for m in self.mentions if m.kind != "date")
        if _BELONGS_AFTER.match(gap_right) and not re.match(r"\W*$", gap_left):
            if used or breaks_left:
                return right, left
            return [*left, *right], []
        if between or breaks_left <= breaks_right:
            return left, right
        return (right, left) if used else ([*left, *right], [])

    def _group(self, labels: list[Label], backwards: bool) -> list[Label]:
        """Return the first label and those that are listed with it, as in `North, South and East`."""
        group: list[Label] = []
        for label in labels:
            if group and label.column != group[0].column:
                break
            if group:
                near, far = (label, group[-1]) if backwards else (group[-1], label)
                if far.start >= near.end and not _JOINED.fullmatch(self.text[near.end : far.start]):
                    break
            group.append(label)
        return group


def _misdated(passage: Passage, mentions: Sequence[Mention]) -> list[Mention]:
    found = []
    for mention in mentions:
        if mention.period is None:
            continue
        labels = passage.labels_in(passage.sentence(mention.start))
        if mention.period.day is None:
            if _is_misdated(passage, mention, labels):
                found.append(mention)
            continue
        for t, table in enumerate(passage.tables):
            names = [x for x in labels if x.table == t and x.column >= 0 and x.strong]
            if table.kind != "result" or table.printed or len(names) != 1 or len(names[0].rows) != 1:
                continue
            [row] = names[0].rows
            for column in table.columns:
                rows = {r for r, known in column.periods.items() if period_covers(mention.period, known)}
                own = any(period_covers(mention.period, p) for p in (c.periods.get(row) for c in table.columns) if p)
                if rows and not own and row in column.periods:
                    found.append(mention)
    return found


_IN_BRACKETS = re.compile(r"[\s*_”\"'\u2019]*\(")
_OF_ROW = re.compile(r"[\s*_”\"'\u2019]*(?:[(,]\s*)?(?:[^\W\d]+[\s,]+){0,4}[(*_]*")


def _is_misdated(passage: Passage, mention: Mention, labels: list[Label]) -> bool:
    """Return whether a month or a year right after the name of a row is only found in other rows of that column."""
    period = mention.period
    for t, table in enumerate(passage.tables):
        before = [x for x in labels if x.table == t and x.column >= 0 and x.end <= mention.start]
        names = [x for x in before if len(x.rows) == 1]
        if period is None or table.kind != "result" or table.printed or not names:
            continue
        row = names[-1].rows[0]
        gap = passage.text[names[-1].end : mention.start]
        if any(row not in x.rows for x in before if x.start >= names[-1].start) or len(gap) > 50:
            continue
        if not _OF_ROW.fullmatch(gap) or re.search(r"\b(?:since|until|after|before|by|than|from|to|and)\b", gap):
            continue
        words, beside = evidence_name_words(gap), period.month is not None or _IN_BRACKETS.fullmatch(gap)
        dated = [x for x in table.columns if x.periods and (beside or words & (x.words - {"year"}))]
        held = {r for column in dated for r, known in column.periods.items() if period_covers(period, known)}
        if held and row not in held and any(row in column.periods for column in dated):
            return True
    return False


def _find_labels(text: str, mentions: Sequence[Mention], tables: list[EvidenceTable]) -> Iterator[Label]:
    words = [(m.group().lower(), m.start(), m.end()) for m in _WORD.finditer(text) if m.group().lower() not in _FILLERS]
    keys = [_stem(word) for word, _, _ in words]
    for t, table in enumerate(tables):
        aliases = passage_table_aliases(table)
        longest = max((len(alias) for alias in aliases), default=0)
        at = 0
        while at < len(words):
            for length in range(min(longest, len(words) - at), 0, -1):
                found = aliases.get(tuple(keys[at : at + length]))
                if found is None:
                    continue
                start, end = words[at][1], words[at + length - 1][2]
                rows, strong, written, column = found
                if len(written) <= 3 and _is_short_word(text[start:end], written):
                    continue
                numeric = keys[at].isdigit() if length == 1 else text[start].isdigit()
                if not numeric and any(m.start <= start < m.end for m in mentions if m.kind not in ("date", "ordinal")):
                    continue
                yield Label(start, end, t, rows, strong, column)
                at += length - 1
                break
            else:
                pair = aliases.get((words[at][0] + keys[at + 1],)) if at + 1 < len(words) else None
                if pair is not None and len(pair[2]) > 5:
                    yield Label(words[at][1], words[at + 1][2], t, pair[0], pair[1], pair[3])
            at += 1
        yield from _period_labels(text, mentions, t, table)
        yield from _short_names(text, t, table)
        yield from _numbered_rows(text, t, table)
        yield from _hours(text, t, table)
        for match in re.finditer(r"\bnumber (\d{1,2}|[a-z]+)\b", text, re.I):
            place = int(match[1]) if match[1].isdigit() else WORDS.get(match[1].lower(), 0)
            if 1 <= place <= table.rows and table.kind == "result" and not table.printed:
                yield Label(match.start(), match.end(), t, (place - 1,), False)
        if table.printed:
            yield from _statistic_labels(text, t, table)


def _is_short_word(word: str, label: str) -> bool:
    """Return whether a short word of the text is not the label: `in` is not `IN`, but `web` is `web`."""
    return word.islower() and word == label.lower() and (word != label or word in _COMMON or word in _SHORT_WORDS)


_SHORT_WORDS = mention_word_set("a an as at be by do go he if in is it me my of off on or our out so to up us we")


def passage_table_aliases(table: EvidenceTable) -> dict[tuple[str, ...], tuple[tuple[int, ...], bool, str, int]]:
    """Return the names of the rows of a table: whole texts, and words that only one of them has."""
    if table.aliases is not None:
        return table.aliases
    found: dict[tuple[str, ...], tuple[tuple[int, ...], bool, str, int]] = {}
    columns: dict[str, int] = {}
    for c, column in enumerate(table.columns):
        for value in column.values:
            if isinstance(value, str):
                columns.setdefault(value, c)
    parts: dict[str, set[str]] = {}
    by_value: dict[str, list[int]] = {}
    for value, rows in table.labels.items():
        by_value.setdefault(value, []).extend(rows)
    for value, rows in by_value.items():
        keys = tuple(_stem(w) for w in _WORD.findall(value.lower()) if w not in _FILLERS)
        if not keys or len(keys) > 8 or (len(keys) == 1 and value.isdigit()):
            continue
        strong = value.lower() not in _COMMON and len(value) > 1 and not (len(keys) == 1 and keys[0].isdigit())
        if keys in found:
            rows.extend(row for row in found[keys][0] if row not in rows)
        found[keys] = (tuple(sorted(rows)), strong, value, columns.get(value, -1))
        for key in set(keys) if len(keys) > 1 else ():
            parts.setdefault(key, set()).add(value)
    for key, values in parts.items():
        rows_of = {tuple(by_value[value]) for value in values}
        if len(rows_of) == 1 and len(key) >= 3 and key not in _COMMON and not key.isdigit() and (key,) not in found:
            value = min(values)
            code = any(c.isdigit() for c in key)
            found[(key,)] = (tuple(by_value[value]), code, key + "...", columns.get(value, -1))
    for key, values in parts.items():
        group = tuple(sorted({row for value in values for row in by_value[value]}))
        acronym = any(re.search(rf"\b{re.escape(key.upper())}\b", value) for value in values)
        if (
            1 < len(group) < table.rows
            and len(key) >= (3 if acronym else 4)
            and key not in _COMMON
            and (key,) not in found
        ):
            found[(key,)] = (group, False, key + "...", columns.get(min(values), -1))
    for value, rows in by_value.items():
        initials = "".join(re.findall(r"\b[A-Z]", value))
        if len(initials) >= 3 and (initials.lower(),) not in found:
            found[(initials.lower(),)] = (tuple(rows), False, initials, columns.get(value, -1))
    for value, rows in by_value.items():
        for name in other_names(value):
            keys = tuple(_stem(w) for w in _WORD.findall(name))
            found.setdefault(keys, (tuple(rows), True, name, columns.get(value, -1)))
    for c, column in enumerate(table.columns):
        if (thing := _id_of(column)) and len(set(column.numbers.values())) == len(column.numbers):
            for row, number in column.numbers.items():
                found.setdefault((thing, str(int(number))), ((row,), True, f"{thing} {int(number)}", c))
        for row, number in column.numbers.items() if column.is_key and passage_names_rows(column) else ():
            digits = str(int(number))
            same = found[(digits,)][0] if (digits,) in found else ()
            found[(digits,)] = ((*same, row), True, digits, c)
    table.aliases = found
    return found


_SHORT_WORD = r"[^\W\d_]{2,6}\."


def _short_names(text: str, t: int, table: EvidenceTable) -> Iterator[Label]:
    """Find `Political Science` for the row `Pol. Sci.`, and `Comp. Sci.` for the row `Computer Science`."""
    if table.printed or table.rows > 400:
        return
    shortened = re.search(_SHORT_WORD, text) is not None
    for name, rows in table.labels.items():
        words = re.findall(r"[^\W\d_]+\.?", name)
        if not 1 < len(words) <= 5 or not (shortened or "." in name):
            continue
        column = next((c for c, x in enumerate(table.columns) if name in x.values), -1)
        forms = []
        for word in words:
            long = rf"{re.escape(word[:-1])}(?:\.|[^\W\d_]*)" if word.endswith(".") else re.escape(word)
            forms.append(rf"(?:{long}|{re.escape(word[:3])}[^\W\d_]{{0,3}}\.)" if len(word) > 4 else long)
        for match in re.finditer(r"(?<!\w)" + r"[\s-]+".join(forms), text):
            if match.group() != name:
                yield Label(match.start(), match.end(), t, tuple(sorted(rows)), True, column)


def _numbered_rows(text: str, t: int, table: EvidenceTable) -> Iterator[Label]:
    """Find rows by their number: `claim 73` for a column `claim_header_id`, and the first cell of a Markdown line."""
    if table.printed or table.kind != "result":
        return
    for c, column in enumerate(table.columns):
        if not column.numbers or not (column.is_key or c == 0) or column.periods or not column.whole:
            continue
        rows = {value: row for row, value in column.numbers.items()}
        if len(rows) < len(column.numbers):
            continue
        things = "|".join(map(re.escape, sorted(w for w in column.words if len(w) > 2))) or "id"
        for pattern in (rf"\b(?:{things})s?\s+(?:id\s+|no\.?\s+|number\s+)?#?(\d{{1,12}})\b(?![.,]\d)", _FIRST_CELL):
            for match in re.finditer(pattern, text, re.I):
                if (row := rows.get(float(match[1]))) is not None:
                    yield Label(match.start(1), match.end(1), t, (row,), True, c)


_HOUR = re.compile(
    r"(?<![\d:.,])(\d{1,2})(?::00)?(?=(?:\s?[-\u2013]\s?\d{1,2}|\s(?:to|and|bis|und)\s\d{1,2})?(?P<form>\s?(?:[ap]\.?m\b|h\b|Uhr|o['\u2019]clock)|:00)?)"
)


_HOURS = re.compile(r"\b(?:hours?|from|between)\s(?:\d{1,2}\s?(?:[-\u2013]|to|and)\s?)?$", re.I)


def _hours(text: str, t: int, table: EvidenceTable) -> Iterator[Label]:
    """Find the rows of an hour: `17:00`, `5 p.m.`, `8 h`, and both ends of `7 to 9 a.m.`."""
    for c, column in enumerate(table.columns):
        if not column.words & HOURS or not column.is_key or table.kind != "result":
            continue
        rows = {value: row for row, value in column.numbers.items()}
        for match in re.finditer(r"\b(?:midnight|noon)\b", text, re.I):
            if (hour := 0 if match.group()[0] in "mM" else 12) in rows:
                yield Label(match.start(), match.end(), t, (rows[hour],), True, c)
        for match in _HOUR.finditer(text):
            form = match["form"] or (":00" if ":00" in match.group() else "")
            half = re.match(r"\s?([ap])", form)
            hour = int(match[1]) % 12 + (12 if half[1] == "p" else 0) if half else int(match[1])
            if (form or _HOURS.search(text[max(0, match.start() - 24) : match.start()])) and hour in rows:
                yield Label(match.start(), match.end(), t, (rows[hour],), True, c)


_FIRST_CELL = r"(?m)^[ \t]*\|[ *_]*(\d{1,12})[ *_]*\|"


def _id_of(column: EvidenceColumn) -> str:
    """Return `shop` for a column of whole numbers named `shop_id`; else empty."""
    words = re.split(r"[\W_]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column.name).lower())
    whole = bool(column.numbers) and column.whole and max(map(abs, column.numbers.values())) < 1e12
    return _stem(words[-2]) if len(words) > 1 and words[-1] in ("id", "no", "number", "nr") and whole else ""


def passage_names_rows(column: EvidenceColumn) -> bool:
    """Return whether the numbers of a key are long enough to be recognised as names, such as postcodes."""
    return all(value.is_integer() and 100 <= value < 1e12 for value in column.numbers.values()) and not column.periods


def _stem(word: str) -> str:
    """Return a word without its ending, so that `failed` is found as `fail`."""
    plain = singular_of_plural(word)
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    for ending in ("ing", "ed"):
        if plain.endswith(ending) and len(plain) - len(ending) >= 4:
            return plain[: -len(ending)]
    return plain


def _period_labels(text: str, mentions: Sequence[Mention], t: int, table: EvidenceTable) -> Iterator[Label]:
    dated = [column.periods for column in table.columns if column.periods]
    if not dated:
        return
    for start, end, period in written_periods(text, mentions):
        decade = text[start:end].endswith("0s") and period.year is not None
        for periods in dated:
            inside = tuple(
                row
                for row, other in periods.items()
                if (_decade(other) == _decade(period) if decade else period_covers(period, other))
            )
            if inside and (len(inside) < table.rows or table.rows == 1):
                yield Label(start, end, t, inside, len(inside) == 1 and not decade)
                break
    if table.moments:
        for match in re.finditer(rf"\b(?:{'|'.join(_WEEKDAYS)})s?\b", text, re.I):
            day = _WEEKDAYS.index(
                match.group().lower().removesuffix("s") if match.group()[-1] == "s" else match.group().lower()
            )
            rows = tuple(row for row, moment in table.moments.items() if moment.weekday() == day)
            if rows:
                yield Label(match.start(), match.end(), t, rows, False)


def _decade(period: Period) -> int | None:
    return period.year // 10 if period.year is not None else None


def _statistic_labels(text: str, t: int, table: EvidenceTable) -> Iterator[Label]:
    """Find the lines of `describe()` by other words for them: `average` for `mean`."""
    lines = {str(v).strip().lower(): row for row, v in enumerate(table.columns[0].values)}
    for label, row in list(lines.items()):
        for word in label.split():
            if word in ("median", "mean", "average", "std", "min", "max"):
                lines.setdefault("50%" if word == "median" else "mean" if word == "average" else word, row)
    for line, words in STATISTICS.items():
        if line in lines:
            for match in re.finditer(rf"\b(?:{'|'.join(words)})\b", text, re.I):
                yield Label(match.start(), match.end(), t, (lines[line],), False)
