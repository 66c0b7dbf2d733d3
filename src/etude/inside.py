"""`etude.connect()` inside a session: the same `db`, over the session's socket. It holds no credential."""

from __future__ import annotations

from typing import Any, Self

import pyarrow as pa

from etude.database import Database
from etude.entities import Catalog, Limits, ResultInfo
from etude.errors import Unavailable, from_problem
from etude.result import Result
from etude.sessions import kernel


class InsideDatabase(Database):
    """The source that the session was opened on; the host guards, limits and records what is asked."""

    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        """Run a query on the host; the rows come in shared memory."""
        given = {} if limits is None else limits.model_dump()
        head, buffer = _ask("sql", query=query, limits=given | limit)
        info = ResultInfo.model_validate(head["info"])
        batches = list(pa.ipc.open_stream(pa.py_buffer(buffer)))
        notes = tuple(head.get("notes", ()))
        return Result(info, batches, run_id=head.get("run_id"), elapsed_ms=head["elapsed_ms"], notes=notes)

    def catalog(self) -> Catalog:
        """Tables, columns, types, keys, comments and row counts."""
        return Catalog.model_validate(_ask("catalog")[0]["catalog"])

    def close(self) -> None:
        """Nothing to do: the session's end is the connection's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(source: str | None = None, /, **others: str) -> InsideDatabase:
    """The source of this session. A source that is named, as a script for outside may do, is the host's to give."""
    return InsideDatabase()


def _ask(method: str, **arguments: Any) -> tuple[dict[str, Any], Any]:
    if kernel.SESSION is None:
        raise Unavailable("This process is no session.", hint="Use etude.connect(source).")
    try:
        return kernel.SESSION.call(method, **arguments)
    except kernel.HostError as error:
        raise from_problem(error.problem) from None
