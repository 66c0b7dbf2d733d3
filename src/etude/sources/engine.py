"""The inside of an engine process: open one set of sources, then answer queries until the host goes away.

The process is the boundary that keeps a query from taking the host down: its memory, files and network are limited
by the operating system, and the host may kill it at any moment. Two sockets reach it: `data` carries requests and
results, `control` carries cancels, so that a running query can be stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from socket import socket
from typing import Any, NoReturn

from etude import process_confinement, wire
from etude.arrow_limits import check_arrow_row_bytes, check_arrow_schema, check_type_names
from etude.errors import (
    Cancelled,
    EtudeError,
    InvalidQuery,
    LimitExceeded,
    Refused,
    SourceError,
    cut_message,
    problem,
)
from etude.lean_imports import import_without_numpy, import_without_pandas
from etude.redaction import redact
from etude.sources.base import CheckedQuery, Driver, Json, Mount, Verdicts

CHUNK = 4 << 20
WINDOW = 3
"""At most this many chunks of a result are sent ahead of the host: this bounds memory on both sides."""
PROGRESS_S = 0.2
NICE = 10
"""Niceness: above the host's, below that of sessions."""
PRELOADED = {"duckdb": ("duckdb",), "sqlite": ("etude.sources.drivers.sqlite", "sqlglot")}
"""The modules that an engine loads while it waits for its first source, by the kind that is expected."""
SERVERS = {"postgres": "sqlglot.dialects.postgres", "mysql": "sqlglot.dialects.mysql"}
"""The kinds of the built-in drivers for servers, and the module by which their queries are checked."""
AGAIN_S = 0.02
"""How often the cancel of a query is repeated until it ends."""


