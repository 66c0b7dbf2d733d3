"""What a process asks of the operating system for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
