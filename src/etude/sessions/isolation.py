"""The isolation of a session: namespaces, a private root, Landlock, seccomp, limits, capabilities, end with its parent.

There are two levels. Level 3 puts a session into its own namespaces, under a root that holds only an interpreter.
Level 2 is for systems that forbid new namespaces, such as a container: Landlock allows each path that may be read, and
seccomp forbids sockets, signals and programs. Below level 2, no session starts.

Supports Linux on x86-64 and arm64. All system calls go through libc with ctypes, so no compiled code is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

from etude import process_confinement
from etude.errors import SandboxError

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000,
    0x2000000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
NOBODY = 65534
INSIDE_UID = 1000
SCRATCH = "/scratch"
PROXY_PORT = 3128
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_RESERVE = 1 << 30
_PENDING = 256  # pending signals and timers; at level 2, all processes of the user share this limit
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Denied(OSError):
    """The system refused a step of the isolation."""


def _call(name: str, *args: object) -> int:
    result = int(getattr(_LIBC, name)(*args))
    if result < 0:
        code = ctypes.get_errno()
        raise Denied(code, f"{name}: {os.strerror(code)}")
    return result


def enter_namespaces(flags: int) -> None:
    """Enter new namespaces."""
    _call("unshare", ctypes.c_int(flags))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def _write(path: str, text: str) -> None:
    # In bytes: text mode may import a codec from a path that this process may no longer read.
    with open(path, "wb") as file:
        file.write(text.encode())


def map_namespace_ids(inside: int, outside_uid: int, outside_gid: int) -> None:
    """Map the ids of a new user namespace: this process has id `inside` there, and keeps its ids outside."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inside} {outside_uid} 1")
    _write("/proc/self/gid_map", f"{inside} {outside_gid} 1")


# -- what this machine allows


_PROBE_S = 60.0  # how long a lower level is believed: a probe may fail because the machine is short of something
_probed: list[tuple[float, tuple[int, list[str]]]] = []


def probe_isolation() -> tuple[int, list[str]]:
    """Return the best isolation level on this system, and what is missing for a better one.

    The best level is found once. A lower one is tried again after a minute, so that a probe that failed once does not
    lower the isolation of a server for its life.
    """
    if not _probed or (_probed[-1][1][0] < 3 and time.monotonic() - _probed[-1][0] > _PROBE_S):
        _probed[:] = [(time.monotonic(), _find_level())]
    return _probed[-1][1]


def _find_level() -> tuple[int, list[str]]:
    if sys.platform != "linux" or seccomp_machine() is None:
        return 1, ["Linux on x86-64 or arm64: on other systems, use a container"]
    if process_confinement.process_landlock_abi() < 1:
        return 1, ["Landlock: Linux 5.13 or newer with Landlock enabled"]
    # A library may start threads in every child (lancedb does), and a process with threads cannot enter a namespace.
    if ("lancedb" not in sys.modules and can_isolate()) or _can_isolate_afresh():
        return 3, []
    missing = ["user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, or a container that allows them"]
    if process_confinement.process_landlock_abi() < 6:
        # Without a process namespace, only the scopes of Landlock keep a session from signalling other sessions.
        return 1, [*missing, "Landlock ABI 6 (Linux 6.12), which level 2 needs"]
    return 2, missing


def can_isolate() -> bool:
    """Try the steps of level 3 in a child process: some containers allow namespaces but no /proc of one's own."""
    outer = os.fork()
    if outer == 0:
        try:
            if os.getuid() == 0:
                enter_namespaces(NEWNS)
                become_nobody()
            uid, gid = os.getuid(), os.getgid()
            enter_namespaces(NEWUSER | NEWNS | NEWPID)
            map_namespace_ids(0, uid, gid)
            inner = os.fork()
            if inner == 0:
                enter_namespaces(NEWNS | NEWNET | NEWIPC | NEWUTS | NEWCGROUP)
                _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
                _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "subset=pid")
                os._exit(0)
            os._exit(os.waitpid(inner, 0)[1] != 0)
        finally:
            os._exit(1)
    return os.waitpid(outer, 0)[1] == 0


