"""What is known about a source: its tables, columns, keys and values, and the words that mean them."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, lru_cache, wraps
from typing import Any, Literal, TypeVar, cast

from sqlglot import exp

from etude.entities import Catalog, Table
from etude.errors import Cancelled, EtudeError
from etude.offline.deadline import check
from etude.offline.words import ABBREVIATIONS, TAILS, base_form, spell_out, split_identifier
from etude.sources.plan.dialect import kind_of

MAX_VALUES = 2_000
MAX_VALUE_CHARS = 80
MAX_KEY_CHECKS = 400
MAX_ROWS = 2_000_000
"""Of a larger table only a part is read, and no key is guessed for it."""
SAMPLE = 100_000
TOGETHER, TOGETHER_ROWS, TOGETHER_SIZE = 40, 200_000, 900
"""At most this many tables or columns share one query, with this many rows in total, for this many values."""

RANGED = frozenset(("number", "date", "timestamp"))
"""Kinds of values whose minimum and maximum are known."""
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
ValueKind = Literal["number", "text", "boolean", "date", "timestamp", "other"]
Ask = Callable[[str], Iterable[Sequence[Any]]]
"""Runs a query in the source's dialect and returns its rows."""
Scalar = str | int | float | bool | None


_FLAGS = (("is",), ("has",), ("was",), ("can",))


