"""The driver for Postgres: a read-only transaction for each query, values sent as text and parsed by Arrow."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

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
from etude.sources.functions import allowed_functions
from etude.sources.granted_tables import Granted, UserCode, choose_granted_tables, display_table
from etude.sources.hidden_rows import HIDDEN_ERROR_HINT, describe_hidden_error, sum_estimates
from etude.sources.postgres_grammar import IMPLIED_FUNCTIONS, load_postgres_grammar, read_postgres_query
from etude.sources.query_hints import guard_column_hint, type_error_hint
from etude.sources.quoting import quote_identifier, quote_literal
from etude.sources.rows import (
    CHUNK_ROWS,
    DigitsRowShape,
    PlainRowShape,
    PrintedRowShape,
    RowColumn,
    RowShape,
    SureRowShape,
    cast_row_text,
    read_row_bool,
    read_row_instant,
    read_row_interval,
    read_row_list,
    read_row_time,
    to_batches,
)

CONNECT_S = 10
METADATA_S = 30
LOCK_S = 10
FETCH_ROWS = 1000

# The text of values must not depend on the settings of the server or the role.
_SESSION = """SET default_transaction_read_only = on; SET standard_conforming_strings = on; SET DateStyle = 'ISO';
SET IntervalStyle = 'postgres'; SET bytea_output = 'hex'; SET idle_in_transaction_session_timeout = '15min'"""

_RELATIONS = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, pg_table_is_visible(c.oid), c.reltuples::float8,
       CASE WHEN c.relkind IN ('r', 'm') AND has_table_privilege(c.oid, 'SELECT') THEN pg_table_size(c.oid) END,
       obj_description(c.oid, 'pg_class'), c.relispartition,
       c.relkind = 'v' AND NOT EXISTS (SELECT 1 FROM pg_options_to_table(c.reloptions)
         WHERE option_name = 'security_barrier' AND option_value::bool),
       has_schema_privilege(n.oid, 'USAGE')
         AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY n.nspname, c.relname"""
_COLUMNS = """
SELECT a.attrelid::bigint, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       col_description(a.attrelid, a.attnum)
FROM pg_attribute a WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2"""
_UNIQUE = """
SELECT i.indrelid::bigint, i.indisprimary, i.indkey::int2[] FROM pg_index i
WHERE i.indrelid = ANY(%s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indexrelid"""
_KEYS = """
SELECT conrelid::bigint, conkey, confrelid::bigint, confkey FROM pg_constraint
WHERE contype = 'f' AND conrelid = ANY(%s) AND confrelid = ANY(%s) ORDER BY oid"""
_NAMESPACES = "SELECT nspname FROM pg_namespace"
# Functions that `value.name` may call, and user-defined objects that an allowed name or operator may reach. Objects of
# an extension do not count as user-defined: their names are not on the allow-list, or they only compute.
_CALLABLE = """
SELECT DISTINCT proname FROM pg_proc WHERE pronargs - pronargdefaults <= 1 AND (pronargs > 0 OR provariadic <> 0)"""
_FIRST_USER_OID = 16384
_OF_EXTENSION = (
    "EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = {0}::regclass AND d.objid = o.oid AND deptype = 'e')"
)
_DEFINED = f"""
SELECT DISTINCT proname FROM pg_proc o JOIN pg_namespace n ON n.oid = pronamespace
WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND pg_function_is_visible(o.oid)
  AND NOT {_OF_EXTENSION.format("'pg_proc'")}"""
_OPERATORS = f"""
SELECT DISTINCT oprname FROM pg_operator o JOIN pg_namespace n ON n.oid = oprnamespace
WHERE nspname <> 'pg_catalog' AND NOT {_OF_EXTENSION.format("'pg_operator'")}
  AND oprname NOT IN (SELECT oprname FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace)"""