def _can_isolate_afresh() -> bool:
    """Try the same in a new process, which has loaded nothing else."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import can_isolate; sys.exit(not can_isolate())"
    with process_confinement.explained_interpreter_start(SandboxError):
        return (
            subprocess.run([sys.executable, "-E", "-s", "-c", code], capture_output=True, check=False).returncode == 0
        )


def isolated_interpreter_paths() -> list[str]:
    """Return the folders of this interpreter, its libraries and etude.

    Not all of `sys.path`: its first entry is the folder of the script that was started, with all of its files.
    """
    libraries = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    found = [
        sys.prefix,
        sys.base_prefix,
        os.path.dirname(os.__file__),
        *libraries,
        os.path.dirname(process_confinement.__file__),
    ]
    return [p for p in dict.fromkeys(found) if os.path.exists(p) and os.path.realpath(p) != "/"]


def isolated_certificate_paths() -> dict[str, str]:
    """Return the paths of the trusted certificates, by the environment variables that OpenSSL reads them from."""
    import ssl

    found = ssl.get_default_verify_paths()
    named = {found.openssl_cafile_env: found.cafile, found.openssl_capath_env: found.capath}
    return {name: path for name, path in named.items() if path}


def count_tasks_of_isolated_user(uid: int) -> int:
    """Return how many processes and threads a user has."""
    found = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                found += len(os.listdir(f"/proc/{name}/task"))
    return found


# -- the private root


def build_private_root(
    readable: list[str],
    data: dict[str, str],
    own_pids: bool,
    writable: dict[str, tuple[str, int]] | None = None,
    empty: dict[str, int] | None = None,
) -> None:
    """Replace the root of this mount namespace by one that holds only what a session may read.

    Paths in `readable` stay the same; `data` maps folders and files of the host to their paths in the session. So does
    `writable`, but the session gets a copy in memory, which may grow to the given bytes. `empty` are folders for
    temporary files, each with its size in bytes.
    """
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    root = _free_mount_point([*readable, *data, *(at for at, _ in (writable or {}).values()), *_SYSTEM])
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=2m,mode=755")
    for at, size in (empty or {}).items():
        os.makedirs(root + at, exist_ok=True)
        _mount("tmpfs", root + at, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},mode=1777")
    for path in (*_SYSTEM, *_without_nested(readable)):
        _bind_mount(path, root + path, noexec=False)
    for path in _DEVICES:
        _bind_mount(path, root + path, noexec=False, device=True)
    for path, (at, size) in (writable or {}).items():
        os.makedirs(root + at, exist_ok=True)
        _mount("tmpfs", root + at, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},nr_inodes=1m,mode=755")
        _copy_folder(path, root + at, owners=not own_pids)
    for path, at in data.items():
        _bind_mount(os.path.realpath(path), root + at, noexec=True)
    for name in ("proc", SCRATCH[1:], "tmp"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    _write(f"{root}/etc/passwd", f"user:x:{INSIDE_UID}:{INSIDE_UID}::{SCRATCH}:/bin/false\n")
    if own_pids:
        _mount("proc", f"{root}/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    else:
        # The kernel lets a session mount its own proc only if a complete one is already visible.
        _mount("/proc", f"{root}/proc", "", _MS_BIND | _MS_REC)
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")
    _mount("none", "/", "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _copy_folder(source: str, target: str, owners: bool) -> None:
    import shutil

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    for place, folders, names in os.walk(source) if owners else ():
        for name in ("", *folders, *names):
            found = os.lstat(os.path.join(place, name))
            at = os.path.join(target, os.path.relpath(os.path.join(place, name), source))
            os.chown(at, found.st_uid, found.st_gid, follow_symlinks=False)


def _free_mount_point(needed: list[str]) -> str:
    for path in ("/mnt", "/media", "/srv", "/opt", "/sys"):
        if os.path.isdir(path) and not any(n == path or n.startswith(f"{path}/") for n in needed):
            return path
    raise Denied(errno.ENOENT, "no folder is free to mount the private root on")


def _without_nested(paths: list[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted({os.path.realpath(p) for p in paths} | set(paths)):
        covered = [*kept, "/usr", "/lib", "/lib64", "/bin"]
        if os.path.exists(path) and not any(path == k or path.startswith(f"{k}/") for k in covered):
            kept.append(path)
    return kept


def _bind_mount(source: str, target: str, noexec: bool, device: bool = False, read_only: bool = True) -> None:
    if os.path.islink(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a", encoding="ascii"):
            pass
    else:
        return
    _mount(source, target, "", _MS_BIND | _MS_REC)
    flags = _MS_NOSUID | (0 if device else _MS_NODEV) | (_MS_NOEXEC if noexec else 0)
    flags |= _MS_RDONLY if read_only else 0
    # A bind mount takes the flags of its source. A remount would change only the topmost mount and leave mounts below
    # it writable. mount_setattr changes all of them, and only adds flags; its first four have the same values.
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    _call(
        "syscall",
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


# -- one session


@dataclass(frozen=True)
class Confinement:
    """The limits of one session that the kernel enforces."""

    memory: int
    processes: int
    open_files: int
    scratch: int
    cpu_s: int
    allow_exec: bool


def enter_session_namespaces(cage: Confinement, loopback: bool = False) -> None:
    """Level 3, in the forked child: enter new namespaces for mounts, network, host name, shared memory and ids."""
    uid, gid = os.getuid(), os.getgid()
    enter_namespaces(NEWNS | NEWNET | NEWIPC | NEWUTS | NEWCGROUP)
    if loopback:
        raise_namespace_loopback()  # now: in its own user namespace, the session may not configure the network
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "subset=pid")
    size = f"size={cage.scratch},nr_inodes=4096,mode=700"
    _mount("tmpfs", SCRATCH, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, size)
    if not os.listdir("/tmp"):  # noqa: S108 - this would hide an interpreter in /tmp
        _mount(SCRATCH, "/tmp", "", _MS_BIND)  # noqa: S108 - for libraries that ignore TMPDIR
    with contextlib.suppress(Denied):  # a container may refuse this, but has its own host name
        _call("sethostname", b"session", 7)
    enter_namespaces(NEWUSER)
    map_namespace_ids(INSIDE_UID, uid, gid)


def mount_proc() -> None:
    """Mount the processes of this process's own namespace on /proc."""
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def raise_namespace_loopback() -> None:
    """Start the loopback interface of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))


def listen_in_namespace() -> socket.socket:
    """Return a socket that listens in this process's network, even if another process accepts from it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(64)
    return listener