@dataclass(frozen=True)
class KnownColumn:
    """What is known about a column, from queries or from a profile of the source."""

    table: str
    name: str
    kind: ValueKind
    distinct: int = 0
    nulls: int = 0
    low: Scalar = None
    high: Scalar = None
    values: tuple[str, ...] = ()
    """All distinct texts, if there are not too many; for a large table, those in the part that was read."""
    comment: str = ""
    words: tuple[str, ...] = ()
    """The name as words: abbreviations in full, without a prefix that all columns of the table share."""
    identifies: bool = False
    """It is a key or refers to one: its numbers are identifiers, not amounts."""

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
    """What is known about a table."""

    name: str
    rows: int
    columns: tuple[KnownColumn, ...]
    key: tuple[str, ...] = ()
    """Columns that identify a row, if known."""
    label: tuple[str, ...] = ()
    """Columns that name a row to people."""
    words: tuple[str, ...] = ()
    aliases: tuple[tuple[str, ...], ...] = ()
    comment: str = ""

    def column(self, name: str) -> KnownColumn:
        """Return the column of that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, KnownColumn]:
        # If two columns share a name, the first wins.
        return {column.name: column for column in reversed(self.columns)}


@dataclass(frozen=True)
class Link:
    """Columns of one table that refer to unique columns of another."""

    table: str
    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]
    declared: bool = False
    one_to_one: bool = False
    """Values are unique on this side too."""


@dataclass(frozen=True)
class Vocabulary:
    """The words of a source. `fingerprint` is the catalog's: the vocabulary may be kept until it changes."""

    fingerprint: str
    dialect: str
    tables: tuple[KnownTable, ...]
    links: tuple[Link, ...] = ()
    catalog: Catalog | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        """Hash the fingerprint only; hashing all tables would be slow."""
        return hash((self.fingerprint, self.dialect))

    def table(self, name: str) -> KnownTable:
        """Return the table of that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, KnownTable]:
        return {table.name: table for table in self.tables}

    def to_json(self) -> str:
        """Return the vocabulary as JSON text."""
        body = _fields_of(self) | {"catalog": self.catalog.model_dump(mode="json") if self.catalog else None}
        return json.dumps(body, ensure_ascii=False, default=_fields_of)


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of one object; `asdict` would copy nested objects too."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def per_vocabulary(make: Callable[[Vocabulary], T]) -> Callable[[Vocabulary], T]:
    """Compute a value from a vocabulary once, and keep it on that object.

    A cache with the vocabulary as its key would compare whole vocabularies at each lookup.
    """
    key = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def made(vocabulary: Vocabulary) -> T:
        kept = vocabulary.__dict__
        if key not in kept:
            kept[key] = make(vocabulary)
        return cast("T", kept[key])

    return made


def vocabulary_from_json(text: str) -> Vocabulary:
    """Return the vocabulary that `to_json` wrote."""
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
    """Query every table once for counts, ranges and the distinct texts of its columns, then find the keys.

    Tables `known` from a profile of the same data are queried only for the texts that the profile leaves out.
    """
    tables = _look_at(catalog, ask, known or {})
    common = _common_start([split_identifier(_short(table.name)) for table in tables])
    whole = {_short(table.name).lower() for table in tables} | {base_form(_short(t.name).lower()) for t in tables}
    parts = {word for table in tables for word in split_identifier(_short(table.name))}
    names = Splitter(frozenset(whole), frozenset(parts))
    named = [_name_table(table, common, names) for table in tables]
    links = _find_links(catalog, named, ask)
    named = _mark_keys(_drop_borrowed_keys(named, links, catalog), links)
    return Vocabulary(catalog.fingerprint, catalog.dialect, tuple(named), tuple(links), catalog)


# --- queries on the data


def _look_at(catalog: Catalog, ask: Ask, known: Mapping[str, KnownTable]) -> list[KnownTable]:
    """Return the tables with counts, ranges and texts. Small tables share queries, because each query has a cost."""
    counted: dict[str, KnownTable] = {**known}
    unknown = [table for table in catalog.tables if table.name not in known]
    for group in _group(unknown, lambda t: t.row_count, lambda t: 1 + 4 * len(t.columns)):
        counted |= _ask_together(group, catalog.dialect, ask, _count)
    columns = [(table, column, _is_large(table)) for table in catalog.tables for column in counted[table.name].columns]
    missing = [_Texts(table, column) for table, column, large in columns if _lacks_values(column, large)]
    # Only texts of one type share a query: a union would cast them to a common type, and may change them.
    by_type: dict[str, list[_Texts]] = defaultdict(list)
    for texts in missing:
        by_type[texts.type].append(texts)
    values: dict[tuple[str, str], set[str]] = {}
    for alike in by_type.values():
        for some in _group(alike, lambda t: t.table.row_count, lambda t: t.column.distinct // 20 + 8):
            values |= _ask_together(some, catalog.dialect, ask, _distinct_values)
    return [_described(table, counted[table.name], table.name in known, values) for table in catalog.tables]


def _described(
    table: Table, counted: KnownTable, known: bool, values: Mapping[tuple[str, str], set[str]]
) -> KnownTable:
    check()
    large, said = _is_large(table), {column.name: column.comment or "" for column in table.columns}
    found = (_with_values(column, large, values.get((table.name, column.name), set())) for column in counted.columns)
    columns = tuple(replace(c, comment=said[c.name]) if said[c.name] != c.comment else c for c in found)
    declared = table.primary_key or next(iter(table.unique), ())
    rows = table.row_count if large and table.row_count and not known else counted.rows
    return replace(counted, rows=rows, columns=columns, key=tuple(declared), comment=table.comment or "")


def _is_large(table: Table) -> bool:
    return (table.row_count or 0) > MAX_ROWS


def _lacks_values(column: KnownColumn, large: bool) -> bool:
    """Return whether the column's texts must be queried: a profile may have listed them all."""
    if column.kind != "text" or not column.distinct:
        return False
    # The part of a large table that is read may have few texts although the whole table has many.
    return (column.distinct <= MAX_VALUES or large) and len({*column.values}) != column.distinct


def _with_values(column: KnownColumn, large: bool, asked: set[str]) -> KnownColumn:
    if column.kind != "text" or not column.distinct:
        return column
    if column.distinct > MAX_VALUES and not large:
        return replace(column, values=())
    values = {*column.values} | asked
    usable = (value for value in values if value.strip() and len(value) <= MAX_VALUE_CHARS)
    return replace(column, values=tuple(sorted(usable)) if len(values) <= MAX_VALUES else ())