# User-defined casts, operators and operator classes whose names do not tell: (kind, name, left or source, right or
# target, whether values of built-in types are enough). An untyped literal takes the type of the other operand if a
# built-in operator compares two values of that type; otherwise it may take a user-defined type. Sorting, grouping and
# comparing rows call the functions of the default operator class of a type, although no operator is written.
_USER_CODE = f"""
SELECT 'cast', '', castsource::bigint, casttarget::bigint, false
FROM pg_cast c JOIN pg_proc o ON o.oid = castfunc
WHERE o.oid >= {_FIRST_USER_OID} AND NOT {_OF_EXTENSION.format("'pg_proc'")}
UNION ALL
SELECT 'operator', oprname, oprleft::bigint, oprright::bigint,
       NOT EXISTS (SELECT 1 FROM pg_operator b WHERE b.oid < {_FIRST_USER_OID} AND b.oprname = o.oprname
                   AND b.oprkind = o.oprkind AND (o.oprkind <> 'b' OR b.oprleft = b.oprright
                   AND (o.oprleft >= {_FIRST_USER_OID} OR b.oprleft = o.oprleft)
                   AND (o.oprright >= {_FIRST_USER_OID} OR b.oprright = o.oprright)))
FROM pg_operator o
WHERE o.oid >= {_FIRST_USER_OID} AND pg_operator_is_visible(o.oid) AND NOT {_OF_EXTENSION.format("'pg_operator'")}
UNION
SELECT 'operator class', '', opcintype::bigint, opcintype::bigint, false
FROM pg_opclass c CROSS JOIN LATERAL (
    SELECT amproc::oid FROM pg_amproc
    WHERE amprocfamily = opcfamily AND opcintype IN (amproclefttype, amprocrighttype)
    UNION ALL SELECT oprcode::oid FROM pg_amop JOIN pg_operator ON pg_operator.oid = amopopr
    WHERE amopfamily = opcfamily AND opcintype IN (amoplefttype, amoprighttype)
) AS called(oid) JOIN pg_proc o ON o.oid = called.oid
WHERE opcdefault AND o.oid >= {_FIRST_USER_OID} AND NOT {_OF_EXTENSION.format("'pg_proc'")}"""
# The checks of domains: type, the check as text, and the user-defined functions and operators, and the functions of
# extensions, that it calls.
_CHECKS = f"""
SELECT k.contypid::bigint, pg_get_constraintdef(k.oid),
       ARRAY(SELECT refobjid::bigint FROM pg_depend WHERE classid = 'pg_constraint'::regclass AND objid = k.oid
             AND (refclassid = 'pg_proc'::regclass AND NOT EXISTS (SELECT 1 FROM pg_proc o WHERE o.oid = refobjid
                  AND {_OF_EXTENSION.format("'pg_proc'")})
               OR refclassid = 'pg_operator'::regclass AND NOT EXISTS (SELECT 1 FROM pg_operator o
                  WHERE o.oid = refobjid AND {_OF_EXTENSION.format("'pg_operator'")}))),
       ARRAY(SELECT proname::text FROM pg_depend JOIN pg_proc o ON o.oid = refobjid
             WHERE classid = 'pg_constraint'::regclass AND objid = k.oid AND refclassid = 'pg_proc'::regclass
               AND {_OF_EXTENSION.format("'pg_proc'")})
FROM pg_constraint k WHERE k.contypid <> 0 AND k.contype = 'c' AND k.oid >= {_FIRST_USER_OID}"""
# Types whose values are names: a text beside one is looked up among all tables, types, functions or roles.
_LOOKUPS = """
SELECT oid::bigint FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace
  AND (typname LIKE 'reg%' OR typname = 'aclitem') AND typelem = 0"""
_CONVERTIBLE = f"""
SELECT DISTINCT casttarget::bigint FROM pg_cast
WHERE castcontext = 'i' AND castsource < {_FIRST_USER_OID} AND casttarget >= {_FIRST_USER_OID}"""
_TYPE_NAMES = "SELECT oid::bigint, typname, format_type(oid, NULL) FROM pg_type WHERE oid = ANY(%s)"
# The types of the values that a table gives: its row type, and the types inside that and of its columns.
_REACHES = f"""
WITH RECURSIVE reached(relation, type) AS (
    SELECT oid, reltype FROM pg_class WHERE oid = ANY(%s)
    UNION
    SELECT relation, inner_type FROM reached JOIN pg_type t ON t.oid = type CROSS JOIN LATERAL (
        SELECT atttypid FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped
        UNION ALL SELECT unnest(ARRAY[t.typelem, t.typbasetype])
        UNION ALL SELECT rngsubtype FROM pg_range r
            WHERE rngtypid = t.oid OR (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid
        UNION ALL SELECT casttarget FROM pg_cast
            WHERE castsource = t.oid AND castcontext = 'i' AND casttarget >= {_FIRST_USER_OID}
        UNION ALL SELECT refobjid FROM pg_constraint k JOIN pg_depend d ON d.objid = k.oid
            WHERE k.contypid = t.oid AND classid = 'pg_constraint'::regclass AND refclassid = 'pg_type'::regclass
    ) AS inside(inner_type))"""
_REACHED = f"{_REACHES} SELECT relation::bigint, type::bigint FROM reached WHERE type = ANY(%s)"
# The other tables and composite types whose rows are values in a table.
_CONTAINED = f"""{_REACHES} SELECT relation::bigint, typrelid::bigint FROM reached JOIN pg_type t ON t.oid = type
WHERE typrelid <> 0 AND typrelid <> relation"""
_SAFE_TYPES = f"""
SELECT typname FROM pg_type o JOIN pg_namespace n ON n.oid = typnamespace
WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND typtype IN ('e', 'b') AND typelem = 0
GROUP BY typname HAVING bool_and(typtype = 'e' OR {_OF_EXTENSION.format("'pg_type'")})"""
_DOMAINS = f"""
SELECT DISTINCT lower(typname) FROM pg_type o JOIN pg_namespace n ON n.oid = typnamespace
LEFT JOIN pg_class c ON c.oid = typrelid
WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND typelem = 0 AND typtype <> 'e'
  AND (c.relkind IS NULL OR c.relkind = 'c') AND NOT {_OF_EXTENSION.format("'pg_type'")}"""
