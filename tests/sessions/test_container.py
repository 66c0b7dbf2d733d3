"""Sessions in a container: a real engine, a real root file system, and the same promises as on the bare machine."""

from __future__ import annotations

import fcntl
import hashlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import once, wait_until

from etude.entities import SessionLimits
from etude.errors import Invalid, SandboxError
from etude.sessions import check, container
from etude.sessions.base import SandboxSpec
from etude.sessions.check import check_sandbox
from etude.sessions.container import (
    ContainerLimits,
    ContainerProvider,
    find_container_engine,
    remove_leftover_containers,
)
from etude.sessions.session import Session

# Debian releases by their Python: the libraries of this interpreter are mounted, so the versions must agree.
RELEASES = {(3, 11): "bookworm", (3, 13): "trixie"}
PACKAGES = "python3-minimal,libpython3-stdlib,libstdc++6,tzdata"
PROFILE = Path(__file__).parent / "data" / "no_namespaces.json"
BATTERY = Path(__file__).parents[3] / "shared" / "batteries" / "escape_python.txt"
INSTALL = "`apt-get install -y podman runc debootstrap`, as .ci/run does"
LIMITS = ContainerLimits(memory=1 << 30, processes=400, scratch=256 << 20)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def rootfs() -> Path:
    """A small Debian with Python, made once per machine."""
    release = RELEASES.get(sys.version_info[:2])
    if release is None:
        pytest.skip(f"no Debian release has Python {sys.version_info[0]}.{sys.version_info[1]}")
    if shutil.which("podman") is None:
        pytest.fail(f"podman is not installed: {INSTALL}")
    recipe = hashlib.sha256(f"{release} {PACKAGES}".encode()).hexdigest()[:12]
    place = Path(f"/var/tmp/etude-rootfs-{recipe}")
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _make_rootfs(place, release)
    return place


