"""The driver for DuckDB files, and for data files as views over Parquet. It can open several sources at once."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from etude.arrow_limits import check_nested_types
from etude.errors import EtudeError, InvalidQuery, LimitExceeded, SourceError, SourceLocked, SourceUnavailable
from etude.sources.base import MOST_COLUMNS, CheckedQuery, Driver, Json, Mount, check_column_count, empty_batch
from etude.sources.duckdb_errors import broken_duckdb_error, invalid_duckdb_query, is_fatal_duckdb_error
from etude.sources.duckdb_file_code import DuckdbFileCode
from etude.sources.file_fingerprint import file_fingerprint, paths_fingerprint
from etude.sources.granted_tables import choose_granted_tables
from etude.sources.guard_duckdb import DuckdbGrantedNames, DuckdbGuard
from etude.sources.hidden_rows import (
    HIDDEN_ERROR_HINT,
    describe_hidden_error,
    refuse_hidden_plan,
    sum_estimates,
)
from etude.sources.quoting import fold_duckdb_name, quote_identifier, quote_literal

PREPARED = 256
# These types are sent as text: Arrow has no type for them, or DuckDB's export to Arrow loses something.
_AS_TEXT = frozenset({"uhugeint", "bignum", "bit", "time with time zone", "variant", "union"})
_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*(?:;\s*)?", re.IGNORECASE)
_NESTED = frozenset({"list", "array", "map", "struct", "tuple"})


class DuckdbDriver(Driver):
    """One in-memory DuckDB with every source attached read-only by name; the first source is the default."""

    dialect: ClassVar[str] = "duckdb"
    fixed: ClassVar[bool] = True

    def __init__(self, mount: Mount, *others: Mount, memory: int = 0, threads: int = 0, scratch: str = "") -> None:
        import duckdb

        self._mounts = (mount, *others)
        self._connection = duckdb.connect(":memory:")
        # For the statements of the driver and the guard: the sources are not in its search path, so a macro or table of
        # a file (`list_value`, `json_serialize_sql`, `duckdb_tables`) cannot take the place of what they call.
        self._apart = self._connection.cursor()
        self._relations: dict[str, tuple[Any, list[str]]] = {}
        # A database of which only some tables are granted is attached under a random name, which the guard refuses.
        self._hidden = {
            m.name: f"hidden_{os.urandom(8).hex()}" for m in self._mounts if m.kind == "duckdb" and m.tables is not None
        }
        files = [m for m in self._mounts if m.kind == "duckdb"]
        if self._hidden and len(files) > 1:
            # The code of one file (views, macros) runs with all that is attached, and could read hidden tables.
            raise SourceError(
                f"`{next(iter(self._hidden))}` grants only some tables: it is not attached beside another DuckDB file.",
                hint="Copy its granted tables first.",
            )
        self._hiding: set[tuple[str, str, str]] = set()
        for each in self._mounts:
            self._attach(each)
        self._harden(memory, threads, scratch)
        self._connection.execute(f"USE {quote_identifier(mount.name)}")
        if also := [m.name for m in others if m.unqualified]:
            path = ",".join(f"{quote_identifier(name)}.main" for name in (mount.name, *also))
            self._connection.execute(f"SET search_path = {quote_literal(path)}")
        self._granted = names = self._names()
        self._code = DuckdbFileCode(self._apart, {m.name: self._hidden.get(m.name, m.name) for m in files}, names)
        self._guard = DuckdbGuard(self._apart, names, self._macros, self._code.check)
        # Read once: the attached databases cannot change.
        reader = _CatalogReader(self._apart, self._mounts, self._hidden)
        self._tables = reader.tables()
        self._own_tables = [t["name"] for t in reader.tables_of(mount)] if others else [t["name"] for t in self._tables]
        self._row_counts = {t["name"]: t["row_count"] for t in self._tables}

    def _attach(self, mount: Mount) -> None:
        import duckdb

        run, name = self._connection.execute, quote_identifier(mount.name)
        try:
            if mount.kind == "duckdb" and mount.tables is None:
                run(f"ATTACH {quote_literal(mount.url)} AS {name} (READ_ONLY)")
            elif mount.kind == "duckdb":
                run(f"ATTACH {quote_literal(mount.url)} AS {self._hidden[mount.name]} (READ_ONLY)")
                run(f"ATTACH ':memory:' AS {name}")
                self._view_granted(mount)
            else:
                run(f"ATTACH ':memory:' AS {name}")
                for file in mount.files:
                    schema, _, table = file["table"].rpartition(".")
                    target = f"{name}.{quote_identifier(schema or 'main')}"
                    paths = ", ".join(quote_literal(p) for p in file["paths"])
                    run(f"CREATE SCHEMA IF NOT EXISTS {target}")
                    union = ", union_by_name = true" if len(file["paths"]) > 1 else ""
                    run(f"CREATE VIEW {target}.{quote_identifier(table)} AS FROM read_parquet([{paths}]{union})")
        except duckdb.Error as error:
            raise _cannot_open(mount, error) from None

    def _view_granted(self, mount: Mount) -> None:
        import duckdb

        hidden = self._hidden[mount.name]
        rows = self._connection.execute(
            "SELECT schema_name, table_name, false FROM duckdb_tables() WHERE database_name = $1 UNION ALL "
            "SELECT schema_name, view_name, true FROM duckdb_views() WHERE database_name = $1 AND NOT internal",
            [hidden],
        ).fetchall()
        granted = _choose_granted(mount, [(schema, table) for schema, table, _ in rows])
        for schema, table, is_view in rows:
            if (schema, table) not in granted:
                continue
            inside = f"{quote_identifier(schema)}.{quote_identifier(table)}"
            self._connection.execute(
                f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(mount.name)}.{quote_identifier(schema)}"
            )
            # A view may hide rows. The OFFSET keeps DuckDB from applying a condition of the query before those of the
            # view: its error would quote values of hidden rows.
            fence = " OFFSET 0" if is_view else ""
            if is_view:
                path = (mount.name, schema, table)
                self._hiding.add((fold_duckdb_name(path[0]), fold_duckdb_name(path[1]), fold_duckdb_name(path[2])))
            name = f"{quote_identifier(mount.name)}.{inside}"
            try:
                self._connection.execute(f"CREATE VIEW {name} AS FROM {hidden}.{inside}{fence}")
            except (duckdb.CatalogException, duckdb.BinderException):
                # Without DuckDB's message, which names tables that are not granted, and without the path.
                raise SourceError(
                    f"The granted {'view' if is_view else 'table'} `{_shown(schema, table)}` of `{mount.name}` cannot "
                    "be read: DuckDB does not find all that its definition names.",
                    hint="Create the view again with the schema before each table that it reads, or grant another.",
                ) from None

    def _harden(self, memory: int, threads: int, scratch: str) -> None:
        run = self._connection.execute
        for setting in (
            "autoinstall_known_extensions",
            "autoload_known_extensions",
            "allow_community_extensions",
        ):
            run(f"SET {setting} = false")
        run("SET allow_persistent_secrets = false")
        run("SET parquet_metadata_cache = true")  # a file that changed is mounted again
        run("SET python_enable_replacements = false")
        if memory:
            run(f"SET memory_limit = '{memory // (1 << 20)}MiB'")
        if threads:
            run(f"SET threads = {int(threads)}")
        if scratch:
            run(f"SET temp_directory = {quote_literal(scratch)}")
        else:
            run("SET max_temp_directory_size = '0KB'")
        paths = [p for m in self._mounts for f in m.files for p in f["paths"]]
        run(f"SET allowed_paths = [{', '.join(quote_literal(p) for p in paths)}]")
        # Last, and in this order: each of the two makes the settings above it final. A search path can still be set.
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def _names(self) -> DuckdbGrantedNames:
        ours = {m.name for m in self._mounts}
        rows = self._apart.execute(
            "SELECT database_name, schema_name, table_name FROM duckdb_tables() UNION ALL "
            "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        all_granted = all(m.tables is None for m in self._mounts)
        also = [m.name for m in self._mounts[1:] if m.unqualified]
        return DuckdbGrantedNames(self._mounts[0].name, [r for r in rows if r[0] in ours], all_granted, also)

    def _macros(self) -> list[str]:
        # A macro of the file may read any of its tables, so no macro is callable if only some tables are granted.
        if any(m.tables is not None for m in self._mounts):
            return []
        return self._code.macros()

    def catalog(self) -> Json:
        """Return the tables and views of all mounts; outside the first mount, names begin with the mount's name."""
        return {"tables": self._tables}

    def check(self, sql: str, params: int = 0) -> CheckedQuery:
        """See `DuckdbGuard.check`. `SHOW TABLES` lists the tables of all schemas, by the names that a query uses."""
        if _SHOW_TABLES.fullmatch(sql) and any("." in name for name in self._own_tables):
            names = ", ".join(f"({quote_literal(name)})" for name in sorted(self._own_tables))
            listed = f"SELECT name FROM (VALUES {names}) AS tables(name) ORDER BY name"
            return CheckedQuery(listed, (), select=True, written=sql)
        checked = self._guard.check(sql, params)
        if self._may_hide_rows(checked):
            refuse_hidden_plan(checked)
        return checked

    def _may_hide_rows(self, checked: CheckedQuery) -> bool:
        """Return whether the query reads a view of a file of which only some tables are granted."""
        return any(key in self._hiding for table in checked.tables for key in self._granted.keys_of(table))

    def named_columns(self, sql: str) -> frozenset[str] | None:
        """Return all names in a query; None if it may use columns that it does not name."""
        return self._guard.named_columns(sql)

    def estimate(self, checked: CheckedQuery) -> Json:
        """Return the rows and bytes that DuckDB's EXPLAIN expects; a plain LIMIT bounds the scan below it."""
        if checked.sql.startswith("EXPLAIN "):
            return {}
        if not self._may_hide_rows(checked):
            return self._estimate(checked)
        keys = [key for table in checked.tables for key in self._granted.keys_of(table)]
        whole = (f"SELECT * FROM {'.'.join(map(quote_identifier, key))}" for key in keys)
        return sum_estimates(self._estimate(CheckedQuery(sql, checked.tables)) for sql in whole)

    def _estimate(self, checked: CheckedQuery) -> Json:
        import duckdb

        try:
            with self._enumerations(checked):
                explain = f"EXPLAIN (FORMAT JSON) {checked.sql}"
                rows = self._connection.execute(explain, list(checked.params) or None).fetchall()
        except duckdb.ParserException:
            return {}  # SHOW, DESCRIBE and the like have no plan
        except duckdb.Error as error:
            raise self._translate(error, checked) from None
        plan = json.loads(rows[0][1])[0]
        total = _Scan(self._row_counts, self._mounts[0].name)
        total.add(plan, None)
        return {"scan_rows": total.rows, "scan_bytes": total.bytes, "result_rows": _expected(plan)}

    def run(self, checked: CheckedQuery, timeout_s: float) -> Iterator[Any]:
        """Yield batches as DuckDB produces them; the whole result is never in memory."""
        import duckdb

        before = self._marks()
        # DuckDB binds a SELECT before it reads rows; errors until then are about the text of the query.
        binding = checked.select and not checked.enums
        try:
            with self._enumerations(checked):
                try:
                    relation, self.column_types = self._prepared(checked)
                    binding = False
                    reader = relation.to_arrow_reader(1 << 16)
                    batches = _with_schema(reader)
                    yield from map(self._hide, batches) if checked.sql.startswith("EXPLAIN ") else batches
                finally:
                    # A result that is not read to its end would block the connection.
                    self._connection.abort()
        except duckdb.Error as error:
            raise self._translate(error, checked, binding) from None
        except OSError as error:
            # Arrow's reader raises OSError for errors of DuckDB in the middle of a stream.
            raise self._translate(error, checked) from None
        self._check_unchanged(before)

    def _marks(self) -> dict[str, str]:
        """Return the fingerprint of each file that is read in place; converted files never change."""
        found = {m.url: file_fingerprint(m.url) for m in self._mounts if m.kind == "duckdb"}
        in_place = [p for m in self._mounts for f in m.files if f.get("in_place") for p in f["paths"]]
        return found | {p: paths_fingerprint((p,)) for p in in_place if os.path.exists(p)}

    def _check_unchanged(self, before: dict[str, str]) -> None:
        now = self._marks()
        for path, mark in before.items():
            if now.get(path) != mark:
                raise SourceError(f"`{path}` was written while it was read.", hint="Run the query again.")

    @contextlib.contextmanager
    def _enumerations(self, checked: CheckedQuery) -> Iterator[None]:
        """Create the enumerations that a statement names, and drop them at the end."""
        made: list[str] = []
        try:
            for name, values in checked.enums:
                self._connection.execute(f"CREATE TEMP TYPE {quote_identifier(name)} AS ENUM ({values})")
                made.append(name)
            yield
        finally:
            for name in made:
                self._connection.execute(f"DROP TYPE IF EXISTS temp.{quote_identifier(name)}")

    def _hide(self, batch: Any) -> Any:
        """Return the plan of a query without the random names of hidden databases; the boxes keep their width."""
        import pyarrow as pa

        def hide(text: str | None) -> str | None:
            for hidden in self._hidden.values() if text else ():
                # A line of a box: the blanks that fill it come before its right edge.
                line = rf"{hidden}\.([^\n│]*)│"
                text = re.sub(line, rf"\1{' ' * (len(hidden) + 1)}│", text or "")
                text = text.replace(f"{hidden}.", "").replace(hidden, "")
            return text

        columns = [pa.array([hide(text) for text in column.to_pylist()], pa.string()) for column in batch.columns]
        return pa.record_batch(columns, schema=batch.schema)

    def _translate(self, error: Exception, checked: CheckedQuery, binding: bool = False) -> Exception:
        import duckdb

        translated = _translate(error, checked.sql, self._without_hidden)
        of_text = isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException)
        if not (binding and of_text) and self._may_hide_rows(checked):
            return _without_message(translated, error)
        if isinstance(translated, EtudeError):
            # The random names of hidden databases mean nothing to a user.
            for hidden in self._hidden.values():
                translated.message = translated.message.replace(f"{hidden}.", "")
                translated.hint = translated.hint.replace(f"{hidden}.", "")
        return translated

    def _without_hidden(self, message: str) -> str:
        """Return DuckDB's message without its suggestion if that is a type, or such, of a hidden database."""
        for hidden in self._hidden.values():
            message = re.sub(rf"\n?Did you mean [^\n]*{hidden}\.[^\n]*", "", message)
        return message

    def _prepared(self, checked: CheckedQuery) -> tuple[Any, list[str]]:
        """Return the bound statement and its column types. It can be reused: the attached databases cannot change."""
        known = self._relations.get(checked.sql) if not checked.params else None
        if known is not None:
            return known
        relation = self._connection.sql(checked.sql, params=list(checked.params) or None)
        if relation is None:
            raise SourceError(
                "The statement returned no result.", hint="Write a query that returns rows, such as a SELECT."
            )
        check_nested_types(relation.columns, relation.types, _inner_types)  # before all types are written as text
        types = [str(t) for t in relation.types]
        if any(map(_needs_cast, relation.types)):
            relation = relation.project(_cast_for_arrow(relation.columns, relation.types))
        self._check_relation(checked, relation)
        if checked.select and not checked.params:
            # Only a SELECT is bound without being run. Others, such as EXPLAIN, have run already and hold their result.
            self._relations[checked.sql] = relation, types
            if len(self._relations) > PREPARED:
                del self._relations[next(iter(self._relations))]
        return relation, types

    def _check_relation(self, checked: CheckedQuery, relation: Any) -> None:
        """Check the text that a relation will run, if DuckDB wrapped the checked text in another query."""
        if checked.sql.startswith("EXPLAIN "):
            return  # it has run already, as it was checked
        text = relation.sql_query()
        if text != checked.sql and not set(self._guard.check(text, len(checked.params)).tables) <= set(checked.tables):
            raise SourceError("The query reads tables that were not checked.", hint="Simplify the query.", fatal=True)

    def cancel(self) -> None:
        """Interrupt the query in DuckDB."""
        self._connection.interrupt()

    def fingerprints(self, tables: tuple[str, ...]) -> dict[str, str]:
        """Return fingerprints made from the size and the modification time of the files."""
        found: dict[str, str] = {}
        for position, mount in enumerate(self._mounts):
            prefix = "" if position == 0 else f"{mount.name}."
            if mount.kind == "duckdb":
                mark = file_fingerprint(mount.url)
                found |= {t: mark for t in tables if not prefix or t.startswith(prefix)}
            else:
                found |= {prefix + f["table"]: f["fingerprint"] for f in mount.files}
        return {t: found[t] for t in tables if t in found}

    def versions(self) -> dict[str, str]:
        """Return the version of DuckDB."""
        import duckdb

        return {"duckdb": duckdb.__version__}

    def progress(self) -> float | None:
        """Return how much of the running query is done, from 0 to 1; None if DuckDB does not know."""
        done: float = self._connection.query_progress()
        return done / 100 if done >= 0 else None

    def close(self) -> None:
        """Close the connection and the files."""
        self._connection.close()


