"""Groups of tables for a catalog of many: by schema, or else by the first word of their names, or else in parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from etude.catalog.model import TableProfile
from etude.catalog.page.html_markup import make_html_anchors

MANY = 30
"""With more tables than this, the page groups them and shows one table at a time."""
SMALLEST = 3
"""A word that fewer tables share does not make a group."""
OTHERS = "other tables"
PART = 50
"""Tables of a group if their names have nothing in common."""


def group_tables(tables: Sequence[TableProfile]) -> list[tuple[str, list[TableProfile]]]:
    """Return the tables in named groups, in alphabetical order; one unnamed group if there are few tables."""
    if len(tables) <= MANY:
        return [("", list(tables))]
    by_schema = len({t.name.rpartition(".")[0] for t in tables}) > 1
    # A word that all names start with does not tell them apart.
    first, last = (pick(t.name.rpartition(".")[2] for t in tables) for pick in (min, max))
    same = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), len(first))
    start = first.rfind("_", 0, same) + 1
    words = {t.name: _first_word(t.name.rpartition(".")[2][start:]) for t in tables}
    counts = Counter(words.values())
    groups: dict[str, list[TableProfile]] = {}
    for table in tables:
        word = words[table.name]
        if by_schema:
            label = table.name.rpartition(".")[0] or OTHERS
        else:
            label = word if word and counts[word] >= SMALLEST else OTHERS
        groups.setdefault(label, []).append(table)
    if len(groups) == 1:  # neither schemas nor common words
        parts = [list(tables[i : i + PART]) for i in range(0, len(tables), PART)]
        return [(f"{part[0].name} to {part[-1].name}", part) for part in parts]
    return sorted(groups.items(), key=lambda g: (g[0] == OTHERS, g[0].lower()))


def table_group_anchors(groups: Sequence[tuple[str, list[TableProfile]]]) -> dict[str, str]:
    """Return the anchor of each group in the list of tables."""
    return make_html_anchors((label for label, _ in groups), "g.")


def _first_word(name: str) -> str:
    found = re.match(r"[A-Za-z0-9]+?(?=_|-|(?<=[a-z])(?=[A-Z]))", name)
    return found[0].lower() if found else ""
