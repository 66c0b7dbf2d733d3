"""What a model reads: how much of a prompt two questions share, and the tokens of 24 journeys now and before."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figure import Figure

ROOT = Path(__file__).parent.parent
BEFORE = "80298c1"
"""The commit that journeys are compared with: before prompts had a shared prefix."""


def measure() -> list[Figure]:
    now = _count(ROOT)
    with tempfile.TemporaryDirectory(prefix="etude-before-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        made = subprocess.run([*git, "add", "--detach", str(tree), BEFORE], capture_output=True, check=False)
        try:
            before = _count(tree) if made.returncode == 0 else None
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], capture_output=True, check=False)
    figures = [
        Figure("tokens of 24 journeys", _sum(now["tokens"]), before and _sum(before["tokens"]), "", most_ratio=0.75)
    ]
    for name, part in now["own"].items():
        figures.append(Figure(f"the part of a prompt that is not shared, {name}", part * 100, None, "%", most=10))
    figures.append(Figure("a quick profile of 100 unknown tables", now["look_s"], None, "s", most=3))
    figures.append(Figure("what it adds to the first question", now["delay_s"], None, "s", most=3))
    return figures


def _sum(tokens: dict[str, int]) -> float:
    return float(sum(tokens.values()))


def _count(tree: Path) -> dict[str, dict[str, int]]:
    """Play the journeys with the package of that tree, in a process of their own."""
    paths = os.pathsep.join([str(tree / "src"), str(ROOT)])
    command = [sys.executable, "-c", "from bench.prompts import play; play()"]
    told = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return json.loads(told.stdout.splitlines()[-1])


def play() -> None:
    """Print the figures of the package that is imported, as a line of JSON."""
    import etude
    from etude.app import App
    from etude.sample import write_shop

    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        shop, wide = Path(folder) / "shop", Path(folder) / "wide.sqlite"
        shop.mkdir()
        write_shop(shop)
        write_wide(wide)
        found: dict[str, object] = {"from": str(Path(etude.__file__).parent)}
        with App(home=Path(folder) / "home") as app:
            found["tokens"] = {name: _tokens(app, shop, name) for name in _journeys()}
        with App(home=Path(folder) / "other") as app:
            found["own"] = {"sample shop": _own_part(app, shop), "100 tables": _own_part(app, wide)}
        found["look_s"], found["delay_s"] = _look(Path(folder), wide)
    print(json.dumps(found))


def _journeys() -> list[str]:
    from bench.journeys import JOURNEYS

    return list(JOURNEYS)


def _tokens(app, shop: Path, name: str) -> int:
    """Return the tokens of all turns of a journey. Slow cells are left out: they wait for a person."""
    from bench.journeys import JOURNEYS, SLOW
    from etude.entities import Budget
    from etude.models.scripted import Line, Scripted, ScriptedCall

    thread_id, total = None, 0
    for ask in JOURNEYS[name].asks:
        lines = []
        for turn in ask.turns:
            calls = [
                ScriptedCall(name=n, arguments={"code": "1"} if a.get("code") == SLOW else a) for n, a in turn.calls
            ]
            lines.append(Line(text=turn.text, calls=tuple(calls), stop=turn.stop or None))
        budget = Budget(steps=ask.steps) if ask.steps else None
        model = Scripted(lines or [Line(text="Replayed.")], name="journey")
        answer = app.ask(str(shop), ask.question, model=model, thread_id=thread_id, budget=budget)
        if answer.status == "waiting":
            app.runs.answer(answer.run_id, "orders")
            answer = app.runs.answer_of(app.runs.work(answer.run_id))
        thread_id = answer.run.thread_id
        total += answer.run.usage.tokens_in + answer.run.usage.tokens_out
    return total


def _own_part(app, source: Path) -> float:
    """Return the part of a first request that differs from that of another question in another thread."""
    from etude.models.scripted import Line, Scripted

    sent = []
    for question in ("How many customers ordered in May?", "Which product had the highest revenue last year?"):
        model = Scripted([Line(text="I see.")])
        app.ask(str(source), question, model=model)
        request = model.seen[0]
        tools = [[t.name, t.description, t.parameters] for t in request.tools]
        # In the order of providers: tools, then the conversation.
        sent.append(json.dumps([tools, [m.model_dump() for m in request.conversation]]))
    shared = len(os.path.commonprefix(sent))  # noqa: RUF071 - of two texts
    return 1 - shared / max(map(len, sent))


def _look(folder: Path, wide: Path) -> tuple[float, float]:
    """Return the seconds of a quick profile of a source that no one has looked at, and of a question with it."""
    try:
        from etude.catalog.storage.stored_profiles import profile_at_once_or_stored
    except ImportError:
        return 0.0, 0.0
    from etude import run_setup
    from etude.app import App
    from etude.models.scripted import Line, Scripted

    with App(home=folder / "look") as app:
        source = app.source(str(wide))
        app.catalog(source)
        started = time.perf_counter()
        profile_at_once_or_stored(app, source, run_setup.LOOK_S, [])
        looked = time.perf_counter() - started
    seconds = []
    with App(home=folder / "ask") as app:
        app.catalog(str(wide))
        for question in ("How many?", "How many more?"):
            started = time.perf_counter()
            app.ask(str(wide), question, model=Scripted([Line(text="I see.")]))
            seconds.append(time.perf_counter() - started)
    return looked, seconds[0] - seconds[1]


def write_wide(path: Path, tables: int = 100) -> None:
    """Write a database of many tables, each with 2,000 rows."""
    nouns = (
        "customer",
        "order",
        "product",
        "invoice",
        "ticket",
        "shipment",
        "supplier",
        "payment",
        "visit",
        "contract",
    )
    with sqlite3.connect(path) as db:
        for n in range(tables):
            name = f"{nouns[n % 10]}_{n // 10}"
            db.execute(
                f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, state TEXT, kind INTEGER, created_at TEXT, amount REAL, "
                f"region TEXT, note TEXT, {nouns[(n + 1) % 10]}_id INTEGER)"
            )
            rows = (
                (
                    r,
                    ("open", "closed", "lost")[r % 3],
                    r % 5,
                    f"2025-{r % 12 + 1:02}-11",
                    r * 1.5,
                    f"R{r % 7}",
                    f"n{r}",
                    r % 50,
                )
                for r in range(2000)
            )
            db.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