class _CatalogReader:
    """Reads the catalog of a connection; the number of queries does not depend on the number of tables."""

    def __init__(self, connection: Any, mounts: tuple[Mount, ...], hidden: dict[str, str]) -> None:
        self._run = connection.execute
        self._mounts = mounts
        self._hidden = hidden
        self._rows_of_files = self._count_files()

    def _count_files(self) -> dict[tuple[str, str], int]:
        counts = {}
        for mount in self._mounts:
            for file in mount.files:
                paths = ", ".join(quote_literal(p) for p in file["paths"])
                rows = self._run(f"SELECT sum(num_rows) FROM parquet_file_metadata([{paths}])").fetchall()
                counts[mount.name, file["table"]] = int(rows[0][0] or 0)
        return counts

    def tables(self) -> list[Json]:
        out = []
        for position, mount in enumerate(self._mounts):
            prefix = "" if position == 0 else f"{mount.name}."
            out += [t | {"name": prefix + t["name"]} for t in self.tables_of(mount)]
        return out

    def tables_of(self, mount: Mount) -> list[Json]:
        inner = self._hidden.get(mount.name, mount.name)
        columns: dict[tuple[str, str], list[Json]] = {}
        found = self._run(
            "SELECT schema_name, table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() "
            "WHERE database_name = $1 AND NOT internal ORDER BY schema_name, table_name, column_index",
            [inner],
        ).fetchmany(MOST_COLUMNS + 1)
        check_column_count(len(found), mount.name)
        for schema, table, name, kind, nullable, comment in found:
            columns.setdefault((schema, table), []).append(
                {"name": name, "type": kind, "nullable": bool(nullable), "comment": comment}
            )
        keys = self._keys(inner)
        out = []
        rows = self._run(
            "SELECT schema_name, table_name, 'table', comment, estimated_size FROM duckdb_tables() "
            "WHERE database_name = $1 AND NOT internal UNION ALL "
            "SELECT schema_name, view_name, 'view', comment, NULL FROM duckdb_views() "
            "WHERE database_name = $1 AND NOT internal ORDER BY 1, 2",
            [inner],
        ).fetchall()
        granted = _choose_granted(mount, [(schema, table) for schema, table, *_ in rows])
        named = {fold_duckdb_name(_shown(schema, table)) for schema, table in granted}
        for entry in keys.values():
            # A reference would tell the name and the key of a table that is not granted.
            shown = [key for key in entry["foreign_keys"] if fold_duckdb_name(key["to_table"]) in named]
            entry["foreign_keys"] = shown
        for schema, table, kind, comment, size in rows:
            name = _shown(schema, table)
            if (schema, table) not in granted:
                continue
            out.append(
                {"name": name, "kind": kind, "comment": comment, "columns": columns.get((schema, table), [])}
                | {"row_count": size, "row_count_exact": True}
                | keys.get((schema, table), {})
                | self._file_facts(mount, name)
            )
        return out

    def _file_facts(self, mount: Mount, table: str) -> Json:
        file = next((f for f in mount.files if f["table"] == table), None)
        if file is None:
            return {"fingerprint": file_fingerprint(mount.url)} if mount.kind == "duckdb" else {}
        size = sum(os.path.getsize(p) for p in file["paths"])
        rows = self._rows_of_files[mount.name, table]
        facts = {"kind": "table", "row_count": rows, "bytes": size, "fingerprint": file["fingerprint"]}
        return facts | {"notes": list(file.get("notes", ())), "totals": list(file.get("totals", ()))}

    def _keys(self, database: str) -> dict[tuple[str, str], Json]:
        out: dict[tuple[str, str], Json] = {}
        for schema, table, kind, columns, to_table, to_columns in self._run(
            "SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, "
            "referenced_column_names FROM duckdb_constraints() WHERE database_name = $1 "
            "ORDER BY schema_name, table_name, constraint_index",
            [database],
        ).fetchall():
            entry = out.setdefault((schema, table), {"primary_key": [], "unique": [], "foreign_keys": []})
            if kind == "PRIMARY KEY":
                entry["primary_key"] = columns
            elif kind == "UNIQUE":
                entry["unique"].append(columns)
            elif kind == "FOREIGN KEY":
                to = _shown(schema, to_table)
                entry["foreign_keys"].append({"columns": columns, "to_table": to, "to_columns": to_columns})
        return out


