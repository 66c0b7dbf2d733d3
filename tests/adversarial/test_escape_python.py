"""Code in a session cannot reach files, processes, networks or secrets that it was not given, at either level."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude.sessions import isolation

from .attack import read_battery

pytestmark = pytest.mark.timeout(900)  # the first test of a level makes every attempt

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("REFERENCE_DATA", HERE.parents[2] / "shared" / "data")).parent / "batteries"
BATTERIES = [p for p in (SHARED / "escape_python.txt", HERE / "python.txt") if p.exists()]
ATTEMPTS = [attempt.id for battery in BATTERIES for attempt in read_battery(battery)]
# Known and accepted breaches by level: they reveal little, or cross no security boundary.
ACCEPTED = {
    3: {
        "B04": "memory per process and the number of processes are limited; only a control group limits the sum",
        "I02": "the list of mounts names the folders that were given; libraries need /proc/self",
    },
    2: {
        "B04": "as at level 3",
        "B19": "the size of a deleted file that is only mapped cannot be measured; it is freed with the session",
        "P61": "DuckDB reads the limits of the control group, and fails if it may not",
        "X04": "Landlock does not control the mapping of a file; native code can be created in memory anyway",
        "I01": "without a namespace the host name is visible",
        "I03": "Landlock does not control stat, which shows that a file exists, and its size",
        "I04": "Landlock does not control stat, which shows that a process exists",
    },
}


def attack(level: int, python: str, environment: dict[str, str]) -> dict[str, Any]:
    """Return the result of each attempt, and under `left` the processes and files that were left behind."""
    command = [python, str(HERE / "attack.py"), str(level), *map(str, BATTERIES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, cwd="/", check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {said["id"]: said for said in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def level_3() -> dict[str, Any]:
    level, missing = isolation.probe_isolation()
    if level < 3:
        pytest.skip(f"level 3 is not available here: {missing}")
    return attack(3, sys.executable, dict(os.environ))


@pytest.fixture(scope="module")
def level_2(request: pytest.FixtureRequest) -> dict[str, Any]:
    level, missing = isolation.probe_isolation()
    if level < 2:
        pytest.skip(f"level 2 is not available here: {missing}")
    python = request.getfixturevalue("everyones_python")
    return attack(2, python.path, python.environment)


@pytest.mark.parametrize("level", [3, 2])
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_gets_nothing(attempt: str, level: int, request: pytest.FixtureRequest) -> None:
    said = request.getfixturevalue(f"level_{level}")[attempt]
    if attempt in ACCEPTED[level]:
        # It may reveal something, if the kernel allows it; it may not harm the host.
        assert not said["breach"] or "ESCAPED" in said["breach"], said
    else:
        assert not said["breach"], said


@pytest.mark.parametrize("level", [3, 2])
def test_nothing_is_left_behind(level: int, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(f"level_{level}")["left"]["left"] == []
