"""The fork server: it ends with its host, outlives its sessions, is replaced when killed, and needs no root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.entities import SessionLimits
from etude.errors import SandboxError
from etude.sessions import isolation, local
from etude.sessions.base import SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

LEVEL = isolation.probe_isolation()[0]
if LEVEL < 3:
    pytest.skip("this machine does not allow level 3", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("small")
HOST = """
import json, sys, threading, time
from etude.sessions import local
from etude.sessions.base import SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session
local.PRELOAD = ()
level = int(sys.argv[1])
provider = LocalProvider(max_level=level)
sessions = [Session(provider, SandboxSpec(level=level)) for _ in range(3)]
daemon = "import os, time\\nif os.fork() == 0:\\n    if os.fork() == 0: time.sleep(600)\\n    os._exit(0)"
daemon += "\\nif os.fork() == 0:\\n    time.sleep(600)\\n    os._exit(0)\\nos.mkdir('d')"
cells = [s.execute(daemon + "\\n[os.getuid(), os.getcwd()]") for s in sessions]
print(json.dumps([s.isolation["level"] for s in sessions] + [c.value for c in cells]), flush=True)
if sys.argv[2] == "close":
    provider.close()
else:
    threading.Thread(target=sessions[0].execute, args=["while True: pass"], daemon=True).start()
    time.sleep(600)
"""
ABOVE = """
import os, subprocess, sys
from etude.sessions import isolation
isolation.adopt_orphaned_processes()
print(subprocess.Popen([sys.executable, "-c", *sys.argv[1:]]).pid, flush=True)
try:
    while True: os.wait()
except ChildProcessError: pass
"""


class Host:
    """A process that opens three sessions, and the means to find all that came of it."""

    def __init__(self, python: Any, level: int, then: str, **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="etude-host-"))
        self.folder.chmod(0o777)
        # Nothing that a session is given tells whose it is. But whatever loses its parents becomes a child of who
        # started the host, which ends when it has no children left.
        self.above = subprocess.Popen(
            [python.path, "-c", ABOVE, HOST, str(level), then],
            env=python.environment | {"TMPDIR": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            **options,
        )
        assert self.above.stdout is not None and self.above.stderr is not None
        self.pid = int(self.above.stdout.readline())
        line = self.above.stdout.readline()
        assert line, self.above.stderr.read()
        self.said = json.loads(line)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def running(self) -> list[int]:
        parents = {int(name): parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        found = {self.above.pid}
        while more := {pid for pid, above in parents.items() if above in found} - found:
            found |= more
        return [pid for pid in found if pid != self.above.pid and not has_ended(pid)]

    def outlived(self, watcher: int) -> list[int]:
        """What is left of a server: not the host, and not a new server that it has started since, with its sessions."""
        found = []
        for pid in self.running():
            above = pid
            while above not in (self.pid, watcher, self.above.pid, 0):
                above = parent(above)
            if above != self.pid:
                found.append(pid)
        return found

    def wait_for_end(self) -> None:
        try:
            self.above.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            pytest.fail(f"these still run: {self.running()}")

    def files(self) -> list[str]:
        found = [str(p.relative_to(self.folder)) for p in self.folder.rglob("*")]
        shutil.rmtree(self.folder)
        return found


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/status").read_text().split("PPid:\t")[1].split()[0])
    except OSError:  # it has ended
        return 0


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def children(pid: int) -> list[str]:
    try:
        return [c for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return []


@pytest.fixture(params=[3, 2])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_nothing_outlives_a_host_that_is_killed(everyones_python: Any, level: int) -> None:
    host = Host(everyones_python, level, "wait")
    assert host.said[:3] == [level] * 3
    assert len(host.running()) >= 5
    host.kill()
    host.wait_for_end()
    assert host.files() == []
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(host.folder) not in mounts and "/scratch" not in mounts


@pytest.mark.parametrize("who", ["server", "watcher"])
def test_nothing_outlives_a_server_that_is_killed_or_the_one_that_watches_it(everyones_python: Any, who: str) -> None:
    # As a user who may not make control groups: where there are some, they end what is left.
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    host = Host(everyones_python, 2, "wait", **nobody)
    try:
        # The last of three sessions and two that are ready has only just begun when the end comes.
        server = wait_until(lambda: next((pid for pid in host.running() if len(children(pid)) == 5), 0))
        watcher = parent(server)
        assert watcher != host.pid
        files = set(host.folder.iterdir())
        os.kill(server if who == "server" else watcher, signal.SIGKILL)
        wait_until(lambda: not host.outlived(watcher))
        assert files & set(host.folder.iterdir()) == set()
    finally:
        host.kill()
        host.wait_for_end()
        host.files()


def test_nothing_outlives_a_provider_that_is_closed(everyones_python: Any, level: int) -> None:
    host = Host(everyones_python, level, "close")
    host.wait_for_end()
    assert host.files() == []


def test_it_needs_no_root(everyones_python: Any, level: int) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests run without root already")
    host = Host(everyones_python, level, "wait", user=65534, group=65534, extra_groups=[])
    assert host.said[:3] == [level] * 3
    assert host.said[3][0] == (1000 if level == 3 else 65534)
    host.kill()
    host.wait_for_end()
    assert host.files() == []


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(3)",
        "import ctypes\nctypes.string_at(0)",
        "import os\nos.close(3)",
        "import resource, os\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
        "import sys\nsys.modules['etude.sessions.kernel'].Session._run = None",
    ],
)
def test_it_outlives_any_death_of_a_session(provider: LocalProvider, code: str) -> None:
    with Session(provider) as session, Session(provider) as other:
        other.execute("x = 1")
        session.execute(code)
        session.execute("1", wall_s=5)
        assert session.execute("1 + 1").value == 2, "a fresh interpreter takes its place"
        assert other.execute("x").value == 1


def test_what_one_session_breaks_is_whole_in_the_next(provider: LocalProvider) -> None:
    with Session(provider) as session:
        session.execute("import json, random, builtins\njson.dumps = None\nbuiltins.len = None\nopen('left', 'w')")
    with Session(provider) as session:
        assert session.execute("import json, os\n[json.dumps(len('ab')), os.listdir()]").value == ["2", []]


def forker(session: Session) -> int:
    return parent(session._opened().pid)


def test_a_killed_server_takes_its_sessions_and_is_replaced() -> None:
    provider = LocalProvider()
    session = Session(provider)
    session.execute("x = 1")
    # Those that are ready go with it, too: one that still ends could be taken for the next.
    wait_until(lambda: [*map(len, provider._ready.values())] == [2])
    pid = forker(session)
    inside = children(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in inside))
    assert session.execute("x").outcome == "killed"
    assert session.execute("1 + 1").value == 2
    assert forker(session) != pid
    session.close()
    provider.close()


def test_a_killed_server_is_known_as_dead_while_it_is_cleaned_up_after() -> None:
    provider = LocalProvider(ready=0)
    with contextlib.closing(provider), Session(provider) as session:
        session.execute("x = 1")
        pid = forker(session)
        (fork_server,) = provider._zygotes.values()
        # Who cleans up removes the groups of all its sessions: one that is made meanwhile would go with them.
        os.kill(parent(pid), signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not fork_server.alive)
        assert session.execute("x").outcome == "killed"
        assert session.execute("1 + 1").value == 2


def test_a_session_that_cannot_start_says_why_and_harms_nobody(provider: LocalProvider) -> None:
    with Session(provider) as session:
        before = forker(session)
        for _ in range(3):
            with pytest.raises(SandboxError):
                # The kernel has no room for this many bytes of files.
                provider.start(SandboxSpec(), SessionLimits(scratch=1 << 70)).close()
        assert session.execute("1").value == 1
        assert forker(session) == before


def test_equal_specs_share_a_server_and_others_do_not(provider: LocalProvider, tmp_path: Path) -> None:
    with (
        Session(provider) as a,
        Session(provider) as b,
        Session(provider, SandboxSpec(mounts={str(tmp_path): "/d"})) as c,
    ):
        assert forker(a) == forker(b) != forker(c)


def test_kinds_of_sessions_that_nobody_asks_for_any_more_are_not_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "KINDS", 2)
    provider = LocalProvider(ready=1)
    try:
        for megabytes in (301, 302, 303, 304):
            limits = SessionLimits(memory=megabytes << 20)
            Session(provider, limits=limits).close()
            kind = local._kind(SandboxSpec(), limits)
            wait_until(lambda kind=kind: provider._ready.get(kind))
        assert sum(map(len, provider._ready.values())) == 2
    finally:
        provider.close()


def test_limits_that_the_host_keeps_make_no_other_kind_of_session() -> None:
    one, other = SessionLimits(wall_s=1, output=2000), SessionLimits(wall_s=2, output=3000)
    assert local._kind(SandboxSpec(), one) == local._kind(SandboxSpec(), other)
    assert local._kind(SandboxSpec(), one) != local._kind(SandboxSpec(), SessionLimits(processes=3))


def test_what_a_session_leaves_is_ended_though_others_start_without_a_pause(everyones_python: Any) -> None:
    code = """
