"""The code that a DuckDB file contains: views, macros and generated columns, checked before a query may use them.

DuckDB expands this code inside a query, where the guard, which reads the text of the query, does not see it. So it is
checked by the same allow-list of functions, and may read only tables of its own file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from etude.errors import EtudeError, Refused
from etude.sources.guard_duckdb import DuckdbGrantedNames, DuckdbGuard
from etude.sources.quoting import fold_duckdb_name, quote_identifier

_OPENS, _CLOSES = ("(", "[", "{"), (")", "]", "}")
_GENERATED = ["generated", "always", "as", "("]
_VARIANTS = "Candidate macros:\n\t"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Item(NamedTuple):
    """A view, macro or table; names are folded."""

    kind: str
    database: str
    schema: str
    name: str


class _Contents(NamedTuple):
    """The code of all attached files, as text."""

    definitions: dict[_Item, list[str]]
    tables: set[tuple[str, str, str]]
    """Database, schema and name of every table and view, folded."""
    builtin: frozenset[str]
    """Names of macros that are also names of built-in functions."""
    overloads: dict[_Item, dict[str, list[list[str]]]]
    """The parameters of each variant of a macro, by kind: a macro for values and one for tables may share a name."""
    unclear: str | None = None
    """A macro or type that DuckDB might write into a definition so that it reads as something else."""


class DuckdbFileCode:
    """The code of the DuckDB files that a connection has attached. It is read once: the files cannot change."""

    def __init__(self, connection: Any, databases: Mapping[str, str], names: DuckdbGrantedNames) -> None:
        """`databases` gives the name under which each source of this kind is attached, if that is not its own name."""
        self._connection = connection
        self._databases = {fold_duckdb_name(k): fold_duckdb_name(v) for k, v in databases.items()}
        self._names = names
        self._passed: set[_Item] = set()
        self._guards: dict[str, tuple[DuckdbGuard, _Uses]] = {}

    def macros(self) -> list[str]:
        """Return the names of the macros that a query can call; those of a hidden database are out of its reach."""
        return [i.name for i in self._contents.definitions if i.kind == "macro" and i.database in self._databases]

    def check(self, tables: Iterable[str], functions: Iterable[str]) -> None:
        """Raise `Refused` if a query on these tables and functions would run code that a query may not contain."""
        if not self._databases:
            return
        if self._contents.unclear is not None:
            raise Refused(
                f"The name of {self._contents.unclear} in the DuckDB file is not plain, so its code cannot be checked.",
                hint="Names of macros and types may have letters, digits and `_`, no digit first: rename it.",
                reason="code",
            )
        macros = self._macros_by_name()
        shadowing = [i for name in sorted(self._contents.builtin) for i in macros.get(name, ())]
        called = set(functions)
        for macro in shadowing:
            # Operators, `SUMMARIZE` and the views of other files call functions that the text does not name.
            if macro.name in called or len(self._databases) > 1:
                raise _refuse_shadowing(macro)
        pending = list(shadowing)
        pending += [macro for name in called for macro in macros.get(name, ())]
        for database, schema, name in (key for shown in tables for key in self._names.keys_of(shown)):
            if inner := self._databases.get(database):
                pending.append(_Item("table", inner, schema, name))
        self._check_all(pending)

    def _check_all(self, pending: list[_Item]) -> None:
        seen: set[_Item] = set()
        while pending:
            item = pending.pop()
            if item in seen or item in self._passed:
                continue
            seen.add(item)
            defaults = self._default_values(item) if item.kind == "macro" else []
            for text in (*self._contents.definitions.get(item, ()), *defaults):
                pending += self._uses_of(item, text)
        self._passed |= seen

    def _uses_of(self, item: _Item, text: str) -> Iterator[_Item]:
        """Check a definition; yield the tables and macros of its own file that it uses."""
        guard, uses = self._guard_of(item.database)
        uses.clear()
        try:
            guard.check(text)
        except EtudeError as error:
            noun = "macro" if item.kind == "macro" else "definition of"
            reason = error.message.removeprefix("Refused: ")
            raise Refused(
                f"The {noun} `{item.name}` in the DuckDB file is refused: {reason}",
                hint="Views, macros and generated columns may use only what a query may use, of their own file.",
                reason="code",
            ) from None
        for shown in uses.tables:
            yield from (_Item("table", *key) for key in _own_keys(self._contents.tables, item.database, shown))
        for name in uses.functions:
            yield from (i for i in self._macros_of(item.database) if i.name == name)

    def _default_values(self, item: _Item) -> list[str]:
        """Return the default values of a macro's parameters, each as a query.

        DuckDB computes them when the macro is created, but a file can contain any expression. DuckDB shows them only in
        the error for a call with arguments that no variant takes.
        """
        found = []
        for kind, variants in self._contents.overloads.get(item, {}).items():
            if not any(variants):
                continue
            shown = self._variants_text(item, kind, {name for names in variants for name in names})
            if ":=" not in shown:
                continue
            read = _read_variants(shown, item.name, len(variants))
            if read is None or sorted(names for names, _ in read) != sorted(variants):
                raise Refused(
                    f"The default values of the macro `{item.name}` in the DuckDB file cannot be checked.",
                    hint="Create the macro without default values, or with plain names of parameters.",
                    reason="code",
                )
            found += [f"SELECT {value}" for _, values in read for value in values]
        return found

    def _variants_text(self, item: _Item, kind: str, parameters: set[str]) -> str:
        """Return DuckDB's list of the variants of a macro: `name(a, b := 1)`, one in each line, and more text."""
        import duckdb

        wrong = "no_such_parameter"
        while wrong in parameters:
            wrong += "_"
        path = ".".join(quote_identifier(part) for part in (item.database, item.schema, item.name))
        call = f"{path}({wrong} := 1)"
        try:
            self._connection.execute(f"FROM {call}" if kind == "table_macro" else f"SELECT {call}").close()
        except duckdb.BinderException as error:
            _, found, shown = str(error).partition(_VARIANTS)
            if found:
                return shown
        except duckdb.Error:
            pass
        return ":="

    def _guard_of(self, database: str) -> tuple[DuckdbGuard, _Uses]:
        if database not in self._guards:
            uses = _Uses()
            shown = next((k for k, v in self._databases.items() if v == database), database)
            names = _OwnTables(database, shown, self._contents.tables)
            macros = self._macros_of(database)
            schemas = {i.schema for i in macros}
            guard = DuckdbGuard(
                self._connection, names, lambda: [i.name for i in macros], uses.record, function_schemas=schemas
            )
            self._guards[database] = guard, uses
        return self._guards[database]

    def _macros_of(self, database: str) -> list[_Item]:
        return [i for i in self._contents.definitions if i.kind == "macro" and i.database == database]

    def _macros_by_name(self) -> dict[str, list[_Item]]:
        found: dict[str, list[_Item]] = defaultdict(list)
        for item in self._contents.definitions:
            # A hidden database is not in the search path: its macros are reached through its views only.
            if item.kind == "macro" and item.database in self._databases:
                found[item.name].append(item)
        return found

    @cached_property
    def _contents(self) -> _Contents:
        attached, run = set(self._databases.values()), self._connection.execute
        definitions: dict[_Item, list[str]] = defaultdict(list)
        tables = set()
        # DuckDB writes these texts itself, from the trees that it stores and runs.
        for database, schema, name, sql, view in run(
            "SELECT database_name, schema_name, view_name, sql, true FROM duckdb_views() WHERE NOT internal UNION ALL "
            "SELECT database_name, schema_name, table_name, "
            "CASE WHEN sql LIKE '%GENERATED ALWAYS AS%' THEN sql END, false FROM duckdb_tables() WHERE NOT internal"
        ).fetchall():
            key = (fold_duckdb_name(database), fold_duckdb_name(schema), fold_duckdb_name(name))
            if key[0] not in attached:
                continue
            tables.add(key)
            if view or sql:
                texts = [_query_of_view(sql or "")] if view else _generated_columns(sql)
                definitions[_Item("table", *key)] += texts
        overloads: dict[_Item, dict[str, list[list[str]]]] = {}
        for database, schema, name, kind, text, parameters in run(
            "SELECT database_name, schema_name, function_name, function_type, macro_definition, parameters "
            "FROM duckdb_functions() WHERE NOT internal"
        ).fetchall():
            if (inside := fold_duckdb_name(database)) in attached:
                item = _Item("macro", inside, fold_duckdb_name(schema), fold_duckdb_name(name))
                definitions[item].append(text if kind == "table_macro" else f"SELECT {text}")
                names = [fold_duckdb_name(parameter) for parameter in parameters]
                overloads.setdefault(item, {}).setdefault(kind, []).append(names)
        macros = {i.name for i in definitions if i.kind == "macro"}
        return _Contents(dict(definitions), tables, self._built_in(macros), overloads, self._find_unclear(macros))

    def _find_unclear(self, macros: set[str]) -> str | None:
        """Return a macro or type whose name is not plain: DuckDB writes such names without quotes in some places."""
        types = self._connection.execute("SELECT type_name FROM duckdb_types() WHERE NOT internal").fetchall()
        named = [("the macro", name) for name in sorted(macros)] + [("the type", name) for (name,) in sorted(types)]
        return next((f"{what} `{name}`" for what, name in named if not _PLAIN_NAME.fullmatch(name)), None)

    def _built_in(self, macros: set[str]) -> frozenset[str]:
        if not macros:
            return frozenset()
        query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal"
        return frozenset(macros & {fold_duckdb_name(name) for (name,) in self._connection.execute(query).fetchall()})


