"""What names of tables and columns say: their words, and how far two of them mean the same."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

from etude.entities import Table

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


@cache
def words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case and singular: `CustomerOrders` and `customer_order` have the same."""
    return tuple(singular(w.lower()) for w in _WORDS.findall(name))


def singular(word: str) -> str:
    """An English noun without its plural ending, as far as one can tell."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def bare(table: str) -> str:
    """A table's name without its schema."""
    return table.rpartition(".")[2]


def shared_prefix(names: list[str]) -> str:
    """A prefix that all columns of a table carry (`l_` in `l_orderkey`, `sbTx` in `sbTxId`), or an empty text."""
    if len(names) < 3:
        return ""
    first, last = min(names), max(names)
    size = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    prefix = first[:size]
    if "_" in prefix:
        return prefix[: prefix.rindex("_") + 1]
    # In camel case a prefix ends where every name goes on with a capital.
    while prefix and not all(n[len(prefix) : len(prefix) + 1].isupper() for n in names):
        prefix = prefix[:-1]
    return prefix


KEYS = word_set("id key uuid guid pk sk")
"""Last words of the names of keys."""
CODES = word_set("code no number num nr symbol isbn sku hash slug abbreviation abbrev")
"""Last words of names that often identify, and often do not."""


class NameWords:
    """The words of all tables and columns of a source, without the prefixes that its tables put before columns."""

    def __init__(self, tables: Sequence[Table]) -> None:
        prefix = shared_prefix([bare(t.name) for t in tables])
        self.tables = {t.name: words(bare(t.name)[len(prefix) :]) or words(bare(t.name)) for t in tables}
        self._columns: dict[tuple[str, str], tuple[str, ...]] = {}
        self._holders: Counter[tuple[str, ...]] = Counter()
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}
        # Tables by the beginning and by the initials of their names: looking through all for each column would
        # take the square of their number.
        self._by_beginning: dict[str, list[str]] = defaultdict(list)
        for name, subject in self.tables.items():
            self._by_beginning["".join(subject)[:3]].append(name)
            self._by_beginning["." + "".join(w[0] for w in subject)].append(name)
        for table in tables:
            common = shared_prefix([c.name for c in table.columns])
            for column in table.columns:
                plain = words(column.name[len(common) :]) or words(column.name)
                self._columns[table.name, column.name] = plain
                self._holders[plain] += 1

    def column(self, table: str, column: str) -> tuple[str, ...]:
        """The words of a column, without its table's prefix."""
        return self._columns[table, column]

    def holders(self, plain: tuple[str, ...]) -> int:
        """How many tables have a column of these words."""
        return self._holders[plain]

    def identified_by(self, plain: tuple[str, ...]) -> tuple[str, ...]:
        """The tables whose rows these words of a column identify: `order_id`, `orderkey` or `oid` those of `orders`."""
        known = self._known.get(plain)
        if known is None:
            stem = _stem(plain)
            near = [*self._by_beginning.get("".join(stem)[:3], ()), *self._by_beginning.get("." + "".join(stem), ())]
            known = tuple(t for t in dict.fromkeys(near) if stem and _means(plain, stem, self.tables[t]))
            self._known[plain] = known
        return known

    def names_row_of(self, table: str, plain: tuple[str, ...]) -> bool:
        """Whether these words of a column identify that table's rows."""
        return table in self.identified_by(plain)

    def belongs_elsewhere(self, table: str, plain: tuple[str, ...]) -> str | None:
        """Another table whose rows these words, or the last of them, identify, where they do not this one's."""
        if self.names_row_of(table, plain):
            return None
        tails = (plain[i:] for i in range(len(plain)))
        return next((t for tail in tails for t in self.identified_by(tail) if t != table), None)


def _stem(plain: tuple[str, ...]) -> tuple[str, ...]:
    """The words without the ending that makes them a key's: `order` of `order_id` and of `orderkey`."""
    if len(plain) > 1:
        return plain[:-1] if plain[-1] in KEYS | CODES else ()
    for ending in ("id", "key", "code", "no"):
        if plain and plain[0].endswith(ending) and plain[0] != ending:
            return (plain[0].removesuffix(ending),)
    return ()


def _means(plain: tuple[str, ...], stem: tuple[str, ...], subject: tuple[str, ...]) -> bool:
    if len(plain) > 1:
        return _abbreviates(stem, subject)
    whole, initials = "".join(subject), "".join(w[0] for w in subject)
    return whole == stem[0] or (len(stem[0]) >= 3 and whole.startswith(stem[0])) or stem[0] == initials


def _abbreviates(short: tuple[str, ...], full: tuple[str, ...]) -> bool:
    """Whether words are the others, or the beginnings of them: `cust` for `customer`, `tx` is not `transaction`."""
    if short == full:
        return True
    if len(short) == len(full):
        return all(f == s or (len(s) >= 3 and f.startswith(s)) for s, f in zip(short, full))
    return "".join(short) == "".join(full)


def ends_like_key(word: str) -> bool:
    """Whether one word ends as a key's name does: `orderid`."""
    return len(word) > 2 and word.endswith(("id", "key", "code", "number"))
