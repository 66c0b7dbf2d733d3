"""A source as the host sees it: a name, how to reach it, its catalog, and queries through a warm engine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.entities import Catalog, Limits, SourceSpec, Table
from etude.errors import Invalid, LimitExceeded, SourceMissing
from etude.redaction import redact
from etude.settings import RemoteSettings
from etude.sources.base import LoadWait, Mount, query_timeout_error, tables_fingerprint
from etude.sources.cost_estimate import Size, correct_cost_estimate
from etude.sources.engine_client import CHECK_S, EngineClient, OnProgress, ResultStream
from etude.sources.engine_pool import MAIN, EnginePool, Key
from etude.sources.file_fingerprint import file_fingerprint, sqlite_fingerprint
from etude.sources.files.file_cache import LOAD_S, load_files_through_cache
from etude.sources.files.load_report import load_notes_of_query
from etude.sources.query_parameters import Encoded
from etude.sources.quoting import fold_duckdb_name
from etude.sources.source_url import resolve_source_url, source_kind, source_path

FILE_OPTIONS = ("dates", "decimal", "encoding", "follow_links", "strict")
SIZES_S = 60.0
"""How long the sizes of tables are cached; they serve only estimates."""
REMOTE_S = 10.0
"""How long the copy of a remote file is used before its server is asked again."""
FindSizes = Callable[["Source"], Mapping[str, Size]]


@dataclass(frozen=True)
class StartedQuery:
    """A query that was sent to an engine; reading its answer waits for the engine only."""

    engine: EngineClient
    stream: ResultStream


class Source:
    """One source. Thread-safe."""

    def __init__(
        self,
        name: str,
        spec: SourceSpec,
        pool: EnginePool,
        cache: Path,
        find_sizes: FindSizes | None = None,
        tenant: str = MAIN,
        remote: RemoteSettings | None = None,
        path: Path | None = None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.url = str(path) if path is not None else resolve_source_url(spec.url)
        """Its URL, or the folder on this machine that holds the files of an upload."""
        self.kind = spec.kind or source_kind(self.url)
        if self.kind in ("duckdb", "sqlite", "files"):
            self.url = source_path(self.url)
        self.named = True
        """False if it was opened by its path or URL, which then is the only way to find it again."""
        self.hides = ""
        """A file or folder in the working folder that has the same name as this registered source."""
        self.tenant = tenant
        """The tenant whose share of the engines its queries use."""
        self._pool = pool
        self._cache = cache
        self._find_sizes = find_sizes
        self._remote = remote or RemoteSettings()
        self._fetched: tuple[float, Path] | None = None
        self._sizes: tuple[float, str, Mapping[str, Size]] | None = None
        self._lock = threading.Lock()
        self._loaded: tuple[str, Mount] | None = None
        self._notes: tuple[str, ...] = ()
        self._load_notes: dict[str, list[str]] = {}
        self._catalog: tuple[tuple[Key, str], Catalog] | None = None

    @property
    def network(self) -> bool:
        """Whether the engine must connect to a server."""
        return self.kind not in ("duckdb", "files", "sqlite")

    @property
    def location(self) -> str | None:
        """The URL or path as runs may store it; None if it may contain a secret."""
        secret = self.network or ("://" in self.url and redact(self.url) != self.url)
        return None if secret else self.url

    @property
    def hiding_note(self) -> str:
        """A note that this registered source hides a file or folder of the same name here; empty if it hides none."""
        if not self.hides:
            return ""
        place = f" at `{self.location}`" if self.location else ""
        return f"`{self.hides}` is the registered source{place}; write `./{self.hides}` for the one in this folder."

    @property
    def only_location(self) -> str | None:
        """The location of a source that has no registered name; None if it has one, or if the URL may be secret."""
        return None if self.named else self.location

    @property
    def native(self) -> bool:
        """Whether DuckDB reads it in place, so that it can be joined without copying."""
        return self.kind in ("duckdb", "files")

    def mount(self, on_progress: OnProgress | None = None, wait: LoadWait | None = None) -> tuple[Key, Mount]:
        """Return a key that changes with the files behind the source, and how an engine opens it now.

        Files that must be read first are read until `wait` ends, or for up to `LOAD_S`.
        """
        if self.kind == "files":
            return self._mount_files(on_progress, wait or LoadWait(LOAD_S))
        mark = ""
        if self.kind == "duckdb":
            mark = file_fingerprint(self.url)
        if (self.kind == "duckdb" and not mark) or (self.kind == "sqlite" and not os.path.isfile(self.url)):
            raise SourceMissing(f"There is no file `{self.url}`.", hint="Check the path.")
        tables = self.spec.tables
        mount = Mount(self.name, self.kind, self.url, tables, dict(self.spec.options))
        # An engine was opened by these options: without `strict`, it may have rights that `strict` refuses.
        options = tuple(sorted(self.spec.options.items()))
        return (self.name, self.url, tables, options, mark), mount

    def _mount_files(self, on_progress: OnProgress | None, wait: LoadWait) -> tuple[Key, Mount]:
        from etude.sources.files.discover import discover_files
        from etude.sources.files.reading_options import READING, parse_reading_options

        options = self.spec.options
        for name in options:
            if name not in FILE_OPTIONS:
                raise Invalid(f"`{name}` is not an option of files.", hint=f"Use one of {', '.join(FILE_OPTIONS)}.")
        parse_reading_options(options)
        reading = tuple((name, options[name]) for name in READING if name in options)
        # The files of an uploaded source are links to those of the object store.
        uploaded = bool(self.spec.uploaded)
        follow = uploaded or _is_set(self.spec, "follow_links")
        found = discover_files(self._local(wait), follow_links=follow, options=reading, uploaded=uploaded)
        mark = hashlib.sha256("|".join(f.key for f in found.tables).encode()).hexdigest()
        with self._locked(wait):
            if self._loaded is None or self._loaded[0] != mark:
                # Resolved like the paths of the files, because an engine follows no symbolic links to them.
                folder = (self._cache / "files").resolve()
                entries, notes, _ = load_files_through_cache(
                    found.tables, folder, self._pool, self.tenant, on_progress, wait
                )
                if found.ignored:
                    notes.append(f"Ignored, because they are not tables: {', '.join(found.ignored[:20])}.")
                if found.links:
                    names = ", ".join(f"`{name}`" for name in found.links[:20])
                    notes.append(f"Not read, because they link to files outside the folder: {names}.")
                granted = self.spec.tables
                if granted is not None:
                    wanted = {fold_duckdb_name(t) for t in granted}
                    entries = [e for e in entries if fold_duckdb_name(e["table"]) in wanted]
                self._loaded = (mark, Mount(self.name, "files", self.url, granted, {}, tuple(entries)))
                self._notes = tuple(notes)
                self._load_notes = {e["table"]: e["notes"] for e in entries if e["notes"]}
            return (self.name, self.url, self.spec.tables, mark), self._loaded[1]

    @contextlib.contextmanager
    def _locked(self, wait: LoadWait) -> Iterator[None]:
        """Hold the lock; while another query reads the files under it, wait no longer than `wait`."""
        while not self._lock.acquire(timeout=CHECK_S):
            wait.check(self.url)
        try:
            yield
        finally:
            self._lock.release()

    def _local(self, wait: LoadWait) -> str:
        """Return the path of the files: the URL itself, or that of their copy if they are on another machine."""
        from etude.sources.files.remote_file import download_remote_file, is_remote_url

        if not is_remote_url(self.url):
            return self.url
        with self._locked(wait):
            if self._fetched is None or time.monotonic() - self._fetched[0] > REMOTE_S:
                copy = download_remote_file(self.url, self._cache / "remote", self._remote, wait)
                self._fetched = (time.monotonic(), copy)
            return str(self._fetched[1])

    def catalog(self, limits: Limits | None = None) -> Catalog:
        """Tables, columns, types, keys, comments and row counts; read again if the source's files changed."""
        key, mount = self.mount()
        # A SQLite engine sees new data by itself, so its key stays the same; the catalog cached here does not.
        seen = (key, self._written())
        if self._catalog is None or self._catalog[0] != seen or self.network:
            timeout = (limits or Limits()).timeout_s
            with self._pool.lease(key, (mount,), self.network, timeout, self.tenant) as engine:
                tables = engine.catalog(timeout)
                made = make_source_catalog(self.name, self.kind, engine.info["dialect"], tables)
                told = {"notes": self._notes, "warnings": tuple(engine.info["warnings"])}
                self._catalog = (seen, made.model_copy(update=told))
        return self._catalog[1]

    def query(
        self,
        sql: str,
        limits: Limits,
        describe: bool = False,
        on_progress: Callable[[float], None] | None = None,
        params: Encoded | None = None,
    ) -> ResultStream:
        """Run a statement through the guard. The engine is held until the batches are read or closed."""
        if self.kind == "files":
            return self._query_files(sql, limits, describe, on_progress, params)
        key, mount = self.mount()
        stream = stream_source_query(
            self._pool, key, (mount,), self.network, sql, limits, describe, on_progress, self.tenant, params
        )
        if describe and not self.native:
            stream.batches = self._corrected(stream, stream.batches)
        return stream

    def _query_files(
        self, sql: str, limits: Limits, describe: bool, on_progress: OnProgress | None, params: Encoded | None
    ) -> ResultStream:
        """Read the files if that was not done yet, then query them; the time limit and `cancel` hold for both."""
        stream = ResultStream()

        def batches() -> Iterator[Any]:
            wait = LoadWait(limits.timeout_s, lambda: stream.cancelled)
            key, mount = self.mount(on_progress, wait)
            stream.notes = {table: load_notes_of_query(notes, sql) for table, notes in self._load_notes.items()}
            left = limits.model_copy(update={"timeout_s": max(wait.left_s, CHECK_S)})
            inner = stream_source_query(
                self._pool, key, (mount,), False, sql, left, describe, on_progress, self.tenant, params
            )
            try:
                yield from relay_source_stream(inner, stream)
            except LimitExceeded as error:
                if error.details.get("limit") == "timeout_s":
                    raise query_timeout_error(
                        limits.timeout_s
                    ) from None  # with the whole time, not what reading left of it
                raise

        stream.batches = batches()
        return stream

    def _corrected(self, stream: ResultStream, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches; the estimate at their end uses the known sizes of the tables."""
        yield from batches
        estimate, tables = stream.end.get("estimate"), stream.end.get("tables", ())
        if estimate:
            stream.end["estimate"] = correct_cost_estimate(estimate, self.kind, tables, self.sizes())

    def sizes(self) -> Mapping[str, Size]:
        """Return the rows and bytes of tables that were counted; cached for a while."""
        now, written, known = time.monotonic(), self._written(), self._sizes
        if known is None or known[1] != written or now - known[0] > SIZES_S:
            known = (now, written, self._find_sizes(self) if self._find_sizes is not None else {})
            self._sizes = known
        return known[2]

    def forget_sizes(self) -> None:
        """Drop the cached sizes, because the tables were counted again."""
        self._sizes = None

    def _written(self) -> str:
        """Return a text that changes with each write to a file whose key stays the same."""
        return sqlite_fingerprint(self.url) if self.kind == "sqlite" else ""

    def begin(self, sql: str, limits: Limits) -> StartedQuery | None:
        """Send a statement to an engine that is idle now, without waiting for anything.

        Return None if an engine must be opened or waited for, or if checking the source itself takes time. The engine
        is held until the batches are read or closed.
        """
        if self.kind == "files":
            return None
        key, _ = self.mount()
        engine = self._pool.take_idle(key, self.tenant)
        if engine is None:
            return None
        stream = ResultStream()

        def batches() -> Iterator[Any]:
            try:
                inner = engine.query(sql, limits, False)
                try:
                    yield
                except GeneratorExit:
                    engine.kill()  # its unread answer would be taken for that of the next query
                    raise
                yield from relay_source_stream(inner, stream)
            finally:
                self._pool.give_back(key, engine, self.tenant)

        stream.batches = batches()
        next(stream.batches)
        return StartedQuery(engine, stream)


def _is_set(spec: SourceSpec, option: str) -> bool:
    value = spec.options.get(option, "false").lower()
    if value not in ("true", "false"):
        raise Invalid(f"`{option}` cannot be `{value}`.", hint="Use `true` or `false`.")
    return value == "true"


def stream_source_query(
    pool: EnginePool,
    key: Key,
    mounts: tuple[Mount, ...],
    network: bool,
    sql: str,
    limits: Limits,
    describe: bool,
    on_progress: Callable[[float], None] | None,
    tenant: str,
    params: Encoded | None = None,
) -> ResultStream:
    """Lease an engine for one query; it is returned when the batches of the stream end or are closed."""
    stream = ResultStream()

    def batches() -> Iterator[Any]:
        with pool.lease(key, mounts, network, limits.timeout_s, tenant) as engine:
            yield from relay_source_stream(engine.query(sql, limits, describe, on_progress, params), stream)

    stream.batches = batches()
    return stream


def relay_source_stream(inner: ResultStream, outer: ResultStream) -> Iterator[Any]:
    """Yield the batches of `inner`; copy its state to `outer`, whose `cancel` cancels it."""
    outer.started(inner.cancel)
    inner.parts = outer.parts
    try:
        for batch in inner.batches:
            outer.types = inner.types
            yield batch
    finally:
        inner.batches.close()  # type: ignore[attr-defined]
        outer.end, outer.info = inner.end, inner.info


LONGEST_NAME = 1_000
"""Characters of the name of a table or a column: names are in prompts, indexes, errors and pages."""


def _check_name_lengths(source: str, tables: list[dict[str, Any]]) -> None:
    """Raise `LimitExceeded` if a name is too long; cut the names of types, such as enumerations of many values."""
    for table in tables:
        for column in table["columns"]:
            if len(column["type"]) > LONGEST_NAME:
                column["type"] = column["type"][:LONGEST_NAME] + "…"
        for name in (table["name"], *(column["name"] for column in table["columns"])):
            if len(name) > LONGEST_NAME:
                raise LimitExceeded(
                    f"A table or column of `{source}` has a name of {len(name):,} characters: `{name[:40]}…`.",
                    hint=f"Names have at most {LONGEST_NAME:,} characters; rename it.",
                    limit="name_length",
                    value=LONGEST_NAME,
                )


def make_source_catalog(source: str, kind: str, dialect: str, tables: list[dict[str, Any]]) -> Catalog:
    """Return a catalog of the tables that a driver described."""
    _check_name_lengths(source, tables)
    keys = {t["name"]: t.get("primary_key", ()) for t in tables}
    granted = {name.lower() for name in keys}
    for table in tables:
        # A reference to a table that is not granted would tell its name and columns.
        table["foreign_keys"] = [k for k in table.get("foreign_keys", ()) if k["to_table"].lower() in granted]
    for key in (k for t in tables for k in t["foreign_keys"]):
        # A reference without column names refers to the key.
        key["to_columns"] = key.get("to_columns") or keys.get(key["to_table"], ())
    entries = tuple(Table.model_validate(t) for t in tables)
    return Catalog(source=source, kind=kind, dialect=dialect, tables=entries, fingerprint=tables_fingerprint(tables))
