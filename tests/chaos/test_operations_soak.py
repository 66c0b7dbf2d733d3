"""Mixed load on a server and a worker for a while: memory, descriptors, processes, rows and files stay flat.

The short form runs with every test run; `CHAOS=long` (`make chaos`) goes on for two hours.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.chaos.soak import KEPT_MIN, WARM_UP, Installation, Load, fit, judge, sample, soak

from etude.runtime.session_pool import OPEN

LONG = os.environ.get("CHAOS") == "long"
ROUNDS = 60
NO_TIME = dict.fromkeys(KEPT_MIN, 0.01)
"""What ended a second ago is old."""


@pytest.mark.timeout(1800)
def test_nothing_grows(tmp_path: Path) -> None:
    installation = Installation(tmp_path, NO_TIME)
    load = Load(installation)
    try:
        load.open_sessions(OPEN)
        for number in range(ROUNDS):
            load.round(number)
        installation.prune()
        before = sample(installation, load, 0)
        for number in range(ROUNDS, 3 * ROUNDS):
            load.round(number)
        installation.prune()
        after = sample(installation, load, 1)
    finally:
        codes = installation.close()
    assert load.errors == []
    assert codes == [0, 0]
    for name in ("server", "worker"):
        assert after[f"{name}_mb"] <= before[f"{name}_mb"] + max(40, before[f"{name}_mb"] * 0.25)
        assert after[f"{name}_fds"] <= before[f"{name}_fds"] + 20
        assert after[f"{name}_processes"] <= before[f"{name}_processes"] + 8
    for name in before:
        # Unused artifacts wait for an hour before they are removed, so their rows grow in a test of minutes.
        if name.startswith("rows_") and name != "rows_unused_artifacts":
            # The runs of the last moments are kept; without pruning there would be hundreds of rows more.
            assert after[name] <= before[name] + 150, (name, before[name], after[name])


@pytest.mark.skipif(not LONG, reason="takes two hours: CHAOS=long")
@pytest.mark.timeout(9000)
def test_two_hours(tmp_path: Path) -> None:
    verdict = soak(tmp_path, 120, 1.0, tmp_path / "samples.tsv", WARM_UP, disk_from=85)
    assert verdict.good, "\n".join(map(str, verdict.fits))


def test_a_leak_is_told_from_noise() -> None:
    quiet = [(minute, 100.0 + (7 if minute % 10 == 0 else 0)) for minute in range(90)]
    assert fit("server_mb", quiet, 4.0, 0.05).flat
    assert not fit("server_mb", [(minute, value + minute / 5) for minute, value in quiet], 4.0, 0.05).flat


def test_what_grows_only_while_warm_is_flat() -> None:
    samples = [{"minute": float(m), "errors": 0.0, "server_mb": float(min(m, 30)), "files": 1.0} for m in range(120)]
    assert judge(samples, warm_up=30, disk_from=85).good
    assert not judge(samples[:31], warm_up=0, disk_from=20).good


def test_rows_are_compared_after_prunings() -> None:
    def sample(minute: int, per_hour: float) -> dict[str, float]:
        return {
            "minute": float(minute),
            "errors": 0.0,
            "rows_runs": 1000 + 50.0 * (minute % 10) + per_hour * minute / 60,
        }

    assert judge([sample(m, 0) for m in range(119)], warm_up=30, disk_from=85).good
    assert not judge([sample(m, 100) for m in range(119)], warm_up=30, disk_from=85).good
