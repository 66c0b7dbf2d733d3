"""The fork server: an interpreter with the libraries loaded, which becomes a session by forking.

It enters its namespaces and its private root first, loads the libraries there, then forks on request. It never
reads what a session writes, so that nothing a session says can reach it. It is the first process of a process
namespace of its own: when it ends, however it ends, the kernel ends every session with it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import sys
import time
from importlib import import_module
from typing import Any, NoReturn

from etude import confine
from etude.sessions import cgroups, isolation, kernel
from etude.sessions.isolation import Confinement

MESSAGE = 1 << 16
DESCRIPTORS = 8
SWEEP_S = 0.2
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Start from the command line that `local.Zygote` or `container.Container` writes."""
    parser = argparse.ArgumentParser()
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--control", type=int, help="an inherited socket to the host")
    way.add_argument("--connect", metavar="PATH", help="the host's socket, which first hears what this place allows")
    given = parser.parse_args()
    if given.connect:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.connect(given.connect)
        control.send(json.dumps(_describe_place()).encode())
    else:
        control = socket.socket(fileno=given.control)
    config = json.loads(control.recv(MESSAGE))
    try:
        _raise_open_files()
        if _is_watched(config):
            _stay_behind(control, config)
        _enter(config, control)
        for name in config["preload"]:
            with contextlib.suppress(ImportError):
                import_module(name)
        server = ForkServer(control, config)
    except BaseException as error:
        control.send(json.dumps({"ok": False, "error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    server.serve()


def _raise_open_files() -> None:
    """Descriptors on their way count for all processes of a user together, against the limit of whoever sends one more:
    sessions, which have a lower limit, must not keep this process from it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_watched(config: dict[str, Any]) -> bool:
    """Whether the end of this process leaves something behind that the kernel does not remove by itself."""
    return config["level"] < 3 or bool(config.get("cgroups"))


def _stay_behind(control: socket.socket, config: dict[str, Any]) -> None:
    """Go on in a child. The parent waits outside for its end, and removes what it left: processes that sessions had
    started, where no namespace ends them, files, and the control groups that a host which was killed could not."""
    isolation.adopt_orphans()
    own = os.getpid()
    child = os.fork()
    if child == 0:
        isolation.die_with_parent(parent=own)
        return
    control.close()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    _end_children()
    if config.get("cgroups"):
        cgroups.remove_all(config["owner"], config["cgroups"])
    if config["scratch_root"]:
        shutil.rmtree(config["scratch_root"], ignore_errors=True)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _end_children() -> None:
    """End every process below this one, which adopts them as their parents end."""
    own = os.getpgrp()
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    # By group, which nobody of a session can leave: one by one, they could fork faster than they end.
                    group = os.getpgid(pid)
                    os.kill(pid, signal.SIGKILL) if group == own else os.killpg(group, signal.SIGKILL)
            os.waitpid(-1, 0)


def _keep_to_parent(config: dict[str, Any]) -> None:
    """Who changes its user is no longer bound to its parent's life. Where the host itself is the parent it must not
    be: the kernel would take the end of the thread that started us for the end of the host."""
    if _is_watched(config):
        isolation.die_with_parent()


def _describe_place() -> dict[str, Any]:
    """What the host cannot see from outside: the isolation to be had here, the interpreter, the limits in force."""
    level, missing = isolation.probe()
    return {
        "level": level,
        "missing": missing,
        "python": [*sys.version_info[:2]],
        "readable": isolation.interpreter_paths(),
        "memory": _read_limit("memory.max", "memory/memory.limit_in_bytes"),
        "processes": _read_limit("pids.max", "pids/pids.max"),
        "trusted": isolation.find_certificates(),
    }


def _read_limit(*names: str) -> int | None:
    """A limit of our control group, by its name in version 2 or 1; None where none is set."""
    for name in names:
        with contextlib.suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{name}", encoding="ascii") as file:
            found = int(file.read())
            return found if found < 1 << 60 else None
    return None


def _enter(config: dict[str, Any], control: socket.socket) -> None:
    """Take this process where its sessions will live."""
    if config["level"] < 3:
        isolation.adopt_orphans()
        if os.getuid() == 0:
            needed = isolation.interpreter_paths()
            isolation.become_nobody()
            _keep_to_parent(config)
            for path in needed:
                if not os.access(path, os.R_OK | os.X_OK):
                    raise PermissionError(f"level 2 as root needs an interpreter that everyone may read: {path} is not")
        return
    as_root = os.getuid() == 0
    uid, gid = os.getuid(), os.getgid()
    if as_root:
        isolation.unshare(isolation.NEWNS)
        isolation.build_root(config["readable"], config["data"], own_pids=False)
        isolation.become_nobody()
        _keep_to_parent(config)
        uid = gid = isolation.NOBODY
        isolation.unshare(isolation.NEWUSER | isolation.NEWPID)
    else:
        isolation.unshare(isolation.NEWUSER | isolation.NEWNS | isolation.NEWPID)
    isolation.map_ids(0, uid, gid)
    child = os.fork()
    if child:
        # This half only waits: the other is the first process of the new namespace.
        control.close()
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    isolation.die_with_parent()
    if not as_root:
        isolation.build_root(config["readable"], config["data"], own_pids=True)


class ForkServer:
    """The loop that forks."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self._control = control
        self._config = config
        self._pid = os.getpid()
        self._level: int = config["level"]
        self._network: dict[str, str] | None = config.get("network")
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._filters = {
            allow_exec: isolation.build_filter(allow_exec, self._level >= 3, allow_inet=self._network is not None)
            for allow_exec in (False, True)
        }
        self._sessions: dict[int, tuple[str, int]] = {}
        self._stopped = False
        if self._level >= 3:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps

    def serve(self) -> NoReturn:
        """Fork on request until the host is gone."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._level < 3:
            # Whoever watches it could be killed too: then it does by itself what is left to do, and ends.
            signal.signal(signal.SIGTERM, self._stop)
            isolation.die_with_parent(signal.SIGTERM)
        # Here, for what a session writes to before its first cell is memory of its own.
        _forget_the_host(isolation.SCRATCH)
        gc.collect()
        gc.freeze()  # what is loaded stays shared: the collector would write to every page of it
        # A host that is killed can be gone in the middle of a request, too.
        with contextlib.suppress(ConnectionError):
            self._control.send(json.dumps({"ok": True, "pid": os.getpid()}).encode())
            self._listen()
        self._end()

    def _stop(self, number: int, frame: Any) -> None:
        self._stopped = True

    def _listen(self) -> None:
        due = time.monotonic()
        while not self._stopped:
            if self._level < 3:
                asked = select.select([self._control], [], [], SWEEP_S)[0]
                # By the clock, not when there is nothing else to do: requests may come without a pause.
                if time.monotonic() >= due:
                    self._sweep()
                    due = time.monotonic() + SWEEP_S
                if not asked:
                    continue
            message, fds, _, _ = socket.recv_fds(self._control, MESSAGE, DESCRIPTORS)
            if not message:
                return
            request = json.loads(message)
            if "signal" in request:
                self._signal(request["signal"], fds)
            elif "end_children" in request:
                for fd in fds:
                    _end_below(_pid_of(fd))
            else:
                self._fork(request, fds)
            for fd in fds:
                os.close(fd)

    def _signal(self, number: int, fds: list[int]) -> None:
        """Signal a session for a host that may not: in a container it can be another user."""
        for fd in fds:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, number)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        cage = Confinement(**request["cage"])
        try:
            pid = self._clone()
        except OSError as error:
            self._control.send(json.dumps({"ok": False, "error": str(error)}).encode())
            return
        if pid == 0:
            self._become_session(request, cage, *fds)
        if self._level < 3:
            self._sessions[pid] = (request["scratch"], cage.scratch)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # It could not be confined, has said so on its socket, and is gone already.
            self._control.send(json.dumps({"ok": False, "error": "it ended at once"}).encode())
            return
        socket.send_fds(self._control, [json.dumps({"ok": True}).encode()], [pidfd])
        os.close(pidfd)

    def _clone(self) -> int:
        if self._level >= 3:
            # A process namespace for the next child: it can be made only from one's own.
            if _LIBC.setns(self._own_pids, isolation.NEWPID) != 0:
                raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
            isolation.unshare(isolation.NEWPID)
        return os.fork()

    def _become_session(self, request: dict[str, Any], cage: Confinement, fd: int, *group: int) -> NoReturn:
        try:
            _take_socket(fd)  # first, so that what fails from here on is heard by the right one
            cgroups.join(group)
            os.closerange(4, 65536)
            confine.prefer_as_victim()  # where memory runs out for all, a session ends, not the fork server
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            sock = socket.socket(fileno=3)
            scratch = self._confine(request, cage, sock)
            if scratch != isolation.SCRATCH:
                _forget_the_host(scratch)
            isolation.apply_filter(self._filters[cage.allow_exec])
        except BaseException as error:
            with contextlib.suppress(OSError):
                body = f"{type(error).__name__}: {error}".encode()
                os.write(3, kernel.HEAD.pack(len(body), b"F"[0]) + body)
            os._exit(1)
        try:
            kernel.serve(sock)
        finally:
            os._exit(0)  # whatever user code breaks, the session never runs on as a fork server

    def _confine(self, request: dict[str, Any], cage: Confinement, sock: socket.socket) -> str:
        others = 0
        if self._level >= 3:
            isolation.enter_session_namespaces(cage, loopback=self._network is not None)
            if self._network is not None:
                # Before its limits: by them, descriptors that other sessions have on their way could keep it back.
                _open_way_out(sock, self._network)
            scratch, readable, writable = isolation.SCRATCH, ["/"], [isolation.SCRATCH, "/tmp"]  # noqa: S108
        else:
            os.setsid()  # the filter lets nobody leave this group, so that one signal ends all of it
            isolation.die_with_parent(parent=self._pid)
            others = isolation.count_tasks(os.getuid())
            scratch = request["scratch"]
            os.mkdir(scratch, 0o700)
            readable, writable = [*self._config["readable"], *self._config["data"]], [scratch]
        os.chdir(scratch)
        isolation.limit(cage, others)
        allow_tcp = self._network is not None
        if not confine.grant_only(readable, [*writable, "/dev/null"], scoped=True, allow_tcp=allow_tcp):
            raise OSError("Landlock refused the rules")
        isolation.drop_capabilities()
        return scratch

    def _sweep(self) -> None:
        """Level 2: end what is left of sessions that ended, and those that fill the disk."""
        for pid in _children():
            if pid not in self._sessions:
                # What a session leaves running comes to us as an orphan.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                continue
            scratch, room = self._sessions[pid]
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if ended or _count_bytes(scratch, pid, room) > room:
                self._finish(pid)

    def _finish(self, pid: int) -> None:
        """Level 2: end a whole session, and reap it only then: until that its number means this group alone."""
        scratch, _ = self._sessions.pop(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # one that has only just begun leads no group yet
        os.waitpid(pid, 0)
        _remove(scratch)

    def _end(self) -> NoReturn:
        if self._level < 3:
            for pid in list(self._sessions):
                self._finish(pid)
            give_up = time.monotonic() + 1
            while _children() and time.monotonic() < give_up:
                self._sweep()
                time.sleep(0.01)
            shutil.rmtree(self._config["scratch_root"], ignore_errors=True)
        os._exit(0)


def _pid_of(pidfd: int) -> int:
    """The process behind a handle, or 0 if it is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        return max(next(int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)


def _end_below(pid: int) -> None:
    """End every process below one; again and again, for some may fork meanwhile, but not for ever."""
    for _ in range(100):
        waiting, found = [pid] if pid else [], list[int]()
        while waiting:
            with contextlib.suppress(OSError):
                below = _children(waiting.pop())
                found += below
                waiting += below
        if not [p for p in found if _kill(p)]:
            return


def _kill(pid: int) -> bool:
    """End a process; whether it still ran."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            ended = file.read().rpartition(")")[2].split()[0] in "ZX"
        if not ended:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return not ended


def _count_bytes(folder: str, pid: int, enough: int) -> int:
    """Level 2, where no mount bounds it: what a session's files take, those deleted but still open included."""
    total, seen, processes = _count_named(folder, enough), set[tuple[int, int]](), [pid]
    # Whatever can be gone by now is passed over alone: else one that comes and goes would hide what follows it.
    while processes and total <= enough:
        process = processes.pop()
        with contextlib.suppress(OSError):
            processes += _children(process)
            for name in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    found = os.stat(f"/proc/{process}/fd/{name}")
                    file = found.st_dev, found.st_ino
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and file not in seen:
                        seen.add(file)
                        total += found.st_blocks * 512
    return total


def _count_named(folder: str, enough: int) -> int:
    """What the files in a folder take; more than enough where that cannot be told."""
    total, folders = 0, [folder]
    while folders and total <= enough:
        path = folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        # A name takes room too: without its share, a million empty files would count for nothing.
                        total += max(entry.stat(follow_symlinks=False).st_blocks * 512, 4096)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                    if total > enough:
                        break
        except OSError as error:
            # One that can be filled but not be listed, or that lies too deep for a path, is there to hide something.
            if error.errno == errno.ENAMETOOLONG or os.access(path, os.W_OK | os.X_OK):
                return enough + 1
    return total


def _remove(folder: str) -> None:
    """Remove a folder that a session has filled: of any depth, with folders that forbid to be listed, and links."""
    # What lies deeper is moved up first: a walk by recursion, or by path, ends at some depth.
    waiting, moved = [folder], 0
    while waiting:
        at = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(at, 0o700)
            with os.scandir(at) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        moved += 1
                        waiting.append(f"{folder}.{moved}")
                        os.chmod(entry.path, 0o700)  # a folder can be moved only by who may write to it
                        os.rename(entry.path, waiting[-1])
                    else:
                        os.unlink(entry.path)
            os.rmdir(at)


def _children(pid: int | str = "self") -> list[int]:
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            found += [int(p) for p in file.read().split()]
    return found


def _take_socket(fd: int) -> None:
    """Descriptor 3 is the frame socket, 0 to 2 are nothing. It came first, so that no other that came with it is 3."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if fd != 3:
        os.dup2(fd, 3)


def _forget_the_host(scratch: str) -> None:
    os.environ.clear()
    os.environ.update(
        PATH="/usr/bin:/bin",
        HOME=scratch,
        TMPDIR=scratch,
        LANG="C.UTF-8",
        MPLBACKEND="agg",
        MPLCONFIGDIR=scratch,
        OPENBLAS_NUM_THREADS="1",
        OMP_NUM_THREADS="1",
        ETUDE_IN_SESSION="1",
    )
    sys.argv = [""]


def _open_way_out(sock: socket.socket, environment: dict[str, str]) -> None:
    """Hand the host a socket that listens in this session's own network, and have libraries turn to it.

    A socket stays in the network that it was made in: the host accepts from there, and the session needs no thread,
    no file and no socket of another kind to reach it.
    """
    with isolation.listen_inside() as listener:
        socket.send_fds(sock, [kernel.HEAD.pack(0, b"N"[0])], [listener.fileno()])
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ[name] = os.environ[name.lower()] = f"http://127.0.0.1:{isolation.PROXY_PORT}"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ""
    os.environ.update(environment)


if __name__ == "__main__":
    main()
