"""Scripts that are offered: threads made by chance, each script run alone, and its output compared with the record."""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figure import Figure
from etude.app import App
from etude.models.scripted import Line, Scripted, ScriptedCall

THREADS = int(os.environ.get("BENCH_THREADS", "200"))


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        write_source(Path(folder) / "sales")
        with App(home=Path(folder) / "home", replay="off") as app:
            failed, scripts, started = 0, 0, time.perf_counter()
            for seed in range(THREADS):
                try:
                    scripts += check_thread(app, seed)
                except AssertionError as error:
                    failed += 1
                    print(f"thread {seed}: {str(error)[:500]}")
                if seed % 20 == 19:
                    print(f"{seed + 1} threads, {failed} failed", file=sys.stderr, flush=True)
    seconds = (time.perf_counter() - started) / THREADS
    return [
        Figure(f"threads of {THREADS} with a script that fails or gives another result", failed, None, "", most=0),
        Figure("scripts that ran alone", scripts, None, ""),
        Figure("a thread with its scripts", seconds, None, "s"),
    ]


def write_source(folder: Path) -> None:
    folder.mkdir()
    rows = "".join(f"{n},{'abc'[n % 3]},{n * 7 % 50}\n" for n in range(1, 61))
    (folder / "sales.csv").write_text("id,region,amount\n" + rows)


def source_of(app: App) -> str:
    return str(app.settings.home.parent / "sales")


class Thread:
    """Asks questions whose code uses names of earlier cells, also of cells that failed half-way."""

    def __init__(self, app: App, seed: int) -> None:
        self._app, self._random = app, random.Random(seed)
        self._names: list[str] = []
        self.thread_id: str | None = None
        self.runs: list[tuple[str, str]] = []
        """The id of each run, and the value that its script must print."""

    def play(self, questions: int) -> None:
        for number in range(questions):
            if self._random.random() < 0.3:
                answer = self._ask(f"PYTHON: {self._expression()}", [])
            else:
                answer = self._ask(f"Question {number}?", [*self._turns(), Line(text="Done.")])
            assert answer.ok, answer.error
            self.thread_id = answer.run.thread_id
            self.runs.append((answer.run_id, self._shown(answer)))

    def _ask(self, question: str, lines: list[Line]) -> Any:
        model = Scripted(lines) if lines else "offline"
        return self._app.ask(source_of(self._app), question, model=model, thread_id=self.thread_id)

    def _turns(self) -> list[Line]:
        turns = []
        if self._random.random() < 0.5:
            name = self._name()
            turns.append(python(f"{name} = {self._expression()}\nbroken = 1 / 0\nnever = 1"))
            self._names.append(name)
        if self._random.random() < 0.4:
            turns.append(sql("SELECT region, sum(amount) AS total FROM sales GROUP BY region ORDER BY region"))
        if self._random.random() < 0.75:
            name = self._name()
            turns.append(python(f"{name} = {self._expression()}"))
            self._names.append(name)
            turns.append(python(f"{name} + {self._expression()}"))
        else:
            low = self._random.randrange(50)
            turns.append(sql(f"SELECT count(*) AS n, sum(amount) AS total FROM sales WHERE amount > {low}"))
        return turns

    def _name(self) -> str:
        return f"v{len(self._names)}"

    def _expression(self) -> str:
        parts = [str(self._random.randrange(100))]
        if self._names and self._random.random() < 0.8:
            parts.append(self._random.choice(self._names))
        if self._random.random() < 0.5:
            region = self._random.choice("abc")
            parts.append(f"int(db.sql(\"SELECT sum(amount) AS s FROM sales WHERE region = '{region}'\").rows()[0][0])")
        return " + ".join(parts)

    def _shown(self, answer: Any) -> str:
        """Return what the last cell or query of a run gave."""
        if answer.result is not None and not any(s.kind == "python" for s in answer.run.steps):
            return " ".join(str(v) for v in answer.result.rows()[0])
        cells = [s for s in answer.run.steps if s.kind == "python"]
        tools = [s for s in answer.run.steps if s.kind == "sql" and s.parent not in {c.id for c in cells}]
        if tools and tools[-1].started_at > cells[-1].started_at:
            return " ".join(str(v) for v in answer.result.rows()[0])
        if answer.run.kind == "python":
            return answer.text.strip()
        shown = [s.shown for s in answer.run.steps if s.kind == "tool" and s.code == "execute_python"][-1]
        return re.search(r"value:\n<data \w+>\n(.*)\n", shown)[1]


def python(code: str) -> Line:
    return Line(calls=(ScriptedCall(name="execute_python", arguments={"code": code}),))


def sql(query: str) -> Line:
    return Line(calls=(ScriptedCall(name="execute_sql", arguments={"query": query}),))


def printed_alone(app: App, text: str) -> str:
    """Run a script in a session of its own and return what it printed."""
    with app.open_session(source_of(app), record=False, policy=None) as session:
        session.execute("import sys\nsys.argv = ['script.py']")
        cell = session.execute(text)
    assert cell.ok, (cell.error, text)
    return cell.stdout


def check_thread(app: App, seed: int) -> int:
    """Play a thread and check every script of it; return how many there were."""
    thread = Thread(app, seed)
    thread.play(3)
    for run_id, shown in thread.runs:
        text = app.script(run_id)
        assert "# Executed alone" in text, text
        assert shown in " ".join(printed_alone(app, text).split()), (shown, text)
    text = app.thread_script(thread.thread_id or "")
    assert "# Executed alone" in text, text
    assert thread.runs[-1][1] in " ".join(printed_alone(app, text).split()), text
    return len(thread.runs) + 1
