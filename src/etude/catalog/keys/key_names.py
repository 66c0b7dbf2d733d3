"""Interpret the names of tables and columns: their words, and which table a column's name refers to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

from etude.entities import Table
from etude.plurals import singular_of_plural

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


def key_name_word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


@cache
def key_name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case and singular: the same for `CustomerOrders` and `customer_order`."""
    return tuple(singular_of_plural(w.lower()) for w in _WORDS.findall(name))


def key_table_name(table: str) -> str:
    """Return a table's name without its schema."""
    return table.rpartition(".")[2]


def shared_key_name_prefix(names: list[str]) -> str:
    """Return the prefix that all names share (`l_` in `l_orderkey`, `sbTx` in `sbTxId`), or an empty text."""
    if len(names) < 3:
        return ""
    first, last = min(names), max(names)
    size = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    prefix = first[:size]
    if "_" in prefix:
        return prefix[: prefix.rindex("_") + 1]
    # In camel case a prefix ends where every name continues with a capital letter.
    while prefix and not all(n[len(prefix) : len(prefix) + 1].isupper() for n in names):
        prefix = prefix[:-1]
    return prefix


KEYS = key_name_word_set("id key uuid guid pk sk")
"""Last words of the names of keys."""
CODES = key_name_word_set("code no number num nr symbol isbn sku hash slug abbreviation abbrev")
"""Last words of names that often identify a row, but not always."""


class KeyNameWords:
    """The words of all table and column names of a source, without shared prefixes."""

    def __init__(self, tables: Sequence[Table]) -> None:
        prefix = shared_key_name_prefix([key_table_name(t.name) for t in tables])
        self.tables = {
            t.name: key_name_words(key_table_name(t.name)[len(prefix) :]) or key_name_words(key_table_name(t.name))
            for t in tables
        }
        self._columns: dict[tuple[str, str], tuple[str, ...]] = {}
        self._holders: Counter[tuple[str, ...]] = Counter()
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}
        # Index tables by the start and by the initials of their names: comparing each column with every table would
        # take quadratic time.
        self._by_beginning: dict[str, list[str]] = defaultdict(list)
        for name, subject in self.tables.items():
            self._by_beginning["".join(subject)[:3]].append(name)
            self._by_beginning["." + "".join(w[0] for w in subject)].append(name)
        for table in tables:
            common = shared_key_name_prefix([c.name for c in table.columns])
            for column in table.columns:
                plain = key_name_words(column.name[len(common) :]) or key_name_words(column.name)
                self._columns[table.name, column.name] = plain
                self._holders[plain] += 1

    def column(self, table: str, column: str) -> tuple[str, ...]:
        """Return the words of a column, without its table's prefix."""
        return self._columns[table, column]

    def holders(self, plain: tuple[str, ...]) -> int:
        """Return how many tables have a column with these words."""
        return self._holders[plain]

    def identified_by(self, plain: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tables whose rows a column of these words identifies: `order_id`, `orderkey`, `oid`: `orders`."""
        known = self._known.get(plain)
        if known is None:
            stem = _stem(plain)
            near = [*self._by_beginning.get("".join(stem)[:3], ()), *self._by_beginning.get("." + "".join(stem), ())]
            known = tuple(t for t in dict.fromkeys(near) if stem and _means(plain, stem, self.tables[t]))
            self._known[plain] = known
        return known

    def names_row_of(self, table: str, plain: tuple[str, ...]) -> bool:
        """Return whether a column of these words identifies that table's rows."""
        return table in self.identified_by(plain)

    def belongs_elsewhere(self, table: str, plain: tuple[str, ...]) -> str | None:
        """Return another table whose rows these words identify, or None if they identify rows of this one."""
        if self.names_row_of(table, plain):
            return None
        tails = (plain[i:] for i in range(len(plain)))
        return next((t for tail in tails for t in self.identified_by(tail) if t != table), None)


def _stem(plain: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without the ending of a key: `order` for `order_id` and `orderkey`."""
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
    """Return whether words equal or abbreviate others: `cust` abbreviates `customer`, `tx` not `transaction`."""
    if short == full:
        return True
    if len(short) == len(full):
        return all(f == s or (len(s) >= 3 and f.startswith(s)) for s, f in zip(short, full))
    return "".join(short) == "".join(full)


def ends_like_key_name(word: str) -> bool:
    """Return whether a word ends like the name of a key: `orderid`."""
    return len(word) > 2 and word.endswith(("id", "key", "code", "number"))
