"""The functions that each dialect's queries may call, as reviewed lists beside this file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def allowed_functions(dialect: str) -> frozenset[str]:
    """The lower-case names in `<dialect>.txt`; a line that starts with `# ` is a comment."""
    text = files(__name__).joinpath(f"{dialect}.txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("# "))
    return frozenset(word.lower() for line in lines for word in line.split())
