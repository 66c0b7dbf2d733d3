"""The docs: every example runs, every generated part is what the program says now."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.cli.main import COMMANDS, run_command
from etude.entities import Entity
from etude.offline.__main__ import print_trace as trace
from etude.sample import write_shop
from etude.settings import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
TUTORIAL = DOCS / "tutorial.md"
"""Its examples build on one another, so they run as one shell script and not one by one."""
EXAMPLES = [page for page in PAGES if page != TUTORIAL]
FENCE = re.compile(r"(<!-- not run -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *kinds: str) -> Iterator[tuple[int, str]]:
    """The examples of a page with their lines; those marked as not run are left out."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        if found[2] in kinds and not found[1]:
            yield text[: found.start(3)].count("\n"), found[3]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    write_shop(folder / "shop")
    return folder


@pytest.fixture
def _there(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the shop, and one home for the page."""
    monkeypatch.chdir(shop)
    monkeypatch.setenv("ETUDE_HOME", str(shop / "home"))


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda p: p.name)
def test_python_examples_run(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "example"}
    before = dict(os.environ)
    try:
        for line, code in blocks(page, "python"):
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda p: p.name)
def test_command_examples_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _, text in blocks(page, "console", "bash"):
        for line in text.splitlines():
            if line.startswith("etude "):
                assert run_command(shlex.split(line, comments=True)[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
            elif line.startswith("python -m etude.offline "):
                assert trace(shlex.split(line, comments=True)[3:]) == 0, f"{line}\n{capsys.readouterr().err}"


@pytest.fixture
def port() -> Iterator[int]:
    """A port that a server may listen on and nobody is given by chance, as long as the socket is open."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.mark.timeout(600)
def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path, port: int) -> None:
    """Follow it with a shell in an empty folder, and see what it promises."""
    follow_tutorial(tmp_path, port, Path(sys.executable).parent)


def follow_tutorial(folder: Path, port: int, programs: Path) -> None:
    """Run every line of the tutorial with the programs of an environment; compare with what it promises."""
    script, promised = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"], []
    for unrun, kind, block in FENCE.findall(TUTORIAL.read_text(encoding="utf-8").replace("8520", str(port))):
        if kind == "text":
            promised += block.splitlines()
        elif kind == "python":
            script.append(f"python - <<'END_OF_PYTHON'\n{block}END_OF_PYTHON")
        elif not unrun:
            script.append(block)
            if block.rstrip().endswith("&"):
                script.append(f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do kill -0 $!; sleep 0.1; done")
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=560
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert [line for line in promised if line not in done.stdout] == [], done.stdout
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        there = page.parent / path if path else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_generated_parts_are_current(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    generate = runpy.run_path(str(DOCS / "generate.py"))["generate"]
    text = page.read_text(encoding="utf-8")
    assert generate(text) == text, "run `python docs/generate.py`"


def test_every_command_has_a_section() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"\n## etude {name}\n" in text and f"<!-- generated: help {name} -->" in text


def test_every_setting_is_documented() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    keys: list[str] = []
    for name, info in Settings.model_fields.items():
        part = info.annotation if isinstance(info.annotation, type) and issubclass(info.annotation, Entity) else None
        keys += [f"{name}.{k}" for k, field in part.model_fields.items() if not field.exclude] if part else [name]
    assert [k for k in keys if f"| `{k}` |" not in text] == []


def test_every_page_is_in_the_index() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [p.name for p in DOCS.glob("*.md") if p.name != "index.md" and f"({p.name})" not in text] == []
