"""Generated questions, at least 200 for each of nine ways in which rules went wrong: none is answered wrongly."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.offline.battery import CAUSES, generate
from tests.offline.judge import judge_question

from bench.figure import Figure
from etude.app import App
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary

WORLDS = 20


def measure() -> list[Figure]:
    """Return the wrong answers of each cause, and the readings that leave out a part of their plan."""
    wrong, unsaid, asked, right, plans = Counter[str](), 0, Counter[str](), 0, 0
    for cause, _, verdict in judged(WORLDS):
        asked[cause] += 1
        right += verdict == "right"
        plans += verdict != "silent"
        unsaid += verdict.startswith("unsaid")
        wrong[cause] += verdict not in ("right", "silent")
    figures = [Figure(f"battery: wrong, of {asked[c]}, {c}", wrong[c], None, "answers", most=0) for c in CAUSES]
    figures.append(Figure(f"battery: readings that lack a part, of {plans}", unsaid, None, "readings", most=0))
    return [*figures, Figure("battery: right answers", 100 * right / asked.total(), None, "%")]


def judged(worlds: int) -> Iterator[tuple[str, str, str]]:
    """Yield the cause, the question and the verdict of each."""
    known: dict[Path, Vocabulary] = {}
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        home = Path(folder)
        with App(home=home / "home", record=False) as app:
            for asked in generate(home, range(worlds)):
                url = str(asked.world.path)
                if asked.world.path not in known:
                    known[asked.world.path] = build_vocabulary(
                        app.catalog(url), lambda sql, url=url: app.sql(url, sql, record=False).rows()
                    )
                yield asked.cause, asked.question, judge_question(app, asked, known[asked.world.path])


if __name__ == "__main__":
    for cause, question, verdict in judged(int(sys.argv[1]) if len(sys.argv) > 1 else WORLDS):
        if verdict != "right":
            print(f"{cause} | {question} | {verdict}")
