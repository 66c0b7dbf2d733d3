"""Processes as the kernel shows them: whose they are, and whether they are still the same."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.patience import wait_until


def children(pid: int) -> list[int]:
    """The processes that this one started."""
    with contextlib.suppress(OSError):
        texts = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(child) for text in texts for child in text.split()]
    return []


def descendants(pid: int) -> Iterator[int]:
    """Those that it started, and all that they started."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def started(pid: int) -> str:
    """When a process began: with it, a number that is used again is not taken for the old one. Empty when ended."""
    fields = _state(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Have it stand still, all its threads, until it is told to go on: it starts nothing meanwhile."""
    process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    wait_until(lambda: all(_state(process.pid, task.name)[:1] in (["T"], []) for task in tasks.iterdir()))


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """kill -9, and see that all it had started goes by itself."""
    # Stopped first: nothing can start between the look at its processes and the kill.
    stop(process)
    theirs = {pid: started(pid) for pid in descendants(process.pid)}
    process.kill()
    process.wait()

    def left() -> list[int]:
        return [pid for pid, when in theirs.items() if when and started(pid) == when]

    wait_until(lambda: not left())


def _state(pid: int, task: str = "") -> list[str]:
    """The fields of a process, or of one of its threads, after its name; none where it is gone."""
    try:
        place = Path(f"/proc/{pid}") / (f"task/{task}" if task else "")
        return (place / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
