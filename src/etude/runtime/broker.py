"""The host's side of `db` in a session: answers the queries of cells, records them, and replays recorded ones."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude import wire
from etude.db import check_saved_file_name
from etude.entities import Artifact, Catalog, Limits, ResultInfo
from etude.errors import Cancelled, EtudeError, Invalid, LimitExceeded, NotFound, from_problem, problem
from etude.events import ArtifactCreated
from etude.ids import new_id
from etude.limits import MOST_TEXT, lower_limits
from etude.result import Result
from etude.runtime.failed_step import failed_step
from etude.runtime.query import Query, describe_query_result, finished_query_step, started_query_step
from etude.runtime.query_record import PARQUET, query_truncation_note
from etude.runtime.run_log import RunLog, RunStorage
from etude.runtime.saved_files import ArrivingFile, SavedFiles
from etude.sources.arrow_tables import check_arrow_table_name
from etude.sources.engine_client import ResultStream
from etude.sources.query_parameters import Encoded, decode_query_params, encode_query_params
from etude.sources.registered_tables import RegisteredTables
from etude.spool import Spool

HELD = 256 << 20
"""How many bytes of results may wait for the end of their cell."""
OPEN = 128
"""How many descriptors of results may wait for the end of their cell. Beyond that, results are stored at once."""
CALLS = 10_000
"""How many queries a cell may send: each is recorded."""
CALL_BYTES = 16 << 20
"""How many bytes the texts, parameters and errors of these queries may have together."""
FILES = 64
"""How many files a session may save."""
FILE_BYTES = 256 << 20
"""How many bytes these files may have together."""
TABLE_BYTES = 4 * FILE_BYTES
"""How many bytes the tables that a session registered may have together."""
KEPT_BYTES = 1 << 30
"""How many bytes a session may save in all: a file that is replaced stays with the run that saved it."""
SAVES = 1000
"""How often a session may save a file; each time is an artifact."""
_MEDIA = {
    "json": "application/json",
    "html": "text/html",
    "py": "text/x-python",
    "csv": "text/csv",
    "md": "text/markdown",
}


@dataclass(frozen=True)
class SourceAccess:
    """The only way from a session to data: how to query the source, and its catalog."""

    name: str
    start_query: Callable[[str, Limits, Encoded | None], ResultStream]
    catalog: Callable[[], Catalog]
    limits: Limits
    annotations: Callable[[], dict[str, Any]] = dict
    """The annotations of its tables."""
    keep: bool = True
    """Whether the results of queries are kept. Without them, a session cannot be brought back."""
    memory: int = 0
    """The most bytes of one result: a session holds its results in memory. 0 for no limit of its own."""
    scratch: Path | None = None
    """The folder for results while they are stored."""
    frames: RegisteredTables | None = None
    """The tables that the session registers."""
    location: str | None = None
    """The path or URL of a source without a registered name."""


@dataclass
class CellQuery:
    """A query of a cell, with its result or its error."""

    sql: str
    info: ResultInfo | None = None
    artifact: Artifact | None = None
    problem: dict[str, Any] | None = None
    params: Encoded | None = None


@dataclass
class _Done:
    """An answered query of the running cell. Its result stays in shared memory until it is stored."""

    step_id: str
    call: CellQuery
    stream: ResultStream
    fds: list[int]
    elapsed_ms: float
    served: bool = False
    """Whether the session has read all of it."""
    asked_at: float = 0.0
    """When the session last asked for a part of it."""

    def __post_init__(self) -> None:
        self.size = sum(os.fstat(fd).st_size for fd in self.fds)


@dataclass
class _Spent:
    """Saves of a session, and the bytes that they keep."""

    saves: int = 0
    kept: int = 0


@dataclass
class _Asked:
    """Queries of the running cell, and the bytes that their records keep."""

    calls: int = 0
    size: int = 0

    def add(self, sql: str, params: Encoded | None) -> None:
        """Count a query before anything of it is kept; raise `LimitExceeded` if it is too large or one too many."""
        given = len(json.dumps(params)) if params else 0
        for found, noun in ((len(sql), "characters"), (given, "bytes of parameters")):
            if found > MOST_TEXT:
                raise LimitExceeded(
                    f"The query has {found:,} {noun}; a cell may send {MOST_TEXT:,}.",
                    hint="Register a table with the values (`db.register`), and join it.",
                    limit="query",
                    value=MOST_TEXT,
                )
        size = self.size + len(sql.encode("utf-8", "replace")) + given
        if self.calls >= CALLS or size > CALL_BYTES:
            raise LimitExceeded(
                f"A cell may send {CALLS:,} queries, of {CALL_BYTES:,} bytes with their parameters and errors in all.",
                hint="Ask for more rows in fewer queries, or go on in another cell.",
                limit="queries",
            )
        self.calls, self.size = self.calls + 1, size

    def add_error(self, found: dict[str, Any]) -> dict[str, Any]:
        """Count the error of a query, which is kept too, and return it."""
        self.size += len(json.dumps(found, default=str))
        return found


class DataBroker:
    """Answers the requests of a session, within its limits, and records them."""

    def __init__(self, access: SourceAccess | None, storage: RunStorage | None) -> None:
        self._access = access
        self._storage = storage
        self._stream: ResultStream | None = None
        self._done: dict[int, _Done] = {}
        self._held = 0
        self._calls: list[CellQuery] = []
        self._asked = _Asked()
        # On disk from the first piece on: cells that never send the last one would fill the memory of the host.
        self._saving: dict[str, ArrivingFile] = {}
        self._registering: dict[str, ArrivingFile] = {}
        self._spent = _Spent()
        self._spent_again = _Spent()
        self.files = SavedFiles(access.scratch if access else None)
        self._loaded: dict[str, tuple[ArrivingFile, int]] = {}
        """The shared memory of the files that the running cell has loaded. A file is lent as one
        memory, however often the cell loads it."""
        weakref.finalize(self, _close_loaded, self._loaded)
        self.log: RunLog | None = None
        self.step_id = ""
        self.replay: deque[CellQuery] | None = None
        self.cancelled = False
        """Whether the running cell was interrupted. Queries that it starts after that are cancelled too."""

    def answer(self, request: dict[str, Any], left_s: float) -> tuple[dict[str, Any], int | None]:
        """Return the head of the reply and, if there is data, a descriptor of sealed shared memory."""
        match request.get("method"):
            case "save":
                return self._save(request), None
            case "load":
                return self._load(request.get("name"))
            case _:
                return self._answer_source(request, left_s)

    def _answer_source(self, request: dict[str, Any], left_s: float) -> tuple[dict[str, Any], int | None]:
        if self._access is None:
            raise Invalid("This session has no source.", hint="Open it with one.")
        match request.get("method"):
            case "catalog":
                return {"catalog": self._access.catalog().model_dump(mode="json")}, None
            case "annotations":
                return {"annotations": self._access.annotations()}, None
            case "sql":
                sql = request.get("query")
                if not isinstance(sql, str):
                    raise Invalid("A query is text.", hint="db.sql('SELECT ...')")
                params = encode_query_params(
                    decode_query_params(request.get("params"))
                )  # a session is not trusted to encode them
                self._asked.add(sql, params)
                if self.replay is not None:
                    return self._again(sql, params)
                return self._sql(self._access, sql, params, request.get("limits") or {}, left_s)
            case "register":
                return self._register(self._access, request), None
            case "part":
                return self._part(request.get("result"), request.get("index"))
            case other:
                asked = str(other)[:80]
                raise Invalid(f"`{asked}` is not something a session can ask for.", hint="Known: sql, catalog.")

    def cancel(self) -> None:
        """Stop the query that the session waits for, and all that the running cell starts after that."""
        self.cancelled = True
        if self._stream is not None:
            self._stream.cancel()

    def _register(self, access: SourceAccess, request: dict[str, Any]) -> dict[str, Any]:
        """Take a piece of a table as Parquet. The last piece completes it; only an engine reads it."""
        name, data = check_arrow_table_name(request.get("name")), _piece(request, "db.register(name, table)")
        if access.frames is None or (request.get("goes_on") and name not in self._registering):
            raise Invalid(f"`{name}` cannot be registered here.", hint="Register the whole table again.")
        whole = _add_piece(self._registering, name, data, None if request.get("goes_on") else self.files.begin)
        coming = sum(file.size for file in self._registering.values())
        kept = access.frames.bytes_without(name) + coming
        names = access.frames.names | {each.lower() for each in self._registering}
        if coming > FILE_BYTES or kept > TABLE_BYTES or len(names) > FILES:
            self._registering.pop(name).remove()
            raise LimitExceeded(
                f"A session may register {FILES} tables of {FILE_BYTES:,} bytes at most, and {TABLE_BYTES:,} in all; "
                f"`{name}` is too much.",
                hint="Register fewer rows, or compute with the table in Python.",
                limit="registered",
            )
        if not request.get("more"):
            del self._registering[name]
            access.frames.register_parquet(name, whole.path)
        return {}

    def _save(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take a piece of a file. The last piece completes it."""
        name = check_saved_file_name(request.get("name"))
        data = _piece(request, "etude.save(name, text or bytes)")
        if request.get("goes_on") and name not in self._saving:
            raise Invalid(f"The beginning of `{name}` is missing.", hint="Save the whole file again.")
        # A first piece starts the file over: the cell that sent the others may have been interrupted.
        whole = _add_piece(self._saving, name, data, None if request.get("goes_on") else self.files.begin)
        # A cell that runs again to bring variables back counts from the start: in this process its files may have been
        # counted already, in a new one they were not.
        spent = self._spent if self.replay is None else self._spent_again
        self._check_files(name, _Spent(spent.saves + 1, spent.kept + whole.size))
        if not request.get("more"):
            del self._saving[name]
            before = self.files.find(name)
            spent.saves += 1
            if before is not None and whole.has_content_of(before):
                whole.remove()  # the same content is kept once
                whole = before
            else:
                spent.kept += whole.size
                self.files.keep(name, whole)
            self._spent = _Spent(max(self._spent.saves, spent.saves), max(self._spent.kept, spent.kept))
            self._record_file(name, whole)
        return {}

    def begin_replay(self) -> None:
        """Prepare for recorded cells to run again, from the first one on."""
        self._spent_again = _Spent()

    def replay_cell(self, calls: Iterable[CellQuery] | None) -> None:
        """Answer the next cell from its recorded queries; None ends the replay."""
        self.replay, self._asked = None if calls is None else deque(calls), _Asked()
        self._drop_unfinished()
        _close_loaded(self._loaded)

    def _check_files(self, name: str, spent: _Spent) -> None:
        """Pass, or drop the file that is being saved and say which limit it passes."""
        used = sum(file.size for file in self._saving.values()) + self.files.total_without(name)
        for limit, found, allowed in (
            ("files", len(self.files.keys() | self._saving.keys()), FILES),
            ("bytes of files", used, FILE_BYTES),
            ("bytes of files, replaced ones included", spent.kept, KEPT_BYTES),
            ("saves", spent.saves, SAVES),
        ):
            if found > allowed:
                self._saving.pop(name).remove()
                raise LimitExceeded(
                    f"A session may save at most {allowed:,} {limit}; `{name}` was not saved.",
                    hint="Save fewer or smaller files.",
                    limit=limit,
                )

    def _record_file(self, name: str, file: ArrivingFile) -> None:
        if self.log is not None and self.replay is None:
            media = _MEDIA.get(name.rpartition(".")[2], "application/octet-stream")
            artifact = self.log.objects.put(file.path, media)
            self.log.add(ArtifactCreated(artifact=artifact, step_id=self.step_id))

    def _load(self, name: object) -> tuple[dict[str, Any], int | None]:
        checked = check_saved_file_name(name)
        file = self.files.find(checked)
        if file is None:
            raise NotFound(f"There is no file `{checked}` here.", hint="`etude.save` writes one.")
        if not file.size:
            return {}, None  # shared memory cannot be empty
        known = self._loaded.get(checked)
        if known is None or known[0] is not file:
            fd = file.share()
            if known is not None:
                os.close(known[1])
            known = self._loaded[checked] = (file, fd)
        return {"size": file.size}, os.dup(known[1])

    def _sql(
        self, access: SourceAccess, sql: str, params: Encoded | None, given: dict[str, Any], left_s: float
    ) -> tuple[dict[str, Any], int]:
        limits = lower_limits(access.limits, given)
        step_id, started = new_id("step"), time.perf_counter()
        if self.log is not None:
            if self._storage is not None:
                self._storage.store.check_storage()  # a cell that does not end could fill the store
            self.log.add(
                started_query_step(step_id, Query(access.name, sql, None, limits, params=params), self.step_id)
            )
            self.log.commit()
        # No longer than the cell may run: while the host waits for the source, it does not watch the cell's time.
        within = lower_limits(limits, {"timeout_s": max(left_s, 0.001), "bytes": access.memory})
        try:
            self._stream = access.start_query(sql, within, params)
            if self.cancelled:
                self._stream.cancel()
            fds, schema = take_shared_result(self._stream)
        except BaseException as error:
            if isinstance(error, LimitExceeded):
                error = _explain_limit(error, limits, within)
            if isinstance(error, KeyboardInterrupt):
                error = Cancelled("The query was cancelled.")
            if self.log is not None:
                self.log.add(failed_step(step_id, error, (time.perf_counter() - started) * 1000))
            self._calls.append(CellQuery(sql, problem=self._asked.add_error(problem(error)), params=params))
            raise error from None
        finally:
            stream, self._stream = self._stream, None
        assert stream is not None  # noqa: S101 - for the type checker: it is set here
        info = describe_query_result(stream, schema)
        self._calls.append(CellQuery(sql, info, params=params))
        number = len(self._calls)
        elapsed_ms = (time.perf_counter() - started) * 1000
        self._done[number] = _Done(step_id, self._calls[-1], stream, fds, elapsed_ms)
        self._held += self._done[number].size
        head = {
            "info": info.model_dump(mode="json"),
            "parts": len(fds),
            "result": number,
            "elapsed_ms": stream.end["elapsed_ms"],
            "run_id": self.log.run_id if self.log else None,
            "notes": query_truncation_note(info),
        }
        self._make_room(number)
        first, fd = self._part(number, 0)
        return head | first, fd

    def _make_room(self, newest: int) -> None:
        """Store results at once if those that wait are too large or too many: first those that the session has read.

        It need not read the others, so they go too, the ones that it asked for least recently first. The newest
        stays: the session reads it now.
        """
        others = [n for n in self._done if n != newest]
        for number in sorted(others, key=lambda n: (not self._done[n].served, self._done[n].asked_at)):
            if sum(len(d.fds) for d in self._done.values()) <= OPEN and self._held <= HELD:
                return
            self._keep(self.log, [number])

    def _part(self, number: object, index: object) -> tuple[dict[str, Any], int]:
        """Return one part of the result of a query of this cell."""
        done = self._done.get(number) if isinstance(number, int) else None
        if done is None or not isinstance(index, int) or not 0 <= index < len(done.fds):
            raise Invalid(
                "There is no such part of a result.",
                hint="Run the query again, and read its result before other queries of the cell return much.",
            )
        done.served = done.served or index == len(done.fds) - 1
        done.asked_at = time.monotonic()
        fd = os.dup(done.fds[index])
        return {"size": os.fstat(fd).st_size}, fd

    def _again(self, sql: str, params: Encoded | None) -> tuple[dict[str, Any], int]:
        """Return the recorded result of a query that a cell repeats."""
        assert self.replay is not None  # noqa: S101 - for the type checker
        for position, call in enumerate(self.replay):
            if (call.sql, call.params) != (sql, params):
                continue  # it may still come: threads of a cell take turns in any order
            if call.problem is not None:
                del self.replay[position]
                raise from_problem(self._asked.add_error(call.problem))
            if call.info is not None and call.artifact is not None and self._storage is not None:
                del self.replay[position]
                fd = wire.share_wire_batches(_read(self._storage, call.info, call.artifact))
                head = {"info": call.info.model_dump(mode="json"), "size": os.fstat(fd).st_size, "elapsed_ms": 0.0}
                return head | {"parts": 1, "result": 0}, fd
        raise Invalid("This query was not recorded when the cell ran.", hint="Run the cell again.")

    def settle(self, log: RunLog | None) -> list[CellQuery]:
        """Store the results of the cell's queries, now that no one waits for them."""
        self._keep(log, list(self._done))
        calls, self._calls, self._asked = self._calls, [], _Asked()
        self._drop_unfinished()
        _close_loaded(self._loaded)
        self.log = None
        return calls

    def _drop_unfinished(self) -> None:
        """Delete files and tables whose last pieces will never come."""
        for arriving in (self._saving, self._registering):
            while arriving:
                arriving.popitem()[1].remove()

    def close(self) -> None:
        """Delete the files that the session saved."""
        self.files.close()

    def _keep(self, log: RunLog | None, numbers: list[int]) -> None:
        for number in numbers:
            done = self._done.pop(number)
            self._held -= done.size
            keep = self._access is None or self._access.keep
            if log is None or not keep:
                for fd in done.fds:
                    os.close(fd)
            if log is None:
                continue
            if keep:
                done.call.artifact = _keep_result(log, done, self._access.scratch if self._access else None)
            artifact, info = done.call.artifact, done.call.info
            assert info is not None  # noqa: S101 - for the type checker: it has a result
            source = self._access.name if self._access else ""
            elapsed_ms = round(done.elapsed_ms, 3)
            log.add(finished_query_step(done.step_id, source, info, done.stream, artifact, elapsed_ms))