def run_engine() -> None:
    """Start from the command line that `engine_process.spawn_engine` writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--preload", choices=PRELOADED, default="duckdb")
    args = parser.parse_args()
    serve_engine(
        wire.inherited_wire_socket(args.data), wire.inherited_wire_socket(args.control), args.network, args.preload
    )


def serve_engine(data: socket, control: socket, network: bool, preload: str) -> NoReturn:
    """Load the libraries, then answer requests until the host goes away."""
    # A user namespace can be entered only while there is one thread, so before the libraries are imported.
    isolation = {"network": not network and process_confinement.confine_process_network()}
    process_confinement.prefer_process_for_oom_kill()
    process_confinement.lower_process_priority(NICE)
    if not network:
        # The built-in drivers of files use neither; drivers of packages, which may, run with the network.
        import_without_numpy()
        for name in PRELOADED[preload]:
            import_module(name)
    import pyarrow  # noqa: F401

    engine = Engine(data, control, isolation)
    with contextlib.suppress(wire.Closed, KeyboardInterrupt):
        engine.serve()
    engine.leave()


class Engine:
    """One driver behind the two sockets."""

    def __init__(self, data: socket, control: socket, isolation: dict[str, bool]) -> None:
        import pyarrow as pa

        # Created once: otherwise every small result would look up the defaults again.
        self._options = pa.ipc.IpcWriteOptions()
        self._data = data
        self._control = control
        self._isolation = isolation
        self._driver: Driver | None = None
        self._verdicts = Verdicts()
        self._running: int | None = None
        self._cancelled = 0
        self._loading: Any = None
        self._scratch = ""
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Answer requests until the host closes its end."""
        while True:
            head = wire.receive_wire_frame(self._data).head
            if head["op"] == "took":
                continue  # for the last chunks of a result: nothing waits for these
            try:
                self._answer(head)
            except wire.Closed:
                raise
            except MemoryError:
                hint = "Filter or aggregate earlier, or raise `engine.memory`."
                self._fail(LimitExceeded("The engine ran out of memory.", hint=hint, limit="memory"))
            except EtudeError as error:
                self._fail(error)
                if error.details.get("fatal"):
                    self.leave()
            except Exception as error:
                # Report a bug in a driver to the host as a failure of the source, rather than die silently. It may have
                # left an unknown state behind, so this process serves no other query.
                text = f"{type(error).__name__}: {error}"
                self._fail(SourceError(text, hint="The engine failed unexpectedly.", fatal=True))
                self.leave()

    def _answer(self, head: Json) -> None:
        match head["op"]:
            case "open":
                self._open(head)
            case "catalog":
                wire.send_wire_frame(self._data, {"ok": True, **self._opened.catalog()})
            case "named_columns":
                names = self._opened.named_columns(head["sql"])
                wire.send_wire_frame(self._data, {"ok": True, "names": sorted(names) if names is not None else None})
            case "query":
                self._query(head)
            case "load":
                self._load(head)
            case other:
                raise SourceError(f"Unknown request `{other}`.")

    def _fail(self, error: EtudeError) -> None:
        if isinstance(error, SourceError):
            # Libraries may quote the address that they were given, with its password.
            error.message = redact(cut_message(error.message))
        wire.send_wire_frame(self._data, {"ok": False, "error": problem(error)})

    @property
    def _opened(self) -> Driver:
        if self._driver is None:
            raise SourceError("No source is open.")
        return self._driver

    def _confine(self, head: Json) -> None:
        self._scratch = head["scratch"]
        process_confinement.confine_process_resources(head["memory"], head["file_bytes"])
        process_confinement.refuse_new_process_privileges()
        # The last two because DuckDB reads its memory limit there, and aborts if it cannot.
        system = [
            "/etc/localtime",
            "/usr/share/zoneinfo",
            "/usr/lib",
            "/lib",
            "/lib64",
            "/etc/ssl",
            "/dev/urandom",
        ]
        system += ["/proc/self/cgroup", "/sys/fs/cgroup"]
        if head.get("network"):
            system += [
                "/etc/resolv.conf",
                "/etc/hosts",
                "/etc/nsswitch.conf",
                "/etc/services",
                "/run",
                "/var/run",
            ]
        readable = [*system, *sys.path, sys.prefix, sys.base_prefix, *head["readable"]]
        self._isolation["files"] = process_confinement.confine_process_paths(
            [p for p in readable if p], ["/dev/null", *head["writable"]], unlinked=head["unlinked"]
        )

    def _open(self, head: Json) -> None:
        self._confine(head)
        threading.Thread(target=self._listen, name="control", daemon=True).start()
        mounts = [Mount(**m | _tuples(m)) for m in head["mounts"]]
        if module := SERVERS.get(mounts[0].kind):
            # Here, and not in the first query, whose time is limited: if Python has not compiled these libraries yet,
            # loading them takes seconds. The built-in drivers do not use pandas; drivers of packages may.
            import_without_pandas()
            import_module(module)
        self._driver = load_engine_driver(mounts, head)
        warnings = self._driver.excess_rights()
        if warnings and mounts[0].strict:
            raise Refused(
                f"The role of source `{mounts[0].name}` may do more than read what is granted. {' '.join(warnings)}",
                hint="Give the source a role of its own that only reads, as docs/sources.md shows, or drop `strict`.",
                reason="rights",
            )
        wire.send_wire_frame(
            self._data,
            {
                "ok": True,
                "dialect": self._driver.dialect,
                "versions": self._driver.versions(),
                "schema": self._driver.schema_fingerprint(),
                "isolation": self._isolation,
                "warnings": warnings,
            },
        )

    def _load(self, head: Json) -> None:
        """Convert files to Parquet; answer for each, so that one bad file does not hide the others."""
        self._confine(head)
        threading.Thread(target=self._listen, name="control", daemon=True).start()
        config = {"memory_limit": f"{head['engine_memory'] >> 20}MiB", "threads": str(head["threads"])}
        for job in head["files"]:
            try:
                wire.send_wire_frame(self._data, {"ok": True, "tables": _load_file(job, config, self._watch)})
            except MemoryError:
                self._fail(LimitExceeded("The file needs more memory than an engine has.", limit="memory"))
            except EtudeError as error:
                self._fail(error)

    def _watch(self, connection: Any) -> None:
        """Report the progress of the connection that reads a file; None if it has read it."""
        with self._lock:
            self._loading = connection

    def _listen(self) -> None:
        """Stop the running query on request; end the process when the host is gone, whatever runs."""
        while True:
            # A query that had not started when it was cancelled would miss that, so repeat it until the query ends.
            self._control.settimeout(AGAIN_S if self._unwanted() else PROGRESS_S)
            try:
                self._cancelled = max(self._cancelled, wire.receive_wire_frame(self._control).head["id"])
            except TimeoutError:
                self._report_progress()
            except (wire.Closed, OSError):
                self.leave()
            with self._lock:
                if self._driver is not None and self._unwanted():
                    self._driver.cancel()

    def _unwanted(self) -> bool:
        """Return whether the running query was cancelled; ids grow, and a cancel also ends all earlier queries."""
        return self._running is not None and self._running <= self._cancelled

    def leave(self) -> NoReturn:
        """End the process because the host is gone, or because the driver can no longer be trusted."""
        # A killed host removes nothing, so this process removes what it spilled to disk.
        shutil.rmtree(self._scratch, ignore_errors=True)
        # Do not wait for threads of libraries that may still run.
        os._exit(0)

    def _report_progress(self) -> None:
        with self._lock:
            done = self._driver.progress() if self._driver is not None and self._running is not None else None
            if self._loading is not None:
                done = max(self._loading.query_progress(), 0) / 100
        if done is not None:
            with contextlib.suppress(wire.Closed):
                wire.send_wire_frame(self._control, {"progress": done})

    def _check(self, sql: str, encoded: Any) -> CheckedQuery:
        text, values = sql, ()
        if encoded:
            from etude.sources.query_parameters import decode_query_params, place_query_params

            text, values = place_query_params(sql, decode_query_params(encoded) or (), self._opened.dialect)
        driver = self._opened
        known = self._verdicts.get((text, len(values)))
        if known is None:
            known = driver.check(text, len(values)) if values else driver.check(text)
            if driver.fixed:
                self._verdicts.keep((text, len(values)), known)
        return replace(known, params=values, written=sql) if values else known

    def _query(self, head: Json) -> None:
        started = time.perf_counter()
        driver = self._opened
        with self._lock:
            self._running = head["id"]
        try:
            checked = self._check(head["sql"], head.get("params"))
            if self._unwanted():
                raise Cancelled("The query was cancelled.")
            end: Json = {"ok": True, "sql": checked.written or checked.sql, "tables": checked.tables}
            if head["describe"]:
                end["estimate"] = driver.estimate(checked)
                end["fingerprints"] = driver.fingerprints(checked.tables)
                _check_budget(end["estimate"], head)
            batches = driver.run(checked, head["timeout_s"])
            try:
                self._stream(batches, head, end, started)
            finally:
                with contextlib.suppress(Exception):
                    batches.close()  # type: ignore[attr-defined]
        except (InterruptedError, InvalidQuery, SourceError) as error:
            # A query interrupted while it is checked looks invalid.
            if self._unwanted() or isinstance(error, InterruptedError):
                raise Cancelled("The query was cancelled.") from None
            raise
        finally:
            with self._lock:
                self._running = None

    def _stream(self, batches: Iterator[Any], head: Json, end: Json, started: float) -> None:
        capped = _Cap(head)
        chunk: list[Any] = []
        self._chunk = CHUNK
        sent, on_their_way = 0, 0
        for batch in capped.cut(batches, lambda: self._opened.column_types):
            chunk.append(batch)
            if capped.size - sent >= self._chunk:
                on_their_way = self._flow(on_their_way)
                part = {"ok": True, "more": True, "types": self._opened.column_types}
                self._send_chunk(part, chunk, capped.size - sent)
                chunk, sent = [chunk[0].slice(0, 0)], capped.size
        end["row_count"], end["truncated"], end["bytes"] = capped.rows, capped.truncated, capped.size
        end["types"] = self._opened.column_types
        end["notes"] = list(self._opened.notes)
        end["elapsed_ms"] = (time.perf_counter() - started) * 1000
        self._send_chunk(end, chunk, capped.size - sent)

    def _flow(self, on_their_way: int) -> int:
        if on_their_way < WINDOW:
            return on_their_way + 1
        took = wire.receive_wire_frame(self._data).head
        if took["op"] != "took":
            raise wire.Closed
        self._chunk = took.get("chunk", CHUNK)
        return on_their_way

    def _send_chunk(self, head: Json, batches: list[Any], size: int) -> None:
        import pyarrow as pa

        fd = wire.make_wire_memory() if size > wire.INLINE else None
        if fd is None:
            sink = pa.BufferOutputStream()
            self._write(sink, batches)
            wire.send_wire_frame(self._data, head, memoryview(sink.getvalue()))
            return
        with open(fd, "wb", buffering=0) as file, pa.PythonFile(file, "w") as out:
            self._write(out, batches)
            wire.seal_wire_memory(fd)
            wire.send_wire_frame(self._data, head | {"size": out.tell()}, fd=fd)

    def _write(self, sink: Any, batches: list[Any]) -> None:
        import pyarrow as pa

        with pa.ipc.new_stream(sink, batches[0].schema, options=self._options) as writer:
            for batch in batches:
                writer.write_batch(batch)