def limit_isolated_session(cage: Confinement, other_tasks: int = 0) -> None:
    """Set the resource limits of the session's processes.

    The kernel also counts `other_tasks` of the same user towards the limit of processes.
    """
    with open("/proc/self/statm", "rb") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    for kind, value in (
        # Not 0: unlike 0, a size of 1 also stops core dumps that are piped to a program of the host.
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_DATA, cage.memory),
        # RLIMIT_DATA limits private memory only. The address space limits shared memory too, and leaves room for
        # what allocators and threads reserve but do not use.
        (resource.RLIMIT_AS, mapped + 2 * cage.memory + _RESERVE),
        (resource.RLIMIT_NPROC, cage.processes + other_tasks),
        (resource.RLIMIT_NOFILE, cage.open_files),
        (resource.RLIMIT_FSIZE, cage.scratch),
        (resource.RLIMIT_CPU, cage.cpu_s),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_SIGPENDING, _PENDING),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))


def drop_capabilities() -> None:
    """Drop all capabilities permanently."""
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = ctypes.create_string_buffer(struct.pack("II", 0x20080522, 0))
    found = ctypes.create_string_buffer(24)
    # A service may have no capabilities, and no right to call `capset` either (systemd's `~@privileged`).
    if _LIBC.capget(header, found) != 0 or any(found.raw):
        _call("capset", header, ctypes.create_string_buffer(24))


