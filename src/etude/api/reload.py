"""Starting the server over when its code or its settings change, for those who work at them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import etude
from etude.errors import Invalid
from etude.settings import find_file

LOOK_S = 0.5
BROKEN = 1
"""How Python ends where code cannot be run: the next change may mend it. A refusal to serve is final."""
GRACE_S = 3.0
"""For what is at work when the server starts over; after that it is broken off, and goes on in the next one."""


def serve_again(arguments: Sequence[str]) -> None:
    """Run `etude serve` in a process of its own, and anew after each change, until told to stop."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    while not told.is_set():
        seen = look_at_files()
        with subprocess.Popen([sys.executable, "-m", "etude", "serve", *arguments], start_new_session=True) as server:
            while not told.wait(LOOK_S) and look_at_files() == seen:
                if server.poll() not in (None, BROKEN):
                    sys.exit(server.returncode)
            _end(server)
        if not told.is_set():
            sys.stderr.write("something changed; starting over ...\n")


def look_at_files() -> dict[Path, int]:
    """When each file of the package, and the settings, last changed."""
    return {path: when for path in _files() if (when := _changed_at(path))}


def _files() -> Iterator[Path]:
    package = Path(etude.__file__).parent
    yield from (path for pattern in ("*.py", "*.sql", "*.txt", "*.md") for path in package.rglob(pattern))
    with suppress(Invalid):  # the server itself says what is wrong
        if (settings := find_file(os.environ)) is not None:
            yield settings


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # it is just being replaced


def _end(server: subprocess.Popen[Any]) -> None:
    for end in (server.terminate, server.terminate, server.kill):
        end()
        try:
            server.wait(GRACE_S)
            return
        except subprocess.TimeoutExpired:
            continue
