"""The wheel in a clean environment, as a newcomer installs it: what the README and the tutorial show works there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.readme import README, missing_lines
from tests.test_docs import ROOT, blocks, follow_tutorial, port

__all__ = ["port"]
EXTRAS = {
    "serve shop --port 0": "etude[server]",
    "mcp": "etude[server]",
    "ask shop hello --model openai:gpt-5": "etude[models]",
    "sql postgresql://reader@localhost/x SELECT": "etude[postgres]",
    "sql mysql://reader@localhost/x SELECT": "etude[mysql]",
    "sql shop FROM(orders) --output orders.xlsx": "etude[excel]",
}
"""Commands that need more than the core, and the extra that they name."""


def uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = shutil.which("uv") or (str(beside) if beside.exists() else None)
    assert found is not None, "`make setup` installs uv"
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([uv(), "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True, timeout=240)
    return next(folder.glob("*.whl"))


def install(wheel: Path, extras: str, folder: Path) -> Path:
    """Return the folder of programs of a new environment with nothing but the wheel and its requirements."""
    subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, folder], check=True, timeout=240)
    target = f"etude{extras} @ {wheel.as_uri()}"
    command = [uv(), "pip", "install", "--quiet", "--python", folder / "bin" / "python", target]
    subprocess.run(command, check=True, timeout=900)
    return folder / "bin"


class Place:
    """A working folder of a person with a clean environment."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("ETUDE_", "PYTHON", "VIRTUAL_ENV"))
        }
        self.environment |= {"ETUDE_HOME": str(folder / "home"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=560, check=False
        )

    def succeed(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The core, and the shop of the demo as the source `shop`."""
    place = Place(tmp_path_factory.mktemp("core"), install(wheel, "", tmp_path_factory.mktemp("env") / "core"))
    assert missing_lines(place.succeed("etude", "demo")) == []
    return place


@pytest.mark.timeout(1200)
def test_the_core_does_what_the_readme_shows(core: Place) -> None:
    for _, text in blocks(README, "bash"):
        for line in text.splitlines():
            core.succeed(*shlex.split(line, comments=True))
    code = "\n".join(text for _, text in blocks(README, "python"))
    printed = core.succeed("python", "-c", code).splitlines()
    assert len(printed) == 2 and all(line.strip() for line in printed)


def test_the_core_passes_its_own_checks(core: Place) -> None:
    for subject in ("store", "source shop", "sandbox"):
        core.succeed("etude", "check", *subject.split())


@pytest.mark.parametrize("line", EXTRAS)
def test_a_missing_extra_is_named(core: Place, line: str) -> None:
    done = core.run("etude", *line.split())
    assert done.returncode != 0 and f"pip install '{EXTRAS[line]}'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial_works_with_all_extras(wheel: Path, tmp_path: Path, port: int) -> None:
    programs = install(wheel, "[all]", tmp_path / "env")
    (tmp_path / "work").mkdir()
    follow_tutorial(tmp_path / "work", port, programs)
    place = Place(tmp_path, programs)
    place.succeed("etude", "demo")
    for _, text in blocks(README, "bash"):
        for line in text.splitlines():
            place.succeed(*shlex.split(line, comments=True))
    place.succeed("python", "-c", "\n".join(text for _, text in blocks(README, "python")))