def become_nobody() -> None:
    """Change from root to the user `nobody` permanently; the process can still write its own id maps."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have the kernel send this process a signal when its parent ends; at once if it has already ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphaned_processes() -> None:
    """Become the parent of orphaned descendants, so that this process can end them."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# -- seccomp


@dataclass(frozen=True)
class _Machine:
    audit: int
    newest: int
    """The highest known call number. Calls above it fail with `ENOSYS`."""
    numbers: dict[str, int]


_X86 = _Machine(
    0xC000003E,
    462,
    dict(
        mount=165, umount2=166, pivot_root=155, chroot=161, unshare=272, setns=308, ptrace=101,
        process_vm_readv=310, process_vm_writev=311, bpf=321, perf_event_open=298, userfaultfd=323, keyctl=250,
        add_key=248, request_key=249, kexec_load=246, kexec_file_load=320, init_module=175, finit_module=313,
        delete_module=176, reboot=169, swapon=167, swapoff=168, sethostname=170, setdomainname=171, iopl=172,
        ioperm=173, acct=163, quotactl=179, quotactl_fd=443, open_by_handle_at=304, name_to_handle_at=303,
        fanotify_init=300, fanotify_mark=301, io_uring_setup=425, io_uring_enter=426, io_uring_register=427,
        open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433, mount_setattr=442,
        pidfd_getfd=438, settimeofday=164, clock_settime=227, adjtimex=159, clock_adjtime=305, syslog=103,
        vhangup=153, kcmp=312, mknod=133, mknodat=259, modify_ldt=154, uselib=134, personality=135,
        memfd_secret=447, process_madvise=440, lookup_dcookie=212, nfsservctl=180, migrate_pages=256,
        move_pages=279, mbind=237, set_mempolicy=238, get_mempolicy=239, vmsplice=278, execve=59, execveat=322,
        clone=56, clone3=435, socket=41, ioctl=16, landlock_create_ruleset=444, setuid=105, setgid=106,
        setreuid=113, setregid=114, setresuid=117, setresgid=119, setgroups=116, capset=126, statmount=457,
        listmount=458, shmget=29, shmat=30, semget=64, msgget=68, mq_open=240, mq_unlink=241, socketpair=53,
        mmap=9, memfd_create=319, prlimit64=302, setrlimit=160, prctl=157, chmod=90, fchmod=91, chown=92,
        fchown=93, lchown=94, fchmodat=268, fchownat=260, fchmodat2=452, utime=132, utimes=235, futimesat=261,
        utimensat=280, setxattr=188, lsetxattr=189, fsetxattr=190, removexattr=197, lremovexattr=198,
        fremovexattr=199, inotify_init=253, inotify_init1=294, setpriority=141, ioprio_set=251,
        sched_setparam=142, sched_setscheduler=144, sched_setaffinity=203, sched_setattr=314, setsid=112,
        setpgid=109, connect=42, bind=49, fcntl=72, sync=162, syncfs=306, io_setup=206, sendmsg=46, sendmmsg=307,
        setsockopt=54, getsockopt=55, flock=73,
    ),
)  # fmt: skip
_ARM = _Machine(
    0xC00000B7,
    462,
    dict(
        mount=40, umount2=39, pivot_root=41, chroot=51, unshare=97, setns=268, ptrace=117, process_vm_readv=270,
        process_vm_writev=271, bpf=280, perf_event_open=241, userfaultfd=282, keyctl=219, add_key=217,
        request_key=218, kexec_load=104, kexec_file_load=294, init_module=105, finit_module=273,
        delete_module=106, reboot=142, swapon=224, swapoff=225, sethostname=161, setdomainname=162, acct=89,
        quotactl=60, quotactl_fd=443, open_by_handle_at=265, name_to_handle_at=264, fanotify_init=262,
        fanotify_mark=263, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, open_tree=428,
        move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433, mount_setattr=442, pidfd_getfd=438,
        settimeofday=170, clock_settime=112, adjtimex=171, clock_adjtime=266, syslog=116, vhangup=58, kcmp=272,
        mknodat=33, personality=92, memfd_secret=447, process_madvise=440, lookup_dcookie=18, nfsservctl=42,
        migrate_pages=238, move_pages=239, mbind=235, set_mempolicy=237, get_mempolicy=236, vmsplice=75,
        execve=221, execveat=281, clone=220, clone3=435, socket=198, ioctl=29, landlock_create_ruleset=444,
        setuid=146, setgid=144, setreuid=145, setregid=143, setresuid=147, setresgid=149, setgroups=159,
        capset=91, statmount=457, listmount=458, shmget=194, shmat=196, semget=190, msgget=186, mq_open=180,
        mq_unlink=181, socketpair=199, mmap=222, memfd_create=279, prlimit64=261, setrlimit=164, prctl=167,
        fchmod=52, fchmodat=53, fchownat=54, fchown=55, fchmodat2=452, utimensat=88, setxattr=5, lsetxattr=6,
        fsetxattr=7, removexattr=14, lremovexattr=15, fremovexattr=16, inotify_init1=26, setpriority=140,
        ioprio_set=30, sched_setparam=118, sched_setscheduler=119, sched_setaffinity=122, sched_setattr=274,
        setsid=157, setpgid=154, connect=203, bind=200, fcntl=25, sync=81, syncfs=267, io_setup=0, sendmsg=211,
        sendmmsg=269, setsockopt=208, getsockopt=209, flock=32,
    ),
)  # fmt: skip
_MACHINES = {"x86_64": _X86, "aarch64": _ARM}
_BY_ARGUMENT = frozenset(
    {"clone", "clone3", "socket", "socketpair", "ioctl", "execve", "execveat", "mmap", "prctl", "prlimit64"}
    | {"setrlimit", "fcntl", "flock", "setsockopt", "getsockopt"}
)
# Refused if a session shares the host's files and processes. Landlock does not protect the modes, owners, times and
# attributes of files, or the limits and priorities of processes: a session that runs as their owner could change them.
# Processes must not leave their group, because a session is ended by killing the group.
_IF_SHARED = frozenset(
    {"chmod", "fchmod", "chown", "fchown", "lchown", "fchmodat", "fchownat", "fchmodat2", "utime", "utimes"}
    | {"futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr"}
    | {"fremovexattr", "setpriority", "ioprio_set", "sched_setparam", "sched_setscheduler"}
    | {"sched_setaffinity", "sched_setattr", "setsid", "setpgid"}
)
# Programs in their own namespaces may also use these: browsers and servers do.
_FOR_PROGRAMS = frozenset(
    {"bind", "connect", "sendmsg", "sendmmsg", "inotify_init", "inotify_init1", "memfd_create", "semget", "shmat"}
    | {"shmget", "sync", "syncfs", "setgid", "setuid", "setregid", "setreuid", "setresgid", "setresuid", "setgroups"}
    | {"personality", "get_mempolicy", "set_mempolicy", "mbind", "msgget", "mq_open", "mq_unlink", "kcmp"}
)
_AF_UNIX, _SOL_SOCKET = 1, 1
_SOCK_DGRAM_BIT = 2  # set in SOCK_DGRAM and SOCK_RAW, but not in SOCK_STREAM and SOCK_SEQPACKET
# The settings and size of a terminal (TCGETS, TIOCGWINSZ, TCGETS2), which libraries ask for to find out that there is
# none; the number of bytes to read (FIONREAD); blocking mode and inheritance (FIONBIO, FIONCLEX, FIOCLEX).
_IOCTLS = (0x5401, 0x5413, 0x802C542A, 0x541B, 0x5421, 0x5450, 0x5451)
# By number, because not every system has all the names. To set: reuse of addresses and ports, keep-alive, linger,
# urgent data, buffer sizes and timeouts. To get: also the error, the type, the family and whether the socket listens.
_SET_OPTIONS = (2, 15, 9, 13, 10, 7, 8, 20, 21)
_GET_OPTIONS = (*_SET_OPTIONS, 4, 3, 30, 38, 39)
_TCP_OPTIONS = (1, 2, 4, 5, 6, 9, 18, 23)  # no delay, segment size, keep-alive, defer accept, user timeout, fast open
_IPV6_V6ONLY = 26
_NOT_STREAM_BITS = 2 | 4 | 8  # the stream type is 1; every other type has one of these
_F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ = 1024, 1026, 1031
_MAP_HUGETLB = 0x40000
_ANY_NEW = NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_LOAD, _JEQ, _JGT, _JSET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2, _ARG2_HIGH, _ARG3 = 0, 4, 16, 24, 32, 36, 40
_Instruction = tuple[int, int, int, int]