class _Scan:
    """Sums the rows and bytes that the leaves of a plan read."""

    def __init__(self, row_counts: dict[str, int | None], default: str) -> None:
        self.rows = 0
        self.bytes = 0
        self._row_counts = row_counts
        self._default = default

    def add(self, node: Json, limit: int | None) -> None:
        name = node.get("name", "").strip()
        if name in ("STREAMING_LIMIT", "LIMIT"):
            # An OFFSET alone bounds nothing, although DuckDB may expect no rows from it.
            limit = _expected(node) if "Limit" in node.get("extra_info", {}) else None
        elif name != "PROJECTION":
            limit = limit if not node.get("children") else None
        for child in node.get("children", []):
            self.add(child, limit)
        if not node.get("children") and name not in (
            "DUMMY_SCAN",
            "EMPTY_RESULT",
            "COLUMN_DATA_SCAN",
            "CTE_SCAN",
        ):
            rows = self._rows_of(node)
            if limit is not None:
                rows = min(rows, limit)
            self.rows += rows
            self.bytes += rows * _width(node)

    def _rows_of(self, node: Json) -> int:
        table = node.get("extra_info", {}).get("Table", "")
        shown = table.removeprefix(f"{self._default}.").removeprefix("main.")
        known = self._row_counts.get(shown)
        return known if known is not None else _cardinality(node) or 0


