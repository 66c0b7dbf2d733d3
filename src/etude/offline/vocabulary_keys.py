"""Keys and labels of tables, declared or guessed, and the links between tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etude.entities import Catalog
from etude.offline.deadline import check_deadline
from etude.offline.vocabulary import Ask, Link, VocabularyColumn, VocabularyTable, copy_with
from etude.offline.vocabulary_names import vocabulary_name_words
from etude.offline.vocabulary_queries import (
    MAX_ROWS,
    group_vocabulary_queries,
    run_vocabulary_queries,
    vocabulary_query_first_rows,
)
from etude.offline.words import ABBREVIATIONS, split_identifier_words, word_base_form
from etude.sources.quoting import quote_identifier, quote_table

MAX_KEY_CHECKS = 400


def guess_vocabulary_key(table: VocabularyTable) -> tuple[str, ...]:
    """Return a unique column that is named like a key; without one, the name of the thing itself."""
    unique = [c for c in table.columns if table.rows and c.distinct == table.rows and not c.nulls]
    first = table.columns[0].name if table.columns else ""

    def rank(column: VocabularyColumn) -> int | None:
        last = column.words[-1] if column.words else ""
        about = column.words[:-1] in ((), table.words, table.words[-1:])
        if last in ("id", "code", "key", "uuid", "number") and about:
            return 0
        if last.endswith("id") and column.name == first and column.kind == "number":
            return 1
        if column.kind == "number" and last.endswith("id") and len(last) == 3 and last[0] == table.words[0][:1]:
            return 1
        if column.words in (table.words, (*table.words, "name"), ("name",)) and may_name(column):
            return 2
        return None

    def may_name(column: VocabularyColumn) -> bool:
        # The `sales` of a table of sales are amounts, even if no two are equal; the `room` of rooms is a number.
        if column.kind != "number":
            return True
        singular = word_base_form(column.name.lower()) == column.name.lower()
        return column.name == first and singular and isinstance(column.low, int) and isinstance(column.high, int)

    ranked = sorted((r, n) for n, column in enumerate(unique) if (r := rank(column)) is not None)
    return (unique[ranked[0][1]].name,) if ranked else ()


def drop_borrowed_vocabulary_keys(
    tables: Sequence[VocabularyTable], links: Sequence[Link], catalog: Catalog
) -> list[VocabularyTable]:
    """Drop guessed keys that refer to another table: they are unique only by chance."""
    declared = {table.name for table in catalog.tables if table.primary_key or table.unique}
    referring = {(link.table, link.columns) for link in links}
    return [
        copy_with(table, key=()) if table.name not in declared and (table.name, table.key) in referring else table
        for table in tables
    ]


def mark_vocabulary_keys(tables: Sequence[VocabularyTable], links: Sequence[Link]) -> list[VocabularyTable]:
    """Mark the columns that are part of a key or refer to one."""
    keys = {table.name: {*table.key} for table in tables}
    for link in links:
        keys[link.table].update(link.columns)
        keys[link.to_table].update(link.to_columns)
    return [
        copy_with(
            table,
            columns=tuple(copy_with(c, identifies=True) if c.name in keys[table.name] else c for c in table.columns),
        )
        for table in tables
    ]


def guess_vocabulary_label(table: VocabularyTable) -> tuple[str, ...]:
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
    given, family = ([n for w, n in by_words.items() if w[-2:] == (part, "name")] for part in ("first", "last"))
    if len(given) == len(family) == 1:
        return given[0], family[0]
    for last in ("name", "title", "description", "detail", "content", "text"):
        said = [name for words, name in by_words.items() if words[-1:] == (last,) and words[0] != "other"]
        if len(said) == 1:
            return (said[0],)
    return ()


@dataclass(frozen=True)
class _Reference:
    """A column that may refer to another table."""

    table: VocabularyTable
    column: VocabularyColumn
    to: VocabularyTable
    target: VocabularyColumn

    @property
    def ends(self) -> tuple[str, str, str]:
        return self.table.name, self.column.name, self.to.name


def find_vocabulary_links(catalog: Catalog, tables: Sequence[VocabularyTable], ask: Ask) -> list[Link]:
    """Return the declared links, and those whose names suggest them and whose values confirm them."""
    links = _declared_links(catalog)
    pairs = {frozenset((link.table, link.to_table)) for link in links}
    columns = {link.columns for link in links}
    known = {(link.table, link.columns[0], link.to_table) for link in links if len(link.columns) == 1}
    waiting: dict[tuple[str, str, str], _Reference] = {}

    def look() -> None:
        inside: dict[tuple[str, str, str], bool] = {}
        for group in group_vocabulary_queries(waiting.values(), lambda r: r.table.rows + r.to.rows, lambda _: 1):
            inside |= run_vocabulary_queries(group, catalog.dialect, ask, _contained)
        for ends, reference in waiting.items():
            if inside[ends]:
                column, target = reference.column, reference.target
                once = column.distinct == reference.table.rows and not column.nulls
                link = Link(column.table, (column.name,), target.table, (target.name,), one_to_one=once)
                links.append(link)
                known.add(ends)
        waiting.clear()

    checks = 0
    for reference in _references(tables, loose=not links):
        if reference.ends in waiting:
            look()  # it may refer to the next column only if it does not refer to this one
        pair = frozenset((reference.table.name, reference.to.name))
        own = (reference.column.name,) == reference.table.key
        if reference.ends in known or (pair in pairs and (own or (reference.column.name,) in columns)):
            continue
        if checks == MAX_KEY_CHECKS:
            break
        checks += 1
        waiting[reference.ends] = reference
    look()
    return _without_mirrors(links, {table.name: table for table in tables})


def _references(tables: Sequence[VocabularyTable], loose: bool) -> Iterator[_Reference]:
    """Yield the columns whose names suggest that they hold the key of another table, table by table.

    If `loose`, because no keys are declared, a shared name or the same codes suggest it, too.
    """
    by_name: dict[str, dict[tuple[str, ...], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    by_end: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for n, table in enumerate(tables):
        for m, column in enumerate(table.columns):
            by_name[column.name.lower()][column.words].append((n, m))
            for start in range(max(len(column.words), 1)):
                by_end[column.words[start:]].append((n, m))
    for to in tables:
        shared = {name for name, held in by_name.items() if sum(map(len, held.values())) > 1} if loose else set()
        for target in _targets(to, shared):
            check_deadline()
            same = by_name.get(target.name.lower(), {}).items()
            places = {place for words, held in same if not _says_nothing(words, target) for place in held}
            for ending in _endings(to, target):
                places.update(by_end.get(ending, ()))
            for n, m in sorted(places):
                table, column = tables[n], tables[n].columns[m]
                if table.name != to.name and _may_refer(column, to, target):
                    yield _Reference(table, column, to, target)
    for to in tables if loose else ():
        for target in (c for c in to.columns if _is_unique(c, to) and _code_length(c)):
            check_deadline()
            coded = [(t, c) for t in tables if t.name != to.name for c in t.columns if _same_codes(c, target)]
            yield from (_Reference(table, column, to, target) for table, column in coded)


def _endings(to: VocabularyTable, target: VocabularyColumn) -> Iterator[tuple[str, ...]]:
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


def _says_nothing(words: tuple[str, ...], target: VocabularyColumn) -> bool:
    """Return whether sharing the target's name means nothing: nearly all tables have an `id` and a `name`."""
    return words == ("name",) or words == target.words in (("id",), ("code",), ("key",), ("number",))


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


