"""Processor time of a session counts as a whole, and processes end with the cell that started them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import wait_until

from etude.entities import SessionLimits
from etude.sessions import processor_time
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

pytestmark = pytest.mark.usefixtures("small")
BUSY = "while True: pass"
THREAD = f"import threading\ndef work():\n    {BUSY}\nthreading.Thread(target=work, daemon=True).start()"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle sessions are checked often."""
    monkeypatch.setattr(processor_time, "LOOK_S", 0.05)


@pytest.fixture
def session(provider: LocalProvider) -> Iterator[Session]:
    with Session(provider, limits=SessionLimits(wall_s=120)) as opened:
        yield opened


def test_processes_end_with_the_cell_that_started_them(session: Session) -> None:
    cell = session.execute(f"import os\npids = [os.fork() for _ in 'ab']\nif 0 in pids:\n    {BUSY}\nlen(pids)")
    assert cell.value == 2 and "ended with it" in cell.notes[0]
    left = session.execute("[p for p in pids if os.path.exists(f'/proc/{p}')]")
    assert left.value == [] and left.notes == ()


def test_a_cell_that_waits_for_its_processes_is_told_nothing(session: Session) -> None:
    cell = session.execute("import os\npid = os.fork()\nif pid == 0: os._exit(3)\nos.waitpid(pid, 0)[1] >> 8")
    assert cell.value == 3 and cell.notes == ()


def test_processes_end_with_their_cell_where_there_are_no_namespaces(everyones_python: Any) -> None:
    code = f"""
import time
from etude.sessions import local
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session
local.PRELOAD = ()
provider = LocalProvider(ready=0, max_level=2)
with Session(provider) as session:
    child = session.execute("import os\\np = os.fork()\\nif p == 0:\\n    {BUSY}\\np").value
    def state():
        try: return open(f"/proc/{{child}}/stat").read().rpartition(")")[2].split()[0]
        except OSError: return "gone"
    give_up = time.monotonic() + 60
    while state() not in ("Z", "gone") and time.monotonic() < give_up: time.sleep(0.01)
    print(session.execute("1").value, state())
provider.close()
"""
    done = subprocess.run(
        [everyones_python.path, "-c", code],
        env=everyones_python.environment,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=240,
        check=False,
    )
    assert done.stdout == "1 gone\n", done.stderr


def test_threads_go_on_and_the_next_cell_tells_what_they_used(session: Session) -> None:
    session.execute(THREAD)
    session.check_background()
    channel = session._channel
    assert channel is not None
    before = channel.cpu_s()
    wait_until(lambda: channel.cpu_s() > before + 0.3)
    session.check_background()
    cell = session.execute("1")
    assert cell.ok and "s of processor time while no cell ran" in cell.notes[0]


def test_a_quiet_session_is_told_nothing(session: Session) -> None:
    for _ in range(3):
        session.check_background()
        assert session.execute("1").notes == ()


def test_the_time_of_all_processes_counts(provider: LocalProvider) -> None:
    with Session(provider, limits=SessionLimits(cpu_s=2, wall_s=120)) as session:
        cell = session.execute(f"import os\nfor _ in range(3):\n    if os.fork() == 0: break\n{BUSY}")
    assert cell.outcome == "killed" and cell.error is not None
    assert "processes it started used" in cell.error["message"] and "`cpu_s`, is 2 s" in cell.error["message"]


def test_an_idle_session_that_passes_the_limit_is_ended_and_says_why(provider: LocalProvider, quick: None) -> None:
    with Session(provider, limits=SessionLimits(cpu_s=2, wall_s=120)) as session:
        # Three processes hide from the end of their cell, each below the limit that the kernel has for one.
        session.execute("import sys\nkernel = sys.modules['etude.sessions.kernel']")
        assert session.execute("type(kernel.SESSION)._has_children = lambda self: False").ok
        session.execute(f"import os\nfor _ in range(3):\n    if os.fork() == 0:\n        {BUSY}")
        wait_until(lambda: not session.alive)
        cell = session.execute("1")
        assert cell.outcome == "killed" and cell.error is not None and "`cpu_s`, is 2 s" in cell.error["message"]
        assert session.execute("1").value == 1


def test_the_time_of_a_process_and_those_below_it(tmp_path: Any) -> None:
    done = subprocess.Popen(["sh", "-c", "(while :; do :; done) & while :; do :; done"], start_new_session=True)
    try:
        wait_until(lambda: processor_time.read_processor_time(done.pid) > 0.2)
    finally:
        os.killpg(done.pid, 9)
        done.wait()
    assert processor_time.read_processor_time(done.pid) == 0.0