class _Uses:
    """The tables and functions that a checked text names."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.functions: set[str] = set()

    def record(self, tables: Iterable[str], functions: Iterable[str]) -> None:
        self.tables |= set(tables)
        self.functions |= set(functions)

    def clear(self) -> None:
        self.tables.clear()
        self.functions.clear()


class _OwnTables(DuckdbGrantedNames):
    """The tables that the code of a file may read: all of the file. DuckDB looks in the schema of the code first."""

    def __init__(self, database: str, shown: str, tables: set[tuple[str, str, str]]) -> None:
        super().__init__(database, (), all_granted=False)
        self._own = database, shown
        self._tables = tables

    def find(self, path: list[str]) -> str | None:
        """Return the path without the name of the database, if it names a table of the file."""
        parts = [fold_duckdb_name(p) for p in path]
        inside = [parts] if len(parts) < 3 else []
        if len(parts) > 1 and parts[0] in self._own:
            inside.append(parts[1:])
        for each in inside:
            if _own_keys(self._tables, self._own[0], "\0".join(each)):
                return "\0".join(each)
        return None

    def nearest(self, path: list[str]) -> str:
        """Return no hint: a name may be one that is not granted."""
        return ""


def _own_keys(tables: set[tuple[str, str, str]], database: str, shown: str) -> list[tuple[str, str, str]]:
    """Return the tables of a file that a name may mean: the schema may be left out."""
    schema, _, name = shown.rpartition("\0")
    if schema:
        return [(database, schema, name)] if (database, schema, name) in tables else []
    return [key for key in tables if key[0] == database and key[2] == name]


def _refuse_shadowing(macro: _Item) -> Refused:
    return Refused(
        f"`{macro.name}` is a macro of `{macro.database}`, which would run instead of the built-in function.",
        hint="Rename the macro in the file, or remove it. Without calls of it, the file can be queried alone.",
        reason="function",
    )


def _query_of_view(sql: str) -> str:
    """Return the query in `CREATE VIEW name (columns) AS query`; an empty text, which is refused, if there is none."""
    words = _words(sql)
    depth = 0
    for start, word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and word == "as":
            return sql.encode()[start + len(word) :].decode()
    return ""


def _read_variants(text: str, macro: str, count: int) -> list[tuple[list[str], list[str]]] | None:
    """Return the names and the default values of the parameters of each variant; None if the text is not as expected.

    `text` begins with a list such as `name(a, b VARCHAR := 'x')`. More text may follow.
    """
    words, raw, found = _words(text), text.encode(), []
    places = iter(words)
    for _ in range(count):
        if [word for _, word in islice(places, 2)] != [macro, "("]:
            return None
        names, values, depth, first, value = list[str](), list[str](), 1, True, -1
        for start, word in places:
            depth += (word in _OPENS) - (word in _CLOSES)
            if depth == 0 or (depth == 1 and word == ","):
                if value >= 0:
                    values.append(raw[value:start].decode())
                first, value = True, -1
                if depth == 0:
                    break
            elif first:
                if not _PLAIN_NAME.fullmatch(word):
                    return None
                names.append(word)
                first = False
            elif depth == 1 and word == ":=" and value < 0:
                value = start + len(word)
        else:
            return None
        found.append((names, values))
    return found


def _generated_columns(sql: str) -> list[str]:
    """Return the expressions of generated columns in a `CREATE TABLE`, each as a query."""
    words, raw, found = _words(sql), sql.encode(), []
    for index in range(len(words)):
        if [word for _, word in words[index : index + 4]] != _GENERATED:
            continue
        depth = 0
        start = words[index + 3][0]
        for end, word in words[index + 3 :]:
            depth += (word == "(") - (word == ")")
            if depth == 0:
                found.append(f"SELECT {raw[start : end + 1].decode()}")
                break
    return found


def _words(sql: str) -> list[tuple[int, str]]:
    """Return the byte offset of each token, with its text in lower case."""
    import duckdb

    raw = sql.encode()
    offsets = [offset for offset, _ in duckdb.tokenize(sql)]
    ends = [*offsets[1:], len(raw)]
    return [(s, raw[s:e].decode(errors="replace").strip().lower()) for s, e in zip(offsets, ends, strict=True)]