# Rows that change with every user-defined function, operator, cast, operator class, type and check of a domain, with
# the schemas, and with the tables: the search path may find another one by the same name.
_CODE_STATE = " UNION ALL ".join(
    f"SELECT count(*), coalesce(sum(oid::bigint), 0)::text, coalesce(sum(xmin::text::bigint), 0)::text FROM {table}"
    f" WHERE oid >= {_FIRST_USER_OID}{more}"
    for table, more in {
        **dict.fromkeys(("pg_proc", "pg_operator", "pg_cast", "pg_opclass", "pg_amproc", "pg_amop"), ""),
        "pg_namespace": " AND nspname !~ '^pg_(toast|temp)'",
        # Without the types of the rows of tables: temporary tables come and go.
        "pg_constraint": " AND contypid <> 0",
        "pg_class": " AND relkind IN ('r', 'p', 'v', 'm', 'f') AND relpersistence <> 't'",
        "pg_type": " AND typelem = 0 AND (typrelid = 0 OR typrelid IN (SELECT oid FROM pg_class WHERE relkind = 'c'))",
    }.items()
)
_FIELDS = """
SELECT DISTINCT attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
WHERE relkind = 'c' AND attnum > 0 AND NOT attisdropped"""
_TYPES = "SELECT oid::bigint, typname FROM pg_type WHERE typtype IN ('e', 'b', 'r', 'm') AND oid >= 16384"
_ROLE = """
SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls,
       (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only') = 'on',
       has_database_privilege(current_database(), 'CREATE'),
       ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE pg_has_role(r.oid, 'USAGE') AND r.rolname IN (
           'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_write_all_data',
           'pg_read_all_data', 'pg_signal_backend', 'pg_maintain', 'pg_checkpoint', 'pg_create_subscription')
           ORDER BY 1)
FROM pg_roles WHERE rolname = current_user"""
_WRITABLE = """
SELECT nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'p', 'v', 'f') AND nspname <> 'information_schema' AND nspname !~ '^pg_'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
ORDER BY 1"""
_CREATABLE = """
SELECT nspname FROM pg_namespace WHERE nspname <> 'information_schema' AND nspname !~ '^pg_'
  AND has_schema_privilege(oid, 'CREATE') ORDER BY 1"""
_DEFINERS = f"""
SELECT DISTINCT nspname || '.' || proname FROM pg_proc o JOIN pg_namespace n ON n.oid = pronamespace
WHERE prosecdef AND nspname NOT IN ('pg_catalog', 'information_schema') AND has_function_privilege(o.oid, 'EXECUTE')
  AND has_schema_privilege(n.oid, 'USAGE') AND NOT {_OF_EXTENSION.format("'pg_proc'")} ORDER BY 1"""
_CHANGES = """
SELECT s.relid::bigint, s.n_tup_ins, s.n_tup_upd, s.n_tup_del, pg_relation_filenode(s.relid)::bigint,
       d.stats_reset::text
FROM pg_stat_all_tables s, pg_stat_database d WHERE s.relid = ANY(%s) AND d.datname = current_database()
  AND current_setting('track_counts')::bool"""
