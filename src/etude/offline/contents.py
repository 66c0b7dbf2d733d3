"""What contains what: `playlists that contain rock tracks` relates two tables, and is not a text in a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from etude.offline.tags import TaggedItem

_CONTAINING = frozenset(("contain", "contains", "containing"))


def read_contents(items: Sequence[TaggedItem]) -> list[TaggedItem]:
    """Return the items with `contain` between two tables as a verb that connects them."""
    made = list(items)
    for match in re.finditer("T(l)V*T", "".join(item.tag for item in made)):
        first, verb, last = made[match.start()], made[match.start(1)], made[match.end() - 1]
        same = {m.table for m in first.data.tables[:1]} & {m.table for m in last.data.tables[:1]}
        if verb.text in _CONTAINING and last.plural and not same:
            made[match.start(1)] = replace(verb, tag="r", data="contain")
    return made
