"""What is known of a source: its tables, columns, keys and values, and the words that mean them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from sqlglot import exp

from etude.entities import Catalog, Table
from etude.offline.words import ABBREVIATIONS, TAILS, base_form, spell_out, split_identifier
from etude.sources.plan.dialect import kind_of

MAX_VALUES = 2_000
MAX_VALUE_CHARS = 80
MAX_KEY_CHECKS = 400
MAX_ROWS = 2_000_000
"""Of a larger table only a part is looked at, and no key is guessed in it."""
SAMPLE = 100_000

RANGED = frozenset(("number", "date", "timestamp"))
"""Kinds of values of which the least and the greatest are known."""
ValueKind = Literal["number", "text", "boolean", "date", "timestamp", "other"]
Ask = Callable[[str], Iterable[Sequence[Any]]]
"""Runs a query in the source's dialect and gives its rows."""
Scalar = str | int | float | bool | None


_FLAGS = (("is",), ("has",), ("was",), ("can",))


@dataclass(frozen=True)
class KnownColumn:
    """What is known of a column. A profile of the source can give the same."""

    table: str
    name: str
    kind: ValueKind
    distinct: int = 0
    nulls: int = 0
    low: Scalar = None
    high: Scalar = None
    values: tuple[str, ...] = ()
    """All distinct texts, where there are not too many; of a large table those that were seen."""
    comment: str = ""
    words: tuple[str, ...] = ()
    """Its name as words, abbreviations in full, without what every column of the table begins with."""
    identifies: bool = False
    """It is a key or refers to one: its numbers are names, not amounts."""

    @property
    def flag(self) -> tuple[Scalar, Scalar] | None:
        """The values for yes and no, if the column holds nothing else."""
        if self.kind == "boolean":
            return True, False
        if self.kind == "number" and (self.low, self.high) in ((0, 1), (1, 1), (0, 0)) and self.words[:1] in _FLAGS:
            return 1, 0
        if self.kind == "text" and self.values:
            by_low = {value.strip().lower(): value for value in self.values}
            for yes, no in (("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f")):
                if set(by_low) <= {yes, no}:
                    return by_low.get(yes, yes.title()), by_low.get(no, no.title())
        return None


@dataclass(frozen=True)
class KnownTable:
    """What is known of a table."""

    name: str
    rows: int
    columns: tuple[KnownColumn, ...]
    key: tuple[str, ...] = ()
    """Columns that tell its rows apart, if they are known to."""
    label: tuple[str, ...] = ()
    """Columns that name a row to people."""
    words: tuple[str, ...] = ()
    aliases: tuple[tuple[str, ...], ...] = ()
    comment: str = ""

    def column(self, name: str) -> KnownColumn:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True)
class Link:
    """Columns of one table that refer to columns of another, where each value stands once."""

    table: str
    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]
    declared: bool = False
    one_to_one: bool = False
    """Each value stands once on this side too."""


