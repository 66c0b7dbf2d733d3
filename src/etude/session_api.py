"""`etude.connect()` inside a session: the same `db`, over the session's socket, without credentials."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NoReturn, Self

import pyarrow as pa

from etude.db import Database
from etude.entities import Catalog, Limits, ResultInfo
from etude.errors import Conflict, Unavailable, from_problem
from etude.result import Result
from etude.sessions import kernel
from etude.sources.arrow_tables import arrow_table_to_parquet_pieces
from etude.sources.query_parameters import Params, encode_query_params

_REGISTERED: set[str] = set()
"""The tables that this session registered: they may be replaced, those of the source may not."""
PIECE = 4 << 20
"""Bytes of a file that are sent to the host in one message."""


class SessionDatabase(Database):
    """The source that the session was opened on; the host guards, limits and records the queries."""

    def sql(
        self,
        query: str,
        params: Params | None = None,
        *,
        record: bool | None = None,
        limits: Limits | None = None,
        **limit: Any,
    ) -> Result:
        """Run a query on the host; the rows arrive in shared memory."""
        given = {} if limits is None else limits.model_dump()
        head, first = _ask("sql", query=query, params=encode_query_params(params), limits=given | limit)
        info = ResultInfo.model_validate(head["info"])
        others = (_ask("part", result=head["result"], index=i)[1] for i in range(1, head["parts"]))
        found = [b for part in (first, *others) for b in pa.ipc.open_stream(pa.py_buffer(part))]
        batches = [b for b in found if b.num_rows] or found[:1]
        notes = tuple(head.get("notes", ()))
        return Result(info, batches, run_id=head.get("run_id"), elapsed_ms=head["elapsed_ms"], notes=notes)

    def ask(self, question: str, **options: Any) -> NoReturn:
        """Raise `Unavailable`: code in a session cannot start runs, which may cost money."""
        raise Unavailable("A session cannot ask questions.", hint="Ask outside: `etude.connect(source).ask(...)`.")

    def catalog(self) -> Catalog:
        """Return the tables, columns, types, keys, comments and row counts."""
        return Catalog.model_validate(_ask("catalog")[0]["catalog"])

    def register(self, name: str, data: Any) -> None:
        """Let queries read a DataFrame, an Arrow table, a result, a list of dicts or a dict of columns as a table."""
        if self.catalog().table(name) is not None and name not in _REGISTERED:
            raise Conflict(f"The source has a table `{name}` already.", hint="Register it under another name.")
        for number, (piece, more) in enumerate(arrow_table_to_parquet_pieces(data, name, PIECE)):
            _ask("register", name=name, data=base64.b64encode(piece).decode(), goes_on=number > 0, more=more)
        _REGISTERED.add(name)

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


def connect(source: Any = None, /, **others: Any) -> SessionDatabase:
    """Return the source of this session. A source named here, as in a standalone script, is ignored.

    A dict registers its tables: `connect({"sales": df})`.
    """
    db = SessionDatabase()
    for name, data in source.items() if isinstance(source, Mapping) else ():
        db.register(name, data)
    return db


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
        raise raised from None