def _width(node: Json) -> int:
    read = node.get("extra_info", {}).get("Projections", [])
    columns = [read] if isinstance(read, str) else read
    return max(8 * len(columns), 1)


def _expected(node: Json) -> int | None:
    """Return the number of rows from a node; for a LIMIT its own number, because DuckDB has no estimate there."""
    limit = str(node.get("extra_info", {}).get("Limit", ""))
    return int(limit) if limit.isdigit() else _cardinality(node)


def _cardinality(node: Json) -> int | None:
    text = str(node.get("extra_info", {}).get("Estimated Cardinality", ""))
    return int(text) if text.isdigit() else None


def _cast_for_arrow(names: list[str], types: list[Any]) -> str:
    """Return a select list with types that Arrow has. A union becomes a struct of its members, all but one null."""
    parts = []
    for position, (name, kind) in enumerate(zip(names, types, strict=True), 1):
        cell = f"#{position}"
        if kind.id == "union":
            # The first child is the tag.
            members = [
                (quote_identifier(n), f"union_extract({cell}, {quote_literal(n)})", k) for n, k in kind.children[1:]
            ]
            cell = f"struct_pack({', '.join(f'{n} := CAST({v} AS {_arrow_type(k)})' for n, v, k in members)})"
        elif _needs_cast(kind):
            cell = f"CAST({cell} AS {_arrow_type(kind)})"
        parts.append(f"{cell} AS {quote_identifier(name)}")
    return ", ".join(parts)