_SCANNED = """
SELECT n.nspname, c.relname, c.reltuples::float8, pg_table_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""


_SHUTDOWN = ("57P01", "57P02", "57P03")
_LASTING = re.compile(r"\bFATAL:|resolve host|translate host name|certificate|SSL is not|not supported", re.IGNORECASE)
_PASSING = re.compile(
    r"starting up|shutting down|recovery|not yet accepting|too many (?:clients|connections)|connection slots"
    r"|temporary failure|terminating connection",
    re.IGNORECASE,
)


def _is_temporary(text: str) -> bool:
    """Return whether a failure to connect may pass by itself. libpq gives no code for it, only a text."""
    return _PASSING.search(text) is not None or _LASTING.search(text) is None


class PostgresDriver(ServerDriver["_Schema"]):
    """One connection to a Postgres database. The privileges of its role apply, and etude allows no writes."""

    dialect = "postgres"

    def __init__(self, mount: Mount) -> None:
        self._psycopg = _package()
        self._mount = mount
        self._where = self._read_url(mount.url)
        self._connection: Any = None
        self._search_path: str | None = None
        self._stopped = False
        self._connect()

    def _read_url(self, url: str) -> dict[str, Any]:
        try:
            given = dict(self._psycopg.conninfo.conninfo_to_dict(url.replace("postgres://", "postgresql://", 1)))
            # An unescaped `@` or `/` in a password makes a part of it the host or the database, which errors quote.
            if "@" in str(given.get("host", "")) or ("@" in str(given.get("dbname", "")) and "%40" not in url):
                raise self._psycopg.ProgrammingError
            return given
        except self._psycopg.Error:
            # The text of the error would quote the URL with its password.
            raise SourceError(
                f"The URL of source `{self._mount.name}` cannot be read.",
                hint="Write `postgresql://user:password@host:port/database`, with special characters as %XX.",
            ) from None

    def _connect(self) -> None:
        if self._connection is not None:
            with suppress(self._psycopg.Error):
                self._connection.close()
        given = {"connect_timeout": CONNECT_S, "application_name": "etude", "client_encoding": "utf8"} | self._where
        try:
            self._connection = self._psycopg.connect(**given, autocommit=True, prepare_threshold=None)
            self._connection.execute(_SESSION)
            if self._search_path is None:
                ((schemas,),) = self._connection.execute("SELECT pg_catalog.current_schemas(false)").fetchall()
                self._search_path = _search_path(schemas)
            self._connection.execute(self._set_path("false"))
        except self._psycopg.Error as error:
            kind = SourceUnavailable if _is_temporary(str(error)) else SourceError
            raise kind(
                f"{self._address()} cannot be reached: {self._clean(error)}",
                hint="Check host, port, database, user and password, and that the server allows access from here.",
            ) from None
        self._types = {oid: name for oid, name in self._connection.execute(_TYPES)}

    def _set_path(self, local: str) -> str:
        path = quote_literal(self._search_path or "", "postgres")
        return f"SELECT pg_catalog.set_config('search_path', {path}, {local})"

    def _address(self) -> str:
        host, port = self._where.get("host", "localhost"), self._where.get("port", "5432")
        return f"Postgres at `{host}:{port}`, database `{self._where.get('dbname', '')}`,"

    def _clean(self, error: Exception) -> str:
        text = " ".join(cut_message(str(error)).split())
        return self._hide_password(text)

    @contextmanager
    def _transaction(self, timeout_s: float) -> Iterator[Any]:
        """Run a read-only transaction with a time limit; roll it back at the end, so that no setting outlives it."""
        begin = (
            f"BEGIN READ ONLY; SET LOCAL statement_timeout = {max(int(timeout_s * 1000), 1)};"
            f"SET LOCAL lock_timeout = {LOCK_S * 1000};"
            # Also here: a connection pool may hand over a session in which another client set the path.
            f"{self._set_path('true')}"
        )
        try:
            self._connection.execute(begin)
        except self._psycopg.OperationalError as error:
            if isinstance(error, self._psycopg.errors.QueryCanceled):
                raise
            # The server, or something on the way to it, closed the idle connection.
            self._connect()
            self._connection.execute(begin)
        try:
            yield self._connection
        finally:
            with suppress(self._psycopg.Error):
                self._connection.execute("ROLLBACK")

    def _ask(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        try:
            with self._transaction(METADATA_S) as connection:
                rows: list[tuple[Any, ...]] = connection.execute(query, params or None).fetchall()
                return rows
        except self._psycopg.Error as error:
            raise self._failed(error, METADATA_S) from None

    def _load(self) -> _Schema:
        wanted, _ = self._relations()
        oids = [r.oid for r in wanted]
        code = self._user_code(wanted)
        contained: dict[int, set[int]] = defaultdict(set)
        for oid, inner in self._ask(_CONTAINED, oids) if code else ():
            contained[oid].add(inner)
        columns = self._read_columns({*oids, *(i for inside in contained.values() for i in inside)})
        unique: dict[int, list[tuple[bool, list[int]]]] = defaultdict(list)
        for oid, primary, numbers in self._ask(_UNIQUE, oids):
            unique[oid].append((primary, numbers))
        schemas = self._names(_NAMESPACES)
        guarded: dict[str, Any] = {
            "callable": frozenset(map(str.lower, self._names(_CALLABLE))),
            "shadowed": self._names(_DEFINED),
            "operators": self._names(_OPERATORS),
            "types": self._names(_SAFE_TYPES),
            "domains": self._names(_DOMAINS),
            "fields": frozenset(map(str.lower, self._names(_FIELDS))),
            "user_code": code,
            "lookups": self._lookups(wanted),
        }
        schema = _Schema(self._mount.name, {r.oid: r for r in wanted}, columns, contained, unique, schemas, guarded)
        if self._mount.tables is not None:
            # Not only those that read a table that is not granted: they may also read it by a function or another view.
            schema.views = frozenset(r.shown for r in wanted if r.kind == "v")
            schema.leaky = frozenset(r.shown for r in wanted if r.unfenced)
        return schema

    def _read_columns(self, oids: Iterable[int]) -> dict[int, dict[int, tuple[Any, ...]]]:
        columns: dict[int, dict[int, tuple[Any, ...]]] = defaultdict(dict)
        for oid, number, *column in self._ask(_COLUMNS, list(oids)):
            columns[oid][number] = tuple(column)
        return columns

    def _is_outdated(self, schema: _Schema, tables: Sequence[str]) -> bool:
        """Return whether columns changed: a function may now run in place of a column, or by the type of a new one."""
        before = schema.columns_of(tables)
        now = self._read_columns(before) if before else {}
        return any(columns != now.get(oid, {}) for oid, columns in before.items())

    def _lookups(self, relations: Sequence[_Relation]) -> frozenset[str]:
        """Return the tables with values that are names, unless all tables, and so their names, are granted."""
        if self._mount.tables is None:
            return frozenset()
        displayed = {r.oid: r.shown for r in relations}
        kinds = [oid for (oid,) in self._ask(_LOOKUPS)]
        return frozenset(displayed[oid] for oid, _ in self._ask(_REACHED, list(displayed), kinds))

    def _user_code(self, relations: Sequence[_Relation]) -> tuple[UserCode, ...]:
        """Return user-defined casts, overloads of operators and operator classes, and the tables that may run them."""
        found = [*self._ask(_USER_CODE), *self._domain_checks()]
        if not found:
            return ()
        names = {oid: (name, shown) for oid, name, shown in self._ask(_TYPE_NAMES, [o for f in found for o in f[2:4]])}
        convertible = {oid for (oid,) in self._ask(_CONVERTIBLE)}
        tables: dict[int, set[str]] = defaultdict(set)
        displayed = {r.oid: r.shown for r in relations}
        for relation, kind in self._ask(_REACHED, list(displayed), list(names)):
            tables[kind].add(displayed[relation])
        code = []
        for what, name, left, right, always in found:
            own = [oid for oid in (left, right) if oid >= _FIRST_USER_OID]
            if what == "cast" and left >= _FIRST_USER_OID:
                own = [left]  # a cast needs a value of its source type
            shown = [names[oid][1] for oid in (left, right) if oid in names]
            written = {"cast": " AS ".join(shown), "operator": f"{name} ({', '.join(shown)})"}
            code.append(
                UserCode(
                    shown=written.get(what, shown[0]),
                    kind=what,
                    operator=name,
                    types=frozenset(names[oid][0].lower() for oid in own if oid in names),
                    tables=frozenset(t for oid in own for t in tables[oid]),
                    always=always or not own or not convertible.isdisjoint(own),
                )
            )
        return tuple(code)

    def _domain_checks(self) -> Iterator[tuple[str, str, int, int, bool]]:
        """Yield the domains whose checks call more than what a query may call, in the shape of `_USER_CODE`."""
        allowed = allowed_functions("postgres") | IMPLIED_FUNCTIONS
        for oid, text, defined, extended in self._ask(_CHECKS):
            try:
                check = text.removeprefix("CHECK ").removesuffix(" NOT VALID")
                called = read_postgres_query(f"SELECT {check}").functions
            except EtudeError:
                called = frozenset({text})
            if defined or called - allowed - set(extended):
                yield "domain check", "", oid, oid, False

    def _names(self, query: str) -> frozenset[str]:
        return frozenset(name for (name,) in self._ask(query))

    def _code_state(self) -> str:
        return repr(self._ask(_CODE_STATE))

    def _relations(self) -> tuple[list[_Relation], list[_Relation]]:
        """Return the relations that the role may read: those that are granted, and the others."""
        found = [_Relation(*row) for row in self._ask(_RELATIONS)]
        if self._mount.tables is None:
            # A partition is read through its parent, unless it is granted by name.
            granted = {r.oid for r in found if not r.partition}
        else:
            # Also among relations that the role may not read: a name must not mean the next best one instead.
            oids = {(r.schema, r.name): r for r in found}
            names = choose_granted_tables(self._mount.tables, oids, lambda *name: oids[name].visible)
            granted = {oids[name].oid for name in names}
        readable = [r for r in found if r.readable]
        return [r for r in readable if r.oid in granted], [r for r in readable if r.oid not in granted]

    def excess_rights(self) -> list[str]:
        """Return the privileges of the role beyond reading the granted tables, from the server's system catalog."""
        ((role, superuser, *powers, read_only, creates, member),) = self._ask(_ROLE)
        if superuser:
            return [
                f"The role `{role}` is a superuser: only the guard keeps queries from other data, the server's files "
                "and its programs. Use a role that may only read."
            ]
        warnings = []
        words = ("create roles", "create databases", "replicate", "bypass row security")
        may = [word for word, has in zip(words, powers, strict=True) if has]
        if may:
            warnings.append(f"The role `{role}` may {', '.join(may)}.")
        if member:
            warnings.append(f"The role `{role}` is a member of {shorten_list(member)}.")
        if writable := sorted(self._names(_WRITABLE)):
            warnings.append(f"The role `{role}` may change {shorten_list(writable)}.")
        if schemas := sorted(self._names(_CREATABLE)):
            warnings.append(f"The role `{role}` may create objects in the schemas {shorten_list(schemas)}.")
        if creates:
            warnings.append(f"The role `{role}` may create schemas.")
        if definers := sorted(self._names(_DEFINERS)):
            warnings.append(f"The role `{role}` may call {shorten_list(definers)} with the privileges of their owners.")
        others = [f"{r.schema}.{r.name}" for r in self._relations()[1] if not r.partition]
        if others:
            warnings.append(f"The role `{role}` may also read {shorten_list(others)}, which the source does not grant.")
        if leaky := sorted(self._known().leaky):
            warnings.append(
                f"Conditions of a query may run on rows that {shorten_list(leaky)} hides, because the view has no "
                "security barrier. Consider `ALTER VIEW ... SET (security_barrier)`."
            )
        if warnings and not read_only:
            warnings.append(f"Consider `ALTER ROLE {role} SET default_transaction_read_only = on`.")
        return warnings

    def catalog(self) -> Json:
        """Return the granted tables, with the row counts that Postgres last estimated."""
        self._schema = schema = self._load()
        oids = list(schema.relations)
        keys: dict[int, list[Json]] = defaultdict(list)
        for oid, numbers, to_oid, to_numbers in self._ask(_KEYS, oids, oids):
            to_table = schema.relations[to_oid].shown
            columns, to_columns = schema.names(oid, numbers), schema.names(to_oid, to_numbers)
            keys[oid].append({"columns": columns, "to_table": to_table, "to_columns": to_columns})
        prints = self._fingerprints(oids)
        return {"tables": [schema.table(oid, keys[oid], prints.get(oid)) for oid in oids]}

    def estimate(self, checked: CheckedQuery) -> Json:
        """Return the planner's estimate: the whole table for a sequential scan, otherwise the rows that it looks up."""
        if checked.sql.startswith("EXPLAIN"):
            return {"scan_rows": 0, "scan_bytes": 0, "result_rows": None}
        if self._known().may_hide_rows(checked.tables):
            return sum_estimates(map(self._estimate, self._whole_tables(checked)))
        return self._estimate(checked)

    def _estimate(self, checked: CheckedQuery) -> Json:
        try:
            with self._transaction(METADATA_S) as connection:
                cursor = self._psycopg.RawCursor(connection)
                explain = f"EXPLAIN (FORMAT JSON, VERBOSE) {checked.sql}"
                # A stream, because `execute` would also run a second statement.
                ((plan,),) = cursor.stream(explain, checked.params or None)
                top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
                scans = list(_scans(top))
                names = {(s.get("Schema", ""), s["Relation Name"]) for s in scans}
                found = connection.execute(_SCANNED, [[s for s, _ in names], [t for _, t in names]]).fetchall()
        except self._psycopg.Error as error:
            raise self._failed(error, METADATA_S, checked) from None
        sizes = {(schema, name): (rows, size) for schema, name, rows, size in found}
        rows = size = 0
        for scan in scans:
            planned = int(scan["Plan Rows"])
            total, stored = sizes.get((scan.get("Schema", ""), scan["Relation Name"]), (-1, None))
            whole = scan["Node Type"] == "Seq Scan" and stored is not None
            rows += max(int(total), planned) if whole else planned
            size += int(stored) if whole else planned * int(scan["Plan Width"])
        return {"scan_rows": rows, "scan_bytes": size, "result_rows": int(top["Plan Rows"])}

    def run(self, checked: CheckedQuery, timeout_s: float) -> Iterator[Any]:
        """Yield batches as the server sends them, in a read-only transaction of their own."""
        self._stopped = False
        try:
            # A raw cursor: parameters are `$1`, as the server itself writes them, and the server binds them.
            with self._transaction(timeout_s) as connection, self._psycopg.RawCursor(connection) as cursor:
                self._prefer_text(cursor)
                size = FETCH_ROWS if self._psycopg.capabilities.has_stream_chunked() else 1
                rows = cursor.stream(checked.sql, checked.params or None, size=size)
                try:
                    first = list(islice(rows, CHUNK_ROWS))
                    result = cursor.pgresult if first else self._describe(checked)
                    columns = self._columns(result)
                    yield from to_batches(_chunks(first, rows), columns)
                finally:
                    # If the reader stops early, this ends the query in the server.
                    rows.close()
        except self._psycopg.Error as error:
            raise self._failed(error, timeout_s, checked) from None

    def _prefer_text(self, cursor: Any) -> None:
        """Receive values as text: they are exact, may exceed Python's ranges, and Arrow parses them in bulk."""
        from psycopg.types.string import TextLoader

        for known in self._psycopg.postgres.types:
            if known.name != "bytea":
                cursor.adapters.register_loader(known.oid, TextLoader)
            if known.array_oid:
                cursor.adapters.register_loader(known.array_oid, TextLoader)

    def _describe(self, checked: CheckedQuery) -> Any:
        """Return the columns of a query without rows; the stream does not describe them."""
        from psycopg.adapt import PyFormat, Transformer

        raw, values = self._connection.pgconn, Transformer(self._connection)
        values.dump_sequence(checked.params, [PyFormat.AUTO] * len(checked.params))
        prepared = raw.prepare(b"", checked.sql.encode(), values.types)
        result = raw.describe_prepared(b"")
        if result.status != self._psycopg.pq.ExecStatus.COMMAND_OK:
            raise self._psycopg.OperationalError(prepared.error_message.decode(errors="replace"))
        return result

    def _columns(self, result: Any) -> list[RowColumn]:
        columns, types = [], []
        for i in range(result.nfields):
            oid, modifier = result.ftype(i), result.fmod(i)
            types.append(self._type_name(oid, modifier))
            columns.append(RowColumn((result.fname(i) or b"").decode(), _shape(oid, modifier)))
        self.column_types = types
        return columns

    def _type_name(self, oid: int, modifier: int) -> str:
        known = self._psycopg.postgres.types.get(oid)
        if known is None:
            return str(self._types.get(oid, "text"))
        return str(known.get_type_display(oid=oid, fmod=modifier))

    def _failed(self, error: Any, timeout_s: float, checked: CheckedQuery | None = None) -> EtudeError:
        state, text = error.sqlstate or "", self._clean(error.diag.message_primary or error)
        # Only an error in the text of the query has a position there; any other may quote a value of a row.
        hidden = checked is not None and not error.diag.statement_position and self._may_hide_rows(checked)
        if hidden:
            text = describe_hidden_error(state)
        if state == "57014":
            if self._stopped:
                return Cancelled("The query was cancelled.")
            return query_timeout_error(timeout_s)
        if state in ("25006", "42501"):
            return Refused(
                f"Postgres refused the query: {text}.",
                hint="A source is read-only: only read tables that the role may read.",
                reason="rights",
            )
        if state[:2] in ("42", "22", "0A", "2F", "21") and checked is not None:
            if hidden:
                return InvalidQuery(f"Postgres reported an error: {text}.", hint=HIDDEN_ERROR_HINT)
            return self._invalid(error, text, checked)
        if state == "55P03":
            return SourceLocked(
                f"A table was locked for more than {LOCK_S} s.", hint="Run the query again when the lock is released."
            )
        # After an internal error, or one that ends the session, only a new connection is in a known state.
        fatal = state.startswith("XX") or error.diag.severity_nonlocalized in ("FATAL", "PANIC")
        hint = "Read the server's log; run the query again if the server was restarted."
        hint = HIDDEN_ERROR_HINT if hidden else hint
        temporary = state[:2] in ("08", "40", "53") or state in _SHUTDOWN or (not state and self._connection.closed)
        kind = SourceUnavailable if temporary else SourceError
        return kind(f"Postgres failed: {text}.", hint=hint, fatal=fatal or self._connection.closed or None)

    def _invalid(self, error: Any, text: str, checked: CheckedQuery) -> InvalidQuery:
        columns = self._known().column_names(checked.tables)
        hint = " ".join((error.diag.message_hint or "").split()) or guard_column_hint(text, columns)
        position: dict[str, int] = {}
        if error.diag.statement_position:
            before = checked.sql[: int(error.diag.statement_position) - 1]
            position = {"line": before.count("\n") + 1, "column": len(before) - before.rfind("\n")}
        if (typed := type_error_hint(text, checked.sql, "postgres")) is not None:
            return InvalidQuery(f"Postgres reported an error: {typed[0]}", hint=typed[1], **position)
        return InvalidQuery(f"Postgres reported an error: {text}.", hint=hint, **position)

    def cancel(self) -> None:
        """Ask the server to stop the query."""
        self._stopped = True
        with suppress(self._psycopg.Error):
            self._connection.cancel_safe(timeout=5)

    def fingerprints(self, tables: tuple[str, ...]) -> dict[str, str]:
        """Return fingerprints from the server's counts of changed rows; only plain tables have such counts."""
        oids = {r.oid: r.shown for r in self._known().relations.values() if r.shown in tables}
        return {oids[oid]: value for oid, value in self._fingerprints(list(oids)).items()}

    def _fingerprints(self, oids: list[int]) -> dict[int, str]:
        return {oid: hashlib.sha256(repr(row).encode()).hexdigest()[:32] for oid, *row in self._ask(_CHANGES, oids)}

    def versions(self) -> dict[str, str]:
        """Return the versions of the server and of the client library."""
        server = str(self._connection.info.parameter_status("server_version") or "")
        return {"postgres": server, "psycopg": self._psycopg.__version__}

    def close(self) -> None:
        """Close the connection."""
        with suppress(self._psycopg.Error):
            self._connection.close()


