"""What the loop of an agent adds to what it does: the record of each step, and how soon a person sees something."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from etude.app import App
from etude.entities import Budget
from etude.events import Entry
from etude.models.scripted import Line, Scripted, ScriptedCall
from etude.sample import write_shop

STEPS = 200
QUESTIONS = 40
QUERY = "SELECT 1 AS x"


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder, App(home=Path(folder) / "home") as app:
        shop = Path(folder) / "shop"
        shop.mkdir()
        write_shop(shop)
        _ask(app, shop, 5)
        steps, queries = _ask(app, shop, STEPS)
        first = statistics.median(_first_event(app, shop) for _ in range(QUESTIONS))
    # A step is a turn of the model or a call of a tool; what the query itself takes is not the loop's.
    overhead = (steps - queries) / 2
    return [
        Figure("a step of the loop, recorded, without model and query", overhead * 1e3, None, "ms", most=15),
        Figure("from the question to the first event", first * 1e3, None, "ms", most=50),
    ]


def _ask(app: App, shop: Path, count: int) -> tuple[float, float]:
    """Median seconds of a turn with its call, and of the query in it alone."""
    line = Line(calls=(ScriptedCall(name="execute_sql", arguments={"dataset": "shop", "query": QUERY}),))
    model = Scripted([line] * count + [Line(text="Done.")], name=f"bench-{count}")
    turns: list[float] = []

    def look(entry: Entry) -> None:
        if entry.event.type == "step.started" and entry.event.kind == "model":
            turns.append(time.perf_counter())

    answer = app.ask(str(shop), "Go.", model=model, budget=Budget(steps=count + 1, tokens=0), on_entry=look)
    assert answer.ok, answer.error
    queries = [s.elapsed_ms / 1e3 for s in answer.run.steps if s.kind == "sql" and s.elapsed_ms]
    return statistics.median(b - a for a, b in itertools.pairwise(turns)), statistics.median(queries)


def _first_event(app: App, shop: Path) -> float:
    seen: list[float] = []
    started = time.perf_counter()
    app.ask(
        str(shop), "Hi.", model=Scripted([Line(text="Hello.")]), on_entry=lambda _: seen.append(time.perf_counter())
    )
    return seen[0] - started
