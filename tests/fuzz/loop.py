"""The fuzz loop for text inputs: run the corpus, then mutations of it until the budget is used.

A target is a test that calls `fuzz` with a name, a function that mutates and a check that raises if it finds a bug. Its
corpus is `corpus/<name>/*.txt`. In the normal tests a target runs for a few seconds; `FUZZ_S` or `FUZZ_CASES` sets
another budget, and `FUZZ_SEED` another seed. An input that fails is added to the corpus, so that it stays a test.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 2.0


def read_corpus(name: str) -> list[str]:
    """Return the inputs in the corpus of a target."""
    return [path.read_bytes().decode() for path in sorted((CORPUS / name).glob("*.txt"))]


def fuzz(
    name: str,
    seeds: Sequence[str],
    mutate: Callable[[str, random.Random], str],
    check: Callable[[str], str],
) -> Counter[str]:
    """Check the corpus, then mutations; return how often `check` returned each verdict."""
    rng = random.Random(os.environ.get("FUZZ_SEED", "1"))
    kept = read_corpus(name)
    verdicts: Counter[str] = Counter()
    for text in [*kept, *seeds]:
        verdicts[_try(name, text, check)] += 1
    pool, cases = [*kept, *seeds], int(os.environ.get("FUZZ_CASES", "0"))
    until = time.monotonic() + float(os.environ.get("FUZZ_S", SECONDS))
    while sum(verdicts.values()) < cases if cases else time.monotonic() < until:
        text = mutate(rng.choice(pool), rng)
        verdict = _try(name, text, check)
        verdicts[verdict] += 1
        # Mutate some accepted mutations further; the pool is bounded, so that they stay short.
        if verdict == "accepted" and len(text) < 2000 and rng.random() < 0.05:
            pool[rng.randrange(len(kept) + len(seeds), len(pool) + 1) :] = [text]
    sys.stderr.write(f"fuzz {name}: {sum(verdicts.values()):,} cases, {dict(verdicts)}\n")
    return verdicts


def _try(name: str, text: str, check: Callable[[str], str]) -> str:
    try:
        return check(text)
    except Exception as error:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        path = CORPUS / name / f"found-{digest}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        raise AssertionError(f"{name}: {text!r}: {type(error).__name__}: {error}; saved as {path}") from error