def _search_path(schemas: Sequence[str]) -> str:
    """Return a path on which names mean the same for all queries of a driver.

    Built-in tables, types, functions and operators come first, and temporary ones, which Postgres looks for before all
    others unless the path names them, come last.
    """
    others = [quote_identifier(name, "postgres") for name in schemas if name not in ("pg_catalog", "pg_temp")]
    return ", ".join(["pg_catalog", *others, "pg_temp"])


def _package() -> Any:
    try:
        import psycopg
    except ImportError:
        raise Unavailable("Postgres needs the package `psycopg`.", hint="pip install 'etude[postgres]'") from None
    load_postgres_grammar()  # now, and not when the first query is checked
    return psycopg


def _chunks(first: list[Any], rest: Iterator[Any]) -> Iterator[Sequence[Any]]:
    while first:
        yield first
        first = list(islice(rest, CHUNK_ROWS))


class _Relation:
    """A table, view, materialized view or foreign table, as the system catalog describes it."""

    def __init__(
        self,
        oid: int,
        schema: str,
        name: str,
        kind: str,
        visible: bool,
        rows: float,
        size: int | None,
        comment: str | None,
        partition: bool,
        unfenced: bool,
        readable: bool,
    ) -> None:
        self.oid, self.schema, self.name, self.kind = oid, schema, name, kind
        self.visible, self.unfenced, self.readable = visible, unfenced, readable
        self.shown = display_table(schema, name, visible)
        self.rows, self.size, self.comment, self.partition = rows, size, comment, partition