def _piece(request: dict[str, Any], hint: str) -> bytes:
    """Return the bytes of a piece that a session sent."""
    piece = request.get("data")
    try:
        if isinstance(piece, str):
            return base64.b64decode(piece, validate=True)
    except ValueError:
        pass
    raise Invalid(f"The content of `{str(request.get('name'))[:80]}` is not bytes.", hint=hint)


def _add_piece(
    arriving: dict[str, ArrivingFile], name: str, piece: bytes, begin: Callable[[], ArrivingFile] | None
) -> ArrivingFile:
    """Add a piece to the file of that name and return the file; with `begin`, the piece is its first one."""
    if begin is not None:
        before = arriving.pop(name, None)
        if before is not None:
            before.remove()
    file = arriving.pop(name) if begin is None else begin()
    file.add(piece, name)
    arriving[name] = file  # not after an error, which has removed the file
    return file


def _keep_result(log: RunLog, done: _Done, scratch: Path | None) -> Artifact:
    spool = Spool(scratch)
    try:
        spool.take(_map(done.fds))
        artifact = log.objects.put(spool.parquet(), PARQUET)
    finally:
        spool.drop()
    log.add(ArtifactCreated(artifact=artifact, step_id=done.step_id))
    return artifact


def take_shared_result(stream: ResultStream) -> tuple[list[int], Any]:
    """Return a result in sealed shared memory: descriptors of its parts, each an Arrow stream, and the schema."""
    parts: list[int | bytes] = []
    stream.parts = parts
    schema = None
    try:
        for batch in stream.batches:
            schema = schema or batch.schema
        for position, part in enumerate(parts):
            if isinstance(part, bytes):
                parts[position] = wire.share_wire_memory(part)
    except BaseException:
        for part in parts:
            if isinstance(part, int):
                os.close(part)
        with contextlib.suppress(EtudeError, AttributeError):
            stream.batches.close()  # type: ignore[attr-defined]
        raise
    return [part for part in parts if isinstance(part, int)], schema