def seccomp_machine() -> _Machine | None:
    """Return the system call numbers of this processor, or None if it is not supported."""
    return _MACHINES.get(platform.machine())


def build_seccomp_filter(allow_exec: bool, alone: bool, allow_inet: bool) -> bytes:
    """Build a seccomp program: dangerous calls fail, unknown calls are not implemented, all others are allowed.

    `alone` means that the session has its own namespaces; otherwise more calls are refused.
    """
    found = seccomp_machine()
    if found is None:
        raise Denied(errno.ENOSYS, f"no seccomp table for {platform.machine()}")
    numbers = found.numbers
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, found.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JGT, 0, 1, found.newest),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    allowed = _BY_ARGUMENT - (frozenset() if allow_exec else {"execve", "execveat"})
    allowed |= _IF_SHARED if alone else frozenset()
    # A filter cannot see whether a message carries descriptors. Between the pairs of a session without a network they
    # are all that `sendmsg` adds to `send` and `writev`; over TCP, which carries none, libraries send by it.
    allowed |= {"connect", "bind", "sendmsg"} if allow_inet else frozenset()
    for name, number in numbers.items():
        if name not in allowed:
            code += _refuse(number, errno.EPERM)
    # A filter cannot read the flags of clone3, which are behind a pointer. After ENOSYS, libc falls back to clone.
    code += _refuse(numbers["clone3"], errno.ENOSYS)
    code += _refuse(numbers["clone"], errno.EPERM, (_ARG0, "any", _ANY_NEW))
    # No Unix sockets either: a session could connect to a socket file in a mounted folder, even a read-only one. Pairs
    # are allowed, except datagram pairs, which can send to any socket file, and families that load a kernel module.
    families = [2, 10] if allow_inet else []
    code += _refuse(numbers["socket"], errno.EAFNOSUPPORT, *((_ARG0, "not", family) for family in families))
    # Of the inet families only TCP: the proxy needs no other protocol, and others could load kernel modules.
    code += _refuse(numbers["socket"], errno.EAFNOSUPPORT, (_ARG1, "any", _NOT_STREAM_BITS))
    code += _refuse(numbers["socket"], errno.EAFNOSUPPORT, (_ARG2, "not", 0), (_ARG2, "not", socket.IPPROTO_TCP))
    code += _refuse(numbers["socketpair"], errno.EAFNOSUPPORT, (_ARG0, "not", _AF_UNIX))
    code += _refuse(numbers["socketpair"], errno.EAFNOSUPPORT, (_ARG1, "any", _SOCK_DGRAM_BIT))
    # The frame socket was created in the host's network, whatever network the session is in. An ioctl on it would
    # reveal the interfaces of that network, and its options the process at the other end. Other files have ioctls of
    # their own. The kernel uses only the lower half of a command, which is also the half that this filter compares.
    code += _refuse(numbers["ioctl"], errno.ENOTTY, *((_ARG1, "not", command) for command in _IOCTLS))
    code += _allow_options(numbers["setsockopt"], _SET_OPTIONS, allow_inet)
    code += _allow_options(numbers["getsockopt"], _GET_OPTIONS, allow_inet)
    # A lease on a file blocks its writers, even if the session may only read it. Notifications, like inotify, and pipe
    # pages have limits per user, which all sessions share, whatever their namespaces.
    for command in (_F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ):
        code += _refuse(numbers["fcntl"], errno.EPERM, (_ARG1, "is", command))
    # flock is refused: it gives an exclusive lock on a file that the session may only read, and so blocks its writers.
    # Libraries take this error for a file system without locks. Record locks are allowed: on a file that a session may
    # only read they are shared, and databases need them for their own files, which a filter cannot tell from others.
    code += _refuse(numbers["flock"], errno.ENOSYS)
    # Huge pages come from a pool of the whole machine, which no limit of a process covers.
    code += _refuse(numbers["mmap"], errno.EPERM, (_ARG3, "any", _MAP_HUGETLB))
    # The limit on core dumps must not change: 0 would allow piped dumps again (see `limit_isolated_session`).
    code += _refuse(numbers["setrlimit"], errno.EPERM, (_ARG0, "is", resource.RLIMIT_CORE))
    for half in (_ARG2, _ARG2_HIGH):
        code += _refuse(numbers["prlimit64"], errno.EPERM, (_ARG1, "is", resource.RLIMIT_CORE), (half, "not", 0))
    if not alone:
        code += _refuse(numbers["prlimit64"], errno.EPERM, (_ARG0, "not", 0))
        # PR_SET_DUMPABLE would hide the open files of a session, whose sizes are counted.
        for option in (_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE):
            code += _refuse(numbers["prctl"], errno.EPERM, (_ARG0, "is", option))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def build_program_seccomp_filter() -> bytes:
    """Build a seccomp program for programs of all kinds in namespaces of their own: only system-wide calls fail.

    They may use sockets, signals and files, all of which are those of their namespaces.
    """
    found = seccomp_machine()
    if found is None:
        raise Denied(errno.ENOSYS, f"no seccomp table for {platform.machine()}")
    code: list[_Instruction] = [(_LOAD, 0, 0, _ARCH), (_JEQ, 1, 0, found.audit), (_RETURN, 0, 0, _KILL)]
    code += [(_LOAD, 0, 0, _NUMBER), (_JGT, 0, 1, found.newest), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name, number in found.numbers.items():
        if name not in _BY_ARGUMENT | _IF_SHARED | _FOR_PROGRAMS:
            code += _refuse(number, errno.EPERM)
    code += _refuse(found.numbers["clone3"], errno.ENOSYS)
    code += _refuse(found.numbers["clone"], errno.EPERM, (_ARG0, "any", _ANY_NEW))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _allow_options(number: int, options: tuple[int, ...], allow_inet: bool) -> list[_Instruction]:
    """Refuse all socket options except those listed and, with a network, some of TCP and IPv6."""
    levels = (_SOL_SOCKET, *((socket.IPPROTO_TCP, socket.IPPROTO_IPV6) if allow_inet else ()))
    code = _refuse(number, errno.ENOPROTOOPT, *((_ARG1, "not", level) for level in levels))
    for level, known in (
        (_SOL_SOCKET, options),
        (socket.IPPROTO_TCP, _TCP_OPTIONS),
        (socket.IPPROTO_IPV6, (_IPV6_V6ONLY,)),
    ):
        tests = ((_ARG2, "not", option) for option in known)
        code += _refuse(number, errno.ENOPROTOOPT, (_ARG1, "is", level), *tests)
    return code


def _refuse(number: int, error: int, *tests: tuple[int, str, int]) -> list[_Instruction]:
    """Fail a call with an error if all tests of its arguments hold; otherwise continue with the next rule."""
    code: list[_Instruction] = [(_JEQ, 0, 2 * len(tests) + 1 + bool(tests), number)]
    for position, (offset, kind, value) in enumerate(tests):
        away = 2 * (len(tests) - position) - 1
        jump = _JSET if kind == "any" else _JEQ
        code += [(_LOAD, 0, 0, offset), (jump, away, 0, value) if kind == "not" else (jump, 0, away, value)]
    code.append((_RETURN, 0, 0, _ERRNO | error))
    return [*code, (_LOAD, 0, 0, _NUMBER)] if tests else code


def apply_seccomp_filter(program: bytes) -> None:
    """Apply the filter to this process and all processes it starts from now on."""
    process_confinement.refuse_new_process_privileges()
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _call("prctl", 22, ctypes.c_ulong(2), ctypes.create_string_buffer(header), 0, 0)
