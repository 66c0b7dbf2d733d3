"""Every name that an example in the docs imports exists: a part of `test_docs.py` that the quick tests can afford."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from tests.test_docs import PAGES, blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_import_names_that_exist(page: Path) -> None:
    for line, code in blocks(page, "python"):
        for node in ast.walk(ast.parse("\n" * line + code, str(page))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "etude":
                module = importlib.import_module(node.module or "")
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{page.name}:{node.lineno}: {node.module} has no {', '.join(missing)}"