def _make_rootfs(place: Path, release: str) -> None:
    tool = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin")
    if tool is None or os.getuid() != 0:
        pytest.fail(f"a root file system needs root and debootstrap: {INSTALL}")
    building = Path(f"{place}.part")
    shutil.rmtree(building, ignore_errors=True)
    command = [tool, "--variant=minbase", f"--include={PACKAGES}", release, str(building), _mirror()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    building.rename(place)


def _mirror() -> str:
    """Where this machine gets its Debian packages from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return next((uri for uri in found if uri.rstrip("/").endswith("/debian")), "http://deb.debian.org/debian")


@pytest.fixture(scope="module", params=[3, 2], ids=["level3", "level2"])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def provider(rootfs: Path, level: int) -> Iterator[ContainerProvider]:
    """A container that allows namespaces, and one that forbids them as Docker does by default."""
    options = ("--security-opt", f"seccomp={PROFILE}") if level == 2 else ()
    provider = ContainerProvider(rootfs=rootfs, host_packages=True, limits=LIMITS, options=options)
    before = _names()
    yield provider
    provider.close()
    assert _names() <= before


def _names(engine: str = "podman") -> set[str]:
    """The containers of this process."""
    command = [engine, "ps", "--all", "--filter", f"label={container.LABEL}={container._owner()}"]
    listed = subprocess.run([*command, "--format", "{{.Names}}"], capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def _run(session: Session, code: str, **more: float) -> object:
    cell = session.execute(textwrap.dedent(code), **more)
    assert cell.ok, cell.error
    return cell.value


def test_an_engine_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stuck").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "stuck").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(container, "_ASK_S", 0.2)
    with pytest.raises(SandboxError, match=r"`stuck version` did not answer within 0\.2 s"):
        find_container_engine(["stuck"])
    with pytest.raises(SandboxError, match="`stuck ps` did not answer"):
        remove_leftover_containers(container.ContainerEngine("stuck", ""))


# -- the network


@pytest.fixture
def web() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Page(http.server.BaseHTTPRequestHandler):
    """Answers, and says nothing of it."""

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_list_of_hosts_holds_in_a_container_too(provider: ContainerProvider, level: int, web: int) -> None:
    spec = SandboxSpec(network=(f"localhost:{web}",))
    if level < 3:
        with pytest.raises(SandboxError, match="needs isolation level 3"):
            Session(provider, spec)
        return
    ask = "from urllib.request import urlopen\nurlopen('http://localhost:{}/').status"
    with Session(provider, spec) as session:
        assert session.isolation["network"] == [f"localhost:{web}"]
        assert _run(session, ask.format(web)) == 204
        cell = session.execute(ask.format(web + 1))
        assert cell.error is not None and "403" in cell.error["message"]


# -- what it is


def test_the_level_is_reported_with_engine_and_image(provider: ContainerProvider, level: int, rootfs: Path) -> None:
    with Session(provider) as session:
        report = session.isolation
    assert report["provider"] == "container" and report["level"] == level
    assert report["engine"].startswith("podman ") and report["image"] == str(rootfs)
    assert bool(report["missing"]) == (level == 2), report["missing"]


def test_names_stay_and_tables_come_back(provider: ContainerProvider) -> None:
    with Session(provider) as session:
        _run(session, "import pandas as pd; frame = pd.DataFrame({'a': range(200_000)})")
        table = session.execute("frame").value
        assert table.num_rows == 200_000
        assert _run(session, "import duckdb; duckdb.sql('select sum(a) from frame').fetchall()[0][0]") == 19_999_900_000


def test_a_session_is_forked_not_started(provider: ContainerProvider) -> None:
    Session(provider).close()
    before, forkers = _names(), set()
    for _ in range(3):
        with Session(provider) as session:
            forkers.add(_forker(session))
    assert len(forkers) == 1
    assert _names() == before


@pytest.mark.usefixtures("fairly_patient")
def test_it_conforms(provider: ContainerProvider) -> None:
    assert [r for r in check_sandbox(provider) if not r.ok] == []


def test_mounts_are_where_they_were_asked_for(provider: ContainerProvider, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "x.csv").write_text("a\n1\n")
    with Session(provider, SandboxSpec(mounts={str(tmp_path): "/data/here"})) as session:
        assert _run(session, "open('/data/here/x.csv').read()") == "a\n1\n"
        assert session.execute("open('/data/here/x.csv', 'w')").outcome == "error"


def test_a_level_that_cannot_be_had_is_refused(rootfs: Path) -> None:
    options, before = ("--security-opt", f"seccomp={PROFILE}"), _names()
    provider = ContainerProvider(rootfs=rootfs, host_packages=True, options=options)
    with pytest.raises(SandboxError, match="level 3 was asked for") as caught:
        Session(provider, SandboxSpec(level=3))
    assert caught.value.details == {"level": 2, "asked": 3} and "namespaces" in caught.value.hint
    assert _names() == before


# -- what it keeps in


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """What the battery tries to reach on the host."""
    host, data = Path(f"/var/tmp/etude-battery-{os.getpid()}"), tmp_path / "data"
    for folder in (host, data):
        folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    (host / "secret.txt").write_text("TOPSECRET")
    (data / "x.csv").write_text("a\n1\n")
    monkeypatch.setenv("SECRET_ENV", "TOPSECRET_ENV")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(host / "host.sock"))
        (host / "host.sock").chmod(0o777)
        listener.listen()
        yield {"host": str(host), "data": str(data), "port": server.server_port}
    server.shutdown()
    server.server_close()
    shutil.rmtree(host)


@pytest.mark.skipif(not BATTERY.exists(), reason=f"the battery is not beside the repository: {BATTERY}")
def test_the_battery_finds_no_way_out(provider: ContainerProvider, secrets: dict[str, object]) -> None:
    spec = SandboxSpec(mounts={str(secrets["data"]): "/data"})
    names = f"VICTIM, PORT, DATA = {os.getpid()}, {secrets['port']}, '/data'; import os; SCR = os.getcwd()"
    breaches, attempts = [], 0
    for line in BATTERY.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        number, kind, _, code = line.split(" | ", 3)
        attempts += 1
        with Session(provider, spec, SessionLimits(wall_s=15)) as session:
            _run(session, names, wall_s=120)
            code = json.loads(f'"{code}"').replace("@HOST@", str(secrets["host"]))
            cell = session.execute(code)
            if cell.ok and "ESCAPED" in str(cell.value):
                breaches.append((number, kind, cell.value))
    assert attempts >= 30
    assert [b for b in breaches if b[1] != "info"] == []


def test_the_file_system_of_the_host_is_hidden(provider: ContainerProvider, secrets: dict[str, object]) -> None:
    with Session(provider) as session:
        for path in (secrets["host"], Path(__file__), "/root", "/home", "/sys", "/opt/etude/run"):
            assert session.execute(f"import os; os.listdir({str(Path(str(path)))!r})").outcome == "error", path
        for path in (f"{secrets['host']}/secret.txt", "/etc/shadow", "/proc/1/environ", "/proc/1/root/etc/hostname"):
            assert "TOPSECRET" not in str(session.execute(f"open({path!r}).read()").value)
        assert session.execute("open('/etc/shadow')").outcome == "error"


def test_sockets_of_the_host_are_closed(provider: ContainerProvider, secrets: dict[str, object]) -> None:
    connect = "import socket; s = socket.socket(socket.AF_UNIX, {kind}); s.connect({path!r})"
    with Session(provider, SandboxSpec(mounts={str(secrets["host"]): "/given"})) as session:
        assert _run(session, "open('/given/secret.txt').read()") == "TOPSECRET"
        for path in ("/given/host.sock", f"{secrets['host']}/host.sock", "/opt/etude/run/control"):
            for kind in ("socket.SOCK_STREAM", "socket.SOCK_SEQPACKET"):
                assert session.execute(connect.format(kind=kind, path=path)).outcome == "error", path


def test_neighbours_do_not_reach_each_other(provider: ContainerProvider) -> None:
    with Session(provider) as one, Session(provider) as other:
        place = _run(one, "import os; open('mine', 'w').write('secret'); os.getcwd()")
        _run(other, "import os, signal; here = os.getcwd()")
        if place != _run(other, "here"):
            assert other.execute(f"os.listdir({place!r})").outcome == "error"
        assert "mine" not in str(_run(other, "os.listdir('.')"))
        for pid in range(1, 200):
            other.execute(f"if {pid} != os.getpid(): os.kill({pid}, signal.SIGKILL)")
        assert _run(one, "open('mine').read()") == "secret"


def test_what_a_cell_leaves_running_ends_with_its_session_at_the_latest(provider: ContainerProvider) -> None:
    leave = """
        import os, signal, time
        for _ in range(3):
            if os.fork() == 0:
                if os.fork() == 0:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    try:
                        os.setsid()
                    except OSError:
                        pass
                    time.sleep(600)
                os._exit(0)
        print("they run")
        time.sleep(600)
    """
    left: set[int] = set()
    with Session(provider) as session:
        forker = _forker(session)
        before = set(check._below(forker))

        def see_them() -> None:
            left.update(wait_until(lambda: found if len(found := set(check._below(forker)) - before) >= 3 else None))
            session.interrupt()

        assert session.execute(textwrap.dedent(leave), on_output=once(see_them)).outcome == "interrupted"
    assert len(left) >= 3
    wait_until(lambda: not left & set(check._below(forker)))


def _forker(session: Session) -> int:
    """The fork server, as the host sees it."""
    return int(Path(f"/proc/{session._opened().pid}/status").read_text().split("PPid:\t")[1].split()[0])


# -- limits


def test_memory_that_runs_out_ends_one_session(rootfs: Path) -> None:
    small = ContainerLimits(memory=512 << 20, processes=64)
    provider = ContainerProvider(rootfs=rootfs, host_packages=True, limits=small)
    try:
        with Session(provider) as greedy, Session(provider) as modest:
            _run(modest, "kept = 1")
            assert greedy.isolation["missing"] == []
            assert greedy.execute("a = bytearray(1 << 30)\na[::4096] = b'x' * (1 << 18)").outcome == "killed"
            assert _run(modest, "kept") == 1 and _run(greedy, "2") == 2
    finally:
        provider.close()


def test_a_limit_that_does_not_hold_is_reported(rootfs: Path) -> None:
    provider = ContainerProvider(rootfs=rootfs, host_packages=True)
    working = next(a for a in provider._attempts if a.globals == ("--runtime", "runc"))
    broken = container._Attempt(("--runtime", "no-such-runtime"), working.flags, True)
    provider._attempts = [broken, container._Attempt(working.globals, (), False)]
    try:
        with Session(provider) as session:
            (missing,) = [m for m in session.isolation["missing"] if "memory" in m]
        assert "no-such-runtime" in missing
        provider.close()
        provider._attempts = [broken]
        with pytest.raises(SandboxError, match="no-such-runtime"):
            Session(provider)
    finally:
        provider.close()


@pytest.mark.usefixtures("patient")
def test_signals_go_through_the_fork_server_where_the_system_refuses(
    provider: ContainerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(provider) as session:
        _run(session, "kept = 1")
        inside = session._opened().pid

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
        cell = session.execute("print('begun')\nwhile True: pass", on_output=once(session.interrupt))
        assert cell.outcome == "interrupted"
        assert _run(session, "kept") == 1
    wait_until(lambda: not check._is_running(inside))


# -- what it leaves behind


def test_a_killed_host_leaves_no_container(rootfs: Path, tmp_path: Path) -> None:
    code = f"""
        from etude.sessions.container import ContainerProvider
        from etude.sessions.session import Session
        provider = ContainerProvider(rootfs={str(rootfs)!r}, host_packages=True)
        session = Session(provider)
        print(next(iter(provider._containers.values())).name, flush=True)
        session.execute("while True: pass")
    """
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert host.stdout is not None
    name = host.stdout.readline().strip()
    engine = find_container_engine(["podman"])
    assert engine.run("container", "exists", name).returncode == 0
    host.kill()
    host.wait()
    host.stdout.close()
    wait_until(lambda: engine.run("container", "exists", name).returncode == 1)
    assert list(tmp_path.iterdir()) == []


def test_a_container_that_was_taken_away_is_replaced(rootfs: Path) -> None:
    provider = ContainerProvider(rootfs=rootfs, host_packages=True)
    try:
        with Session(provider) as session:
            _run(session, "lost = 1")
            (first,) = provider._containers.values()
            provider.engine.run("rm", "--force", first.name)
            wait_until(lambda: not first.alive)
            assert session.execute("lost").outcome == "killed"
            assert _run(session, "'lost' in globals()") is False
    finally:
        provider.close()


def test_leftovers_of_the_dead_are_removed(rootfs: Path) -> None:
    engine = find_container_engine(["podman"])
    ours = container._owner()
    place, pid, _ = ours.split(".")
    owners = {"dead": f"{place}.{pid}.1", "alive": ours, "elsewhere": f"1.{pid}.1"}
    names = {kind: f"etude-test-{kind}-{os.getpid()}" for kind in owners}
    try:
        for kind, owner in owners.items():
            label = f"{container.LABEL}={owner}"
            made = engine.run("create", "--name", names[kind], "--label", label, "--rootfs", str(rootfs), "true")
            assert made.returncode == 0, made.stderr
        assert set(remove_leftover_containers(engine)) & set(names.values()) == {names["dead"]}
        exist = {kind: engine.run("container", "exists", name).returncode == 0 for kind, name in names.items()}
        assert exist == {"dead": False, "alive": True, "elsewhere": True}
    finally:
        for name in names.values():
            engine.run("rm", "--force", name)


# -- what it says when it cannot


def test_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match="`docker` is not installed; `podman` is not installed") as caught:
        ContainerProvider("python:3.12")
    assert "apt-get install podman" in caught.value.hint


def test_an_image_that_is_not_there() -> None:
    provider = ContainerProvider("localhost/etude-no-such-image", engine="podman")
    with pytest.raises(SandboxError, match="etude-no-such-image") as caught:
        Session(provider)
    assert "podman pull" in caught.value.hint


def test_a_root_without_the_interpreter(rootfs: Path) -> None:
    before = _names()
    for python, said in (("no-such-python", "no-such-python"), ("/bin/false", "could not be started")):
        provider = ContainerProvider(rootfs=rootfs, python=python)
        with pytest.raises(SandboxError, match=said) as caught:
            Session(provider)
        assert "Python 3.11" in caught.value.hint and _names() == before


def test_libraries_of_another_python_are_refused(rootfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, before = ContainerProvider(rootfs=rootfs, host_packages=True), _names()
    monkeypatch.setattr(container.sys, "version_info", (3, 99, 0))
    with pytest.raises(SandboxError, match=r"libraries of Python 3\.99 cannot be used"):
        Session(provider)
    assert _names() == before


def test_contradictions_are_refused(rootfs: Path, tmp_path: Path) -> None:
    for arguments in ({}, {"image": "a", "rootfs": rootfs}, {"rootfs": rootfs, "engine": "docker"}):
        with pytest.raises(Invalid):
            ContainerProvider(**arguments)
    provider = ContainerProvider(rootfs=rootfs)
    (tmp_path / "a,b").mkdir()
    with pytest.raises(Invalid, match="cannot be mounted"):
        Session(provider, SandboxSpec(mounts={str(tmp_path / "a,b"): "/data"}))


# -- images, with every engine that answers


@pytest.mark.parametrize("name", container.ENGINES)
def test_an_image(name: str, rootfs: Path) -> None:
    try:
        engine = find_container_engine([name])
    except SandboxError as error:
        if name == "podman":
            raise
        pytest.skip(f"{error} A Docker engine that answers is used.")
    image = f"localhost/etude-test:{rootfs.name.rpartition('-')[2]}"
    if engine.run("image", "inspect", image).returncode != 0:
        with subprocess.Popen(["tar", "-C", str(rootfs), "-c", "."], stdout=subprocess.PIPE) as packed:
            subprocess.run([name, "import", "-", image], stdin=packed.stdout, capture_output=True, check=True)
        assert packed.returncode == 0
    provider, before = ContainerProvider(image, engine=name, host_packages=True), _names(name)
    try:
        with Session(provider) as session:
            assert _run(session, "import pandas; 6 * 7") == 42
            assert session.isolation["image"] == image and session.isolation["level"] >= 2
    finally:
        provider.close()
    assert _names(name) == before
