"""Facts about a catalog that are computed once: a source has the same catalog object until its data change.

A question needs some of them several times, and with thousands of tables each takes milliseconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from etude.entities import Catalog

KEPT = 4
"""How many catalogs each function keeps its facts of."""
T = TypeVar("T")


def once_per_catalog(make: Callable[[Catalog], T]) -> Callable[[Catalog], T]:
    """Compute a value from a catalog once, and keep it for the catalogs that were used last.

    Catalogs are compared by identity: to compare or hash thousands of tables would take as long as the value.
    """
    kept: OrderedDict[int, tuple[Catalog, T]] = OrderedDict()
    lock = threading.Lock()

    @wraps(make)
    def made(catalog: Catalog) -> T:
        found = kept.get(id(catalog))
        # The catalog is kept with its value, so that no other one can have its id meanwhile.
        if found is None:
            found = catalog, make(catalog)
        with lock:
            kept[id(catalog)] = found
            kept.move_to_end(id(catalog))
            while len(kept) > KEPT:
                kept.popitem(last=False)
        return found[1]

    return made


@once_per_catalog
def text_date_columns(catalog: Catalog) -> frozenset[str]:
    """Return the columns of a source in SQLite that hold dates, which SQLite stores as text."""
    if catalog.dialect != "sqlite":
        return frozenset()
    columns = (column for table in catalog.tables for column in table.columns)
    return frozenset(c.name for c in columns if c.type.lower().startswith(("date", "timestamp")))
