"""Replay: the same question again, near misses, slices, guards, and causes of differences; then a learning curve.

`python -m bench replay` takes some minutes: it judges thousands of questions, hundreds of sessions and data mutants.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from bench.figure import Figure
from bench.replay_mutants import QUESTIONS, harmless_changes, judge_guards, mutants_of
from bench.replay_pairs import judge_pairs, make_pairs
from bench.replay_pairs import write_shop as write_data
from bench.replay_questions import KNOWN, judge_near_misses, near_misses
from bench.replay_sessions import slice_sessions
from etude.app import App
from etude.replays.fingerprint import result_fingerprint
from etude.replays.script_compiler import compiled_run_ms
from etude.sample import write_shop

SESSIONS = 500
PAIRS = 120
HARMLESS = 17
"""Harmless changes for each question."""
ROUNDS = 5
SKILL = 0.5


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as name:
        folder = Path(name)
        with App(home=folder / "home", replay="on") as app:
            (folder / "shop").mkdir()
            write_shop(folder / "shop")
            figures += _second_time(app, folder / "shop")
            figures += _near_misses(app, folder / "shop")
            figures += _pairs(app, folder / "data")
    return [*figures, *_slices(), *_guards(), *_learning()]


def _second_time(app: App, shop: Path) -> list[Figure]:
    firsts, seconds, equal, replayed = [], [], 0, 0
    for question in KNOWN:
        first = app.ask(str(shop), question)
        if not first.ok:
            continue
        app.scripts.settle()
        second = app.ask(str(shop), question)
        firsts.append(compiled_run_ms(first.run))
        seconds.append(compiled_run_ms(second.run))
        replayed += bool(second.replayed)
        if first.result is not None and second.result is not None:
            equal += result_fingerprint(first.result, False) == result_fingerprint(second.result, False)
    known = len(firsts)
    one, two = statistics.median(firsts), statistics.median(seconds)
    started = time.perf_counter()
    for question in KNOWN:
        app.scripts.would_answer(f"{question} nope", app.source(str(shop)))
    looked_ms = (time.perf_counter() - started) * 1000 / len(KNOWN)
    return [
        Figure("the same question again: not replayed", known - replayed, None, f"of {known}", most=0.05 * known),
        Figure("the same question again: other results", known - equal, None, f"of {known}", most=0),
        Figure("the same question again: median time", two, one, "ms", most=max(50.0, one / 10)),
        Figure("looking for a script that is not there", looked_ms, None, "ms", most=2),
    ]


def _near_misses(app: App, shop: Path) -> list[Figure]:
    judged = judge_near_misses(app, shop, near_misses())
    for miss in judged.wrong:
        print(f"wrong replay: {miss.known} -> {miss.text}", file=sys.stderr)
    asked = f"of {judged.asked}"
    return [
        Figure("near misses: wrong replays", len(judged.wrong), None, asked, most=0),
        Figure("near misses: replayed with another value, and right", judged.replayed - len(judged.wrong), None, asked),
    ]


def _pairs(app: App, folder: Path) -> list[Figure]:
    count, wrong = judge_pairs(app, make_pairs(app, folder, PAIRS))
    for pair, found in wrong:
        print(f"wrong cause: {found} for {pair.cause}: {pair.second.text[:80]}", file=sys.stderr)
    return [Figure("runs diff: wrong causes", len(wrong), None, f"of {count}", most=0.05 * count)]


def _slices() -> list[Figure]:
    done = list(slice_sessions(SESSIONS))
    return [
        Figure("slices: other output", sum(not s.equal for s in done), None, f"of {len(done)}", most=0),
        Figure("slices: cells kept", 100 * statistics.mean(s.share for s in done), None, "%", most=55),
        Figure("slices: executions for each", statistics.mean(s.found.runs for s in done if s.found), None, ""),
    ]


def _guards() -> list[Figure]:
    chance = random.Random(1)
    mutants = [m for name in QUESTIONS for m in mutants_of(name)]
    changes = [m for name in QUESTIONS for m in itertools.islice(harmless_changes(name, chance), HARMLESS)]
    judged = judge_guards(mutants, changes)
    for mutant in judged.silent:
        print(f"silent: {mutant.question}: {mutant.statements}", file=sys.stderr)
    tried = sum(report.tried for report in judged.mined)
    survivors = sum(len(report.survivors) for report in judged.mined)
    missed = 100 * (1 - judged.stopped / judged.mutants)
    false_stops = 100 * len(judged.false_stops) / judged.changes
    return [
        Figure("guards: mutants not stopped", missed, None, f"% of {judged.mutants}", most=5),
        Figure("guards: silent wrong answers", len(judged.silent), None, f"of {judged.mutants}", most=0),
        Figure("guards: false stops", false_stops, None, f"% of {judged.changes}", most=2),
        Figure("guards: lost columns found again, with the right answer", judged.repaired, None, ""),
        Figure("guards: own mutants that pass unseen after mining", survivors, None, f"of {tried}", most=0),
    ]


# -- the learning curve


@dataclass(frozen=True)
class Round:
    """One round over all tasks: how many were answered right, and the tokens for each."""

    right: float
    tokens: float
    right_tokens: float
    """The tokens for each task that was answered right."""


def _learning() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as name:
        folder = Path(name)
        write_data(folder / "shop")
        tasks = _tasks(folder / "tasks.json")
        arms = {mode: list(_rounds(folder, mode, tasks)) for mode in ("on", "off")}
    print("round  with replay: right  tokens   without: right  tokens", file=sys.stderr)
    for number, (on, off) in enumerate(zip(arms["on"], arms["off"]), 1):
        bar = "#" * round(on.tokens / max(off.tokens, 1) * 30)
        line = f"{number:>5}  {on.right:>18.0%}  {on.tokens:>6,.0f}  {off.right:>14.0%}  {off.tokens:>6,.0f}  {bar}"
        print(line, file=sys.stderr)
    last = ROUNDS - 1
    return [
        # Answers without a result, or with numbers that no result holds, are not replayed: they cost the same again.
        Figure("sim, last round: tokens for a task", arms["on"][last].tokens, arms["off"][last].tokens, ""),
        Figure(
            "sim, last round: tokens for a right answer",
            arms["on"][last].right_tokens,
            arms["off"][last].right_tokens,
            "",
        ),
        Figure("sim, last round: right", 100 * arms["on"][last].right, 100 * arms["off"][last].right, "%"),
    ]


def _tasks(path: Path) -> dict[str, str]:
    """Write the tasks of the simulated model; return the questions with their right queries."""
    questions = {f"Report {n}: {name}.": query for n, (name, query) in enumerate(QUESTIONS.items(), 1)}
    tasks = []
    for question, query in questions.items():
        table = "payments" if "FROM payments" in query else "customers" if "FROM customers" in query else "orders"
        code = f'db.sql("""{query.replace(f"FROM {table}", "FROM ${table}")}""").df()'
        need = {"name": "table", "kind": "table", "fact": f"{table} {question}", "right": table}
        # The schema in the conversation names every table, so only a sentence teaches which one is meant.
        told = {"told": [f"{question} is about {table}"], "wrong": ["customers" if table != "customers" else "orders"]}
        task = {"asked": question, "code": code, "needs": [need | told], "tool": "execute_python", "argument": "code"}
        tasks.append(task)
    path.write_text(json.dumps(tasks))
    return questions


def _rounds(folder: Path, mode: str, tasks: dict[str, str]) -> Iterator[Round]:
    model = f"sim:{SKILL}?tasks={folder / 'tasks.json'}&seed=3"
    with App(home=folder / f"home-{mode}", replay=mode) as app:
        gold = {q: app.sql(str(folder / "shop"), query, record=False) for q, query in tasks.items()}
        marks = {q: sorted(map(_rounded, result.iter_rows())) for q, result in gold.items()}
        for _ in range(ROUNDS):
            right, tokens, right_tokens = 0, 0, 0
            for question in tasks:
                answer = app.ask(str(folder / "shop"), question, model=model)
                app.scripts.settle()
                found = sorted(map(_rounded, answer.result.iter_rows())) if answer.result is not None else None
                is_right = answer.ok and found == marks[question]
                used = answer.run.usage.tokens_in + answer.run.usage.tokens_out
                right += is_right
                tokens += used
                right_tokens += used * is_right
            yield Round(right / len(tasks), tokens / len(tasks), right_tokens / max(right, 1))


def _rounded(row: Sequence[object]) -> str:
    """Return a row as text: a data frame has other types than the query."""
    return " ".join(f"{v:.6g}" if isinstance(v, int | float | Decimal) else str(v)[:10] for v in row)