class _Cap:
    """Counts a stream of batches, fails above its limits, and cuts it only where the caller asked for a cut."""

    def __init__(self, limits: Json) -> None:
        self._limit: int = limits["limit"]
        self._max_rows: int = limits["rows"]
        self._max_size: int = limits["bytes"]
        self._max_row: int = limits["row_bytes"]
        self.rows = 0
        self.size = 0
        self.truncated = False

    def cut(self, batches: Iterator[Any], types: Callable[[], Sequence[str]]) -> Iterator[Any]:
        first = True
        for each in batches:
            if first:
                check_arrow_schema(each.schema)
                check_type_names(types())
            batch = self._fit(each)
            self.rows += batch.num_rows
            self.size += batch.nbytes
            if batch.num_rows or first:
                yield batch
            first = False
            if self.truncated:
                return

    def _fit(self, batch: Any) -> Any:
        if self._limit and self.rows + batch.num_rows > self._limit:
            self.truncated = True
            batch = batch.slice(0, self._limit - self.rows)
        if self._max_rows and self.rows + batch.num_rows > self._max_rows:
            raise LimitExceeded(
                f"The result has more than {self._max_rows:,} rows, the limit of this query.",
                hint="Aggregate or filter, ask for the first rows (`--limit-rows N`, `limit=N` in Python), or raise "
                "the setting `limits.rows` (0: no limit).",
                limit="rows",
                value=self._max_rows,
            )
        if self._max_size and self.size + batch.nbytes > self._max_size:
            raise LimitExceeded(
                f"The result has more than {self._max_size:,} bytes, the limit of this query.",
                hint="Select fewer rows or columns, or raise `limits.bytes` (0: no limit). To export all of it: "
                "`etude sql SOURCE QUERY --no-record --limit-rows 0 --output FILE.parquet`.",
                limit="bytes",
                value=self._max_size,
            )
        check_arrow_row_bytes(batch, self._max_row, self.rows)
        return batch


