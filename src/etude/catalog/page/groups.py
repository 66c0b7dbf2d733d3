"""Groups of tables for a catalog of many: by schema, or else by the first word of their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from etude.catalog.model import TableProfile
from etude.catalog.page.markup import anchors

MANY = 30
"""With more tables than this, the page groups them and shows one table at a time."""
SMALLEST = 3
"""A word that fewer tables share does not make a group."""
OTHERS = "other tables"


def group_tables(tables: Sequence[TableProfile]) -> list[tuple[str, list[TableProfile]]]:
    """Return the tables in named groups, in alphabetical order; one unnamed group if there are few tables."""
    if len(tables) <= MANY:
        return [("", list(tables))]
    schemas = Counter(t.name.rpartition(".")[0] for t in tables)
    by_schema = len(schemas) > 1
    words = Counter(_first_word(t.name) for t in tables)
    groups: dict[str, list[TableProfile]] = {}
    for table in tables:
        word = _first_word(table.name)
        if by_schema:
            label = table.name.rpartition(".")[0] or OTHERS
        else:
            label = word if word and SMALLEST <= words[word] < len(tables) else OTHERS
        groups.setdefault(label, []).append(table)
    if len(groups) == 1:  # no schema and no common words: by the first letter
        groups = {}
        for table in tables:
            groups.setdefault(table.name[:1].upper(), []).append(table)
    return sorted(groups.items(), key=lambda g: (g[0] == OTHERS, g[0].lower()))


def group_anchors(groups: Sequence[tuple[str, list[TableProfile]]]) -> dict[str, str]:
    """Return the anchor of each group in the list of tables."""
    return anchors((label for label, _ in groups), "g.")


def _first_word(name: str) -> str:
    bare = name.rpartition(".")[2]
    found = re.match(r"[A-Za-z0-9]+?(?=_|-|(?<=[a-z])(?=[A-Z]))", bare)
    return found[0].lower() if found else ""
