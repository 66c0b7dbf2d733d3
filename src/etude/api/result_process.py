"""The inside of a process that reads results: it sorts, filters and converts them, with memory of its own.

It can open no file and reach no network. The server sends it open files and reads its answers piece by piece, so a
process whose client is slow waits.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from socket import socket
from typing import Any

from etude import process_confinement, wire
from etude.api import result_formats as formats
from etude.entities import ResultInfo
from etude.errors import EtudeError, LimitExceeded, SourceError, from_problem, problem
from etude.result import Result
from etude.store.file_checksums import CheckedFile, FileChecksums

IDLE_S = 300.0
"""A process that gets no request for this long ends; so does one whose client takes nothing for this long."""
PIECE = 1 << 20
NICE = 5
SYSTEM = ("/etc/localtime", "/usr/share/zoneinfo", "/usr/lib", "/lib", "/lib64", "/dev/urandom")


def run_result_process() -> None:
    """Serve requests until the server closes its end."""
    sock = wire.inherited_wire_socket(int(sys.argv[1]))
    process_confinement.confine_process_network()
    process_confinement.prefer_process_for_oom_kill()
    process_confinement.lower_process_priority(NICE)
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401 - imported before files are out of reach

    sock.settimeout(IDLE_S)
    try:
        limits = wire.receive_wire_frame(sock).head
        process_confinement.confine_process_resources(limits["memory"], limits["file_bytes"])
        process_confinement.refuse_new_process_privileges()
        readable = [*SYSTEM, *sys.path, sys.prefix, sys.base_prefix]
        process_confinement.confine_process_paths([path for path in readable if path], ["/dev/null"])
        while True:
            answer_result_request(sock)
    except (wire.Closed, TimeoutError, OSError, KeyboardInterrupt):
        os._exit(0)


def answer_result_request(sock: socket) -> None:
    """Answer one request."""
    frame, files = wire.receive_wire_frame_with_files(sock, 2)
    try:
        for piece in convert_result_in_process(frame.head, bytes(frame.blob), files):
            for start in range(0, len(piece), PIECE):
                wire.send_wire_frame(sock, {"ok": True, "more": True}, memoryview(piece)[start : start + PIECE])
        wire.send_wire_frame(sock, {"ok": True})
    except EtudeError as error:
        wire.send_wire_frame(sock, {"ok": False, "error": problem(error)})
    except (MemoryError, wire.Closed, TimeoutError) as error:
        if not isinstance(error, MemoryError):
            raise
        hint = "Select fewer rows or columns, or download the whole result as Parquet."
        full = LimitExceeded("The result needs more memory than a process has.", hint=hint, limit="memory")
        wire.send_wire_frame(sock, {"ok": False, "error": problem(full)})
        raise wire.Closed from None  # the memory that it holds would be missing for the next request
    except Exception as error:
        text = f"The result cannot be read: {type(error).__name__}: {error}."
        wire.send_wire_frame(sock, {"ok": False, "error": problem(SourceError(text, hint="Try again."))})
        raise wire.Closed from None
    finally:
        for fd in files:
            os.close(fd)


def convert_result_in_process(head: dict[str, Any], sums: bytes, files: list[int]) -> Iterator[bytes | memoryview]:
    """Yield a result in a media type. `files` are its artifact and, if it is sorted or filtered, its positions."""
    view = formats.ResultSelection(
        tuple(head["sort"]), tuple(head["filter"]), head["offset"], head["limit"], head["escape_formulas"]
    )
    result = open_result_in_process(head, sums, files[0])
    positions = None
    if view.sort or view.filter:
        if not head["filled"]:
            write_result_positions(files[1], formats.select_result_rows(result, view))
        positions = read_result_positions(files[1])
    match head["media"]:
        case formats.JSON:
            yield formats.format_result_as_json(result, view, positions)
        case formats.CSV:
            yield from formats.format_result_as_csv(result, view, positions)
        case formats.ARROW:
            yield from formats.format_result_as_arrow(result, view, positions)
        case _:
            yield formats.format_result_as_parquet(result, view, positions)


def open_result_in_process(head: dict[str, Any], sums: bytes, fd: int) -> Result:
    """Return the result in an open file. Its bytes are checked before they are used."""
    size = os.fstat(fd).st_size
    # A file that shrinks while it is read ends this process, and the server reports it.
    mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)

    def open_kept() -> Any:
        import pyarrow as pa

        if not sums:
            return _Checked(mapped)
        damaged = from_problem(head["damaged"])
        file = CheckedFile(os.dup(fd), FileChecksums.unpack(sums), lambda: damaged)
        file.path = pa.BufferReader(pa.py_buffer(mapped))
        return file

    info = ResultInfo.model_validate(head["info"])
    return Result(info, None, open_kept=open_kept, run_id=head["run_id"])


class _Checked:
    """A file that was checked already."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped

    def read(self) -> mmap.mmap:
        return self._mapped

    def __enter__(self) -> _Checked:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def write_result_positions(fd: int, positions: Any) -> None:
    """Write the positions of the selected rows to a file, so that the next page needs no second sort."""
    import pyarrow as pa

    found = positions.combine_chunks() if isinstance(positions, pa.ChunkedArray) else positions
    with open(fd, "wb", closefd=False) as file:
        file.write(memoryview(found.cast(pa.uint64()).buffers()[1] or b"")[: 8 * len(found)])


def read_result_positions(fd: int) -> Any:
    """Return the positions that were written to a file."""
    import pyarrow as pa

    count = os.fstat(fd).st_size // 8
    data = mmap.mmap(fd, count * 8, prot=mmap.PROT_READ) if count else b""
    return pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(data)])


if __name__ == "__main__":
    run_result_process()
