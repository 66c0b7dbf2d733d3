"""Reads batteries of SQL: files with lines of `id | kind | expected | note | sql`, as in this folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Attempt:
    id: str
    kind: str
    sql: str


def read_battery(path: Path) -> list[Attempt]:
    """Return the attempts in a file; lines that start with # are comments."""
    attempts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, kind, _, _, sql = line.split(" | ", 4)
            attempts.append(Attempt(name.strip(), kind.strip(), sql))
    return attempts
