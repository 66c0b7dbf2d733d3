"""What there is none of: `out of stock`, `not in stock`, `sold out` mean that a number is zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.column_traits import column_holds_counts
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import Condition, NamePart
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyColumn

_OUT = frozenset(("out of", "free of", "short of", "devoid of"))
_RAN = frozenset(("run", "runs", "ran", "running", "went", "gone"))
_UNAVAILABLE = frozenset(("unavailable", "soldout"))
_IN_STOCK = frozenset(("stock", "inventory", "available", "availability"))
"""Words in the names of columns that say how many pieces can be had."""


def read_zero_amounts(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with idioms for `none left` as a negation of the number that they are about."""
    made: list[TaggedItem] = []
    at = 0
    while at < len(items):
        item, following = items[at], items[at + 1] if at + 1 < len(items) else None
        if (
            item.text.lower() in _OUT
            and item.tag in "fpxu"
            and following is not None
            and _is_amount(following, vocabulary)
        ):
            if made and made[-1].text.lower() in _RAN and made[-1].tag in "ru":
                made.pop()
            if made and made[-1].tag == "x":
                made.pop()  # what is not out of stock is in stock
                made.append(TaggedItem("p", "in", "in"))
            else:
                made.append(TaggedItem("x", item.text, None, joined=item.joined))
            at += 1
            continue
        gone = item.text.lower() == "sold" and following is not None and following.text.lower() == "out"
        if (gone or (item.tag == "u" and item.text.lower() in _UNAVAILABLE)) and (stock := _stock_of(vocabulary)):
            text = f"{item.text} out" if gone else item.text
            place = NamePart(stock.name, (Meaning(stock.table, stock.name),))
            none = [TaggedItem("x", text, None), TaggedItem("C", stock.name, place)]
            at += 2 if gone else 1
            noun = items[at] if at < len(items) and items[at].tag == "T" else None
            # "Sold out products" are products without stock.
            made += [noun, *none] if noun is not None else none
            at += noun is not None
            continue
        made.append(item)
        at += 1
    return made


def _is_amount(item: TaggedItem, vocabulary: Vocabulary) -> bool:
    if item.tag != "C" or not isinstance(item.data, NamePart) or not item.data.columns:
        return False
    columns = [vocabulary.table(m.table).column(m.column) for m in item.data.columns if m.column]
    return bool(columns) and all(_may_be_zero(c) or c.kind == "number" for c in columns[:1])


def _stock_of(vocabulary: Vocabulary) -> VocabularyColumn | None:
    """Return the only number of the source that says how many pieces can be had."""
    columns = [c for table in vocabulary.tables for c in table.columns if c.kind == "number" and _IN_STOCK & {*c.words}]
    return columns[0] if len(columns) == 1 and _may_be_zero(columns[0]) else None


def _may_be_zero(column: VocabularyColumn) -> bool:
    numbers = isinstance(column.low, int | float) and not isinstance(column.low, bool)
    return column.flag is None and column_holds_counts(column) and numbers and column.low <= 0  # type: ignore[operator]


def zero_condition(condition: Condition, column: VocabularyColumn) -> Condition | None:
    """Return `no stock` as a comparison with zero, if the number may be zero and the words do not say `missing`."""
    if condition.kind != "null" or condition.said == "missing" or not _may_be_zero(column):
        return None
    return replace(condition, kind="compare", op="=" if column.low == 0 else "<=", values=(0,))


def zero_note(condition: Condition, column: VocabularyColumn) -> str:
    """Return how `no stock` is read, and what happens to rows of which the number is not known."""
    read = f"`{condition.text}` is taken as `{column.name}` {condition.op} 0"
    rows = f"{column.nulls:,} rows have" if column.nulls > 1 else "one row has"
    return f"{read}; {rows} no `{column.name}` and are left out." if column.nulls else f"{read}."


def says_missing(items: Sequence[TaggedItem]) -> str:
    """Return `missing` if the words ask for an unknown value rather than for none: `unknown stock`; else ''."""
    return "missing" if any(item.tag == "x" and item.data == "missing" for item in items) else ""
