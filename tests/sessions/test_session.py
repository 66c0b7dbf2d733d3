"""A session from the host: what it takes from the one inside, and what it does not."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from etude.entities import SessionLimits
from etude.errors import Invalid, SandboxError
from etude.sessions import base
from etude.sessions import session as session_module
from etude.sessions.base import Output, SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

FORGE = """
import json, os, socket, struct, pyarrow as pa
def frame(kind, body):
    data = struct.pack("!IB", len(body), ord(kind)) + body
    while data: data = data[os.write(3, data):]
def end(**parts): frame("X", json.dumps({"id": NUMBER, "ok": True} | parts).encode())
def show(media, data):
    head = json.dumps({"id": NUMBER, "media": media}).encode()
    frame("D", struct.pack("!I", len(head)) + head + data)
def show_table(table, change=lambda data: data):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer: writer.write_table(table)
    show("application/vnd.apache.arrow.stream", change(bytes(sink.getvalue())))
    end(value={"media": "application/vnd.apache.arrow.stream", "text": "its text"})
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    opened = LocalProvider(ready=0)
    yield opened
    opened.close()


@pytest.fixture
def session(provider: LocalProvider) -> Iterator[Session]:
    with Session(provider, limits=SessionLimits(wall_s=120)) as opened:
        opened.execute(FORGE)
        yield opened


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("mine"), BrokenPipeError("mine")])
def test_an_error_of_who_listens_is_raised_as_itself(session: Session, error: Exception) -> None:
    def listen(output: Output) -> None:
        raise error

    with pytest.raises(type(error), match="mine"):
        session.execute("print(1)", on_output=listen)
    assert session.execute("1 + 1").value == 2


def test_a_closed_session_stays_closed(provider: LocalProvider) -> None:
    session = Session(provider)
    level = session.isolation["level"]
    session.close()
    with pytest.raises(SandboxError, match="closed"):
        session.execute("1")
    assert (session.alive, session.isolation["level"]) == (False, level)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"type": 5, "message": [], "traceback": {}}, ("5", "[]", "{}")),
        ({"type": "E", "message": "half \ud800", "traceback": ""}, ("E", "half ?", "")),
        ({"type": "E", "message": "m", "line": "x", "problem": {"code": ["x"]}}, ("E", "m", "")),
    ],
)
def test_an_error_has_its_shape_whatever_a_session_says(session: Session, said: Any, told: tuple[str, ...]) -> None:
    cell = session.execute(f"NUMBER = 2\nend(ok=False, error={said!r})")
    assert cell.error is not None
    assert tuple(cell.error[part] for part in ("type", "message", "traceback")) == told
    assert cell.error["line"] is None and "problem" not in cell.error


@pytest.mark.parametrize(
    "code",
    [
        "show_table(pa.table({'a': pa.array(['a text of some length'], pa.string_view())}))",
        "show_table(pa.table({'a': pa.array([[1]], pa.list_view(pa.int64()))}))",
        "show_table(pa.table({'a': pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}))",
        "show_table(pa.table({'a': pa.DictionaryArray.from_arrays([0], pa.array([{'x': 1}]))}))",
        "show_table(pa.table({'NAMENAME': [1]}), lambda data: data.replace(b'NAMENAME', bytes([255] * 8)))",
    ],
)
def test_a_table_that_could_hurt_whoever_reads_it_is_text(session: Session, code: str) -> None:
    assert session.execute(f"NUMBER = 2\n{code}").value == "its text"


def test_a_table_of_few_rows_in_very_many_pieces_is_text(session: Session) -> None:
    code = """
schema = pa.schema([(str(i), pa.null()) for i in range(4000)])
batch = pa.RecordBatch.from_arrays([pa.nulls(1)] * 4000, schema=schema)
pa.Table.from_batches([batch] * 600)"""
    cell = session.execute(code)
    assert isinstance(cell.value, str) and cell.value.startswith("pyarrow.Table")
    assert isinstance(session.execute("pa.Table.from_batches([batch] * 5)").value, pa.Table)


def test_a_small_table_that_stands_for_much_is_not_shown(session: Session) -> None:
    cell = session.execute("pa.table({'a': pa.array(['x' * 1_000_000] * 800).dictionary_encode()})")
    assert cell.ok and cell.display == () and cell.text.startswith("pyarrow.Table")
    assert "A table is not shown" in cell.notes[0] and "stand for" in cell.notes[0]


def test_only_forms_that_are_known_are_displays(session: Session) -> None:
    cell = session.execute(
        f"NUMBER = 2\nshow({'image/x' + chr(13) + chr(10) + 'X: y'!r}, b'1')\nshow('image/png', b'2')"
    )
    assert [(d.media, bytes(d.data)) for d in cell.display] == [("image/png", b"2")]


def test_a_table_is_the_value_though_a_figure_follows_it(session: Session) -> None:
    cell = session.execute(
        "NUMBER = 2\nreal = end\ndef end(**parts): show('image/png', b'PNG'); real(**parts)\n"
        "show_table(pa.table({'a': [1, 2]}))"
    )
    assert cell.value.to_pydict() == {"a": [1, 2]}
    assert len(cell.display) == 2


def test_the_end_of_a_cell_has_a_limited_number_of_values(provider: LocalProvider) -> None:
    with Session(provider, limits=SessionLimits(wall_s=120), history=0) as session:
        # The longest value that the kernel sends: `INLINE` characters.
        cell = session.execute("[[1] * 1000 for _ in range(87)]")
        assert cell.value == [[1] * 1000 for _ in range(87)]
        session.execute(FORGE)
        cell = session.execute("NUMBER = 3\nend(value={'json': [[]] * 400_000})")
        assert (cell.outcome, cell.value) == ("killed", None)
        assert not session.history


