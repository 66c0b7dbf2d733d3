"""What is known while the numbers of one passage are looked for."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from etude.runtime.number_check.columns import GENERIC_WORDS, column_costs, widen
from etude.runtime.number_check.cues import Cues
from etude.runtime.number_check.mentions import TIME_UNITS, Mention
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.passage import Passage


class Search:
    """Finds the candidates for the numbers of one passage."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.tables = passage.tables
        self.stated: dict[int, list[Operand]] = {}
        """Verified numbers by sentence, as operands for the numbers near them."""
        self._costs: dict[tuple[int, int, int], dict[int, float]] = {}

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

    def column_costs(self, mention: Mention, t: int) -> dict[int, float]:
        """Return how far-fetched each measure of a table is, by the words near the number."""
        key = (mention.start, mention.end, t)
        if key not in self._costs:
            self._costs[key] = column_costs(self, mention, t)
        return self._costs[key]

    @cached_property
    def column_words(self) -> list[list[frozenset[str]]]:
        """The words for each column of each table, with their synonyms."""
        return [[widen(column.words - GENERIC_WORDS) for column in table.columns] for table in self.tables]
