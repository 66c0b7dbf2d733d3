"""No regular expression of a module needs more than linear time, unless the texts that it reads are short."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import etude

SCRIPT = Path(__file__).with_name("regex_growth.py")
SHORT = {
    "etude.runtime.number_check": "reads a few words around a number; `break_long_runs` shortens the runs of a text",
    "etude.offline": "the rules refuse questions of more than 2,000 characters",
    "etude.sources.files": "runs in the process that converts a file, which has a time limit",
    "etude.sources.guard": "runs in an engine, which has a time limit; the text of a query has a limit too",
}
"""Modules whose expressions may be slow, by the beginning of their names, and why."""
KNOWN = {
    "etude.arrow_values._FIELD": "the name of a type",
    "etude.learning.edits.proposers.model_proposer._LIST": "the reply of a model, which has a limit of tokens",
    "etude.settings._SIZE": "a setting",
    "etude.sources.drivers.mysql._RIGHTS": "the grants of a server",
}
"""Expressions that may be slow, and the short text that each reads."""


@pytest.mark.slow
def test_expressions_take_linear_time() -> None:
    modules = [m.name for m in pkgutil.walk_packages(etude.__path__, "etude.") if not m.name.endswith("__main__")]
    names = [name for name in modules if not name.startswith(tuple(SHORT))]
    done = subprocess.run([sys.executable, SCRIPT, *names], capture_output=True, text=True, timeout=900, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) > 100
    assert [line[1:] for line in lines if line[0] == "slow" and line[1] not in KNOWN] == []


def test_a_slow_expression_is_found(tmp_path: Path) -> None:
    (tmp_path / "slow_one.py").write_text("import re\nSLOW = re.compile(r'\\s+x')\nFAST = re.compile(r'[a-z]+')\n")
    command = [sys.executable, str(SCRIPT), "slow_one"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={"PYTHONPATH": str(tmp_path)})
    found = [json.loads(line)[1] for line in done.stdout.splitlines() if '"slow"' in line]
    assert found == ["slow_one.SLOW"], done.stderr
