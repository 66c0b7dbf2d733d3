"""Many cells over many sessions: neither the host nor the fork server grows.

The short form runs with every test run, the long one with `CHAOS=long` (`make chaos`).
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from pathlib import Path

from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

LONG = os.environ.get("CHAOS") == "long"
CELLS, SESSIONS = (20_000, 50) if LONG else (2_000, 20)
KINDS = (
    ("{n} + 1", "ok"),
    ("print('line', {n})", "ok"),
    ("import pandas\npandas.DataFrame({{'n': range({n} % 50)}})", "ok"),
    ("1 / 0", "error"),
    ("def f{n}(x): return x\nf{n}('a' * 1000); del f{n}", "ok"),
    ("values = list(range({n}))", "ok"),
    ("undefined", "error"),
)


def memory(pid: int | str) -> float:
    """Megabytes of private memory: what is shared with sessions changes with their number."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1000


def parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def test_nothing_grows() -> None:
    # A process of its own: what other tests have left in this one comes and goes.
    soak = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert soak.returncode == 0, soak.stderr
    print(soak.stdout)


def main() -> None:
    """Run many cells, and look before and after."""
    chance = random.Random(7)
    provider = LocalProvider()
    sessions = [Session(provider) for _ in range(SESSIONS)]
    try:
        server = parent_of(sessions[0]._opened().pid)
        files = len(os.listdir("/proc/self/fd"))
        before: list[float] = []
        for n in range(CELLS):
            if n == CELLS // 10:
                gc.collect()
                before = [memory("self"), memory(server)]
            place = n % SESSIONS
            code, outcome = chance.choice(KINDS)
            cell = sessions[place].execute(code.format(n=n), wall_s=300)
            assert cell.outcome == outcome, cell
            if chance.random() < 0.005:
                sessions[place].close()
                sessions[place] = Session(provider)
        gc.collect()
        after = [memory("self"), memory(server)]
        for was, now in zip(before, after):
            assert now <= was + max(10, was * 0.1), (before, after)
        # Two for each session, and as many for those that wait in the pool.
        assert len(os.listdir("/proc/self/fd")) <= files + 8
        assert all(s.execute("1 + 1").value == 2 for s in sessions)
        print(f"host {before[0]:.1f} -> {after[0]:.1f} MB, fork server {before[1]:.1f} -> {after[1]:.1f} MB")
    finally:
        for session in sessions:
            session.close()
        provider.close()


if __name__ == "__main__":
    main()
