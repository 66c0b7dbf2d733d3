"""Which column of a table a number speaks of, by the words near it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from etude.plurals import singular_of_plural
from etude.runtime.number_check.evidence import EvidenceColumn
from etude.runtime.number_check.mentions import Mention, mention_word_set

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch


_SYNONYMS = [
    mention_word_set(
        "revenue sale turnover income earn earned earning spend spent umsatz sold sell bring make made take took"
    ),
    mention_word_set("headcount people employee staff person head size"),
    mention_word_set("visit visitor traffic"),
    mention_word_set("price cost priced worth"),
    mention_word_set("unit sold quantity qty copy item"),
    mention_word_set("order bestellung commande pedido purchase"),
    mention_word_set("customer client kunde buyer"),
    mention_word_set("salary pay paid wage payroll pays"),
    mention_word_set("duration second minute hour time long take took last lasted wait ms millisecond"),
    mention_word_set("rating rated score star"),
    mention_word_set("return returned refund"),
    mention_word_set("churn churned left leave lost"),
    mention_word_set("invoice bill factura"),
    mention_word_set("respondent people chose person"),
    mention_word_set("volume share traded"),
    mention_word_set("close closed closing"),
    mention_word_set("goal scored scorer score"),
    mention_word_set("flow inflow outflow took"),
    mention_word_set("missing null empty"),
    mention_word_set("user people person signup visitor"),
    mention_word_set("trip ride journey"),
    mention_word_set("track song"),
]
MONEY_WORDS = mention_word_set(
    "revenue price amount cost sale value spend spent profit income turnover fee salary budget usd eur gbp total"
)


WORD = re.compile(r"[^\W\d_]+")
GENERIC_WORDS = mention_word_set(
    "name id key avg mean sum total n count num number of the per by value label line text a in"
)


def column_costs(search: NumberSearch, mention: Mention, t: int) -> dict[int, float]:
    """Return how far-fetched each measure of a table is, by the words near the number."""
    table, passage = search.tables[t], search.passage
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
    words = [{singular_of_plural(w) for w in WORD.findall(text.lower())} for _, text in places]
    costs: dict[int, float] = {}
    for c in measures:
        for (cost, _), found in zip(places, words):
            if search.column_words[t][c] & found:
                costs[c] = cost
                break
    named = bool(costs) and min(costs.values()) < 0.4
    certain = bool(costs) and min(costs.values()) == 0.0
    for c in measures:
        column = table.columns[c]
        costs.setdefault(c, 0.2 if len(measures) == 1 else 0.9 if named else 0.5)
        if certain and costs[c] > 0:
            costs[c] = max(costs[c], 0.7) + 0.8
        if mention.unit == "money" and column.words & MONEY_WORDS:
            costs[c] = max(0.0, costs[c] - 0.3)
        elif mention.unit == "money" and column.whole and any(o.words & MONEY_WORDS for o in table.columns):
            costs[c] += 2.0
    return costs


def widen_column_words(words: frozenset[str]) -> frozenset[str]:
    """Return words with their synonyms."""
    return words.union(*(group for group in _SYNONYMS if group & words))


def column_unit(column: EvidenceColumn) -> str:
    """Return the unit of a column: a unit of time, `percent`, or nothing."""
    return column.unit or ("percent" if column.is_percent and not column.is_fraction else "")
