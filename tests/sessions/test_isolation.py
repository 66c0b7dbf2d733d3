"""What the system takes from a session, piece by piece, and that less than was asked for is refused."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.entities import SessionLimits
from etude.errors import SandboxError
from etude.sessions import isolation
from etude.sessions.base import SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

LEVEL = isolation.probe_isolation()[0]
pytestmark = pytest.mark.usefixtures("small")
needs_level_3 = pytest.mark.skipif(LEVEL < 3, reason="this machine does not allow level 3")
needs_level_2 = pytest.mark.skipif(LEVEL < 2, reason="this machine does not allow level 2")


@pytest.fixture(scope="module")
def session(provider: LocalProvider) -> Iterator[Session]:
    limits = SessionLimits(memory=512 << 20, processes=20, open_files=64, scratch=8 << 20, cpu_s=30)
    with Session(provider, SandboxSpec(level=3), limits) as made:
        yield made


def run_python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [options.pop("python", sys.executable), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)


# -- the seccomp program, read by a small machine of our own


def answer(program: bytes, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the program returns for a call: 0 where it passes, else the error; -1 where it ends the process."""
    machine = isolation.seccomp_machine()
    assert machine is not None
    data = struct.pack("IIQ", number, machine.audit if audit is None else audit, 0)
    data += struct.pack("6Q", *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    position = held = 0
    while True:
        code, yes, no, value = struct.unpack_from("HBBI", program, position * 8)
        position += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("I", data, value)
            case 0x15:
                position += yes if held == value else no
            case 0x25:
                position += yes if held > value else no
            case 0x45:
                position += yes if held & value else no
            case 0x06:
                return -1 if value == 0x80000000 else 0 if value == 0x7FFF0000 else value & 0xFFFF
            case _:
                raise AssertionError(f"instruction {code:#x}")


ALONE = isolation.build_seccomp_filter(allow_exec=False, alone=True, allow_inet=False)
SHARED = isolation.build_seccomp_filter(allow_exec=False, alone=False, allow_inet=False)
NUMBERS = isolation.seccomp_machine().numbers if isolation.seccomp_machine() else {}


@pytest.mark.parametrize("name", sorted(set(NUMBERS) - isolation._BY_ARGUMENT - isolation._IF_SHARED))
def test_a_dangerous_call_is_refused_at_both_levels(name: str) -> None:
    assert answer(ALONE, NUMBERS[name]) == answer(SHARED, NUMBERS[name]) == errno.EPERM


@pytest.mark.parametrize("name", sorted(isolation._IF_SHARED & set(NUMBERS)))
def test_what_reaches_others_is_refused_where_there_are_others(name: str) -> None:
    assert (answer(ALONE, NUMBERS[name]), answer(SHARED, NUMBERS[name])) == (0, errno.EPERM)


@pytest.mark.parametrize(
    ("name", "arguments", "alone", "shared"),
    [
        ("clone", (17,), 0, 0),
        ("clone", (isolation.NEWUSER | 17,), errno.EPERM, errno.EPERM),
        ("clone3", (0,), errno.ENOSYS, errno.ENOSYS),
        ("socket", (1, 1), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT),
        ("socket", (2, 1), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT),
        ("socketpair", (1, 1), 0, 0),
        ("socketpair", (1, 1 | 0o2000000), 0, 0),
        ("socketpair", (1, 5), 0, 0),
        ("socketpair", (1, 2), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT),
        ("socketpair", (1, 3 | 0o4000), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT),
        ("socketpair", (30, 1), errno.EAFNOSUPPORT, errno.EAFNOSUPPORT),
        ("ioctl", (0, 0x5401), 0, 0),
        ("ioctl", (0, 0x5401 | 1 << 32), 0, 0),
        ("ioctl", (0, 0x5412), errno.ENOTTY, errno.ENOTTY),
        ("ioctl", (0, 0x5412 | 1 << 32), errno.ENOTTY, errno.ENOTTY),
        ("ioctl", (3, 0x8912), errno.ENOTTY, errno.ENOTTY),
        ("getsockopt", (3, 1, 3), 0, 0),
        ("getsockopt", (3, 1, 17), errno.ENOPROTOOPT, errno.ENOPROTOOPT),
        ("getsockopt", (3, 1 | 1 << 32, 77 | 1 << 32), errno.ENOPROTOOPT, errno.ENOPROTOOPT),
        ("setsockopt", (3, 1, 9), 0, 0),
        ("setsockopt", (3, 1, 25), errno.ENOPROTOOPT, errno.ENOPROTOOPT),
        ("setsockopt", (3, 6, 1), errno.ENOPROTOOPT, errno.ENOPROTOOPT),
        ("flock", (3, 2), errno.ENOSYS, errno.ENOSYS),
        *(("fcntl", (3, command), 0, 0) for command in (6, 7, 37, 38)),
        ("fcntl", (3, 1033), 0, 0),
        ("fcntl", (3, 1024), errno.EPERM, errno.EPERM),
        ("fcntl", (3, 1031), errno.EPERM, errno.EPERM),
        ("mmap", (0, 4096, 3, 0x22), 0, 0),
        ("mmap", (0, 4096, 3, 0x40022), errno.EPERM, errno.EPERM),
        ("prlimit64", (0, 7, 4096), 0, 0),
        ("prlimit64", (0, 4, 0), 0, 0),
        ("prlimit64", (0, 4, 4096), errno.EPERM, errno.EPERM),
        ("prlimit64", (0, 4, 1 << 32), errno.EPERM, errno.EPERM),
        ("prlimit64", (77, 7, 4096), 0, errno.EPERM),
        ("prctl", (1, 0), 0, errno.EPERM),
        ("prctl", (15, 0), 0, 0),
        ("execve", (), errno.EPERM, errno.EPERM),
    ],
)
def test_some_calls_are_judged_by_their_arguments(
    name: str, arguments: tuple[int, ...], alone: int, shared: int
) -> None:
    assert (answer(ALONE, NUMBERS[name], *arguments), answer(SHARED, NUMBERS[name], *arguments)) == (alone, shared)


def test_unknown_calls_and_other_machines() -> None:
    assert answer(ALONE, 0) == 0
    assert answer(ALONE, 463) == answer(ALONE, 0x40000000 | 39) == errno.ENOSYS
    assert answer(ALONE, 0, audit=0x40000003) == -1


def test_programs_and_networks_only_where_allowed() -> None:
    allowed = isolation.build_seccomp_filter(allow_exec=True, alone=True, allow_inet=True)
    assert [answer(allowed, NUMBERS[n], 2) for n in ("execve", "execveat", "socket", "connect", "bind")] == [0] * 5
    assert [answer(allowed, NUMBERS[n]) for n in ("sendmsg", "sendmmsg")] == [0, errno.EPERM]
    assert answer(allowed, NUMBERS["socket"], 16) == errno.EAFNOSUPPORT
    options = [
        (1, 4),
        (6, 1),
        (41, 26),
        (1, 25),
        (6, 31),
        (41, 20),
        (0, 1),
    ]
    told = [answer(allowed, NUMBERS["setsockopt"], 5, *option) for option in options[1:]]
    assert told == [0, 0, *[errno.ENOPROTOOPT] * 4]
    assert answer(allowed, NUMBERS["getsockopt"], 5, *options[0]) == 0


# -- a session at level 3


@needs_level_3
def test_the_limits_are_the_kernels(session: Session) -> None:
    code = "import resource as r\n{n: r.getrlimit(getattr(r, 'RLIMIT_' + n))[1] for n in %r.split()}"
    seen = session.execute(code % "DATA NPROC NOFILE FSIZE CPU MEMLOCK CORE").value
    assert seen == {
        "DATA": 512 << 20, "NPROC": 20, "NOFILE": 64, "FSIZE": 8 << 20, "CPU": 30, "MEMLOCK": 0, "CORE": 1
    }  # fmt: skip


@needs_level_3
def test_databases_keep_files_on_the_scratch(session: Session) -> None:
    made = session.execute(
        "import sqlite3, duckdb\nwith sqlite3.connect('a.db') as a: a.execute('CREATE TABLE t AS SELECT 1 AS x')\n"
        "with duckdb.connect('b.db') as b: b.execute('CREATE TABLE t AS SELECT 2 AS x')\n"
        "[sqlite3.connect('a.db').execute('SELECT x FROM t').fetchone()[0], "
        "duckdb.connect('b.db', read_only=True).sql('SELECT x FROM t').fetchall()[0][0]]"
    )
    assert made.value == [1, 2], made.error


def test_processes_of_a_cell_talk_by_pipes_and_pairs(session: Session) -> None:
    cell = session.execute(
        "from multiprocessing import get_context\nown = get_context('fork')\nhere, there = own.Pipe()\n"
        "child = own.Process(target=lambda: there.send('x' * 1_000_000))\nchild.start()\n"
        "text = here.recv()\nchild.join()\n[len(text), child.exitcode]"
    )
    assert cell.value == [1_000_000, 0], cell.error


def test_the_root_holds_an_interpreter_and_little_else(session: Session) -> None:
    seen = session.execute("import os\nsorted(os.listdir('/'))").value
    assert {"home", "var", "sys", "run", "srv", "boot"}.isdisjoint(seen)
    assert session.execute("os.listdir('/dev')").value.sort() == ["null", "random", "urandom", "zero"].sort()
    assert session.execute("[os.getpid(), os.getuid(), os.uname().nodename]").value == [1, 1000, "session"]


@needs_level_3
def test_data_is_where_it_was_put_and_read_only(provider: LocalProvider, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.csv").write_text("a\n1\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Session(provider, SandboxSpec(level=3, mounts={str(tmp_path / "link"): "/data/shop"})) as session:
        assert session.execute("open('/data/shop/x.csv').read()").value == "a\n1\n"
        assert session.execute("open('/data/shop/x.csv', 'a')").outcome == "error"


SCRIPT = """
import os, sys
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session
folder = sys.path[0]
provider = LocalProvider()
session = Session(provider)
print(session.execute(f"open({folder + '/secret.txt'!r}).read()").error["type"])
print(session.execute(f"import sys; {folder!r} in sys.path").value, session.execute("import numpy; numpy.pi > 3").value)
provider.close()
"""


@needs_level_3
def test_the_folder_of_the_script_is_not_given(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("TOPSECRET")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('the fork server took a module of the script')")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "FileNotFoundError\nFalse True\n", done.stderr


def test_the_interpreters_paths_are_no_more_than_that() -> None:
    paths = isolation.isolated_interpreter_paths()
    assert sys.prefix in paths and sys.base_prefix in paths
    assert all(p.startswith((sys.prefix, sys.base_prefix)) or p.endswith(("-packages", "/etude")) for p in paths)


# -- levels


def test_less_than_was_asked_for_is_refused() -> None:
    provider = LocalProvider(max_level=1)
    with pytest.raises(SandboxError, match="level 3 was asked for; this machine allows level 1") as caught:
        provider.start(SandboxSpec(level=3), SessionLimits())
    assert "Use the sandbox `container`" in caught.value.hint
    provider.close()


NO_NAMESPACES = """
import errno, sys
from etude.sessions import isolation as i
n = i.seccomp_machine().numbers
code = [(i._LOAD, 0, 0, i._NUMBER)]
for name in ('unshare', 'mount', 'setns', 'pivot_root', 'umount2', 'mount_setattr'):
    code += i._refuse(n[name], errno.EPERM)
code += i._refuse(n['clone3'], errno.ENOSYS)
code += i._refuse(n['clone'], errno.EPERM, (i._ARG0, 'any', i._ANY_NEW))
code.append((i._RETURN, 0, 0, i._ALLOW))
i.apply_seccomp_filter(b''.join(i.struct.pack('HBBI', *c) for c in code))

import json
from etude.errors import SandboxError
from etude.sessions.base import SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session
provider = LocalProvider()
session = Session(provider, SandboxSpec(level=2))
frame = session.execute('import pandas as pd, duckdb; duckdb.sql("select 42 as a").df()').value
try:
    Session(provider, SandboxSpec(level=3))
except SandboxError as error:
    refused = str(error)
print(json.dumps([i.probe_isolation()[0], session.isolation['level'], frame.to_pydict(), refused]))
provider.close()
"""


@needs_level_2
def test_where_namespaces_are_forbidden_it_is_level_2(everyones_python: Any) -> None:
    done = run_python(NO_NAMESPACES, python=everyones_python.path, env=everyones_python.environment, cwd="/")
    assert done.returncode == 0, done.stderr
    level, given, rows, refused = json.loads(done.stdout)
    assert (level, given, rows) == (2, 2, {"a": [42]})
    assert "level 3 was asked for; this machine allows level 2" in refused


@needs_level_2
def test_level_2_as_root_says_when_nobody_could_read_the_interpreter() -> None:
    if os.getuid() != 0:
        pytest.skip("only root becomes nobody")
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, capture_output=True, cwd="/", **nobody)
        pytest.skip("everyone may read this interpreter")
    except PermissionError:
        pass
    provider = LocalProvider(max_level=2)
    with pytest.raises(SandboxError, match="needs an interpreter that everyone may read"):
        provider.start(SandboxSpec(), SessionLimits())
    provider.close()


def test_tasks_of_a_user_are_counted() -> None:
    assert isolation.count_tasks_of_isolated_user(os.getuid()) >= 1
    assert isolation.count_tasks_of_isolated_user(4_000_000_000) == 0


def test_a_library_that_starts_threads_in_children_does_not_lower_the_isolation() -> None:
    if isolation.probe_isolation()[0] < 3:
        pytest.skip("this machine has no isolation of level 3")
    code = """
import os, sys, threading, time
os.register_at_fork(after_in_child=lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start())
from etude.sessions import isolation
sys.exit(isolation.probe_isolation()[0] != 3)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


WITHOUT_CAPSET = """
import ctypes, os, platform, struct
from etude.sessions.isolation import drop_capabilities
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
number = {"x86_64": 126, "aarch64": 91}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
# Load the number of the system call; `capset` fails with EPERM, and any other is allowed.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 1), (0x06, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filter)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
drop_capabilities()
print("confined")
"""


def test_a_process_without_capabilities_needs_no_right_to_drop_them() -> None:
    """As in a service of systemd with `SystemCallFilter=~@privileged`."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_CAPSET], capture_output=True, text=True)
    assert done.stdout == "confined\n", done.stderr
