"""The fork server: an interpreter with the libraries loaded, which forks a session on request.

It first enters its namespaces and its private root, and loads the libraries there. It never reads anything that a
session writes, so nothing a session sends can harm it. At level 3 it is the first process of its own process namespace:
when it ends, for whatever reason, the kernel ends every session with it.
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

from etude import process_confinement
from etude.sessions import cgroups, isolation, kernel
from etude.sessions.isolation import Confinement

MESSAGE = 1 << 16
DESCRIPTORS = 8
SWEEP_S = 0.2
NICE = 15
"""The priority of sessions: below that of engines, so that queries of others stay fast beside heavy cells."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def run_fork_server() -> None:
    """Start the server from the command line that `local.LocalForkServer` or `container.Container` builds."""
    parser = argparse.ArgumentParser()
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--control", type=int, help="an inherited socket to the host")
    way.add_argument("--connect", metavar="PATH", help="the host's socket, which first gets a report on this system")
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
            _watch_from_parent(control, config)
        _enter(config, control)
        for name in config["preload"]:
            with contextlib.suppress(ImportError):
                import_module(name)
        _widen_tables()
        server = ForkServer(control, config)
    except BaseException as error:
        control.send(json.dumps({"ok": False, "error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    server.serve()


def _widen_tables() -> None:
    """Show all columns of printed tables: no one scrolls sideways here, and a model cannot ask for the rest."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        for option, value in {"width": 240, "max_columns": 40, "max_colwidth": 80}.items():
            pandas.set_option(f"display.{option}", value)


def _raise_open_files() -> None:
    """Raise the limit of open files. The kernel compares the descriptors in flight of a user with the sender's limit:
    sessions, whose limit is lower, cannot stop this process from sending."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_watched(config: dict[str, Any]) -> bool:
    """True if this process can leave something behind that the kernel does not remove: files, processes or groups."""
    return config["level"] < 3 or bool(config.get("cgroups"))


def _watch_from_parent(control: socket.socket, config: dict[str, Any]) -> None:
    """Continue in a forked child. The parent stays outside the sandbox, waits for the child, and cleans up after it.

    It ends processes that sessions started if no namespace does, and removes files and control groups, which a killed
    host cannot remove.
    """
    isolation.adopt_orphaned_processes()
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
        cgroups.remove_cgroups(config["owner"], config["cgroups"])
    if config["scratch_root"]:
        shutil.rmtree(config["scratch_root"], ignore_errors=True)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _end_children() -> None:
    """End every descendant of this process, which adopts orphans as their parents end."""
    own = os.getpgrp()
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    # By group, which a session cannot leave: one by one, processes could fork faster than they die.
                    group = os.getpgid(pid)
                    os.kill(pid, signal.SIGKILL) if group == own else os.killpg(group, signal.SIGKILL)
            os.waitpid(-1, 0)


def _keep_to_parent(config: dict[str, Any]) -> None:
    """Die with the parent again: a change of the user id resets that.

    Not if the host itself is the parent: the kernel signals when the thread that started this process ends, even if
    the host lives on.
    """
    if _is_watched(config):
        isolation.die_with_parent()


def _describe_place() -> dict[str, Any]:
    """Return what the host cannot see from outside: the isolation level, the interpreter and the limits in force."""
    level, missing = isolation.probe_isolation()
    return {
        "level": level,
        "missing": missing,
        "python": [*sys.version_info[:2]],
        "readable": isolation.isolated_interpreter_paths(),
        "memory": _read_limit("memory.max", "memory/memory.limit_in_bytes"),
        "processes": _read_limit("pids.max", "pids/pids.max"),
        "trusted": isolation.isolated_certificate_paths(),
    }


def _read_limit(*names: str) -> int | None:
    """Return a limit of this control group by its file name in version 2 or 1; None if none is set."""
    for name in names:
        with contextlib.suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{name}", encoding="ascii") as file:
            found = int(file.read())
            return found if found < 1 << 60 else None
    return None


def _enter(config: dict[str, Any], control: socket.socket) -> None:
    """Enter the namespaces and the private root, or drop root, so that forked sessions start confined."""
    if config["level"] < 3:
        isolation.adopt_orphaned_processes()
        if os.getuid() == 0:
            needed = isolation.isolated_interpreter_paths()
            isolation.become_nobody()
            _keep_to_parent(config)
            for path in needed:
                if not os.access(path, os.R_OK | os.X_OK):
                    raise PermissionError(f"level 2 as root needs an interpreter that everyone may read, unlike {path}")
        return
    as_root = os.getuid() == 0
    uid, gid = os.getuid(), os.getgid()
    if as_root:
        isolation.enter_namespaces(isolation.NEWNS)
        isolation.build_private_root(config["readable"], config["data"], own_pids=False)
        isolation.become_nobody()
        _keep_to_parent(config)
        uid = gid = isolation.NOBODY
        isolation.enter_namespaces(isolation.NEWUSER | isolation.NEWPID)
    else:
        isolation.enter_namespaces(isolation.NEWUSER | isolation.NEWNS | isolation.NEWPID)
    isolation.map_namespace_ids(0, uid, gid)
    child = os.fork()
    if child:
        # The parent only waits; the child is the first process of the new namespace.
        control.close()
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    isolation.die_with_parent()
    if not as_root:
        isolation.build_private_root(config["readable"], config["data"], own_pids=True)


class ForkServer:
    """Forks sessions on request."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self._control = control
        self._config = config
        self._pid = os.getpid()
        self._level: int = config["level"]
        self._network: dict[str, str] | None = config.get("network")
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._filters = {
            allow_exec: isolation.build_seccomp_filter(
                allow_exec, self._level >= 3, allow_inet=self._network is not None
            )
            for allow_exec in (False, True)
        }
        self._sessions: dict[int, tuple[str, int]] = {}
        self._stopped = False
        if self._level >= 3:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps

    def serve(self) -> NoReturn:
        """Fork on request until the host closes the control socket."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._level < 3:
            # If the watching parent is killed, this process cleans up by itself and ends.
            signal.signal(signal.SIGTERM, self._stop)
            isolation.die_with_parent(signal.SIGTERM)
        # Before forking: every page that a session writes to is copied.
        _clear_environment(isolation.SCRATCH)
        gc.collect()
        gc.freeze()  # keeps loaded modules shared: the collector would write to all of their pages
        # The host can be killed in the middle of a request.
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
                # By the clock, not when idle: requests may come without a pause.
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
        """Signal a session on behalf of the host, which may not do so if the container runs as another user."""
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
            # It could not be confined, reported that on its own socket, and has ended.
            self._control.send(json.dumps({"ok": False, "error": "it ended at once"}).encode())
            return
        socket.send_fds(self._control, [json.dumps({"ok": True}).encode()], [pidfd])
        os.close(pidfd)

    def _clone(self) -> int:
        if self._level >= 3:
            # Create a process namespace for the next child, which is possible only from the original one.
            if _LIBC.setns(self._own_pids, isolation.NEWPID) != 0:
                raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
            isolation.enter_namespaces(isolation.NEWPID)
        return os.fork()

    def _become_session(self, request: dict[str, Any], cage: Confinement, fd: int, *group: int) -> NoReturn:
        try:
            _take_socket(fd)  # first, so that any later failure is reported on the right socket
            cgroups.join_cgroups(group)
            os.closerange(4, 65536)
            process_confinement.lower_process_priority(NICE)
            process_confinement.prefer_process_for_oom_kill()  # rather a session than the fork server
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            sock = socket.socket(fileno=3)
            scratch = self._confine(request, cage, sock)
            if scratch != isolation.SCRATCH:
                _clear_environment(scratch)
            isolation.apply_seccomp_filter(self._filters[cage.allow_exec])
        except BaseException as error:
            with contextlib.suppress(OSError):
                body = f"{type(error).__name__}: {error}".encode()
                os.write(3, kernel.HEAD.pack(len(body), b"F"[0]) + body)
            os._exit(1)
        try:
            kernel.serve_kernel_cells(sock)
        finally:
            os._exit(0)  # whatever user code does, a session must never continue as a fork server

    def _confine(self, request: dict[str, Any], cage: Confinement, sock: socket.socket) -> str:
        others = 0
        if self._level >= 3:
            isolation.enter_session_namespaces(cage, loopback=self._network is not None)
            if self._network is not None:
                # Before the limits: under them, descriptors in flight from other sessions could make this fail.
                _open_proxy_port(sock, self._network)
            scratch, readable, writable = isolation.SCRATCH, ["/"], [isolation.SCRATCH, "/tmp"]  # noqa: S108
        else:
            os.setsid()  # the filter lets no process leave this group, so one signal ends all of them
            isolation.die_with_parent(parent=self._pid)
            others = isolation.count_tasks_of_isolated_user(os.getuid())
            scratch = request["scratch"]
            os.mkdir(scratch, 0o700)
            readable, writable = [*self._config["readable"], *self._config["data"]], [scratch]
        os.chdir(scratch)
        isolation.limit_isolated_session(cage, others)
        allow_tcp = self._network is not None
        if not process_confinement.confine_process_paths(
            readable, [*writable, "/dev/null"], scoped=True, allow_tcp=allow_tcp
        ):
            raise OSError("Landlock refused the rules")
        isolation.drop_capabilities()
        return scratch

    def _sweep(self) -> None:
        """Level 2: end orphans and leftovers of ended sessions, and sessions whose files take too much space."""
        for pid in _children():
            if pid not in self._sessions:
                # An orphan that a session left running.
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
        """Level 2: end all processes of a session, then reap it. Until it is reaped, its id cannot be reused."""
        scratch, _ = self._sessions.pop(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # a session that has just started may not lead a group yet
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
    """Return the process id of a handle, or 0 if the process has ended."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        return max(next(int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)


def _end_below(pid: int) -> None:
    """End every descendant of a process. Repeat up to 100 times, since descendants may fork meanwhile."""
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
    """Kill a process; return True if it was still running."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            ended = file.read().rpartition(")")[2].split()[0] in "ZX"
        if not ended:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return not ended


def _count_bytes(folder: str, pid: int, enough: int) -> int:
    """Level 2, without a mount of limited size: return the bytes of all files, including deleted ones still open."""
    total, seen, processes = _count_named(folder, enough), set[tuple[int, int]](), [pid]
    # Skip each vanished process or file on its own: otherwise a short-lived one would hide those that follow it.
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
    """Return the bytes that the files in a folder take; more than `enough` if they cannot be counted."""
    total, folders = 0, [folder]
    while folders and total <= enough:
        path = folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        # A directory entry takes space too: otherwise a million empty files would count as nothing.
                        total += max(entry.stat(follow_symlinks=False).st_blocks * 512, 4096)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                    if total > enough:
                        break
        except OSError as error:
            # A folder that can be written to but not listed, or is nested too deep for a path, may hide files.
            if error.errno == errno.ENAMETOOLONG or os.access(path, os.W_OK | os.X_OK):
                return enough + 1
    return total


def _remove(folder: str) -> None:
    """Remove the folder of a session, however deep it is, including links and folders without read permission."""
    # Nested folders are moved up first: recursion and path names have a maximum depth.
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
                        os.chmod(entry.path, 0o700)  # moving a folder needs write permission on it
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
    """Make the frame socket descriptor 3, and open 0 to 2 on /dev/null.

    The socket is the first descriptor that arrived, so none of the others is 3.
    """
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if fd != 3:
        os.dup2(fd, 3)


def _clear_environment(scratch: str) -> None:
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


def _open_proxy_port(sock: socket.socket, environment: dict[str, str]) -> None:
    """Send the host a socket that listens in this session's own network, and set the proxy variables to it.

    A socket stays in the network namespace it was created in: the host accepts connections from there, and the session
    needs no thread, file or Unix socket to reach the proxy.
    """
    with isolation.listen_in_namespace() as listener:
        socket.send_fds(sock, [kernel.HEAD.pack(0, b"N"[0])], [listener.fileno()])
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ[name] = os.environ[name.lower()] = f"http://127.0.0.1:{isolation.PROXY_PORT}"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ""
    os.environ.update(environment)


if __name__ == "__main__":
    run_fork_server()
