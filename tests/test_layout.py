"""The map in AGENTS.md names every module, and every name in it leads somewhere."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "etude"


def listed() -> list[str]:
    table = (ROOT / "AGENTS.md").read_text(encoding="utf-8").partition("## To add something")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and "`" in line]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def covers(name: str, module: str) -> bool:
    if name.endswith("/"):
        return module.startswith(name)
    return fnmatchcase(module, re.sub(r"<\w+>", "*", name)) and module.count("/") == name.count("/")


MODULES = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("module", [m for m in MODULES if not m.endswith("/__init__.py")])
def test_every_module_is_on_the_map(module: str) -> None:
    assert any(covers(name, module) for name in listed()), f"add `{module}` to the table in AGENTS.md"


@pytest.mark.parametrize("name", listed())
def test_every_name_on_the_map_is_there(name: str) -> None:
    assert any(covers(name, module) for module in MODULES), f"`{name}` is in AGENTS.md, but not in the source"


def test_each_public_class_name_exists_once() -> None:
    places = defaultdict(list)
    for module in MODULES:
        for node in ast.parse((SOURCE / module).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert len(places.pop("Arguments")) > 1, "each tool has its own"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


PARSERS = {"parse", "parse_one", "transpile", "tokenize", "maybe_parse", "parse_into", "parser"}


@pytest.mark.parametrize("module", [m for m in MODULES if m != "sources/sql_parsing.py"])
def test_only_one_module_parses_sql(module: str) -> None:
    """Foreign SQL can take years to parse, so `sources/sql_parsing.py` sets limits for all of it."""
    text = (SOURCE / module).read_text(encoding="utf-8")
    if "sqlglot" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sqlglot"):
            assert not PARSERS & {alias.name for alias in node.names}, "use sources/sql_parsing.py"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARSERS:
            owner = ast.unparse(node.func.value)
            assert "sqlglot" not in owner and "dialect" not in owner.lower() and owner != "exp", ast.unparse(node)
