"""Run a command in a terminal of a given size, and return what a person sees."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

CLEARED = re.compile(r"[^\n]*\r\x1b\[K")
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def run_in_terminal(
    command: Sequence[str],
    *,
    columns: int = 80,
    lines: int = 24,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    cleared: bool = False,
) -> tuple[int, str]:
    """Return the exit code and the text on the screen, without colours and, unless asked, without cleared lines."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {k: v for k, v in (environment or os.environ).items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=kept)
    os.close(slave)
    seen = b""
    # The end of the last process that has the terminal open is an error here.
    while part := _read(master):
        seen += part
    os.close(master)
    text = seen.decode().replace("\r\n", "\n")
    return process.wait(240), STYLE.sub("", text if cleared else CLEARED.sub("", text))


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""