def _check_budget(estimate: Json, head: Json) -> None:
    for key, unit in (("scan_rows", "rows"), ("scan_bytes", "bytes")):
        expected, allowed = estimate.get(key), head.get(key) or 0
        if allowed and expected is not None and expected > allowed:
            raise LimitExceeded(
                f"The query would read about {expected:,} {unit}; the budget is {allowed:,}.",
                hint=f"Filter or aggregate earlier, or raise `limits.{key}`.",
                limit=key,
                value=expected,
                allowed=allowed,
                estimate=estimate,
            )


def _load_file(job: Json, config: dict[str, str], watch: Callable[[Any], None]) -> list[Json]:
    from dataclasses import asdict
    from pathlib import Path

    from etude.sources.files.load import DiscoveredTable, load

    given = job["file"]
    options = tuple((key, value) for key, value in given["options"])
    file = DiscoveredTable(**given | {"paths": tuple(given["paths"]), "options": options})
    loaded = load(file, Path(job["out_dir"]), config, watch)
    return [
        {"table": t.table, "paths": t.paths, "notes": t.report.summary(), "in_place": set(t.paths) <= set(file.paths)}
        | {"totals": [asdict(total) for total in t.report.totals]}
        for t in loaded
    ]


def _tuples(mount: Json) -> Json:
    tables = mount.get("tables")
    return {"tables": None if tables is None else tuple(tables), "files": tuple(mount.get("files", ()))}


def load_engine_driver(mounts: list[Mount], head: Json) -> Driver:
    """Return the driver for the mounts; only DuckDB can open several at once."""
    from etude import plugins

    first = mounts[0]
    driver = plugins.load_plugin("source", first.kind)
    if issubclass(driver, Driver) and driver.dialect == "duckdb":
        settings = {"memory": head["engine_memory"], "threads": head["threads"], "scratch": head["scratch"]}
        opened: Driver = driver(*mounts, **settings)
    else:
        opened = driver(first)
    return opened


if __name__ == "__main__":
    run_engine()
