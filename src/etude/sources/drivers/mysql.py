"""The driver for MySQL and MariaDB: a read-only transaction for each query, values sent as text and parsed by Arrow."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

import pyarrow as pa

from etude.errors import (
    Cancelled,
    EtudeError,
    InvalidQuery,
    Refused,
    SourceError,
    SourceLocked,
    SourceUnavailable,
    Unavailable,
    cut_message,
)
from etude.sources.base import CheckedQuery, Json, Mount, query_timeout_error
from etude.sources.drivers.server_driver import ServerDriver, shorten_list
from etude.sources.granted_tables import Granted, choose_granted_tables, display_table
from etude.sources.hidden_rows import HIDDEN_ERROR_HINT, describe_hidden_error, sum_estimates
from etude.sources.query_hints import guard_column_hint
from etude.sources.rows import (
    CHUNK_ROWS,
    DigitsRowShape,
    PlainRowShape,
    PrintedRowShape,
    RowColumn,
    RowShape,
    SureRowShape,
    read_row_time,
    to_batches,
)

CONNECT_S = 10
METADATA_S = 30
LOCK_S = 10

# SQL modes that change how quotes and operators are read. The guard assumes the defaults, so these are turned off.
_OTHER_GRAMMAR = frozenset(
    {"ANSI", "ANSI_QUOTES", "DB2", "HIGH_NOT_PRECEDENCE", "IGNORE_SPACE", "MAXDB", "MSSQL", "NO_BACKSLASH_ESCAPES"}
    | {"ORACLE", "PIPES_AS_CONCAT", "POSTGRESQL"}
)
_URL_OPTIONS = frozenset(
    {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"}
)
_SYSTEM = "('information_schema', 'mysql', 'performance_schema', 'sys')"

_TABLES = f"""SELECT table_schema, table_name, table_type, engine, table_rows, data_length + index_length,
    table_comment, create_time, IF(update_time < NOW() - INTERVAL 1 SECOND, update_time, NULL)
    FROM information_schema.tables WHERE table_schema NOT IN {_SYSTEM} ORDER BY 1, 2"""
_COLUMNS = f"""SELECT table_schema, table_name, column_name, column_type, is_nullable, column_comment, column_key
    FROM information_schema.columns WHERE table_schema NOT IN {_SYSTEM} ORDER BY 1, 2, ordinal_position"""
_UNIQUE = f"""SELECT table_schema, table_name, index_name, column_name FROM information_schema.statistics
    WHERE non_unique = 0 AND column_name IS NOT NULL AND table_schema NOT IN {_SYSTEM} ORDER BY 1, 2, 3, seq_in_index"""
_KEYS = f"""SELECT table_schema, table_name, constraint_name, column_name, referenced_table_schema,
    referenced_table_name, referenced_column_name FROM information_schema.key_column_usage
    WHERE referenced_table_name IS NOT NULL AND table_schema NOT IN {_SYSTEM} ORDER BY 1, 2, 3, ordinal_position"""
_SCHEMAS = "SELECT schema_name FROM information_schema.schemata"
# A stored function with an allowed name runs if the server has no such built-in function, or if a blank follows.
_STORED = """SELECT DISTINCT LOWER(routine_name) FROM information_schema.routines
    WHERE routine_type = 'FUNCTION' AND routine_schema = DATABASE()"""
# The same for functions of shared libraries, if the user may list them.
_LOADABLE = (
    "SELECT LOWER(name) FROM mysql.func",
    "SELECT LOWER(udf_name) FROM performance_schema.user_defined_functions",
)

Name = tuple[str, str]
"""Schema and table."""


class MysqlDriver(ServerDriver["_Schema"]):
    """One connection to a MySQL or MariaDB server. The privileges of its user apply, and etude allows no writes."""

    dialect = "mysql"

    def __init__(self, mount: Mount) -> None:
        self._pymysql = _package()
        self._mount = mount
        self._where = _read_url(mount)
        self._connection: Any = None
        self._stopped = False
        self._connect()

    def _open_connection(self) -> Any:
        try:
            return self._pymysql.connect(
                **self._where,
                charset="utf8mb4",
                connect_timeout=CONNECT_S,
                local_infile=False,
                autocommit=True,
                # No converters: values stay exact text, as the server prints them, and Arrow parses them in bulk.
                conv={},
                program_name="etude",
            )
        except (self._pymysql.Error, OSError, RuntimeError) as error:
            kind = SourceUnavailable if _code_of(error) in _PASSING else SourceError
            raise kind(
                f"{self._address()} cannot be reached: {self._clean(error)}.",
                hint="Check host, port, database, user and password, and that the server allows access from here.",
            ) from None

    def _connect(self) -> None:
        self.close()
        self._connection = self._open_connection()
        version = str(self._connection.get_server_info())
        self._mariadb = "mariadb" in version.lower()
        ((modes,),) = self._execute("SELECT @@SESSION.sql_mode")
        kept = ",".join(m for m in modes.split(",") if m not in _OTHER_GRAMMAR)
        self._execute(f"SET SESSION sql_mode = '{kept}'")
        self._execute("SET SESSION TRANSACTION READ ONLY")
        self._execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_S}, SESSION lock_wait_timeout = {LOCK_S}")
        self._loadable = [query for query in _LOADABLE if self._may_ask(query)]
        if not self._mariadb:
            # Otherwise the server would return statistics that are up to a day old.
            with suppress(self._pymysql.Error):
                self._execute("SET SESSION information_schema_stats_expiry = 0")

    def _may_ask(self, query: str) -> bool:
        try:
            self._execute(query)
        except self._pymysql.Error:
            return False
        return True

    def _address(self) -> str:
        where = self._where.get("unix_socket") or f"{self._where['host']}:{self._where['port']}"
        return f"MySQL at `{where}`, database `{self._where.get('database') or ''}`,"

    def _clean(self, error: Exception) -> str:
        arguments = [cut_message(str(a)) for a in error.args]
        text = " ".join(" ".join(arguments[1:] or arguments).split()).rstrip(".")
        return self._hide_password(text)

    def _execute(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @contextmanager
    def _transaction(self, timeout_s: float) -> Iterator[None]:
        """Run a read-only transaction with a time limit; roll it back at the end."""
        limit = (
            f"max_statement_time = {timeout_s:.3f}" if self._mariadb else f"max_execution_time = {timeout_s * 1000:.0f}"
        )
        try:
            self._execute(f"SET SESSION {limit}")
        except (self._pymysql.OperationalError, self._pymysql.InterfaceError, OSError) as error:
            if error.args and error.args[0] == _INTERRUPTED:
                raise
            # The server, or something on the way to it, closed the idle connection.
            self._connect()
            self._execute(f"SET SESSION {limit}")
        self._execute("START TRANSACTION READ ONLY")
        try:
            yield
        finally:
            with suppress(self._pymysql.Error, OSError):
                self._execute("ROLLBACK")

    def _ask(self, *queries: str) -> list[list[tuple[Any, ...]]]:
        try:
            with self._transaction(METADATA_S):
                return [self._execute(query) for query in queries]
        except (self._pymysql.Error, OSError) as error:
            raise self._failed(error, METADATA_S) from None

    def _load(self) -> _Schema:
        tables, columns, schemas, *defined = self._ask(_TABLES, _COLUMNS, _SCHEMAS, _STORED, *self._loadable)
        stored = [name for names in defined for name in names]
        return _Schema(self._mount, str(self._where.get("database") or ""), tables, columns, schemas, stored)

    def _code_state(self) -> str:
        return repr([sorted(names) for names in self._ask(_STORED, *self._loadable)])

    def excess_rights(self) -> list[str]:
        """Return the privileges of the user beyond reading the granted tables, from SHOW GRANTS."""
        grants, tables = self._ask("SHOW GRANTS", _TABLES)
        warnings, found = [], [_GRANT.match(str(row[0])) for row in grants]
        for grant in filter(None, found):
            rights = {re.sub(r"\s*\(.*", "", right).strip().upper() for right in _RIGHTS.split(grant.group(1))}
            more = sorted(rights - _HARMLESS)
            if more:
                warnings.append(f"The user has {shorten_list(more)} on `{grant.group(2).replace('`', '')}`.")
        roles = [str(row[0]) for row, grant in zip(grants, found, strict=True) if grant is None]
        if any(re.match(r"GRANT .* TO ", text) and " ON " not in text for text in roles):
            warnings.append("The user has roles; etude does not check their privileges.")
        known = self._known()
        others = [".".join(row[:2]) for row in tables if (row[0], row[1]) not in known.tables]
        if others:
            warnings.append(f"The user may also read {shorten_list(others)}, which the source does not grant.")
        return warnings

    def catalog(self) -> Json:
        """Return the granted tables, with the storage engine's row counts; most engines estimate them."""
        self._schema = schema = self._load()
        unique, keys = self._ask(_UNIQUE, _KEYS)
        by_table = _group_unique(unique)
        foreign = _group_keys(keys, schema)
        return {"tables": [schema.table(name, by_table.get(name, {}), foreign.get(name, [])) for name in schema.tables]}

    def estimate(self, checked: CheckedQuery) -> Json:
        """Return the rows that the optimizer expects to read, and their bytes by the average size of a row."""
        nothing = {"scan_rows": None, "scan_bytes": None, "result_rows": None}
        if checked.sql.startswith("EXPLAIN"):
            return nothing | {"scan_rows": 0, "scan_bytes": 0}
        if self._known().may_hide_rows(checked.tables):
            return sum_estimates(map(self._estimate, self._whole_tables(checked)))
        return self._estimate(checked)

    def _estimate(self, checked: CheckedQuery) -> Json:
        try:
            explain = f"EXPLAIN FORMAT=JSON {checked.sql}"
            with self._transaction(METADATA_S), self._prepared(explain, checked.params) as text:
                ((plan,),) = self._execute(text)
        except (self._pymysql.Error, OSError) as error:
            raise self._failed(error, METADATA_S, checked) from None
        rows = sum(_scanned(json.loads(plan)))
        stored, size = self._known().stored(checked.tables)
        return {"scan_rows": rows, "scan_bytes": rows * size // stored if stored else None, "result_rows": None}

    def run(self, checked: CheckedQuery, timeout_s: float) -> Iterator[Any]:
        """Yield batches as the server sends them, in a read-only transaction of their own."""
        from pymysql.cursors import SSCursor

        self._stopped = False
        try:
            with self._transaction(timeout_s), self._prepared(checked.sql, checked.params) as text:
                cursor = self._connection.cursor(SSCursor)
                try:
                    cursor.execute(text)
                    yield from to_batches(self._chunks(cursor), self._columns(cursor))
                finally:
                    self._finish(cursor)
        except (self._pymysql.Error, OSError) as error:
            raise self._failed(error, timeout_s, checked) from None

    @contextmanager
    def _prepared(self, sql: str, params: tuple[Any, ...]) -> Iterator[str]:
        """Yield the text to execute. With parameters, the server prepares the statement and binds variables to it."""
        if not params:
            yield sql
            return
        names = [f"@etude_{position}" for position in range(len(params))]
        values = ", ".join(f"{name} = {_variable(value)}" for name, value in zip(names, params))
        self._execute(f"SET {values}, @etude_statement = {_variable(sql)}")
        self._execute("PREPARE etude FROM @etude_statement")
        try:
            yield f"EXECUTE etude USING {', '.join(names)}"
        finally:
            with suppress(self._pymysql.Error, OSError):
                self._execute("DEALLOCATE PREPARE etude")

    def _chunks(self, cursor: Any) -> Iterator[Sequence[Any]]:
        while chunk := cursor.fetchmany(CHUNK_ROWS):
            yield chunk

    def _finish(self, cursor: Any) -> None:
        """Close the result; if it was not read to its end, stop the query in the server first."""
        if getattr(cursor, "_result", None) is not None and cursor._result.unbuffered_active:
            self._kill()
        with suppress(self._pymysql.Error, OSError):
            cursor.close()

    def _columns(self, cursor: Any) -> list[RowColumn]:
        fields = getattr(cursor._result, "fields", None)
        if fields is None:
            raise Refused(
                "The statement returns no rows; a source is read-only.",
                hint="Write a query, such as a SELECT.",
                reason="statement",
            )
        self.column_types = [_type_name(f) for f in fields]
        return [RowColumn(f.name, _shape(f)) for f in fields]

    def _failed(self, error: Exception, timeout_s: float, checked: CheckedQuery | None = None) -> EtudeError:
        code = _code_of(error)
        text = self._clean(error)
        hidden = checked is not None and code not in _OF_TEXT and self._may_hide_rows(checked)
        bad = (self._pymysql.ProgrammingError, self._pymysql.DataError, self._pymysql.NotSupportedError)
        invalid = checked is not None and (isinstance(error, bad) or code in _BAD_QUERY or code >= 3100)
        if hidden:
            text = describe_hidden_error("22" if invalid else "")
        if code == _INTERRUPTED and self._stopped:
            return Cancelled("The query was cancelled.")
        if code in _TIMEOUT:
            return query_timeout_error(timeout_s)
        if code in _NO_RIGHT:
            return Refused(
                f"The server refused the query: {text}.",
                hint="A source is read-only: only read tables that the user may read.",
                reason="rights",
            )
        if checked is not None and invalid:
            if hidden:
                return InvalidQuery(f"The server reported an error: {text}.", hint=HIDDEN_ERROR_HINT)
            hint = guard_column_hint(text, self._known().column_names(checked.tables))
            line = re.search(r"at line (\d+)", text)
            return InvalidQuery(
                f"The server reported an error: {text}.", hint=hint, line=int(line.group(1)) if line else None
            )
        hint = "Read the server's log; run the query again if the server was restarted."
        hint = HIDDEN_ERROR_HINT if hidden else hint
        kind = SourceLocked if code in _LOCKED else SourceUnavailable if code in _PASSING else SourceError
        return kind(f"The server failed: {text}.", hint=hint, fatal=code in _BROKEN or None)

    def cancel(self) -> None:
        """Ask the server, over a second connection, to stop the query."""
        self._stopped = True
        self._kill()

    def _kill(self) -> None:
        with suppress(SourceError, self._pymysql.Error, OSError):
            other = self._open_connection()
            try:
                other.cursor().execute(f"KILL QUERY {self._connection.thread_id()}")
            finally:
                other.close()

    def fingerprints(self, tables: tuple[str, ...]) -> dict[str, str]:
        """Return fingerprints from the time of the last change, if it is known and more than a second ago."""
        (rows,) = self._ask(_TABLES)
        shown = {name: s for s, name in self._known().granted.tables.items()}
        found = {shown[row[0], row[1]]: _fingerprint(row) for row in rows if (row[0], row[1]) in shown}
        return {table: value for table in tables if (value := found.get(table)) is not None}

    def versions(self) -> dict[str, str]:
        """Return the versions of the server and of the client library."""
        name = "mariadb" if self._mariadb else "mysql"
        # MariaDB puts `5.5.5-` before its version, for replicas that cannot parse a higher one.
        server = str(self._connection.get_server_info()).removeprefix("5.5.5-")
        return {name: server, "pymysql": self._pymysql.__version__}

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(self._pymysql.Error, OSError):
                self._connection.close()


def _variable(value: Any) -> str:
    """Return the value of a variable as SQL: digits, or bytes as hex digits, so that no text is ever quoted."""
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(int(value))
        case float() if math.isfinite(value):
            return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
        case Decimal() if value.is_finite():
            return f"{value:f}"
        case bytes():
            return f"X'{value.hex()}'"
        case timedelta():
            seconds = abs(value) // timedelta(seconds=1)
            text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{abs(value).microseconds:06}"
            return _variable(f"-{text}" if value < timedelta(0) else text)
        case datetime() if value.tzinfo is None:
            return _variable(value.isoformat(sep=" "))
        case date() | time() if getattr(value, "tzinfo", None) is None:
            return _variable(value.isoformat())
        case str() | UUID():
            return f"CONVERT(X'{str(value).encode().hex()}' USING utf8mb4)"
        case _:
            raise InvalidQuery(
                f"The server takes no such parameter: {str(value)[:80]}.",
                hint="Pass finite numbers, texts, bytes, or dates and times without a time zone.",
            )


_GRANT = re.compile(r"GRANT (.+?) ON (?:TABLE |FUNCTION |PROCEDURE |PACKAGE )?(\S+) TO ", re.IGNORECASE)
_RIGHTS = re.compile(r",(?![^(]*\))")
_HARMLESS = frozenset({"SELECT", "USAGE", "SHOW VIEW", "SHOW DATABASES"})
_BROKEN = frozenset({1030, 1105, 1815, 2006, 2013, 2014, 2055})
"""Internal errors of the server or its storage, and lost connections."""
_PASSING = frozenset({1040, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 2002, 2003, 2006, 2013, 2055})
"""The server cannot be reached, has no connection left, shuts down or closed the connection."""
_LOCKED = frozenset({1205, 1213, 3572})
_INTERRUPTED = 1317
_TIMEOUT = frozenset({1969, 3024})
_OF_TEXT = frozenset({1052, 1054, 1055, 1060, 1064, 1066, 1111, 1140, 1222, 1241, 1248})
"""Errors in the text of a query, found before any row is read: they quote only its names."""
_NO_RIGHT = frozenset({1044, 1142, 1143, 1227, 1290, 1370, 1792})
# Errors in the query for which the client library raises the same class as for failures of the server.
_BAD_QUERY = frozenset(
    {
        1052,
        1054,
        1055,
        1056,
        1060,
        1064,
        1066,
        1109,
        1111,
        1139,
        1140,
        1146,
        1222,
        1235,
        1241,
        1242,
        1247,
        1248,
        1253,
        1267,
    }
    | {1270, 1271, 1305, 1365, 1411, 1582, 1583, 1584, 1690, 4078}
)


def _package() -> Any:
    try:
        import pymysql
    except ImportError:
        raise Unavailable("MySQL needs the package `pymysql`.", hint="pip install 'etude[mysql]'") from None
    return pymysql


def _code_of(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _read_url(mount: Mount) -> dict[str, Any]:
    try:
        parts = urlsplit(mount.url)
        given = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        port = parts.port or 3306
    except ValueError:
        given, port, parts = {"": ""}, 0, urlsplit("")
    unknown = sorted(set(given) - _URL_OPTIONS)
    if parts.scheme not in ("mysql", "mariadb") or unknown:
        # The message does not quote the URL, which may contain a password.
        raise SourceError(
            f"The URL of source `{mount.name}` cannot be read.",
            hint="Write `mysql://user:password@host:port/database`, with special characters as %XX; options: "
            + ", ".join(f"`{o}`" for o in sorted(_URL_OPTIONS)),
        )
    flags = {"true": True, "1": True, "false": False, "0": False}
    return {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.strip("/")) or None,
        **{key: flags.get(value.lower(), value) for key, value in given.items()},
    }


def _fingerprint(row: Sequence[Any]) -> str | None:
    *_, created, updated = row
    state = repr((row[0], row[1], created, updated))
    return hashlib.sha256(state.encode()).hexdigest()[:32] if updated is not None else None


class _Schema:
    """The granted tables by schema and name, as of one moment."""

    def __init__(
        self,
        mount: Mount,
        default: str,
        tables: list[Any],
        columns: list[Any],
        schemas: list[tuple[str]],
        stored: list[tuple[str]],
    ) -> None:
        self._default, self._partly = default, mount.tables is not None
        present: dict[Name, tuple[Any, ...]] = {(row[0], row[1]): row for row in tables}
        wanted = {name for name in present if not default or name[0] == default}
        if mount.tables is not None:
            wanted = choose_granted_tables(mount.tables, present, lambda schema, _: schema == default)
        self.tables = {name: row for name, row in present.items() if name in wanted}
        self.columns: dict[Name, list[tuple[Any, ...]]] = defaultdict(list)
        for schema, table, *column in columns:
            self.columns[schema, table].append(tuple(column))
        self.granted = Granted(
            source=mount.name,
            tables={self.shown(name): name for name in self.tables},
            schemas=frozenset(name for (name,) in schemas),
            shadowed=frozenset(name for (name,) in stored),
            describe=lambda shown: [
                (c, kind, nullable == "YES", key if key in ("PRI", "UNI") else "")
                for c, kind, nullable, _, key in self.columns[self.granted.tables[shown]]
            ],
        )

    def shown(self, name: Name) -> str:
        """Return the display name, which queries may use."""
        return display_table(*name, name[0] == self._default)

    def column_names(self, tables: Sequence[str]) -> list[str]:
        """Return the names of the columns of these tables."""
        return [c[0] for t in tables if t in self.granted.tables for c in self.columns[self.granted.tables[t]]]

    def may_hide_rows(self, tables: Sequence[str]) -> bool:
        """Return whether one of these tables is a view, and not all tables are granted."""
        known = [self.tables[self.granted.tables[t]] for t in tables if t in self.granted.tables]
        return self._partly and (len(known) < len(tables) or any("VIEW" in row[2] for row in known))

    def stored(self, tables: Sequence[str]) -> tuple[int, int]:
        """Return the rows and bytes of these tables; a table of unknown size counts as 0."""
        rows = [self.tables[self.granted.tables[t]] for t in tables if t in self.granted.tables]
        return sum(int(r[4] or 0) for r in rows), sum(int(r[5] or 0) for r in rows)

    def table(self, name: Name, unique: dict[str, list[str]], keys: list[Json]) -> Json:
        """Return the table in the shape of `entities.Table`."""
        _, _, kind, engine, rows, size, comment, *_ = row = self.tables[name]
        view = "VIEW" in kind
        return {
            "name": self.shown(name),
            "kind": "view" if view else "table",
            "columns": [
                {"name": c, "type": column_type, "nullable": nullable == "YES", "comment": note or None}
                for c, column_type, nullable, note, _ in self.columns[name]
            ],
            "primary_key": unique.get("PRIMARY", []),
            "unique": [columns for index, columns in unique.items() if index != "PRIMARY"],
            "foreign_keys": keys,
            "comment": comment if comment and not view else None,
            "row_count": int(rows) if rows is not None and not view else None,
            "row_count_exact": engine in ("MyISAM", "Aria", "MEMORY"),
            "bytes": int(size) if size is not None and not view else None,
            "fingerprint": _fingerprint(row),
        }


def _group_unique(rows: list[tuple[Any, ...]]) -> dict[Name, dict[str, list[str]]]:
    found: dict[Name, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for schema, table, index, column in rows:
        found[schema, table][index].append(column)
    return found


def _group_keys(rows: list[tuple[Any, ...]], schema: _Schema) -> dict[Name, list[Json]]:
    grouped: dict[tuple[Name, str, Name], list[tuple[str, str]]] = defaultdict(list)
    for database, table, constraint, column, to_database, to_table, to_column in rows:
        grouped[(database, table), constraint, (to_database, to_table)].append((column, to_column))
    found: dict[Name, list[Json]] = defaultdict(list)
    for (name, _, to), pairs in grouped.items():
        if to in schema.tables:
            columns, to_columns = [a for a, _ in pairs], [b for _, b in pairs]
            found[name].append({"columns": columns, "to_table": schema.shown(to), "to_columns": to_columns})
    return found


def _scanned(plan: Any) -> Iterator[int]:
    """Yield the expected rows of each table that a plan reads."""
    if isinstance(plan, list):
        for item in plan:
            yield from _scanned(item)
    elif isinstance(plan, dict):
        rows = plan.get("rows", plan.get("rows_examined_per_scan"))
        name = str(plan.get("table_name", ""))
        # A name in angle brackets is an intermediate result, not a table.
        if name and not name.startswith("<") and isinstance(rows, (int, float)):
            yield int(rows)
        for item in plan.values():
            yield from _scanned(item)


class MysqlBits(PlainRowShape):
    """Bit strings of up to 64 bits. The server sends them as bytes; the result has integers."""

    def array(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the bits as integers."""
        return pa.array([None if v is None else int.from_bytes(v, "big") for v in values], kind)


_BINARY_CHARSET = 63
_UNSIGNED = 32
_INTEGERS = {1: "int8", 2: "int16", 3: "int32", 8: "int64", 9: "int32"}
_SHAPES: dict[int, RowShape] = {
    4: SureRowShape(pa.float32()),
    5: SureRowShape(pa.float64()),
    7: PrintedRowShape(pa.timestamp("us")),
    10: PrintedRowShape(pa.date32()),
    11: PrintedRowShape(pa.time64("us"), read_row_time),
    12: PrintedRowShape(pa.timestamp("us")),
    13: SureRowShape(pa.int16()),
    14: PrintedRowShape(pa.date32()),
    16: MysqlBits(pa.uint64()),
    255: PlainRowShape(pa.binary()),
}
_TEXTS = frozenset({15, 249, 250, 251, 252, 253, 254})
_NAMES = {
    **{0: "decimal", 1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: "null", 7: "timestamp"},
    **{8: "bigint", 9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 16: "bit"},
    **{245: "json", 246: "decimal", 247: "enum", 248: "set", 255: "geometry"},
}


def _precision(field: Any) -> tuple[int, int]:
    """Return precision and scale; the length from the server also counts the sign and the point."""
    sign, point = int(not field.flags & _UNSIGNED), int(field.scale > 0)
    return max(field.length - sign - point, field.scale, 1), field.scale


def _shape(field: Any) -> RowShape:
    code = field.type_code
    if code in _INTEGERS:
        name = _INTEGERS[code]
        return SureRowShape(getattr(pa, "u" + name if field.flags & _UNSIGNED else name)())
    if code in (0, 246):
        return DigitsRowShape(*_precision(field))
    if code in _TEXTS:
        return PlainRowShape(pa.binary() if field.charsetnr == _BINARY_CHARSET else pa.string())
    return _SHAPES.get(code, PlainRowShape(pa.string()))


def _type_name(field: Any) -> str:
    code = field.type_code
    if code in _TEXTS:
        binary, long = field.charsetnr == _BINARY_CHARSET, code in (249, 250, 251, 252)
        return ("blob" if binary else "text") if long else ("varbinary" if binary else "varchar")
    name = _NAMES.get(code, "varchar")
    if code in (0, 246):
        name = "decimal({},{})".format(*_precision(field))
    return f"{name} unsigned" if code in _INTEGERS and field.flags & _UNSIGNED else name
