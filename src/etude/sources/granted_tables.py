"""The tables that a query may read, and which of them a name in the text means by the rules of each engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etude.errors import UnknownTable
from etude.similar_names import similar_names

Described = Sequence[tuple[str, str, bool, str]]
"""Columns of a table: name, type, whether it may be null, and `PRI`, `UNI` or nothing."""


@dataclass(frozen=True)
class UserCode:
    """A cast, an operator with a built-in name, an operator class or a domain's check that runs user-defined code.

    A query may reach it through a value of its type: from one of `tables`, or if the text names one of `types`.
    """

    shown: str
    kind: str = "cast"
    operator: str = ""
    """The name of the operator; empty for the others, which need not be written to run."""
    types: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    always: bool = False
    """Whether values of built-in types are enough to reach it."""


@dataclass(frozen=True)
class Granted:
    """The tables that a query may read. `tables` maps display names to (schema, table) as the engine spells them."""

    source: str
    tables: Mapping[str, tuple[str, str]]
    schemas: frozenset[str] = frozenset()
    describe: Callable[[str], Described] = field(default=lambda name: ())
    callable: frozenset[str] | None = None
    """For Postgres: the names of all functions that take one argument, because `value.name` calls such a function."""
    shadowed: frozenset[str] = frozenset()
    """User-defined functions. A call by an allowed name might run one of them instead of the built-in function."""
    operators: frozenset[str] = frozenset()
    """For Postgres: user-defined operators; each calls a function."""
    types: frozenset[str] = frozenset()
    """For Postgres: types that are not built in, but whose input runs no user-defined code, such as enumerations."""
    domains: frozenset[str] = frozenset()
    """For Postgres: types whose input may run user-defined code."""
    fields: frozenset[str] = frozenset()
    """For Postgres: the names of the fields of composite types."""
    user_code: tuple[UserCode, ...] = ()
    """For Postgres: casts, operators, operator classes and checks that a value may run without a call in the text."""
    lookups: frozenset[str] = frozenset()
    """For Postgres: tables with values such as `regclass`; a text beside one is looked up among all names."""

    @cached_property
    def exact(self) -> Mapping[str, list[str]]:
        """Display names by table name. An index, because a source may have thousands of tables."""
        return self._by_table(lambda text: text)

    @cached_property
    def folded(self) -> Mapping[str, list[str]]:
        """Display names by table name in lower case."""
        return self._by_table(ascii_lower)

    def _by_table(self, same: Callable[[str], str]) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for shown, (_, table) in self.tables.items():
            found.setdefault(same(table), []).append(shown)
        return found


@dataclass(frozen=True)
class TableNamePart:
    """One part of a qualified name, and whether it was in quotes."""

    text: str
    quoted: bool

    @classmethod
    def from_text(cls, text: str) -> TableNamePart:
        """Read one part as it is written, with or without quotes."""
        return cls(text[1:-1], True) if text[0] in '"`[' else cls(text, False)


def fold_name(part: TableNamePart, dialect: str) -> str:
    """Return the name as the engine compares it. Only ASCII is lower-cased: a Kelvin sign is not a `k`."""
    if dialect == "postgres":
        return truncate_name(part.text if part.quoted else ascii_lower(part.text))
    return part.text if dialect == "mysql" else ascii_lower(part.text)


def ascii_lower(text: str) -> str:
    """Return the text with its ASCII letters in lower case; others stay as they are."""
    return text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)


def resolve_table(
    parts: list[TableNamePart], dialect: str, granted: Granted, position: Callable[[], Mapping[str, int]]
) -> tuple[str, tuple[str, ...] | None]:
    """Return the granted table that a name means, and how to write it if the engine would not find it as written."""
    path, dropped = list(parts), False
    if len(path) > 1 and ascii_lower(path[0].text) == granted.source.lower() and not is_schema(path[0], granted):
        path, dropped = path[1:], True
    if len(path) <= 2:
        found = find_table([fold_name(p, dialect) for p in path], granted, exact=dialect != "sqlite")
        if found is not None:
            return found, tuple(granted.tables[found]) if dropped else None
        # More lenient than the engine: ignore case if only one table matches then.
        found = find_table([ascii_lower(p.text) for p in path], granted, exact=False)
        if found is not None:
            return found, granted.tables[found]
    shown = ".".join(p.text for p in parts)
    raise UnknownTable(
        f"`{shown}` is not a table of `{granted.source}`.",
        hint=_nearest(shown, granted),
        reason="table",
        **position(),
    )


def is_schema(part: TableNamePart, granted: Granted) -> bool:
    """Return whether the first part of a name is a schema and not the name of the source."""
    return ascii_lower(part.text) in {ascii_lower(s) for s in granted.schemas}


def find_table(path: list[str], granted: Granted, *, exact: bool) -> str | None:
    """Return the only granted table that a path means; a path that is not `exact` is in lower case."""
    same: Callable[[str], str] = (lambda text: text) if exact else ascii_lower
    matches = [
        shown
        for shown in (granted.exact if exact else granted.folded).get(path[-1], ())
        if same(granted.tables[shown][0] if len(path) == 2 else shown) == path[0]
    ]
    return matches[0] if len(matches) == 1 else None


def choose_granted_tables(
    wanted: Iterable[str], tables: Iterable[tuple[str, str]], is_default: Callable[[str, str], bool]
) -> set[tuple[str, str]]:
    """Return the tables, as (schema, table), that the names of a grant mean. No name grants more than one table.

    A name without a dot is a table that `is_default`, so that a query finds it without its schema. Otherwise the schema
    is before the first dot: `a.b` never means a table whose own name has the dot. Names are compared exactly; a name
    that no table has means the only table whose name differs in case alone.
    """
    exact: dict[str, set[tuple[str, str]]] = defaultdict(set)
    folded: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for schema, table in tables:
        names = [f"{schema}.{table}"] if "." not in schema else []
        if "." not in table and is_default(schema, table):
            names.append(table)
        for name in names:
            exact[name].add((schema, table))
            folded[ascii_lower(name)].add((schema, table))
    chosen = [exact.get(name) or folded.get(ascii_lower(name), set()) for name in wanted]
    return {table for found in chosen if len(found) == 1 for table in found}


def display_table(schema: str, table: str, is_default: bool) -> str:
    """Return the name of a table for users: without its schema, if a query finds it so and its own name has no dot."""
    return table if is_default and "." not in table else f"{schema}.{table}"


def truncate_name(name: str) -> str:
    """Return the name as Postgres reads it: at most 63 bytes, without a part of a character."""
    return name if len(name) < 16 else name.encode()[:63].decode(errors="ignore")


def _nearest(name: str, granted: Granted) -> str:
    by_name = {shown.lower(): shown for shown in granted.tables}
    by_name |= {table.lower(): shown for shown, (_, table) in granted.tables.items()}
    wanted = name.lower()
    near = similar_names(wanted, by_name, n=1) or similar_names(wanted.rpartition(".")[2], by_name, n=1)
    if near:
        return f"Did you mean `{by_name[near[0]]}`?"
    listed = ", ".join(f"`{shown}`" for shown in sorted(granted.tables)[:8])
    more = ", ..." if len(granted.tables) > 8 else ""
    return f"Tables: {listed}{more}." if listed else "The source grants no tables."
