"""What is known about a source: its tables, columns, keys and values, and the words that mean them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from operator import itemgetter
from typing import Any, Literal, TypeVar, cast

from etude.entities import Catalog
from etude.offline.collection import pause_garbage_collection
from etude.offline.deadline import without_giving_way
from etude.sources.column_kind import column_kind

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
_ANSWERS = (("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"))
_YES_OR_NO = frozenset(word for pair in _ANSWERS for word in pair)


@dataclass(frozen=True)
class Formula:
    """How a column is computed that the table does not have: from others, less a discount."""

    factors: tuple[str, ...] = ()
    operator: Literal["*", "-", "+"] = "*"
    discount: str = ""
    """The column that says which part of the product is taken off, if one does."""
    whole: int = 1
    """The discount of the whole price: 1 if it is a share, 100 if it is a percentage."""
    gaps: bool = False
    """Some rows have no discount, or no last operand; nothing is taken off or added there."""
    doubt: str = ""
    """Why it cannot be computed."""

    @property
    def text(self) -> str:
        """The formula in words."""
        said = {"*": " times ", "-": " minus ", "+": " plus "}[self.operator]
        computed = said.join(f"`{name}`" for name in self.factors)
        if self.discount:
            part = f"`{self.discount}` percent" if self.whole == 100 else f"the share `{self.discount}`"
            computed = f"{computed}, less {part}"
        return f"{computed}{' (none if it is missing)' if self.gaps else ''}"


@dataclass(frozen=True)
class VocabularyColumn:
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
    spellings: tuple[tuple[str, ...], ...] = ()
    """Texts that differ only in case, blanks and hyphens, the most frequent of each group first."""
    comment: str = ""
    words: tuple[str, ...] = ()
    """The name as words: abbreviations in full, without a prefix that all columns of the table share."""
    identifies: bool = False
    """It is a key or refers to one: its numbers are identifiers, not amounts."""
    formula: Formula | None = None
    """How it is computed, if the table does not have it."""
    as_text: bool = False
    """Its numbers are stored as text, and cast to be compared, sorted or added up."""

    @cached_property
    def flag(self) -> tuple[Scalar, Scalar] | None:
        """The values for yes and no, if the column holds nothing else."""
        if self.kind == "boolean":
            return True, False
        if self.kind == "number" and (self.low, self.high) in ((0, 1), (1, 1), (0, 0)) and self.words[:1] in _FLAGS:
            return 1, 0
        if self.kind == "text" and self.values and self.values[0].strip().lower() in _YES_OR_NO:
            by_low = {value.strip().lower(): value for value in self.values}
            for yes, no in _ANSWERS:
                if set(by_low) <= {yes, no}:
                    return by_low.get(yes, yes.title()), by_low.get(no, no.title())
        return None


@dataclass(frozen=True)
class VocabularyTable:
    """What is known about a table."""

    name: str
    rows: int
    columns: tuple[VocabularyColumn, ...]
    key: tuple[str, ...] = ()
    """Columns that identify a row, if known."""
    label: tuple[str, ...] = ()
    """Columns that name a row to people."""
    words: tuple[str, ...] = ()
    aliases: tuple[tuple[str, ...], ...] = ()
    comment: str = ""
    derived: tuple[VocabularyColumn, ...] = ()
    """What can be computed for each row, although no column holds it."""

    def column(self, name: str) -> VocabularyColumn:
        """Return the column of that name, or what is derived by that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, VocabularyColumn]:
        # If two columns share a name, the first wins.
        return {column.name: column for column in reversed((*self.columns, *self.derived))}


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
    tables: tuple[VocabularyTable, ...]
    links: tuple[Link, ...] = ()
    catalog: Catalog | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        """Hash the fingerprint only; hashing all tables would be slow."""
        return hash((self.fingerprint, self.dialect))

    def table(self, name: str) -> VocabularyTable:
        """Return the table of that name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, VocabularyTable]:
        return {table.name: table for table in self.tables}

    def to_json(self) -> str:
        """Return the vocabulary as JSON text."""
        body = _fields_of(self)
        del body["catalog"]
        catalog = self.catalog.model_dump_json() if self.catalog else "null"
        return f'{json.dumps(body, ensure_ascii=False, default=_fields_of)[:-1]}, "catalog": {catalog}}}'


Known = TypeVar("Known", VocabularyColumn, VocabularyTable)


def copy_with(known: Known, **changes: Any) -> Known:
    """Return the column or table with some fields changed.

    `dataclasses.replace` does the same in five times the time, and a source may have tens of thousands of columns.
    """
    made = object.__new__(type(known))
    made.__dict__.update(_fields_of(known), **changes)
    return made


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of one object, and no properties that it keeps; `asdict` would copy nested objects too."""
    names, read = _reader(type(value))
    return dict(zip(names, read(value.__dict__), strict=True))


_Reader = tuple[tuple[str, ...], Callable[[dict[str, Any]], tuple[Any, ...]]]
_readers: dict[type[Any], _Reader] = {}


def _reader(kind: type[Any]) -> _Reader:
    found = _readers.get(kind)
    if found is None:
        names = tuple(each.name for each in fields(kind))
        found = _readers[kind] = names, itemgetter(*names)
    return found


def once_per_vocabulary(make: Callable[[Vocabulary], T]) -> Callable[[Vocabulary], T]:
    """Compute a value from a vocabulary once, and keep it on that object.

    A cache with the vocabulary as its key would compare whole vocabularies at each lookup.
    """
    key = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def made(vocabulary: Vocabulary) -> T:
        kept = vocabulary.__dict__
        if key not in kept:
            with without_giving_way(), pause_garbage_collection():
                kept[key] = make(vocabulary)
        return cast("T", kept[key])

    return made


def vocabulary_from_json(text: str) -> Vocabulary:
    """Return the vocabulary that `to_json` wrote."""
    with pause_garbage_collection():
        return _vocabulary_from_json(text)


def _vocabulary_from_json(text: str) -> Vocabulary:
    body = json.loads(text)
    tables = []
    for table in body["tables"]:
        columns, derived = (tuple(map(_column_from, table.pop(part))) for part in ("columns", "derived"))
        tables.append(VocabularyTable(columns=columns, derived=derived, **{k: _tuples(v) for k, v in table.items()}))
    links = tuple(Link(**{k: _tuples(v) for k, v in link.items()}) for link in body["links"])
    catalog = Catalog.model_validate(body["catalog"]) if body["catalog"] else None
    return Vocabulary(body["fingerprint"], body["dialect"], tuple(tables), links, catalog)


def _column_from(body: dict[str, Any]) -> VocabularyColumn:
    made = body.pop("formula")
    formula = Formula(**{k: _tuples(v) for k, v in made.items()}) if made else None
    return VocabularyColumn(formula=formula, **{k: _tuples(v) for k, v in body.items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def vocabulary_value_kind(type_name: str) -> ValueKind:
    """Return the kind of a column's values, given the engine's name of its type."""
    kind = column_kind(type_name)
    if kind == "timestamptz":
        return "timestamp"
    return "boolean" if kind == "flag" else kind