def _targets(table: VocabularyTable, shared: set[str]) -> list[VocabularyColumn]:
    """Return the unique columns, which other tables can refer to; also texts whose names are `shared` by tables."""
    return [
        c
        for c in table.columns
        if _is_unique(c, table) and c.kind in ("number", "text")
        and c.words not in tuple((first, "name") for first in ("first", "last", "middle", "full", "user"))
        and ((c.name,) == table.key or c.words[-1:] in (("id",), ("code",), ("name",), ("number",), ("sequence",))
             or (c.kind == "text" and c.name.lower() in shared and not _DESCRIBING & {*c.words}))
    ]  # fmt: skip


_DESCRIBING = frozenset(
    ("name", "title", "description", "email", "phone", "address", "comment", "text", "url", "note", "date", "time")
)
"""Words in the names of columns that many tables have, each for itself."""
_FEW_CODES = 10


def _is_unique(column: VocabularyColumn, table: VocabularyTable) -> bool:
    return bool(table.rows) and column.distinct == table.rows - column.nulls and not column.nulls


def _code_length(column: VocabularyColumn) -> int:
    """Return how long the codes of a column are, such as `JFK`; 0 if it holds other texts."""
    first = column.values[0] if column.kind == "text" and column.values else ""
    coded = 2 <= len(first) <= 5 and all(
        len(value) == len(first) and value.isalnum() and value.isupper() for value in column.values
    )
    return len(first) if coded else 0


def _same_codes(column: VocabularyColumn, target: VocabularyColumn) -> bool:
    """Return whether nearly all codes of the column are codes of the target. Two letters mean many things."""
    if column.distinct < 3 or not _code_length(column) or _code_length(column) != _code_length(target):
        return False
    enough = len(column.values) >= _FEW_CODES or _code_length(column) > 2
    return enough and len({*column.values} & {*target.values}) >= 0.95 * len(column.values)


_COUNTING = frozenset(("number", "count", "total", "minimum", "maximum", "average", "is", "has"))
"""First words of column names that hold an amount or a flag, never a reference."""


def _may_refer(column: VocabularyColumn, to: VocabularyTable, target: VocabularyColumn) -> bool:
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
    left, right = (quote_identifier(column.name, dialect) for column in (reference.column, reference.target))
    table, to = reference.table, quote_table(reference.to.name, dialect)
    source = quote_table(table.name, dialect)
    if table.rows > MAX_ROWS:
        source = vocabulary_query_first_rows(table.name).sql(dialect=dialect)
    return f"SELECT COUNT(DISTINCT {left}) FROM {source} WHERE {left} IN (SELECT {right} FROM {to})"


def _without_mirrors(links: list[Link], tables: dict[str, VocabularyTable]) -> list[Link]:
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


def _owns(table: VocabularyTable, columns: tuple[str, ...]) -> bool:
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
            own = word_base_form(split_identifier_words(place[1][0])[0])
            words = {link: vocabulary_name_words(link.to_table) for link in rivals}
            chosen[place] = {k for k in rivals if own in words[k] or ABBREVIATIONS.get(own) in words[k]}
    return [
        link
        for link in links
        if link.declared or not (named := chosen.get((link.table, link.columns))) or link in named
    ]
