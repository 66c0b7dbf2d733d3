"""The best of all rows: `most points in a season` is the highest number of points that any row has."""

from __future__ import annotations

from collections.abc import Sequence

from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import Token

_ANY = frozenset(("a", "an", "any", "one", "single"))


def read_best_row(items: list[TaggedItem], tokens: Sequence[Token], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return `most points in a season` as the highest points, if each season is part of the key of its rows.

    Otherwise a season may have many rows, and nothing says whether to add them up: the words stay unexplained.
    """
    said = [item for item in items if item.tag != "."]
    words = [token.low for token in tokens if token.kind == "word"]
    if "".join(item.tag for item in said) not in ("MCpC", "SCpC") or not {*words[-3:-1]} & _ANY:
        return items
    best, amount, inside, part = said
    keys = {(table.name, column) for table in vocabulary.tables if len(table.key) > 1 for column in table.key}
    tables = {m.table for m in part.data.columns if (m.table, m.column) in keys}
    held = [m for m in amount.data.columns if m.table in tables]
    if best.tag == "M" and best.data not in ("desc", "asc"):
        return items
    if not held or amount.data.columns[0] not in held:
        return [best, amount, TaggedItem("u", f"{inside.text} a {part.text}")]
    direction = best.data[0] if best.tag == "S" else best.data
    return [TaggedItem("A", best.text, "max" if direction == "desc" else "min"), amount]
