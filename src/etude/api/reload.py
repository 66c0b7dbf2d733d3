"""Restart the server when its code or its settings change, for developers."""

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
from etude.defaults import find_settings_file
from etude.errors import Invalid

POLL_S = 0.5
BROKEN = 1
"""Python's exit code if the code cannot run: the server waits for the next change. Any other exit code is final."""
GRACE_S = 3.0
"""Seconds for running work to finish before a restart; the next process resumes the rest."""


def serve_with_reload(arguments: Sequence[str]) -> None:
    """Run `etude serve` in a child process and restart it after each change, until stopped."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.is_set():
        seen = read_reload_mtimes()
        with subprocess.Popen([sys.executable, "-m", "etude", "serve", *arguments], start_new_session=True) as server:
            while not stopped.wait(POLL_S) and read_reload_mtimes() == seen:
                if server.poll() not in (None, BROKEN):
                    sys.exit(server.returncode)
            _stop(server)
        if not stopped.is_set():
            sys.stderr.write("files changed; restarting ...\n")


def read_reload_mtimes() -> dict[Path, int]:
    """Return the modification time of each file of the package, and of the settings file."""
    return {path: when for path in _watched_files() if (when := _changed_at(path))}


def _watched_files() -> Iterator[Path]:
    package = Path(etude.__file__).parent
    yield from (path for pattern in ("*.py", "*.sql", "*.txt", "*.md") for path in package.rglob(pattern))
    with suppress(Invalid):  # the server itself reports the error
        if (settings := find_settings_file(os.environ)) is not None:
            yield settings


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # the file is being replaced


def _stop(server: subprocess.Popen[Any]) -> None:
    for end in (server.terminate, server.terminate, server.kill):
        end()
        try:
            server.wait(GRACE_S)
            return
        except subprocess.TimeoutExpired:
            continue
