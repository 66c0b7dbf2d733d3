"""The conformance suite holds over the local provider at both levels, and tells a bad provider by name."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from etude.entities import SessionLimits
from etude.sessions import check, isolation
from etude.sessions.base import Channel, Provider, SandboxSpec
from etude.sessions.check import CHECKS, check_sandbox
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

LEVEL = isolation.probe_isolation()[0]
RUN = """
import dataclasses, json
from etude.sessions import check, session
from etude.sessions.check import check_sandbox
from etude.sessions.local import LocalProvider
session.LOOK_S, session.GRACE_S, check.LATE_S = 2.0, 3.0, 120.0  # as `fairly_patient`
provider = LocalProvider(max_level=2)
for result in check_sandbox(provider):
    print(json.dumps(dataclasses.asdict(result)), flush=True)
provider.close()
"""

OPEN = """
import socket, sys
from etude.sessions import kernel
kernel.serve_kernel_cells(socket.socket(fileno=int(sys.argv[1])))
"""


def failures(results: list[dict[str, Any]]) -> list[str]:
    assert [r["name"] for r in results] == list(CHECKS)
    return [f"{r['name']}: {r['detail']}" for r in results if not r["ok"]]


@pytest.mark.skipif(LEVEL < 3, reason="this machine does not allow level 3")
@pytest.mark.usefixtures("fairly_patient")
def test_level_3_keeps_its_promises() -> None:
    provider = LocalProvider()
    try:
        assert failures([vars(r) for r in check_sandbox(provider)]) == []
    finally:
        provider.close()


@pytest.mark.skipif(LEVEL < 2, reason="this machine does not allow level 2")
def test_level_2_keeps_its_promises(everyones_python: Any) -> None:
    command = [everyones_python.path, "-c", RUN]
    done = subprocess.run(
        command, env=everyones_python.environment, capture_output=True, text=True, timeout=280, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr
    assert failures([json.loads(line) for line in done.stdout.splitlines()]) == []


class Open(Provider):
    """A provider that confines nothing, and says it does."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", OPEN, str(theirs.fileno())]
            self._processes.append(subprocess.Popen(command, pass_fds=[theirs.fileno()]))
        channel = Channel(ours, os.pidfd_open(self._processes[-1].pid), {"provider": "open", "level": 3})
        assert ours.recv(7)
        return channel

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", ["memory", "network", "files", "environment"])
def test_a_provider_that_confines_nothing_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "network" and os.getuid() != 0:
        pytest.skip("an unprivileged user lacks some of these sockets anyway")
    provider = Open()
    monkeypatch.setattr("etude.sessions.check.CHECKS", {name: CHECKS[name]})
    (result,) = check_sandbox(provider)
    assert not result.ok and "Error" not in result.detail.split(":")[0], result
    provider.close()


def test_a_provider_that_gives_too_little_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "isolation", {"provider": "x", "level": 1})
    monkeypatch.setattr("etude.sessions.check.CHECKS", {"isolation": CHECKS["isolation"]})
    provider = Open()
    (result,) = check_sandbox(provider)
    assert not result.ok and "too low" in result.detail
    provider.close()


@pytest.mark.skipif(LEVEL < 2, reason="this machine does not allow level 2")
@pytest.mark.parametrize(
    ("name", "why"), [("interrupt", "an interrupt took"), ("timeout", "a cell that ignores the interrupt ended after")]
)
@pytest.mark.usefixtures("fairly_patient")
def test_a_provider_that_ends_cells_late_fails(
    provider: LocalProvider, name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "LATE_S", -3.0)  # as if each had taken longer
    monkeypatch.setattr(check, "CHECKS", {name: CHECKS[name]})
    (result,) = check_sandbox(provider)
    assert not result.ok and why in result.detail, result
