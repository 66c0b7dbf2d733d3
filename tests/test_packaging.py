"""What the project says of itself agrees: versions of Python, addresses, hooks, bounds of dependencies."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URL = PROJECT["urls"]["Source"]
UNDOCUMENTED = ("pymysql", "redis", "uvicorn")
"""Packages of which etude uses parts that they do not document."""


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", UNDOCUMENTED)
def test_a_package_whose_undocumented_parts_are_used_has_an_upper_bound(package: str) -> None:
    wanted = [r for extra in PROJECT["optional-dependencies"].values() for r in extra if re.match(rf"{package}\b", r)]
    assert wanted and all("<" in requirement for requirement in wanted)


def test_no_private_module_of_another_package_is_imported() -> None:
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [f"{file.name}: {n}" for n in names if re.search(r"(^|\.)_(?!_)", n) and not n.startswith("etude")]
    assert found == []


def test_ci_runs_on_every_version_that_the_project_names() -> None:
    named = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert read_yaml(".github/workflows/ci.yml")["jobs"]["quick"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_every_address_of_the_project_is_the_same() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.y*ml"), ROOT / "pyproject.toml"]
    found = {m for f in files for m in re.findall(r"https://github\.com/[\w-]+/etude\b", f.read_text("utf-8"))}
    assert found == {URL}


def test_the_hooks_run_what_make_check_runs() -> None:
    checks = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ncheck: setup\n")[1].split("\n\n")[0]
    hooks = read_yaml(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert all(hook["language"] == "system" for hook in hooks)
    run = {re.sub(r" --.*", "", hook["entry"]).replace(".venv/bin", "$(RUN)") for hook in hooks}
    assert run == {re.sub(r"( --check)? \.$", "", line.strip()) for line in checks.splitlines()}


@pytest.mark.parametrize("form", ["bug", "feature", "question"])
def test_the_forms_ask_something(form: str) -> None:
    read = read_yaml(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert read["name"] and read["description"]
    assert any(field["validations"]["required"] for field in read["body"])
