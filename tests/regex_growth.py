"""Find regular expressions whose time grows faster than the text: `python tests/regex_growth.py MODULE...`.

It prints each slow expression as a line of JSON. It runs as a process of its own, because nothing else can
stop an expression that takes forever.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BASE = [" ", "a", "1", "\n", ".", ",", "-", "_", "'", '"', "(", "[", "/", "\\", "*", "%", "$", "=", "<", "#", ":", "é"]
PAIRS = [
    "a ",
    "1 ",
    "1,",
    "1.",
    "a.",
    "a,",
    "a1 ",
    "''",
    '""',
    " \n",
    "and ",
    "the ",
    "of ",
    "--",
    "a_",
    "a-",
    "{",
    "|",
]
HEADS = ["", "1", "'", "("]
SIZES = [60, 250, 1000, 4000]
STEP = 4
LEAST_S = 0.006
"""A shorter time is noise."""


def expressions(name: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the regular expressions of a module, also those in its lists and dictionaries."""
    for key, value in vars(importlib.import_module(name)).items():
        if isinstance(value, dict):
            inside = [*value, *value.values()]
        else:
            inside = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        flat = [each for item in inside for each in (item if isinstance(item, tuple) else (item,))]
        for pattern in flat:
            if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
                yield f"{name}.{key}", pattern


def is_anchored(name: str, key: str) -> bool:
    """Return whether the module only matches the expression at the beginning of a text."""
    source = Path(str(sys.modules[name].__file__)).read_text(encoding="utf-8")
    uses = set(re.findall(rf"\b{re.escape(key)}\.(\w+)\(", source))
    return key.startswith("_") and bool(uses) and uses <= {"match", "fullmatch"}


def growth(pattern: re.Pattern[str], head: str, unit: str, anchored: bool) -> float:
    """Return how much longer a text takes that is `STEP` times as long; 0 if that is not much longer than `STEP`."""
    before = 0.0
    for size in SIZES:
        text = head + unit * (size // len(unit)) + "\x01"
        took = _time(pattern, text, anchored)
        if took > LEAST_S:
            took = min(took, _time(pattern, text, anchored))
        if before and took > LEAST_S and took > 2 * STEP * before:
            return took / before
        before = max(took, 1e-6)
    return 0.0


def _time(pattern: re.Pattern[str], text: str, anchored: bool) -> float:
    started = time.thread_time()
    if anchored:
        pattern.fullmatch(text)
        pattern.match(text)
    else:
        for _ in pattern.finditer(text):
            pass
    return time.thread_time() - started


def main() -> None:
    """Examine the modules that the arguments name."""
    seen: set[re.Pattern[str]] = set()
    for name in sys.argv[1:]:
        for where, pattern in expressions(name):
            if pattern in seen:
                continue
            seen.add(pattern)
            print(json.dumps(["at", where]), flush=True)
            anchored = is_anchored(name, where.rpartition(".")[2])
            words = list(dict.fromkeys(re.findall(r"[A-Za-z]{2,}", pattern.pattern)))[:6]
            units = BASE + PAIRS + [f"{word} " for word in words]
            slow = next(
                (
                    [unit, head, round(ratio, 1)]
                    for head in (*HEADS, *(f"{word} " for word in words[:2]))
                    for unit in units
                    if (ratio := growth(pattern, head, unit, anchored))
                ),
                None,
            )
            if slow:
                print(json.dumps(["slow", where, *slow]), flush=True)


if __name__ == "__main__":
    main()