import sys, time
from etude.sessions import local
from etude.sessions.base import SandboxSpec
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session
local.PRELOAD = ()
provider = LocalProvider(ready=0, max_level=2)
session = Session(provider, SandboxSpec(level=2))
start = "import os, time\\np = os.fork()\\nif p == 0:\\n    time.sleep(600)\\n    os._exit(0)\\np"
daemon = session.execute(start).value
session.execute("os.kill(os.getpid(), 9)")
give_up = time.monotonic() + 90
while time.monotonic() < give_up:
    Session(provider, SandboxSpec(level=2)).close()  # many in each interval of looking after the dead
    try: open(f"/proc/{daemon}/stat").close()
    except OSError: break
else: print("it still runs")
provider.close()
"""
    # As a user who may not make control groups: where there are some, they end what is left.
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run(
        [everyones_python.path, "-c", code],
        env=everyones_python.environment,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=240,
        check=False,
        **nobody,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_seeds_are_the_sessions_own(provider: LocalProvider) -> None:
    code = "import random, numpy\n[random.random(), float(numpy.random.rand())]"
    seen = []
    for seed in (5, 5, 6):
        with Session(provider, seed=seed) as session:
            seen.append(session.execute(code).value)
    assert seen[0] == seen[1] != seen[2]


def test_programs_run_only_where_they_are_allowed(provider: LocalProvider) -> None:
    code = "import subprocess\nsubprocess.run(['/bin/echo', 'hi'], capture_output=True).stdout.decode()"
    with Session(provider) as session:
        assert session.execute(code).outcome == "error"
    with Session(provider, SandboxSpec(allow_exec=True)) as session:
        assert session.execute(code).value == "hi\n"
