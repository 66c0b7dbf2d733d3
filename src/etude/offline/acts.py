"""Verbs that name the rows of a table: `customers who ordered in 2025` have orders of 2025."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.joins import join_hops
from etude.offline.operator_words import IDLE, PRESENT
from etude.offline.phrase_index import HEAD, Meaning, phrase_index_of
from etude.offline.question_parts import NamePart
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyColumn
from etude.offline.words import stem_word, verb_root

_NOUNS: dict[str, tuple[str, ...]] = {
    "pay": ("payment",),
    "buy": ("purchase", "order", "sale"),
    "purchase": ("purchase", "order", "sale"),
    "order": ("order", "purchase"),
    "sell": ("sale",),
    "borrow": ("loan", "rental"),
    "lend": ("loan",),
    "subscribe": ("subscription",),
    "reserve": ("reservation",),
    "register": ("registration",),
    "donate": ("donation",),
    "attend": ("attendance",),
}
"""What the rows of a verb are called, if the noun does not have the stem of the verb."""
_TRADE = frozenset(("buy", "purchase", "order", "sell", "place", "sale"))
"""Verbs that one date tells of: what was ordered on a day was also bought and sold on it."""
_LIGHT = frozenset(
    """
    get gets got have had receive received take takes took taken come comes came give gave do did work worked use used
    see saw
    """.split()  # noqa: SIM905
)
"""Verbs that say of a thing only that it is there: `the orders that we got in May`."""
_BEGINNINGS = frozenset("birth birthday dob hire join signup registration membership enrollment start".split())  # noqa: SIM905
"""Nouns in the names of date columns that tell what happened, as participles do."""


def verb_present_form(verb: str) -> str:
    """Return the verb as in `to order`, for `ordered` and `paid`."""
    word = verb.lower()
    known = {stem_word(noun): noun for noun in _NOUNS}
    return PRESENT.get(word) or known.get(stem_word(word)) or word


def find_act_tables(verb: str, vocabulary: Vocabulary) -> dict[str, Meaning]:
    """Return the tables whose rows say that something was done: `visits` for visited, `payments` for paid."""
    index = phrase_index_of(vocabulary)
    present = verb_present_form(verb)
    nouns = {p[0] for p in index.names if len(p) == 1 and len(p[0]) > 3 and verb_root(p[0]) == verb_root(present)}
    found: dict[str, Meaning] = {}
    for noun in (*sorted(nouns), *_NOUNS.get(present, ())):
        for meaning in index.names.get((noun,), ()):
            if meaning.column is None and not meaning.label and meaning.cost <= HEAD:
                found[meaning.table] = min(meaning, found.get(meaning.table, meaning), key=lambda m: m.cost)
    return found


def date_tells_act(column: VocabularyColumn, verb: str) -> bool:
    """Return whether the name of a date column has the verb: `ordered_at`, `order_date` for ordered."""
    present = verb_present_form(verb)
    stems = {stem_word(verb.lower()), stem_word(present), *map(stem_word, _NOUNS.get(present, ()))}
    return bool(stems & {stem_word(word) for word in column.words})


def date_tells_another_act(column: VocabularyColumn, verb: str) -> bool:
    """Return whether the name of a date column says that something else happened: `signed_up` for ordered."""
    words = [word for word in column.words if word.endswith("ed") or word in _BEGINNINGS or word in PRESENT]
    if not words or date_tells_act(column, verb):
        return False
    return not (verb_present_form(verb) in _TRADE and any(verb_present_form(word) in _TRADE for word in words))


def is_acting_verb(items: Sequence[TaggedItem], at: int) -> bool:
    """Return whether the item is a verb that says what happened; `ordered` before `by` begins an order."""
    item = items[at]
    if item.tag == "O" and item.text == "ordered":
        following = items[at + 1].tag if at + 1 < len(items) else "."
        names = following == "g" and items[at + 1].text in ("by", "grouped by")
        return at > 0 and following in "DVQW.&gG" and not names
    return item.tag == "r" and item.text.lower() not in IDLE | _LIGHT


def read_acts(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the rows of a verb before the time that says when: `ordered` orders `in 2025`."""
    made: list[TaggedItem] = []
    before: dict[int, TaggedItem] = {}
    for at, item in enumerate(items):
        acting = is_acting_verb(items, at)
        time = find_time_of_verb(items, at) if acting else None
        rows = _rows_of(items, at, vocabulary) if time is not None and items[time].tag in "DW" else None
        before |= {time: rows} if time is not None and rows is not None else {}
        made.extend([before[at]] if at in before else [])
        made.append(replace(item, tag="r", data="order") if acting and item.tag == "O" else item)
    return made


def find_time_of_verb(items: Sequence[TaggedItem], at: int) -> int | None:
    """Return where a time or period says when a verb was done; None if another noun or verb is closer to it."""
    for place in range(at + 1, len(items)):
        if items[place].tag in "DWGt":
            return place
        if items[place].tag not in "pgVQN" and items[place].text not in ("for", "with"):
            return None
    return None


def _rows_of(items: Sequence[TaggedItem], at: int, vocabulary: Vocabulary) -> TaggedItem | None:
    """Return the table that the verb names, if the noun before it has rows there and no such date of its own."""
    verb = items[at].text
    nouns = [item for item in items[:at] if item.tag == "T"]
    if not nouns or any(item.tag == "x" for item in items[:at]):
        return None
    owners = {m.table for m in nouns[-1].data.tables if m.cost <= 1}
    found = find_act_tables(verb, vocabulary)
    if len(owners) != 1 or {*found} & {m.table for noun in nouns for m in noun.data.tables if m.cost <= 1}:
        return None
    (owner,) = owners
    dates = [c for c in vocabulary.table(owner).columns if c.kind in ("date", "timestamp")]
    if any(date_tells_act(column, verb) for column in dates):
        return None
    near = {hop.to_table for hop in join_hops(vocabulary).get(owner, ()) if not hop.to_one and hop.to_table in found}
    if len(near) != 1:
        return None
    return TaggedItem("T", verb, NamePart(verb, (Meaning(near.pop()),)), plural=True)
