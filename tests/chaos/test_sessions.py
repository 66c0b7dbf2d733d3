"""kill -9 of sessions, their fork server and their host, in any order: each cell has one outcome, nothing is left.

The short form runs with every test run; `CHAOS=long` (`make chaos`) kills a hundred times.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import duckdb
import pytest
from tests.chaos.processes import children, descendants, kill_all
from tests.patience import wait_until

from etude.app import App
from etude.entities import Run
from etude.errors import SandboxError

LONG = os.environ.get("CHAOS") == "long"
LIVES, KILLS = (20, 4) if LONG else (3, 4)
TABLE_SUM = 4950
THREADS = 3

# Each cell has a number of its own. A line is one write: it is whole or not there.
HOST = """
import itertools, json, os, sys, threading
from etude.app import App
from etude.errors import EtudeError

source, home, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = App(home=home)
CODE = '''import etude
db = etude.connect()
count = globals().get("count", 0) + 1
rows = db.sql("SELECT sum(v) + {n} FROM t").rows()
[rows[0][0], count]'''

def work(offset):
    session, count = None, 0
    for n in itertools.count(start + offset, THREADS):
        try:
            if session is None:
                session, count = app.open_session(source), 0
            cell = session.execute(CODE.format(n=n))
        except EtudeError as error:
            os.write(1, (json.dumps([n, "raised", type(error).__name__, str(error)]) + "\\\\n").encode())
            session = None
            continue
        count += 1
        right = cell.value == [TABLE_SUM + n, count] if cell.ok else None
        os.write(1, (json.dumps([n, cell.outcome, right, cell.error]) + "\\\\n").encode())
        if not cell.ok:
            session.close()
            session = None

for offset in range(THREADS):
    threading.Thread(target=work, args=(offset,)).start()
"""
HOST = HOST.replace("THREADS", str(THREADS)).replace("TABLE_SUM", str(TABLE_SUM)).replace("\\\\n", "\\n")


def is_sandbox(pid: int) -> bool:
    try:
        return b"etude.sessions.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def marked(mark: str) -> list[int]:
    """All processes that a host of this test started, also those whose parents were killed."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return found


def groups_of(hosts: list[int]) -> list[Path]:
    theirs = tuple(f"etude-{pid}-" for pid in hosts)
    # Not by a glob, which fails where a group of others goes while it looks.
    found = os.walk("/sys/fs/cgroup")
    return [Path(folder, name) for folder, names, _ in found for name in names if name.startswith(theirs)]


def kill_something(host: int, chance: random.Random) -> str:
    """End a session or, less often, one of the processes that make up the fork server; what it was."""
    sandboxes = [pid for pid in descendants(host) if is_sandbox(pid)]
    below = {pid: [c for c in children(pid) if is_sandbox(c)] for pid in sandboxes}
    kind = chance.choice(["session", "session", "server"])
    victims = [pid for pid in sandboxes if bool(below[pid]) == (kind == "server")]
    if not victims:
        return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(victims), signal.SIGKILL)
    return kind


def lines_of(out: Path) -> list[list[object]]:
    return [json.loads(line) for line in out.read_text().split("\n")[:-1]]


def all_runs(app: App) -> list[Run]:
    found, page = [], app.store.runs(limit=500)
    while True:
        found += [app.store.run(summary.id) for summary in page.items]
        if page.next is None:
            return found
        page = app.store.runs(limit=500, cursor=page.next)


def number_of(run: Run) -> int:
    return int(run.text.split("sum(v) + ")[1].split()[0])


def mounted() -> list[str]:
    """What is mounted here, but for containers and networks, which other tests make and remove meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if not any(others in line for others in ("/containers/", "/netns"))]


def test_anything_can_be_killed(tmp_path: Path) -> None:
    source, home, temporary = tmp_path / "shop.duckdb", tmp_path / "home", tmp_path / "tmp"
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS v FROM range(100)")
    temporary.mkdir()
    mounts = mounted()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")} | {"TMPDIR": str(temporary)}
    mark = f"/{tmp_path.name}-{os.getpid()}"
    environment["PATH"] += f":{mark}"
    chance = random.Random()
    hosts: list[int] = []
    said: list[list[object]] = []
    kills: Counter[str] = Counter()
    for life in range(LIVES):
        out = tmp_path / f"{life}.out"
        with out.open("wb") as file:
            command = [sys.executable, "-c", HOST, str(source), str(home), str(life * 1_000_000)]
            process = subprocess.Popen(command, env=environment, stdout=file, stdin=subprocess.DEVNULL)
        hosts.append(process.pid)
        try:
            wait_until(lambda out=out: out.stat().st_size > 0)
            assert len(marked(mark)) > THREADS  # the mark is seen on what the host starts
            for _ in range(KILLS):
                # What was killed before may not have been replaced yet.
                killed = wait_until(partial(kill_something, process.pid, chance))
                assert killed, "nothing was there to be killed"
                kills[killed] += 1
                # Work goes on after each: in new sessions, from a new fork server.
                seen = out.stat().st_size
                wait_until(lambda out=out, seen=seen: out.stat().st_size > seen)
                time.sleep(chance.uniform(0, 0.5))
                assert process.poll() is None
            kill_all(process)
            kills["host"] += 1
        finally:
            process.kill()
            process.wait()
        said += lines_of(out)
    assert kills.total() == LIVES * (KILLS + 1), kills
    wait_until(lambda: not marked(mark))
    check_record(home, said)
    # The next host removes what the last could not.
    with App(home=home) as app, app.open_session(str(source)) as session:
        assert session.execute("1 + 1").value == 2
    assert groups_of([*hosts, os.getpid()]) == []
    assert list(temporary.glob("etude-session-*")) == []
    assert mounted() == mounts


def check_record(home: Path, said: list[list[object]]) -> None:
    """Each cell has one outcome: the one that its caller heard, and the same on the record."""
    with App(home=home) as app:
        runs = all_runs(app)  # the store recovers on the way
    counts = Counter(map(number_of, runs))
    assert [n for n, times in counts.items() if times > 1] == []
    assert [r.id for r in runs if r.status not in ("succeeded", "failed")] == []
    status = {number_of(r): r.status for r in runs}
    assert len({line[0] for line in said}) == len(said)
    for n, outcome, right, error in said:
        assert outcome in ("ok", "killed", "raised"), (n, outcome, error)
        if outcome == "ok":
            assert right is True, n
            assert status[n] == "succeeded", n
        else:
            assert status.get(n, "failed") == "failed", n
    assert sum(line[1] == "ok" for line in said) >= LIVES  # work went on between the kills, fast or slow


def test_a_cell_that_finds_no_sandbox_is_ended_on_record(tmp_path: Path) -> None:
    with App(home=tmp_path / "home") as app, app.open_session() as session:
        assert session.execute("1 + 1").ok
        app.sandbox.close()
        assert session.execute("2 + 2").outcome == "killed"
        with pytest.raises(SandboxError):
            session.execute("3 + 3")
        assert {r.text: r.status for r in app.store.runs().items} == {
            "1 + 1": "succeeded",
            "2 + 2": "failed",
            "3 + 3": "failed",
        }