def test_a_history_keeps_no_more_than_so_much_of_what_cells_displayed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "HELD", 5_000_000)
    cells = [session.execute(f"pa.table({{'a': range({n}, 500_000)}})") for n in range(3)]
    assert all(isinstance(cell.value, pa.Table) for cell in cells)
    assert [isinstance(cell.value, pa.Table) for cell in session.history] == [False, False, False, True]
    assert session.history[1].text == cells[0].text


def test_a_session_cannot_use_up_what_all_of_a_user_may_send(provider: LocalProvider, session: Session) -> None:
    flood = """
import os, socket
kept, files = [], [os.open("/dev/null", 0) for _ in range(100)]
try:
    while True:
        kept.append(socket.socketpair())
        socket.send_fds(kept[-1][0], [b"x"], files)
except OSError as error: number = error.errno
[number, len(kept)]"""
    with Session(provider) as other:
        assert other.execute(flood).value == [errno.EPERM, 1]
        cell = session.execute("pa.table({'a': range(100_000)})")
    assert cell.ok and cell.value.num_rows == 100_000


@pytest.mark.parametrize("more", ["", ", [], socket.MSG_DONTWAIT"])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_messages_without_descriptors_can_be_sent(session: Session, more: str, timeout: float | None) -> None:
    code = f"import socket\na, b = socket.socketpair()\na.settimeout({timeout})\n"
    code += f"[a.sendmsg([b'so', bytearray(b'me')]{more}), b.recv(9).decode()]"
    assert session.execute(code).value == [4, "some"]


LOCK_TWICE = """
import fcntl
one, other, reader = open("lock", "w"), open("lock", "w"), open("lock")
def lock(file, kind):
    try: fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error: return type(error).__name__
    return "locked"
seen = [lock(one, fcntl.LOCK_EX), lock(other, fcntl.LOCK_EX), lock(reader, fcntl.LOCK_SH)]
fcntl.flock(one, fcntl.LOCK_UN)
seen + [lock(reader, fcntl.LOCK_SH), lock(other, fcntl.LOCK_EX)]"""
SQLITE_TWICE = """
import sqlite3
one, other = sqlite3.connect("own.db"), sqlite3.connect("own.db", timeout=0)
one.execute("create table t (a)")
one.execute("begin exclusive")
try: other.execute("insert into t values (1)")
except sqlite3.OperationalError as error: seen = str(error)
seen"""


def test_files_of_a_session_are_locked_as_elsewhere_beside_mounted_ones(
    provider: LocalProvider, tmp_path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "given.db")) as given:
        given.execute("create table t as select 3 a")
    tmp_path.chmod(0o755)
    with Session(provider, SandboxSpec(mounts={str(tmp_path): "/data"})) as session:
        assert session.execute(LOCK_TWICE).value == [
            *("locked", "BlockingIOError", "BlockingIOError"),
            *("locked", "BlockingIOError"),
        ]
        assert session.execute(SQLITE_TWICE).value == "database is locked"
        read = "sqlite3.connect('file:/data/given.db?mode=ro', uri=True).execute('select a from t').fetchall()[0][0]"
        assert session.execute(read).value == 3
        own = "import duckdb\nwith duckdb.connect('own.duckdb') as c: c.execute('create table t as select 1 a')"
        assert session.execute(own).ok


def test_tables_come_whole_in_memory_that_the_host_lends(session: Session) -> None:
    held = len(os.listdir("/proc/self/fd"))
    for rows in (50_000, 500_000):
        assert session.execute(f"pa.table({{'a': range({rows})}})").value["a"].to_pylist() == list(range(rows))
    session.history.clear()  # which holds the tables, and so their memory
    session.check_background()
    assert len(os.listdir("/proc/self/fd")) == held


def test_displays_past_what_the_host_lends_are_text(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_SHARED", 1_000_000)
    cell = session.execute("pa.table({'a': range(200_000)})")
    assert cell.ok and cell.text.startswith("pyarrow.Table") and not cell.display
    assert "1,000,000 bytes" in cell.notes[0]


@pytest.mark.parametrize(
    "mounts", [{"/nowhere/at/all": "/data"}, {"/usr": "data"}, {"/usr": "/"}, {"/usr": "/a/../b"}, {"/usr": "/a/"}]
)
def test_a_folder_that_cannot_be_given_is_refused(mounts: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        base.SandboxSpec(mounts=mounts)


def test_a_cell_can_have_all_the_time_there_is(provider: LocalProvider) -> None:
    with Session(provider) as session:
        long = f"x = 1\n{'#' * (4 << 20)}"  # longer than what a socket takes at once
        assert session.execute(long, wall_s=float("inf")).ok
        assert session.execute("x").value == 1


def test_a_session_that_sends_frames_without_end_waits(session: Session) -> None:
    cell = session.execute("import time\nstarted = time.monotonic()\nfor _ in range(30_000): frame('O', b'-')")
    assert cell.ok and cell.stdout == "-" * 30_000
    assert session.execute("time.monotonic() - started").value > 1.0


def test_many_lines_come_complete_and_in_order(session: Session) -> None:
    cell = session.execute("for n in range(25_000): print(n)")
    assert cell.stdout.split() == [str(n) for n in range(25_000)]
    assert session.execute("print('again')").stdout == "again\n"
