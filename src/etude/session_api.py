"""`etude.connect()` inside a session: the same `db`, over the session's socket, without credentials."""

from __future__ import annotations

import base64
from typing import Any, Self

import pyarrow as pa

from etude.db import Database
from etude.entities import Catalog, Limits, ResultInfo
from etude.errors import Unavailable, from_problem
from etude.result import Result
from etude.sessions import kernel

PIECE = 4 << 20
"""Bytes of a file that are sent to the host in one message."""


class SessionDatabase(Database):
    """The source that the session was opened on; the host guards, limits and records the queries."""

    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        """Run a query on the host; the rows arrive in shared memory."""
        given = {} if limits is None else limits.model_dump()
        head, first = _ask("sql", query=query, limits=given | limit)
        info = ResultInfo.model_validate(head["info"])
        others = (_ask("part", result=head["result"], index=i)[1] for i in range(1, head["parts"]))
        found = [b for part in (first, *others) for b in pa.ipc.open_stream(pa.py_buffer(part))]
        batches = [b for b in found if b.num_rows] or found[:1]
        notes = tuple(head.get("notes", ()))
        return Result(info, batches, run_id=head.get("run_id"), elapsed_ms=head["elapsed_ms"], notes=notes)

    def catalog(self) -> Catalog:
        """Return the tables, columns, types, keys, comments and row counts."""
        return Catalog.model_validate(_ask("catalog")[0]["catalog"])

    def annotations(self) -> dict[str, Any]:
        """Return the annotations of the tables: descriptions, owners and tags."""
        found: dict[str, Any] = _ask("annotations")[0]["annotations"]
        return found

    def close(self) -> None:
        """Do nothing: the connection ends with the session."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(source: str | None = None, /, **others: str) -> SessionDatabase:
    """Return the source of this session. A source named here, as in a standalone script, is ignored."""
    return SessionDatabase()


def save(name: str, data: str | bytes) -> None:
    """Save a file; the host stores it with the run."""
    content = data.encode() if isinstance(data, str) else bytes(data)
    for start in range(0, max(len(content), 1), PIECE):
        piece = base64.b64encode(content[start : start + PIECE]).decode()
        _ask("save", name=name, data=piece, goes_on=start > 0, more=start + PIECE < len(content))


def load(name: str) -> bytes:
    """Return a file that was saved before or that the host provided; raise `NotFound` if there is none."""
    return bytes(_ask("load", name=name)[1] or b"")


def _ask(method: str, **arguments: Any) -> tuple[dict[str, Any], Any]:
    if kernel.SESSION is None:
        raise Unavailable("This process is not a session.", hint="Use etude.connect(source).")
    try:
        return kernel.SESSION.call(method, **arguments)
    except kernel.HostError as error:
        raised = from_problem(error.problem)
        if raised.retryable:
            # If the cell fails with it, the host can tell an outage from an error of the cell.
            vars(raised)["problem"] = error.problem
        if raised.hint:
            raised.add_note(f"hint: {raised.hint}")  # tracebacks show notes
        raise raised from None