def _needs_cast(kind: Any) -> bool:
    if kind.id == "map" and _inner(kind)[0][1].id == "null":
        return True  # `MAP {}`: Arrow has no map whose keys have no type
    return kind.id in _AS_TEXT or (kind.id in _NESTED and any(_needs_cast(k) for _, k in _inner(kind)))


def _inner(kind: Any) -> list[tuple[str, Any]]:
    # The second child of an array is its size.
    return list(kind.children[:1] if kind.id == "array" else kind.children)


def _inner_types(kind: Any) -> Sequence[tuple[str, Any]]:
    return _inner(kind) if kind.id in _NESTED or kind.id == "union" else ()


def _arrow_type(kind: Any) -> str:
    """Return the type as SQL, with VARCHAR instead of the types that Arrow does not have."""
    if kind.id in _AS_TEXT:
        return "VARCHAR"
    if not _needs_cast(kind):
        return str(kind)
    inner = [(quote_identifier(n), _arrow_type(k)) for n, k in _inner(kind)]
    if kind.id == "map" and _inner(kind)[0][1].id == "null":
        return f"MAP(INTEGER, {inner[1][1] if _inner(kind)[1][1].id != 'null' else 'INTEGER'})"
    if kind.id == "struct":
        return f"STRUCT({', '.join(f'{n} {k}' for n, k in inner)})"
    if kind.id == "list":
        return f"{inner[0][1]}[]"
    if kind.id == "array":
        return f"{inner[0][1]}[{kind.children[1][1]}]"
    return f"{kind.id.upper()}({', '.join(k for _, k in inner)})"


