"""What is known while the numbers of one passage are looked for."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from functools import cached_property

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.column_costs import GENERIC_WORDS, column_costs, widen_column_words
from etude.runtime.number_check.derived_values import DerivedValues
from etude.runtime.number_check.mentions import SIZES, TIME_UNITS, Mention
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.passage import Passage
from etude.runtime.number_check.stated_units import stated_rate_base
from etude.runtime.number_check.wording import Wording


class NumberSearch:
    """Finds the candidates for the numbers of one passage."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.tables = passage.tables
        self.stated: dict[int, list[Operand]] = {}
        """Verified numbers by sentence, as operands for the numbers near them."""
        self.said: set[tuple[str, Decimal]] = set()
        """The kinds and values of numbers in earlier messages, and in the ranges that the schema shows."""
        self.active: dict[int, list[tuple[int, tuple[int, ...], str]]] = {}
        self.derived = DerivedValues(passage.tables, passage.named_rows, passage.all_spans)
        self._supported: dict[tuple[int, int], tuple[set[frozenset[int]], frozenset[int]]] = {}
        self._cues: dict[tuple[int, int], Wording] = {}
        self._sizes: dict[int, set[int]] = {}
        self._costs: dict[tuple[int, int, int], dict[int, float]] = {}
        self._said_steps: dict[tuple[int, int, bool, str], bool] = {}

    def record(self, mention: Mention, match: Candidate | None, value: float) -> None:
        """Keep a verified number as an operand for others; `match` is where it comes from, if that is known."""
        unit = (
            "percent" if mention.kind in ("percent", "points") else mention.unit if mention.unit in TIME_UNITS else ""
        )
        operand, like = (match.operand, match.like) if match else (None, None)
        base = operand or Operand(value, 0, 0, -1, -1, -1, frozenset(), mention.text)
        if operand is None and like is not None:
            base = replace(base, table=like.table, column=like.column, unit=like.unit)
        how = "stated" if operand is not None or mention.kind == "date" else "derived"
        kept = replace(
            base, value=value, unit=unit or base.unit, kind=how, what=mention.text, exact=None, at=mention.end
        )
        self.stated.setdefault(self.passage.sentence(mention.start), []).append(kept)
        self._supported.clear()

    def activate(self, mention: Mention, table: int, rows: frozenset[int], what: str) -> None:
        """Remember the rows that a verified number was computed from: others near it may be about the same ones."""
        if table >= 0 and 1 < len(rows) < self.tables[table].rows:
            group = (table, tuple(sorted(rows)), what)
            self.active.setdefault(self.passage.sentence(mention.start), []).append(group)

    def row_support(self, mention: Mention, table: int, rows: frozenset[int]) -> int:
        """Return how well the text supports that a number is about some rows.

        2: they are the rows of a label next to it, or those that another number near it was computed from;
        1: they are named in the sentence or the one before; 0: nothing says so.
        """
        key = (mention.start, table)
        if key not in self._supported:
            index = self.passage.sentence(mention.start)
            here = [x for x in self.passage.labels_in(index, table) if x.end <= mention.start or x.start >= mention.end]
            anchors = self.passage.anchors(mention, table)
            sets = {frozenset(x.rows) for x in here} | {
                frozenset(rows) for _, rows, _ in self.active_near(mention, table)
            }
            sets |= {anchors.primary, frozenset(row for x in here for row in x.rows)}
            sets |= set(self.passage.spans(index, table))
            before = self.passage.labels_in(index - 1, table)
            named = frozenset(row for x in [*here, *before] for row in x.rows)
            self._supported[key] = (sets, named)
        sets, named = self._supported[key]
        return 2 if rows in sets else 1 if rows <= named else 0

    def column_support(self, mention: Mention, table: int, *columns: int) -> int:
        """Return 1 if the text names one of some columns, or a verified number near this one is in it; else 0."""
        costs = self.column_costs(mention, table)
        index = self.passage.sentence(mention.start)
        near = {(o.table, o.column) for i in (index, index - 1) for o in self.stated.get(i, [])}
        return int(any(c >= 0 and (costs.get(c, 9.0) <= 0.3 or (table, c) in near) for c in columns))

    def sizes_near(self, index: int) -> set[int]:
        """Return the whole numbers of a sentence and of those beside it: how many rows it may speak of."""
        if index not in self._sizes:
            near = [m for m in self.passage.mentions if abs(self.passage.sentence(m.start) - index) <= 1]
            self._sizes[index] = {
                int(m.readings[0].value)
                for m in near
                if m.readings and m.kind == "number" and not m.unit and m.text.isalnum()
            }
            words = re.findall(r"[^\W\d_]+", self.passage.sentence_text(index).lower())
            self._sizes[index] |= {SIZES[word] for word in words if word in SIZES}
        return self._sizes[index]

    def active_near(self, mention: Mention, table: int) -> list[tuple[str, list[int], float]]:
        """Return the groups of rows that verified numbers near this one were computed from."""
        index = self.passage.sentence(mention.start)
        return [
            (f"the same rows ({what})", list(rows), cost)
            for back, cost in ((0, 0.3), (1, 0.6), (-1, 0.6))
            for t, rows, what in self.active.get(index - back, [])
            if t == table
        ]

    def wording(self, mention: Mention) -> Wording:
        """Return what the words around a number say."""
        key = (mention.start, mention.end)
        if key not in self._cues:
            self._cues[key] = self._read_cues(mention)
        return self._cues[key]

    def _read_cues(self, mention: Mention) -> Wording:
        before, after = self.passage.around(mention, 60, 50)
        sentence = self.passage.sentence_text(self.passage.sentence(mention.start))
        return Wording(sentence, f"{before} | {after}", after, before)

    def says(self, mention: Mention, step: str) -> bool:
        """Return whether the text says that a number is a mean, a difference or a sum."""
        key = (mention.start, mention.end, mention.signed, step)
        if key not in self._said_steps:
            index = self.passage.sentence(mention.start)
            before = f"{self.passage.question} {self.passage.sentence_text(index - 1)} {self.passage.header(mention)}"
            signed = mention.signed and step in ("difference", "change")
            self._said_steps[key] = signed or self.wording(mention).says(step, before)
        return self._said_steps[key]

    @cached_property
    def rate_base(self) -> float:
        """What a rate in the text is stated for; 1 if nothing is said."""
        return stated_rate_base(self.passage.text)

    def column_costs(self, mention: Mention, t: int) -> dict[int, float]:
        """Return how far-fetched each measure of a table is, by the words near the number."""
        key = (mention.start, mention.end, t)
        if key not in self._costs:
            self._costs[key] = column_costs(self, mention, t)
        return self._costs[key]

    @cached_property
    def column_words(self) -> list[list[frozenset[str]]]:
        """The words for each column of each table, with their synonyms."""
        return [[widen_column_words(column.words - GENERIC_WORDS) for column in table.columns] for table in self.tables]