def _map(fds: list[int]) -> list[Any]:
    """Read batches from shared memory and close its descriptors."""
    import pyarrow as pa

    mapped = [pa.py_buffer(wire.map_wire_memory(fd, os.fstat(fd).st_size)) for fd in fds]
    return [batch for part in mapped for batch in pa.ipc.open_stream(part)]


def _read(storage: RunStorage, info: ResultInfo, artifact: Artifact) -> Iterator[Any]:
    return Result(info, None, open_kept=lambda: storage.objects.open(artifact.hash)).batches()


def _explain_limit(error: LimitExceeded, limits: Limits, within: Limits) -> LimitExceeded:
    """Return the error in terms of the session, if it was the session that lowered the limit."""
    limit = error.details.get("limit")
    if limit == "timeout_s" and within.timeout_s != limits.timeout_s:
        return LimitExceeded(
            "The cell ran out of time before its query had ended.",
            hint="Filter or aggregate earlier, or give the cell more time.",
            limit="wall_s",
        )
    if limit == "bytes" and within.bytes != limits.bytes:
        return LimitExceeded(
            f"The result has more than {within.bytes:,} bytes, and a session holds its results in memory.",
            hint="Aggregate or filter in the query, read it in parts, or raise `session.memory`. To export all of it: "
            "`etude sql SOURCE QUERY --output FILE.parquet`.",
            limit="bytes",
            value=within.bytes,
        )
    return error


def _close_loaded(loaded: dict[str, tuple[ArrivingFile, int]]) -> None:
    while loaded:
        os.close(loaded.popitem()[1][1])
