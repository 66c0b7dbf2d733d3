"""What sells best: `which product sold the most`, `what sells best`, `our best sellers`."""

from __future__ import annotations

from etude.offline.column_traits import IDENTIFYING, is_numeric_column
from etude.offline.phrase_index import PhraseIndex
from etude.offline.question_parts import Direction, NamePart, Rank
from etude.offline.resolver import MONEY
from etude.offline.revenue import rows_are_sales
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable

SALES = "!sales"
"""Stands for what is sold, among the attributes that an adjective implies."""
_SELLING = frozenset(("sell", "sells", "sold", "selling"))
_ENDS: dict[str, Direction] = {"most": "desc", "best": "desc", "fewest": "asc", "least": "asc", "worst": "asc"}
_UNITS = frozenset(("quantity", "unit", "units", "sold", "copy"))
_GOODS = (("product",), ("item",), ("article",))
"""Nouns for what a shop sells, if the question names none."""


def read_selling(items: list[TaggedItem], index: PhraseIndex) -> list[TaggedItem]:
    """Return `product sold the most` as the product, and its rank by what is sold; also if no noun is said."""
    for at, item in enumerate(items):
        if item.tag == "S" and item.data[1] == SALES and not _noun_at(items, at + 1):
            return [*items[: at + 1], *_goods(index, item.text.endswith("s")), *items[at + 1 :]]
        end = _ENDS.get(items[at + 1].text) if _sells(item) and at + 1 < len(items) else None
        following = items[at + 2].tag if at + 2 < len(items) else "."
        if end is None or following not in ".DpgGWr":
            continue
        if following == "p" and items[at + 2].text == "of" and at + 3 == len(items):
            items = items[:-1]  # "which product do we sell the most of"
        noun = [items[at - 1]] if at and _noun_at(items, at - 1) else _goods(index, False)
        if not noun or (at and not _noun_at(items, at - 1)):
            return items
        text = f"{item.text} {items[at + 1].text}"
        rank = Rank(end, None, (SALES,), text, of=noun[0].data)
        return [*items[: max(at - 1, 0)], *noun, TaggedItem("Z", text, rank), *items[at + 2 :]]
    return items


def _sells(item: TaggedItem) -> bool:
    return item.tag == "r" and item.text.lower() in _SELLING


def _noun_at(items: list[TaggedItem], at: int) -> bool:
    return at < len(items) and items[at].tag in "TCV"


def _goods(index: PhraseIndex, plural: bool) -> list[TaggedItem]:
    """Return the column of what is sold, if the data has exactly one."""
    found = [m for phrase in _GOODS for m in index.names.get(phrase, ()) if m.column is not None and m.cost <= 1]
    text = _GOODS[0][0]
    if len({(m.table, m.column) for m in found}) != 1:
        return []
    return [TaggedItem("C", text, NamePart(text, tuple(found[:1])), plural)]


def sold_units(table: VocabularyTable) -> list[VocabularyColumn]:
    """Return the columns that say how many were sold, not how many there are."""
    pieces = {c.formula.factors[0] for c in table.derived if c.formula is not None and not c.formula.doubt}
    named = [c for c in table.columns if _UNITS & {*c.words} or c.name in pieces]
    found = [c for c in named if not MONEY & {*c.words} and is_numeric_column(c)]
    sales = rows_are_sales(table, dated=True)
    return [column for column in found if sales or {"sold", "copy"} & {*column.words}]


def repeated_number(table: VocabularyTable, noun: str) -> str:
    """Return the column with the numbers of such things, if several rows share one: `order_id` of lines; else ''."""
    for column in table.columns:
        numbered = column.words[:-1] == (noun,) and column.words[-1] in IDENTIFYING
        if numbered and column.distinct < table.rows - column.nulls:
            return column.name
    return ""
