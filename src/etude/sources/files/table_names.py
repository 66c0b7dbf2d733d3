"""Names of tables made from the names of files and sheets, and names of columns without invisible characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Words that need quotes after FROM, or as the name before a column.
WORDS = """
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check
    collate collation column concurrently constraint create cross default deferrable desc describe distinct do else
    end except false fetch for foreign freeze from full glob group having ilike in initially inner intersect into is
    isnull join lambda lateral leading left like limit natural not notnull null offset on only or order outer overlaps
    pivot pivot_longer pivot_wider placing positional primary qualify references returning right select semi show
    similar some summarize symmetric table tablesample then to trailing true union unique unpack unpivot using variadic
    verbose when where window with
"""


RESERVED = frozenset(WORDS.split())


def clean_table_name(text: str) -> str:
    """Return a name that needs no quotes in a query: lower-case words joined by `_`."""
    plain = text
    if not text.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    name = re.sub(r"[\W_]+", "_", plain.lower()).strip("_")
    if not name or not name[0].isalpha() or name in RESERVED:
        name = f"t_{name}".rstrip("_")
    return name


INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Invisible characters: `id` with one of them before it is another name."""
JOINERS = "\u200c\u200d"
"""These belong to words of some languages, but not to their ends."""
SPACES = re.compile("[\u00a0\u2007\u202f]")


def clean_column_names(names: Iterable[str]) -> list[str]:
    """Return the names without invisible characters and with plain spaces; none empty, none twice."""
    cleaned: list[str] = []
    taken: set[str] = set()
    for at, name in enumerate(names):
        wanted = free = name
        if not name.isascii():
            wanted = SPACES.sub(" ", INVISIBLE.sub("", name)).strip(f" {JOINERS}") or f"column{at}"
            free, number = wanted, 1
            while free.lower() in taken:
                free, number = f"{wanted}_{number}", number + 1
        taken.add(free.lower())
        cleaned.append(free)
    return cleaned


def show_invisible(name: str) -> str:
    """Return the name with its invisible characters as escapes, for a note."""
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", name)


def unique_table_names(names: Iterable[str]) -> list[str]:
    """Return the same names, with later duplicates numbered `_2`, `_3`, ..."""
    wanted = list(names)
    taken, given = set(wanted), set[str]()
    result = []
    for name in wanted:
        free, number = name, 2
        while free in given or (free != name and free in taken):
            free, number = f"{name}_{number}", number + 1
        given.add(free)
        result.append(free)
    return result
