"""The part of the demo that the README shows."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def missing_lines(printed: str) -> list[str]:
    """Return the lines of the README's example that a demo did not print, whatever its ids, dates and times."""
    shown = README.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0].splitlines()
    known = {_without_moment(line) for line in printed.splitlines()}
    return [line for line in shown if _without_moment(line) not in known]


def _without_moment(line: str) -> str:
    return re.sub(r"(agent|run)_\w+|\d+ [A-Z]\w+ 20\d\d|\d+ ms", "...", line)