@dataclass(frozen=True)
class Vocabulary:
    """The words of a source. `fingerprint` is the catalog's: the vocabulary may be kept until it changes."""

    fingerprint: str
    dialect: str
    tables: tuple[KnownTable, ...]
    links: tuple[Link, ...] = ()
    catalog: Catalog | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        """By the fingerprint: what is kept per vocabulary is looked up often."""
        return hash((self.fingerprint, self.dialect))

    def table(self, name: str) -> KnownTable:
        """The table of that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, KnownTable]:
        return {table.name: table for table in self.tables}

    def to_json(self) -> str:
        """As text to keep."""
        body = asdict(self) | {"catalog": self.catalog.model_dump(mode="json") if self.catalog else None}
        return json.dumps(body, ensure_ascii=False)


def vocabulary_from_json(text: str) -> Vocabulary:
    """The vocabulary that `to_json` wrote."""
    body = json.loads(text)
    tables = []
    for table in body["tables"]:
        columns = tuple(KnownColumn(**{k: _tuples(v) for k, v in column.items()}) for column in table.pop("columns"))
        tables.append(KnownTable(columns=columns, **{k: _tuples(v) for k, v in table.items()}))
    links = tuple(Link(**{k: _tuples(v) for k, v in link.items()}) for link in body["links"])
    catalog = Catalog.model_validate(body["catalog"]) if body["catalog"] else None
    return Vocabulary(body["fingerprint"], body["dialect"], tuple(tables), links, catalog)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def build_vocabulary(catalog: Catalog, ask: Ask, known: Mapping[str, KnownTable] | None = None) -> Vocabulary:
    """Look at every table once: counts, ranges and the distinct texts of its columns; then find the keys.

    Tables that are `known` from a profile of the same data are asked only for the texts that it leaves out.
    """
    tables = [_look_at(table, catalog.dialect, ask, (known or {}).get(table.name)) for table in catalog.tables]
    common = _common_start([split_identifier(_short(table.name)) for table in tables])
    whole = {_short(table.name).lower() for table in tables} | {base_form(_short(t.name).lower()) for t in tables}
    parts = {word for table in tables for word in split_identifier(_short(table.name))}
    names = Splitter(frozenset(whole), frozenset(parts))
    named = [_name_table(table, common, names) for table in tables]
    links = _find_links(catalog, named, ask)
    named = [_mark_keys(_drop_borrowed_key(table, links, catalog), links) for table in named]
    return Vocabulary(catalog.fingerprint, catalog.dialect, tuple(named), tuple(links), catalog)


# --- looking at the data


def _look_at(table: Table, dialect: str, ask: Ask, known: KnownTable | None) -> KnownTable:
    large = (table.row_count or 0) > MAX_ROWS
    source = _part_of(table.name) if large else _table(table.name)
    looked = known or _count(table, source, dialect, ask)
    said = {column.name: column.comment or "" for column in table.columns}
    columns = tuple(
        replace(_with_values(column, source, large, dialect, ask), comment=said[column.name])
        for column in looked.columns
    )
    declared = table.primary_key or next(iter(table.unique), ())
    counted = table.row_count if large and table.row_count and not known else looked.rows
    return replace(looked, rows=counted, columns=columns, key=tuple(declared), comment=table.comment or "")


def _with_values(column: KnownColumn, source: exp.Expr, large: bool, dialect: str, ask: Ask) -> KnownColumn:
    """The column with its texts: asked for, unless a profile told them all."""
    if column.kind != "text" or not column.distinct:
        return column
    # Of a large table the part that is looked at may have few where all have many.
    if column.distinct > MAX_VALUES and not large:
        return replace(column, values=())
    values = {*column.values}
    if len(values) != column.distinct:
        values |= _distinct_values(source, column.name, dialect, ask)
    told = (value for value in values if value.strip() and len(value) <= MAX_VALUE_CHARS)
    return replace(column, values=tuple(sorted(told)) if len(values) <= MAX_VALUES else ())


def _count(table: Table, source: exp.Expr, dialect: str, ask: Ask) -> KnownTable:
    parts: list[exp.Expr] = [exp.Count(this=exp.Star())]
    kinds = [kind_of_value(column.type) for column in table.columns]
    for column, kind in zip(table.columns, kinds, strict=True):
        ast = _column(column.name)
        parts.append(exp.Count(this=ast))
        parts.append(exp.Count(this=exp.Distinct(expressions=[ast.copy()])) if kind != "other" else exp.Null())
        ranged = kind in RANGED
        parts.append(exp.Min(this=ast.copy()) if ranged else exp.Null())
        parts.append(exp.Max(this=ast.copy()) if ranged else exp.Null())
    row = next(iter(ask(exp.Select(expressions=parts).from_(source.copy()).sql(dialect=dialect))))
    rows = int(row[0])
    columns = []
    for n, (column, kind) in enumerate(zip(table.columns, kinds, strict=True)):
        filled, distinct, low, high = row[1 + 4 * n : 5 + 4 * n]
        nulls = rows - int(filled)
        known = KnownColumn(table.name, column.name, kind, int(distinct or 0), nulls, _plain(low), _plain(high))
        columns.append(known)
    return KnownTable(table.name, rows, tuple(columns))


def kind_of_value(type_name: str) -> ValueKind:
    """What the values of a column are to a question, by the engine's name of its type."""
    kind = kind_of(type_name)
    if kind == "timestamptz":
        return "timestamp"
    return "boolean" if kind == "flag" else kind


