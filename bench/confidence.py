"""The risks that make up the confidence of readings without a model, measured again.

`python -m bench.confidence` asks the questions of the development databases with every answer allowed, and fits one
weight for each risk of `etude.offline.confidence`: a logistic regression with a penalty on large weights. It prints
the weights, and how well they order the answers of each database if they are fitted on the others only. An area of
0.5 is chance, 1 a perfect order. Copy the weights into `RISKS` if the area is higher than that of the present ones.

Weights that are fitted only where the rules were corrected until few answers were wrong say little about foreign
databases. Set aside databases that no one looked at, measure on them before anything is corrected, and keep a risk
only if it shows on both.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.offline import DATA, load_cases, part_of
from etude.app import App
from etude.evaluation import Judged, evaluate, find_evaluated_source
from etude.offline.confidence import BASE, RISKS
from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary_build import build_vocabulary

PENALTY = 20.0
"""How strongly weights are kept near zero: few answers are wrong, and chance must not decide."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedReading:
    """A reading whose answer was judged."""

    db: str
    risks: tuple[str, ...]
    right: bool


def read_judged(judged: Sequence[Judged], source: str) -> Iterator[JudgedReading]:
    """Yield the risks of all questions that were answered and whose first reading is a plan."""
    for db in sorted({each.case.db for each in judged}):
        url = find_evaluated_source(source, db)
        with tempfile.TemporaryDirectory() as home, App(home=Path(home), record=False) as app:
            vocabulary = build_vocabulary(app.catalog(url), lambda sql, url=url, app=app: app.sql(url, sql).rows())  # type: ignore[misc]
            for each in judged:
                if each.case.db != db or each.verdict not in ("right", "wrong"):
                    continue
                meant = understand(each.case.question, vocabulary, today=date.today())
                if isinstance(meant, Understanding):
                    yield JudgedReading(db, meant.risks, each.verdict == "right")


def fit_risks(readings: Sequence[JudgedReading], risks: Sequence[str]) -> Numbers:
    """Return the weight of each risk, and the logarithm of the odds without any at the end."""
    found = np.array([[*(risk in each.risks for risk in risks), 1.0] for each in readings], float)
    right = np.array([each.right for each in readings], float)
    penalty = np.diag([*(PENALTY for _ in risks), 1e-6])
    weights = np.zeros(len(risks) + 1)
    for _ in range(30):
        share = 1 / (1 + np.exp(-found @ weights))
        slope = found.T @ (share - right) + penalty @ weights
        curve = (found * (share * (1 - share))[:, None]).T @ found + penalty
        weights -= np.linalg.solve(curve, slope)
    return weights


def order_area(scores: Numbers, right: NDArray[np.bool_]) -> float:
    """Return how often a right answer has a higher score than a wrong one."""
    above, below = scores[right], scores[~right]
    wins = (above[:, None] > below).mean() + (above[:, None] == below).mean() / 2
    return float(wins)


def scores_of_unseen(readings: Sequence[JudgedReading], risks: Sequence[str]) -> Numbers:
    """Return the score of each reading by weights that were fitted on the other databases."""
    scores = np.zeros(len(readings))
    for db in {each.db for each in readings}:
        weights = fit_risks([each for each in readings if each.db != db], risks)
        for at, each in enumerate(readings):
            if each.db == db:
                scores[at] = weights[-1] + sum(w for risk, w in zip(risks, weights, strict=False) if risk in each.risks)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.confidence")
    parser.add_argument("databases", nargs="*", metavar="database")
    options = parser.parse_args()
    os.environ["ETUDE_OFFLINE__CONFIDENCE"] = "0"
    cases = part_of(load_cases("spider_train"), "develop")
    cases = [case for case in cases if not options.databases or Path(case.db).stem in options.databases]
    source = str(DATA / "spider_train")
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=Path(home), replay="off") as app:
        judged = evaluate(app, source, cases, "offline")
    readings = list(read_judged(judged, source))
    right = np.array([each.right for each in readings])
    present = np.array([BASE + sum(RISKS[risk] for risk in each.risks) for each in readings])
    weights = fit_risks(readings, list(RISKS))
    print(f"{len(readings)} answers, {(~right).sum()} wrong")
    for risk, weight in zip((*RISKS, "none of these"), weights, strict=True):
        having = [each.right for each in readings if risk in each.risks]
        print(f"{risk:32s} {weight:6.2f}  {sum(having):5d} right {len(having) - sum(having):4d} wrong")
    print(f"area, present weights                  {order_area(present, right):.3f}")
    print(f"area, fitted on the other databases    {order_area(scores_of_unseen(readings, list(RISKS)), right):.3f}")


if __name__ == "__main__":
    main()