def _with_schema(reader: Any) -> Iterator[Any]:
    """Yield the batches, or an empty one if there are none."""
    first = next(reader, None)
    yield first if first is not None else empty_batch(reader.schema)
    yield from reader


def _choose_granted(mount: Mount, tables: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the granted tables among those of a mount, as (schema, table)."""
    if mount.kind == "files" or mount.tables is None:
        return set(tables)  # only granted files are mounted
    return choose_granted_tables(mount.tables, tables, lambda schema, _: schema == "main")


def _shown(schema: str, table: str) -> str:
    return table if schema == "main" else f"{schema}.{table}"


def _cannot_open(mount: Mount, error: Exception) -> SourceError:
    text = str(error).split("\n")[0]
    hint = "Check that it is a DuckDB file, and that this version of DuckDB can read it."
    kind = SourceError
    if re.search(r"\block\b", text, re.IGNORECASE):
        kind = SourceLocked
        hint = "Another process has the file open for writing: stop that process, or copy the file."
    elif mount.kind == "files":
        hint = "Check that the files are complete: a Parquet file cannot be read while it is being written."
    elif not os.path.exists(mount.url):
        kind = SourceUnavailable
    # Not the URL of files, which may be one of another server, with a password or a token.
    return kind(f"Cannot open `{mount.url if mount.kind == 'duckdb' else mount.name}`: {text}", hint=hint)


def _without_message(translated: Exception, error: Exception) -> Exception:
    """Return the error with words for its kind instead of DuckDB's message, which may quote values of hidden rows."""
    if isinstance(translated, EtudeError) and not isinstance(translated, LimitExceeded):
        of_value = re.search(r"^(?:Conversion|Out of Range|Invalid Input) Error", str(error), re.MULTILINE)
        text = f"DuckDB reported an error: {describe_hidden_error('22' if of_value else '')}."
        if isinstance(translated, InvalidQuery):
            return InvalidQuery(text, hint=HIDDEN_ERROR_HINT)
        # Not the same error with another message: its text would still have the first one.
        return SourceError(text, hint=HIDDEN_ERROR_HINT, fatal=is_fatal_duckdb_error(error) or None)
    return InterruptedError("Interrupted") if isinstance(translated, InterruptedError) else translated


def _translate(error: Exception, sql: str, describe: Callable[[str], str] = str) -> Exception:
    import duckdb

    text = str(error).split("\n")[0]
    if "INTERRUPT" in str(error) or "Interrupted" in str(error):
        return InterruptedError(text)
    if is_fatal_duckdb_error(error):
        return broken_duckdb_error(str(error))
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in text or "bad_alloc" in text:
        return LimitExceeded(
            "The query needs more memory than `engine.memory` allows.",
            hint="Aggregate or filter earlier, or raise `engine.memory`.",
            limit="memory",
        )
    if isinstance(error, duckdb.ProgrammingError | duckdb.DataError):
        return invalid_duckdb_query(error, sql, describe)
    return SourceError(text, hint="DuckDB reported this error: check the query and the data that it reads.")
