"""What a process asks of the operating system for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude import wire
from etude.cli.main import run_command
from etude.errors import Unavailable
from etude.process_confinement import _open_unlinked
from etude.sources.engine_process import spawn_engine

THREADS = """
import ctypes, sys, threading
from etude.process_confinement import share_process_arenas
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
assert sys.argv[2] == "own" or share_process_arenas()
together = threading.Barrier(12)
def allocate():
    together.wait()
    assert libc.malloc(ctypes.c_size_t(40_000))
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(12)]
[t.start() for t in threads], [t.join() for t in threads]
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_many_threads_share_two_arenas(tmp_path: Path) -> None:
    def count_arenas(way: str) -> int:
        subprocess.run([sys.executable, "-c", THREADS, str(tmp_path / way), way], check=True)
        return (tmp_path / way).read_text().count("<heap nr=")

    assert count_arenas("shared") <= 2 < count_arenas("own")


@pytest.fixture
def forbidden_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter that no one may execute, in place of this one."""
    path = tmp_path / "python"
    path.touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    return str(path)


def test_an_interpreter_that_may_not_be_started_is_explained(
    forbidden_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "cell.py").write_text("1 + 1")
    for command in (["py", str(tmp_path / "a.csv"), str(tmp_path / "cell.py")], ["check", "sandbox", "local"]):
        assert run_command(command) != 0
        said = capsys.readouterr()
        text = said.out + said.err
        assert f"`{forbidden_python}` cannot be started by user {os.geteuid()}" in text, text
        assert f"namei -l {os.path.realpath(forbidden_python)}" in text
        assert "cannot be written" not in text and "PermissionError" not in text
    data, control = wire.wire_socket_pair()
    with data, control, pytest.raises(Unavailable, match="cannot be started"):
        spawn_engine(data, control, False, "", str(tmp_path))


WITHOUT_OPENAT2 = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
# Load the number of the system call; 437 (openat2) fails with ENOSYS, and any other is allowed.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filter)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
assert libc.syscall(437, -100, b"/", program, 24) == -1 and ctypes.get_errno() == 38
from etude.cli.main import run_command
sys.exit(run_command(["sql", sys.argv[1], "SELECT sum(x) AS total FROM a", "--no-record"]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seccomp")
def test_files_can_be_read_where_openat2_is_forbidden(tmp_path: Path) -> None:
    """As in a service of systemd with `RestrictSUIDSGID`."""
    (tmp_path / "a.csv").write_text("x\n1\n41\n")
    command = [sys.executable, "-c", WITHOUT_OPENAT2, str(tmp_path / "a.csv")]
    done = subprocess.run(
        command, env=os.environ | {"ETUDE_HOME": str(tmp_path / "home")}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "42" in done.stdout, done.stderr


def test_a_path_with_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "other").symlink_to("file")
    os.close(_open_unlinked(str(tmp_path.resolve() / "real" / "file")))
    for path in ("link/file", "real/other", "real/missing"):
        with pytest.raises(OSError):
            _open_unlinked(str(tmp_path.resolve() / path))