class _Schema:
    """The granted relations and their columns, as of one moment."""

    def __init__(
        self,
        source: str,
        relations: dict[int, _Relation],
        columns: dict[int, dict[int, tuple[Any, ...]]],
        contained: dict[int, set[int]],
        unique: dict[int, list[tuple[bool, list[int]]]],
        schemas: frozenset[str],
        guarded: dict[str, Any],
    ) -> None:
        self.relations, self._columns, self._contained, self._unique = relations, columns, contained, unique
        self.views: frozenset[str] | None = None
        """If only some tables are granted: the views, which may hide rows of others."""
        self.leaky: frozenset[str] = frozenset()
        """Those of them whose hidden rows a condition of a query may see: only a security barrier prevents it."""
        self._by_name = {r.shown: r.oid for r in relations.values()}
        self.granted = Granted(
            source=source,
            tables={r.shown: (r.schema, r.name) for r in relations.values()},
            schemas=schemas,
            describe=self._describe,
            **guarded,
        )

    def names(self, oid: int, numbers: Sequence[int]) -> list[str]:
        """Return the names of columns by their numbers."""
        return [self._columns[oid][n][0] for n in numbers]

    def columns_of(self, tables: Sequence[str]) -> dict[int, dict[int, tuple[Any, ...]]]:
        """Return the columns of these tables, and of the tables and types whose rows are values in them."""
        oids = {self._by_name[table] for table in tables}
        return {oid: self._columns[oid] for own in oids for oid in (own, *self._contained.get(own, ()))}

    def may_hide_rows(self, tables: Sequence[str]) -> bool:
        """Return whether one of these tables is a view, or unknown by now, and not all tables are granted."""
        return self.views is not None and any(t in self.views or t not in self._by_name for t in tables)

    def column_names(self, tables: Sequence[str]) -> list[str]:
        """Return the names of the columns of these tables."""
        return [c[0] for t in tables if t in self._by_name for c in self._columns[self._by_name[t]].values()]

    def primary_key(self, oid: int) -> list[str]:
        """Return the columns of the primary key, in its order."""
        return next((self.names(oid, numbers) for primary, numbers in self._unique[oid] if primary), [])

    def _describe(self, name: str) -> list[tuple[str, str, bool, str]]:
        oid = self._by_name[name]
        key = self.primary_key(oid)
        return [
            (c, kind, not required, "PRI" if c in key else "") for c, kind, required, _ in self._columns[oid].values()
        ]

    def table(self, oid: int, keys: list[Json], fingerprint: str | None) -> Json:
        """Return the relation in the shape of `entities.Table`."""
        relation = self.relations[oid]
        return {
            "name": relation.shown,
            "kind": "view" if relation.kind == "v" else "table",
            "columns": [
                {"name": name, "type": kind, "nullable": not required, "comment": comment}
                for name, kind, required, comment in self._columns[oid].values()
            ],
            "primary_key": self.primary_key(oid),
            "unique": [self.names(oid, numbers) for primary, numbers in self._unique[oid] if not primary],
            "foreign_keys": keys,
            "comment": relation.comment,
            # -1 means that the table was never analyzed; a view has no rows of its own.
            "row_count": int(relation.rows) if relation.rows >= 0 and relation.kind != "v" else None,
            "row_count_exact": False,
            "bytes": relation.size,
            "fingerprint": fingerprint,
        }


