from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import wait_until

from etude.entities import SessionLimits
from etude.errors import SandboxError
from etude.sessions import cgroups
from etude.sessions.cgroups import Cgroups
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

FOUND = cgroups.find_cgroups()
pytestmark = pytest.mark.skipif(FOUND is None, reason="this user may not make control groups on this machine")


@pytest.fixture
def groups() -> Cgroups:
    assert FOUND is not None
    return FOUND


@pytest.fixture
def provider() -> Iterator[LocalProvider]:
    opened = LocalProvider(ready=0)
    yield opened
    opened.close()


def ours(owner: str, groups: Cgroups) -> list[Path]:
    return [p for f in set(groups.folders.values()) for p in f.glob(f"etude-{owner}*")]


HOGS = """
import os, time
kids = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        block = bytearray(100 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
        time.sleep(600)
        os._exit(0)
    kids.append(pid)
until, left = time.time() + 120, set(kids)
while len(left) > 2 and time.time() < until:
    left -= {k for k in left if os.waitpid(k, os.WNOHANG) != (0, 0)}
    time.sleep(0.05)
alive = len(left)
for k in kids:
    try:
        os.kill(k, 9)
    except ProcessLookupError:
        pass
alive
"""


def test_memory_is_bounded_over_all_processes_of_a_session(provider: LocalProvider) -> None:
    limits = SessionLimits(memory=256 << 20, scratch=16 << 20)
    with Session(provider, limits=limits) as session:
        cell = session.execute(HOGS, wall_s=180)
    # The limit holds for the tree: some of the six go, or the whole session does.
    assert cell.outcome == "killed" or cell.value < 4


def test_a_session_tells_its_group(provider: LocalProvider, groups: Cgroups) -> None:
    with Session(provider) as session:
        assert session.isolation["cgroup"] == groups.version


def test_a_session_is_in_its_group_with_all_it_starts(provider: LocalProvider) -> None:
    with Session(provider) as session:
        group = session._opened().group
        assert group is not None
        assert session.execute("import os, time\nchild = os.fork()\nif child == 0: time.sleep(600)\n1").ok
        for path in group.paths:
            pids = (path / "cgroup.procs").read_text().split()
            assert len(pids) == 2 and str(session._opened().pid) in pids


def test_a_session_that_cannot_join_its_group_does_not_start(
    provider: LocalProvider, groups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def opened(_: cgroups.Cgroup) -> Iterator[list[int]]:
        with open("/dev/full", "wb") as file:  # every write to it fails
            yield [file.fileno()]

    before = ours(str(os.getpid()), groups)
    monkeypatch.setattr(cgroups.Cgroup, "opened", opened)
    with pytest.raises(SandboxError, match="could not be confined"):
        Session(provider)
    assert ours(str(os.getpid()), groups) == before


def test_a_group_goes_with_its_session(provider: LocalProvider, groups: Cgroups) -> None:
    before = ours(str(os.getpid()), groups)
    with Session(provider):
        assert len(ours(str(os.getpid()), groups)) > len(before)
    assert ours(str(os.getpid()), groups) == before


def test_no_group_is_left_when_the_host_is_killed(groups: Cgroups) -> None:
    code = (
        "import time\nfrom etude.sessions.local import LocalProvider\nfrom etude.sessions.session import Session\n"
        "s = Session(LocalProvider())\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        assert ours(str(host.pid), groups)
        host.kill()
    wait_until(lambda: not ours(str(host.pid), groups))


def test_groups_of_the_dead_are_removed(groups: Cgroups) -> None:
    # Made without limits: as an orphan it may be gone before they are set, for others remove such groups as well.
    orphan = [folder / "etude-999999999-1-1-1" for folder in set(groups.folders.values())]
    for path in orphan:
        path.mkdir(exist_ok=True)
    living = groups.create(cgroups.new_cgroup_owner(), SessionLimits())
    cgroups.remove_orphaned_cgroups(groups)
    assert not any(p.exists() for p in orphan)
    assert all(p.exists() for p in living.paths)
    living.close()
