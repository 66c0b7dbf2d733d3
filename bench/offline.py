"""Questions without a model: how many are answered, and how many of the answers are right.

`python -m bench.offline` asks the questions of the quarter of the databases that no one looks at while the rules are
developed, `--part develop` those of the others. `--wrong` shows each wrong answer, `--all` every question. The
parts are drawn by database, with a fixed seed. An answer is right if it has the rows of a reference: in any order of
columns, with other columns besides, in the order of rows that the question asks for.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.figure import Figure
from etude.app import App
from etude.cli.eval import describe_eval_case, format_eval_scores
from etude.evaluation import Judged, ReferenceQuestion, evaluate, read_evaluation_questions, score_evaluation

DATA = Path(os.environ.get("REFERENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
SETS = ("spider_train", "defog")
SEED = 21
PARTS = ("develop", "measure", "all")


def measure() -> list[Figure]:
    """Return the figures of the measured part; none if the reference data is not there."""
    if not (DATA / "spider_train").is_dir():
        return []
    total = score_evaluation(run("spider_train", "measure"))
    return [
        Figure("offline: right answers, of those given", 100 * (total.precision or 0), None, "%", least=93),
        Figure("offline: right answers, of all questions", 100 * (total.coverage or 0), None, "%", least=40),
        Figure("offline: a question, median", (total.later_s or 0) * 1e3, None, "ms", most=150),
    ]


def part_of(cases: Sequence[ReferenceQuestion], part: str) -> list[ReferenceQuestion]:
    """Return the questions of one part of the databases."""
    names = sorted({case.db for case in cases})
    random.Random(SEED).shuffle(names)
    edge = len(names) * 3 // 4
    chosen = {"develop": names[:edge], "measure": names[edge:], "all": names}[part]
    return [case for case in cases if case.db in chosen]


def load_cases(name: str) -> list[ReferenceQuestion]:
    """Return the questions of a set. In SQLite's references, text in double quotes is a string."""
    cases = read_evaluation_questions(DATA / name / "questions.jsonl")
    if name != "spider_train":
        return cases
    return [replace(case, sql=tuple(_single_quotes(sql) for sql in case.sql)) for case in cases]


def _single_quotes(sql: str) -> str:
    return re.sub(r'"([^"]*)"', lambda match: "'" + match[1].replace("'", "''") + "'", sql)


def run(name: str, part: str, databases: Sequence[str] = (), shown: Sequence[str] = ()) -> list[Judged]:
    """Ask the questions of a part, and judge the answers."""
    cases = part_of(load_cases(name), part)
    cases = [case for case in cases if not databases or Path(case.db).stem in databases]

    def show(judged: Judged) -> None:
        if "all" in shown or judged.verdict in shown:
            print(describe_eval_case(judged), end="", flush=True)

    with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=Path(home), replay="off") as app:
        return evaluate(app, str(DATA / name), cases, "offline", show)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offline")
    parser.add_argument("databases", nargs="*", metavar="database")
    parser.add_argument("--set", choices=SETS, default="spider_train")
    parser.add_argument("--part", choices=PARTS, default="measure")
    parser.add_argument("--wrong", action="store_true", help="show each wrong answer")
    parser.add_argument("--all", action="store_true", help="show every question")
    options = parser.parse_args()
    shown = ["all"] if options.all else ["wrong"] if options.wrong else []
    part = "all" if options.set == "defog" else options.part
    print(format_eval_scores(run(options.set, part, options.databases, shown)), end="")


if __name__ == "__main__":
    main()