def _distinct_values(source: exp.Expr, column: str, dialect: str, ask: Ask) -> set[str]:
    ast = _column(column)
    query = exp.Select(expressions=[ast]).distinct().from_(source.copy()).limit(MAX_VALUES)
    query = query.where(exp.Not(this=exp.Is(this=ast.copy(), expression=exp.Null())))
    return {str(row[0]) for row in ask(query.sql(dialect=dialect))}


def _table(name: str) -> exp.Table:
    parts = [exp.to_identifier(part, quoted=True) for part in name.split(".")]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def _part_of(name: str) -> exp.Expr:
    """The first rows of a table."""
    rows = exp.Select(expressions=[exp.Star()]).from_(_table(name)).limit(SAMPLE)
    return rows.subquery(exp.to_identifier("part", quoted=True))


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _plain(value: Any) -> Scalar:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else None


# --- names


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _common_start(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What all names begin with, as `sb` in `sbCustomer` and `sbOrder`; never a whole name."""
    if len(names) < 3:
        return ()
    shared = 0
    while all(len(name) > shared + 1 for name in names) and len({name[shared] for name in names}) == 1:
        shared += 1
    return names[0][:shared]


@dataclass(frozen=True)
class Splitter:
    """Splits names that are written without a break, and spells out what shortens a table's name."""

    wholes: frozenset[str]
    parts: frozenset[str]

    def split(self, name: str) -> tuple[str, ...]:
        """The words of a column's or table's name."""
        return tuple(part for word in split_identifier(name) for part in self._word(word))

    def _word(self, word: str) -> tuple[str, ...]:
        if word in self.wholes and not any(word != other and word.startswith(other) for other in self.wholes):
            return (word,)
        for first in sorted(self.wholes, key=len, reverse=True):
            rest = word.removeprefix(first)
            if len(first) > 2 and rest not in ("", word) and (rest in TAILS or rest in self.wholes):
                return first, rest
        if word.startswith("num") and len(word) > 6 and word != "number" and not word.startswith("number"):
            return "num", word[3:]
        if base_form(word) in {base_form(part) for part in self.parts}:
            return (word,)
        longer = {part for part in self.parts if len(word) >= 3 and part.startswith(word) and len(part) > len(word) + 2}
        return (longer.pop(),) if len(longer) == 1 and word not in ABBREVIATIONS else (word,)


def _name_table(table: KnownTable, common: tuple[str, ...], names: Splitter) -> KnownTable:
    own = names.split(_short(table.name))[len(common) :]
    splits = [names.split(column.name) for column in table.columns]
    start = _common_start(splits)
    columns = tuple(
        KnownColumn(**{**column.__dict__, "words": spell_out(words[len(start) :])})
        for column, words in zip(table.columns, splits, strict=True)
    )
    words = spell_out(own)
    aliases = {spell_out(start[len(common) :] if start[: len(common)] == common else start)} - {(), words}
    named = KnownTable(**{**table.__dict__, "columns": columns, "words": words, "aliases": tuple(sorted(aliases))})
    key = named.key or _guess_key(named)
    named = KnownTable(**{**named.__dict__, "key": key})
    return KnownTable(**{**named.__dict__, "label": _guess_label(named)})


def _guess_key(table: KnownTable) -> tuple[str, ...]:
    """A column that is called like a key and holds each value once; without one, the name of the thing itself."""
    unique = [c for c in table.columns if table.rows and c.distinct == table.rows and not c.nulls]
    first = table.columns[0].name if table.columns else ""

    def rank(column: KnownColumn) -> int | None:
        last = column.words[-1] if column.words else ""
        about = column.words[:-1] in ((), table.words, table.words[-1:])
        if last in ("id", "code", "key", "uuid") and about:
            return 0
        if last.endswith("id") and column.name == first and column.kind == "number":
            return 1
        if column.kind == "number" and last.endswith("id") and len(last) == 3 and last[0] == table.words[0][:1]:
            return 1
        if column.words in (table.words, (*table.words, "name"), ("name",)):
            return 2
        return None

    ranked = sorted((r, n) for n, column in enumerate(unique) if (r := rank(column)) is not None)
    return (unique[ranked[0][1]].name,) if ranked else ()


def _drop_borrowed_key(table: KnownTable, links: Sequence[Link], catalog: Catalog) -> KnownTable:
    """A guessed key that refers to another table only happens to hold each value once."""
    declared = catalog.table(table.name)
    if declared is not None and (declared.primary_key or declared.unique):
        return table
    borrowed = any(link.table == table.name and link.columns == table.key for link in links)
    return KnownTable(**{**table.__dict__, "key": ()}) if borrowed else table


def _mark_keys(table: KnownTable, links: Sequence[Link]) -> KnownTable:
    keys = {*table.key}
    for link in links:
        keys |= {*link.columns} if link.table == table.name else set()
        keys |= {*link.to_columns} if link.to_table == table.name else set()
    columns = tuple(KnownColumn(**{**column.__dict__, "identifies": column.name in keys}) for column in table.columns)
    return KnownTable(**{**table.__dict__, "columns": columns})


def _guess_label(table: KnownTable) -> tuple[str, ...]:
    """The name or title; or first and last name; else the key if it is text."""
    by_words = {column.words: column.name for column in table.columns if column.kind == "text"}
    for last in ("name", "", "title", "label", "symbol"):
        if not last:
            for first, second in ((("first", "name"), ("last", "name")), (("firstname",), ("lastname",))):
                if first in by_words and second in by_words:
                    return by_words[first], by_words[second]
            continue
        for words in ((last,), (*table.words, last), (*table.words[-1:], last), ("full", last)):
            if words in by_words:
                return (by_words[words],)
    for words in (table.words, ("description",), ("username",), ("user", "name"), ("email",)):
        if words in by_words:
            return (by_words[words],)
    return ()


# --- keys


def _find_links(catalog: Catalog, tables: Sequence[KnownTable], ask: Ask) -> list[Link]:
    declared = _declared_links(catalog)
    linked = {frozenset((link.table, link.to_table)) for link in declared}
    links = list(declared)
    checks = 0
    for to in tables:
        for target in _targets(to):
            for table in tables:
                if table.name == to.name:
                    continue
                for column in table.columns:
                    if not _may_refer(table, column, to, target) or checks >= MAX_KEY_CHECKS:
                        continue
                    pair = frozenset((table.name, to.name))
                    same = any(
                        link.table == table.name and link.columns == (column.name,) and link.to_table == to.name
                        for link in links
                    )
                    if same or (pair in linked and any(link.columns == (column.name,) for link in declared)):
                        continue
                    checks += 1
                    if _contained(table, column, to, target, catalog.dialect, ask):
                        once = column.distinct == table.rows and not column.nulls
                        links.append(Link(table.name, (column.name,), to.name, (target.name,), one_to_one=once))
    return _without_mirrors(links, {table.name: table for table in tables})


def _declared_links(catalog: Catalog) -> list[Link]:
    links = []
    for table in catalog.tables:
        for key in table.foreign_keys:
            target = catalog.table(key.to_table)
            to_columns = key.to_columns or (target.primary_key if target else ())
            if target is not None and len(to_columns) == len(key.columns):
                links.append(Link(table.name, key.columns, target.name, tuple(to_columns), declared=True))
    return links


def _targets(table: KnownTable) -> list[KnownColumn]:
    """Columns whose values stand once, so that other tables can refer to them."""
    return [
        c
        for c in table.columns
        if table.rows and c.distinct == table.rows - c.nulls and not c.nulls and c.kind in ("number", "text")
        and c.words not in tuple((first, "name") for first in ("first", "last", "middle", "full", "user"))
        and ((c.name,) == table.key or c.words[-1:] in (("id",), ("code",), ("name",), ("number",), ("sequence",)))
    ]  # fmt: skip


_COUNTING = frozenset(("number", "count", "total", "minimum", "maximum", "average", "is", "has"))
"""First words of columns that hold an amount or a flag, never a reference."""


def _may_refer(table: KnownTable, column: KnownColumn, to: KnownTable, target: KnownColumn) -> bool:
    """Whether the column is called as if it held the target's values."""
    if column.kind != target.kind or _COUNTING & {*column.words[:1]}:
        return False
    if column.name.lower() == target.name.lower():
        return column.words != ("name",) and (column.words != ("id",) or target.words != ("id",))
    names = [to.words, *to.aliases, to.words[-1:]]
    key = (target.name,) == to.key
    for words in names:
        rest = target.words[len(words) :] if target.words[: len(words)] == words else target.words
        for suffix in (rest, target.words):
            full = (*words, *suffix)
            if column.words[-len(full) :] == full and full != ("name",):
                return True
        if key and words and column.words[-len(words) - 1 :] == (*words, "id"):
            return True
        # A column called like the table, as `from_airport`, may hold its key.
        if key and words and column.words[-len(words) :] == words and column.words not in (("name",),):
            return True
    return key and len(target.words) == 1 and target.words[0] not in ("id", "name", "code", "key") and (
        column.words[-1:] == target.words
    )  # fmt: skip


def _contained(
    table: KnownTable, column: KnownColumn, to: KnownTable, target: KnownColumn, dialect: str, ask: Ask
) -> bool:
    """Whether nearly all values of the column are values of the target."""
    if not table.rows or column.distinct == 0:
        return True
    if column.values and target.values:
        inside = len(set(column.values) & set(target.values))
        return inside >= 0.6 * len(column.values)
    left, right = _column(column.name), _column(target.name)
    inner = exp.Select(expressions=[right]).from_(_table(to.name))
    query = (
        exp.Select(expressions=[exp.Count(this=exp.Distinct(expressions=[left]))])
        .from_(_part_of(table.name) if table.rows > MAX_ROWS else _table(table.name))
        .where(exp.In(this=left.copy(), query=inner.subquery()))
    )
    inside = int(next(iter(ask(query.sql(dialect=dialect))))[0])
    return inside >= 0.6 * column.distinct


def _without_mirrors(links: list[Link], tables: dict[str, KnownTable]) -> list[Link]:
    """Of two links that say the same from both ends, keep the one that leads to the table named by the key."""
    kept: list[Link] = []
    for link in links:
        mirror = next(
            (k for k in kept if (k.table, k.columns, k.to_table, k.to_columns)
             == (link.to_table, link.to_columns, link.table, link.columns)),
            None,
        )  # fmt: skip
        if mirror is None:
            kept.append(link)
        elif _owns(tables[link.to_table], link.to_columns) and not _owns(tables[mirror.to_table], mirror.to_columns):
            kept[kept.index(mirror)] = link
    return _without_passers(_without_detours(kept))


def _without_passers(links: list[Link]) -> list[Link]:
    """A column that itself refers to a third table is not what others refer to: they refer to that one too."""
    refers = {(link.table, link.columns): link.to_table for link in links}

    def passes(link: Link) -> bool:
        third = refers.get((link.to_table, link.to_columns))
        return third is not None and any(
            (other.table, other.columns, other.to_table) == (link.table, link.columns, third) for other in links
        )

    return [link for link in links if link.declared or not passes(link)]


def _owns(table: KnownTable, columns: tuple[str, ...]) -> bool:
    words = table.column(columns[0]).words
    return words[: len(table.words)] == table.words or words in (("id",), ("name",), ("code",))


def _without_detours(links: list[Link]) -> list[Link]:
    """A column that could refer to several tables refers to the one it is named after, if there is one."""
    counts = Counter((link.table, link.columns) for link in links if not link.declared)
    kept = []
    for link in links:
        if link.declared or counts[link.table, link.columns] == 1:
            kept.append(link)
            continue
        own = base_form(split_identifier(link.columns[0])[0])
        rivals = [k for k in links if (k.table, k.columns) == (link.table, link.columns)]
        named = [
            k for k in rivals if own in _table_words(k.to_table) or ABBREVIATIONS.get(own) in _table_words(k.to_table)
        ]
        if not named or link in named:
            kept.append(link)
    return kept


def _table_words(name: str) -> tuple[str, ...]:
    return spell_out(split_identifier(_short(name)))