def _group(items: Iterable[T], rows: Callable[[T], int | None], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield groups that may share one query; items with many rows, or an unknown number, stay alone."""
    group: list[T] = []
    read = used = 0
    for item in items:
        check()
        cost = rows(item)
        if cost is None or cost > TOGETHER_ROWS:
            yield [item]
            continue
        if group and (read + cost > TOGETHER_ROWS or used + size(item) > TOGETHER_SIZE or len(group) == TOGETHER):
            yield group
            group, read, used = [], 0, 0
        group.append(item)
        read, used = read + cost, used + size(item)
    if group:
        yield group


def _ask_together(
    items: list[T], dialect: str, ask: Ask, look: Callable[[Sequence[T], str, Ask], dict[K, V]]
) -> dict[K, V]:
    """Query all items at once; if that is refused, by a limit or by the engine, query each by itself."""
    if len(items) > 1:
        try:
            return look(items, dialect, ask)
        except Cancelled:
            raise
        except EtudeError:
            check()
    found: dict[K, V] = {}
    for item in items:
        found |= look([item], dialect, ask)
    return found


def _count(tables: Sequence[Table], dialect: str, ask: Ask) -> dict[str, KnownTable]:
    """Return the row counts of tables, and the filled, distinct, minimum and maximum values of their columns."""
    selects, number = [], itertools.count()
    for table in tables:
        parts = ["COUNT(*)"]
        for column in table.columns:
            name, kind = _quote(column.name, dialect), kind_of_value(column.type)
            parts.append(f"COUNT({name})")
            parts += [f"COUNT(DISTINCT {name})"] if kind != "other" else []
            parts += [f"MIN({name})", f"MAX({name})"] if kind in RANGED else []
        listed = ", ".join(f"{part} AS c{next(number)}" for part in parts)
        selects.append(f"SELECT {listed} FROM {_source(table, dialect)}")
    # Each returns one row, so all of them side by side make one row, and every value keeps its type.
    query = selects[0]
    if len(selects) > 1:
        query = "SELECT * FROM " + " CROSS JOIN ".join(f"({s}) AS t{n}" for n, s in enumerate(selects))
    row = iter(next(iter(ask(query))))
    return {table.name: _read_counts(table, row) for table in tables}


def _read_counts(table: Table, row: Iterator[Any]) -> KnownTable:
    rows, columns = int(next(row)), []
    check()
    for column in table.columns:
        kind = kind_of_value(column.type)
        nulls = rows - int(next(row))
        distinct = int(next(row) or 0) if kind != "other" else 0
        low, high = (_plain(next(row)), _plain(next(row))) if kind in RANGED else (None, None)
        columns.append(KnownColumn(table.name, column.name, kind, distinct, nulls, low, high))
    return KnownTable(table.name, rows, tuple(columns))


def kind_of_value(type_name: str) -> ValueKind:
    """Return the kind of a column's values, given the engine's name of its type."""
    kind = kind_of(type_name)
    if kind == "timestamptz":
        return "timestamp"
    return "boolean" if kind == "flag" else kind


@dataclass(frozen=True)
class _Texts:
    """A column whose texts are queried."""

    table: Table
    column: KnownColumn

    @property
    def type(self) -> str:
        return next(c.type for c in self.table.columns if c.name == self.column.name)


def _distinct_values(asked: Sequence[_Texts], dialect: str, ask: Ask) -> dict[tuple[str, str], set[str]]:
    if len(asked) == 1:
        (texts,) = asked
        ast = _column(texts.column.name)
        source = _part_of(texts.table.name) if _is_large(texts.table) else _table(texts.table.name)
        query = exp.Select(expressions=[ast]).distinct().from_(source).limit(MAX_VALUES)
        query = query.where(exp.Not(this=exp.Is(this=ast.copy(), expression=exp.Null())))
        return {(texts.table.name, texts.column.name): {str(row[0]) for row in ask(query.sql(dialect=dialect))}}
    selects = []
    for number, texts in enumerate(asked):
        name = _quote(texts.column.name, dialect)
        source_sql = _source(texts.table, dialect)
        selects.append(f"SELECT DISTINCT {number} AS n, {name} AS v FROM {source_sql} WHERE NOT {name} IS NULL")
    found: dict[tuple[str, str], set[str]] = {(texts.table.name, texts.column.name): set() for texts in asked}
    keys = list(found)
    for at, value in ask(" UNION ALL ".join(selects)):
        found[keys[int(at)]].add(str(value))
    return found


@lru_cache(maxsize=50_000)
def _quote(name: str, dialect: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def _source(table: Table, dialect: str) -> str:
    if _is_large(table):
        return _part_of(table.name).sql(dialect=dialect)
    return ".".join(_quote(part, dialect) for part in table.name.split("."))


def _table(name: str) -> exp.Table:
    parts = [exp.to_identifier(part, quoted=True) for part in name.split(".")]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def _part_of(name: str) -> exp.Expr:
    """Return a query for the first rows of a table."""
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
    """Return the common prefix of all names, such as `sb` in `sbCustomer` and `sbOrder`; never a whole name."""
    if len(names) < 3:
        return ()
    shared = 0
    while all(len(name) > shared + 1 for name in names) and len({name[shared] for name in names}) == 1:
        shared += 1
    return names[0][:shared]


@dataclass(frozen=True)
class Splitter:
    """Splits names written as one word, and spells out abbreviations of table names."""

    wholes: frozenset[str]
    parts: frozenset[str]
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def split(self, name: str) -> tuple[str, ...]:
        """Return the words of a column's or table's name."""
        return tuple(part for word in split_identifier(name) for part in self._parts(word))

    def _parts(self, word: str) -> tuple[str, ...]:
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = self._word(word)
        return found

    def _word(self, word: str) -> tuple[str, ...]:
        starts = [word[:end] for end in range(len(word)) if word[:end] in self.wholes]
        if word in self.wholes and not starts:
            return (word,)
        for first in reversed(starts):
            rest = word.removeprefix(first)
            if len(first) > 2 and (rest in TAILS or rest in self.wholes):
                return first, rest
        if word.startswith("num") and len(word) > 6 and word != "number" and not word.startswith("number"):
            return "num", word[3:]
        if base_form(word) in self._bases or len(word) < 3 or word in ABBREVIATIONS:
            return (word,)
        following = (self._sorted[at] for at in range(bisect_left(self._sorted, word), len(self._sorted)))
        begun = itertools.takewhile(lambda part: part.startswith(word), following)
        longer = list(itertools.islice((part for part in begun if len(part) > len(word) + 2), 2))
        return (longer[0],) if len(longer) == 1 else (word,)

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(base_form(part) for part in self.parts)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.parts)


def _name_table(table: KnownTable, common: tuple[str, ...], names: Splitter) -> KnownTable:
    check()
    own = names.split(_short(table.name))[len(common) :]
    splits = [names.split(column.name) for column in table.columns]
    start = _common_start(splits)
    columns = tuple(
        replace(column, words=spell_out(words[len(start) :]))
        for column, words in zip(table.columns, splits, strict=True)
    )
    words = spell_out(own)
    aliases = {spell_out(start[len(common) :] if start[: len(common)] == common else start)} - {(), words}
    named = replace(table, columns=columns, words=words, aliases=tuple(sorted(aliases)))
    named = replace(named, key=named.key or _guess_key(named))
    return replace(named, label=_guess_label(named))


def _guess_key(table: KnownTable) -> tuple[str, ...]:
    """Return a unique column that is named like a key; without one, the name of the thing itself."""
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


def _drop_borrowed_keys(tables: Sequence[KnownTable], links: Sequence[Link], catalog: Catalog) -> list[KnownTable]:
    """Drop guessed keys that refer to another table: they are unique only by chance."""
    declared = {table.name for table in catalog.tables if table.primary_key or table.unique}
    referring = {(link.table, link.columns) for link in links}
    return [
        replace(table, key=()) if table.name not in declared and (table.name, table.key) in referring else table
        for table in tables
    ]


def _mark_keys(tables: Sequence[KnownTable], links: Sequence[Link]) -> list[KnownTable]:
    keys = {table.name: {*table.key} for table in tables}
    for link in links:
        keys[link.table].update(link.columns)
        keys[link.to_table].update(link.to_columns)
    return [
        replace(
            table,
            columns=tuple(replace(c, identifies=True) if c.name in keys[table.name] else c for c in table.columns),
        )
        for table in tables
    ]


def _guess_label(table: KnownTable) -> tuple[str, ...]:
    """Return the name or title, or first and last name, else the key if it is text."""
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


@dataclass(frozen=True)
class _Reference:
    """A column that may refer to another table."""

    table: KnownTable
    column: KnownColumn
    to: KnownTable
    target: KnownColumn

    @property
    def ends(self) -> tuple[str, str, str]:
        return self.table.name, self.column.name, self.to.name


def _find_links(catalog: Catalog, tables: Sequence[KnownTable], ask: Ask) -> list[Link]:
    links = _declared_links(catalog)
    pairs = {frozenset((link.table, link.to_table)) for link in links}
    columns = {link.columns for link in links}
    known = {(link.table, link.columns[0], link.to_table) for link in links if len(link.columns) == 1}
    waiting: dict[tuple[str, str, str], _Reference] = {}

    def look() -> None:
        inside: dict[tuple[str, str, str], bool] = {}
        for group in _group(waiting.values(), lambda r: r.table.rows + r.to.rows, lambda _: 1):
            inside |= _ask_together(group, catalog.dialect, ask, _contained)
        for ends, reference in waiting.items():
            if inside[ends]:
                column, target = reference.column, reference.target
                once = column.distinct == reference.table.rows and not column.nulls
                link = Link(column.table, (column.name,), target.table, (target.name,), one_to_one=once)
                links.append(link)
                known.add(ends)
        waiting.clear()

    checks = 0
    for reference in _references(tables):
        if reference.ends in waiting:
            look()  # it may refer to the next column only if it does not refer to this one
        pair = frozenset((reference.table.name, reference.to.name))
        if reference.ends in known or (pair in pairs and (reference.column.name,) in columns):
            continue
        if checks == MAX_KEY_CHECKS:
            break
        checks += 1
        waiting[reference.ends] = reference
    look()
    return _without_mirrors(links, {table.name: table for table in tables})


def _references(tables: Sequence[KnownTable]) -> Iterator[_Reference]:
    """Yield the columns whose names suggest that they hold the key of another table, table by table."""
    by_name: dict[str, dict[tuple[str, ...], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    by_end: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for n, table in enumerate(tables):
        for m, column in enumerate(table.columns):
            by_name[column.name.lower()][column.words].append((n, m))
            for start in range(max(len(column.words), 1)):
                by_end[column.words[start:]].append((n, m))
    for to in tables:
        for target in _targets(to):
            check()
            same = by_name.get(target.name.lower(), {}).items()
            places = {place for words, held in same if not _says_nothing(words, target) for place in held}
            for ending in _endings(to, target):
                places.update(by_end.get(ending, ()))
            for n, m in sorted(places):
                table, column = tables[n], tables[n].columns[m]
                if table.name != to.name and _may_refer(column, to, target):
                    yield _Reference(table, column, to, target)


def _endings(to: KnownTable, target: KnownColumn) -> Iterator[tuple[str, ...]]:
    """Yield the last words of column names that may hold the target's values."""
    key = (target.name,) == to.key
    for words in (to.words, *to.aliases, to.words[-1:]):
        rest = target.words[len(words) :] if target.words[: len(words)] == words else target.words
        yield from (full for suffix in (rest, target.words) if (full := (*words, *suffix)) != ("name",))
        if key and words:
            yield (*words, "id")
            # A column named after the table, such as `from_airport`, may hold its key.
            yield words
    if key and len(target.words) == 1 and target.words[0] not in ("id", "name", "code", "key"):
        yield target.words


def _says_nothing(words: tuple[str, ...], target: KnownColumn) -> bool:
    """Return whether sharing the target's name means nothing: nearly all tables have an `id` and a `name`."""
    return words == ("name",) or words == target.words == ("id",)


def _declared_links(catalog: Catalog) -> list[Link]:
    links = []
    by_name = {table.name.lower(): table for table in reversed(catalog.tables)}
    for table in catalog.tables:
        for key in table.foreign_keys:
            target = by_name.get(key.to_table.lower())
            to_columns = key.to_columns or (target.primary_key if target else ())
            if target is not None and len(to_columns) == len(key.columns):
                links.append(Link(table.name, key.columns, target.name, tuple(to_columns), declared=True))
    return links


def _targets(table: KnownTable) -> list[KnownColumn]:
    """Return the unique columns, which other tables can refer to."""
    return [
        c
        for c in table.columns
        if table.rows and c.distinct == table.rows - c.nulls and not c.nulls and c.kind in ("number", "text")
        and c.words not in tuple((first, "name") for first in ("first", "last", "middle", "full", "user"))
        and ((c.name,) == table.key or c.words[-1:] in (("id",), ("code",), ("name",), ("number",), ("sequence",)))
    ]  # fmt: skip


_COUNTING = frozenset(("number", "count", "total", "minimum", "maximum", "average", "is", "has"))
"""First words of column names that hold an amount or a flag, never a reference."""


def _may_refer(column: KnownColumn, to: KnownTable, target: KnownColumn) -> bool:
    """Return whether the column's name suggests that it holds the target's values."""
    if column.kind != target.kind or _COUNTING & {*column.words[:1]}:
        return False
    if column.name.lower() == target.name.lower():
        return not _says_nothing(column.words, target)
    return column.words != ("name",) and any(column.words[-len(e) :] == e for e in _endings(to, target))


def _contained(references: Sequence[_Reference], dialect: str, ask: Ask) -> dict[tuple[str, str, str], bool]:
    """Return, for each reference, whether nearly all values of the column are values of its target."""
    found: dict[tuple[str, str, str], bool] = {}
    asked: list[_Reference] = []
    for reference in references:
        column, target = reference.column, reference.target
        if not reference.table.rows or column.distinct == 0:
            found[reference.ends] = True
        elif column.values and target.values:
            inside = len(set(column.values) & set(target.values))
            found[reference.ends] = inside >= 0.6 * len(column.values)
        else:
            asked.append(reference)
    if asked:
        selects = [_count_contained(reference, dialect) for reference in asked]
        joined = ", ".join(f"({select}) AS c{n}" for n, select in enumerate(selects))
        row = next(iter(ask(selects[0] if len(selects) == 1 else f"SELECT {joined}")))
        for reference, inside in zip(asked, row, strict=True):
            found[reference.ends] = int(inside) >= 0.6 * reference.column.distinct
    return found


def _count_contained(reference: _Reference, dialect: str) -> str:
    table, left, right = reference.table, _column(reference.column.name), _column(reference.target.name)
    inner = exp.Select(expressions=[right]).from_(_table(reference.to.name))
    query = (
        exp.Select(expressions=[exp.Count(this=exp.Distinct(expressions=[left]))])
        .from_(_part_of(table.name) if table.rows > MAX_ROWS else _table(table.name))
        .where(exp.In(this=left.copy(), query=inner.subquery()))
    )
    return query.sql(dialect=dialect)


def _without_mirrors(links: list[Link], tables: dict[str, KnownTable]) -> list[Link]:
    """Of two links between the same columns in both directions, keep the one to the table named by the key."""
    kept: list[Link] = []
    places: dict[tuple[str, tuple[str, ...], str, tuple[str, ...]], int] = {}
    for link in links:
        place = places.get((link.to_table, link.to_columns, link.table, link.columns))
        if place is None:
            places.setdefault((link.table, link.columns, link.to_table, link.to_columns), len(kept))
            kept.append(link)
            continue
        mirror = kept[place]
        if _owns(tables[link.to_table], link.to_columns) and not _owns(tables[mirror.to_table], mirror.to_columns):
            kept[place] = link
    return _without_passers(_without_detours(kept))


def _without_passers(links: list[Link]) -> list[Link]:
    """Drop links to a column that itself refers to a third table: others refer to that table too."""
    refers = {(link.table, link.columns): link.to_table for link in links}
    known = {(link.table, link.columns, link.to_table) for link in links}

    def passes(link: Link) -> bool:
        third = refers.get((link.to_table, link.to_columns))
        return third is not None and (link.table, link.columns, third) in known

    return [link for link in links if link.declared or not passes(link)]


def _owns(table: KnownTable, columns: tuple[str, ...]) -> bool:
    words = table.column(columns[0]).words
    return words[: len(table.words)] == table.words or words in (("id",), ("name",), ("code",))


def _without_detours(links: list[Link]) -> list[Link]:
    """If a column could refer to several tables, keep the link to the one it is named after."""
    alike: dict[tuple[str, tuple[str, ...]], list[Link]] = defaultdict(list)
    for link in links:
        alike[link.table, link.columns].append(link)
    chosen: dict[tuple[str, tuple[str, ...]], set[Link]] = {}
    for place, rivals in alike.items():
        if sum(not link.declared for link in rivals) != 1:
            own = base_form(split_identifier(place[1][0])[0])
            words = {link: _table_words(link.to_table) for link in rivals}
            chosen[place] = {k for k in rivals if own in words[k] or ABBREVIATIONS.get(own) in words[k]}
    return [
        link
        for link in links
        if link.declared or not (named := chosen.get((link.table, link.columns))) or link in named
    ]


def _table_words(name: str) -> tuple[str, ...]:
    return spell_out(split_identifier(_short(name)))
