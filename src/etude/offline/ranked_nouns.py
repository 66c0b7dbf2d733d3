"""Short wordings for numbers of rows: `top 3 cities by customers`, `how many customers signed up per year`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.joins import find_join_paths, join_path_leads_to_one
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary


def read_ranked_nouns(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the number of the rows that something is ranked by, and dated columns as verbs."""
    made = list(items)
    tags = "".join(item.tag for item in made)
    for at in range(len(made) - 3):
        _, thing, by, rows = made[at : at + 4]
        following = tags[at + 4 : at + 5] or "."
        if tags[at : at + 4] not in ("KCgT", "KTgT") or by.text != "by" or not rows.plural or following not in ".Dp":
            continue
        if _has_many(thing, rows, vocabulary):
            return [*made[: at + 3], TaggedItem("#", "number of", ""), *made[at + 3 :]]
    return [_as_verb(made, at, vocabulary) for at in range(len(made))]


def _has_many(thing: TaggedItem, rows: TaggedItem, vocabulary: Vocabulary) -> bool:
    """Return whether each of the rows has one such thing, so that things differ in how many rows they have."""
    counted = rows.data.tables[0].table
    owners = {m.table for m in thing.data.meanings[:1]}
    for owner in owners:
        if owner == counted:
            return thing.tag == "C"
        cost, paths = find_join_paths(vocabulary, counted, owner)
        return cost <= 2 and len(paths) == 1 and join_path_leads_to_one(paths[0])
    return False


def _as_verb(items: Sequence[TaggedItem], at: int, vocabulary: Vocabulary) -> TaggedItem:
    """`customers signed up per year`: the date is that of the verb, if a date of the rows is named like it."""
    item = items[at]
    period = [each.tag for each in items[at + 1 : at + 3]] == ["g", "t"] or [i.tag for i in items[at + 1 : at + 2]] == [
        "G"
    ]
    if item.tag != "C" or not period or not at or items[at - 1].tag != "T" or len(item.data.columns) != 1:
        return item
    (meaning,) = item.data.columns
    first = item.text.lower().split()[0]
    own = meaning.column is not None and meaning.table in {m.table for m in items[at - 1].data.tables}
    if not own or not first.endswith("ed"):
        return item
    dated = vocabulary.table(meaning.table).column(str(meaning.column)).kind in ("date", "timestamp")
    return replace(item, tag="r", text=first, data=first) if dated else item