def _scans(plan: Json) -> Iterator[Json]:
    """Yield the parts of a plan that read a table."""
    if "Relation Name" in plan:
        yield plan
    for part in plan.get("Plans", []):
        yield from _scans(part)


_TEXT = PlainRowShape(pa.string())
_SHAPES: dict[int, RowShape] = {
    16: SureRowShape(pa.bool_(), read_row_bool),
    17: PlainRowShape(pa.binary()),
    20: SureRowShape(pa.int64()),
    21: SureRowShape(pa.int16()),
    23: SureRowShape(pa.int32()),
    26: SureRowShape(pa.uint32()),
    700: SureRowShape(pa.float32()),
    701: SureRowShape(pa.float64()),
    1082: PrintedRowShape(pa.date32()),
    1083: PrintedRowShape(pa.time64("us"), read_row_time),
    1114: PrintedRowShape(pa.timestamp("us")),
    1184: PrintedRowShape(pa.timestamp("us", "UTC"), read_row_instant),
    1186: PrintedRowShape(pa.month_day_nano_interval(), read_row_interval),
    # Arrays of one dimension; others stay text, as Postgres prints them.
    1000: PrintedRowShape(pa.list_(pa.bool_()), read_row_list(read_row_bool)),
    1005: PrintedRowShape(pa.list_(pa.int16()), read_row_list(cast_row_text)),
    1007: PrintedRowShape(pa.list_(pa.int32()), read_row_list(cast_row_text)),
    1016: PrintedRowShape(pa.list_(pa.int64()), read_row_list(cast_row_text)),
    1021: PrintedRowShape(pa.list_(pa.float32()), read_row_list(cast_row_text)),
    1022: PrintedRowShape(pa.list_(pa.float64()), read_row_list(cast_row_text)),
    1182: PrintedRowShape(pa.list_(pa.date32()), read_row_list(cast_row_text)),
    1115: PrintedRowShape(pa.list_(pa.timestamp("us")), read_row_list(cast_row_text)),
    1185: PrintedRowShape(pa.list_(pa.timestamp("us", "UTC")), read_row_list(read_row_instant)),
    # Lists of text, varchar, char, name, uuid, json, jsonb and numeric hold text: a list of decimals needs one scale.
    **{
        oid: PrintedRowShape(pa.list_(pa.string()), read_row_list(cast_row_text))
        for oid in (1009, 1015, 1014, 1003, 2951, 199, 3807, 1231)
    },
}


def _shape(oid: int, modifier: int) -> RowShape:
    if oid != 1700:
        return _SHAPES.get(oid, _TEXT)
    if modifier < 0:
        return DigitsRowShape()
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    if scale > 1023:
        # A negative scale rounds digits before the point: numeric(2,-3) can hold 99000.
        return DigitsRowShape(precision + 2048 - scale, 0)
    return DigitsRowShape(precision, scale)
