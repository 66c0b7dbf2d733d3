"""`etude demo`: the main features in one command, on a small shop with some bad data in it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.output import write_result_output
from etude.cli.runs import print_runs
from etude.cli.sources import print_source_schema
from etude.errors import Refused, SandboxError, Unavailable

if TYPE_CHECKING:
    from etude.agents.hub import HubSubscription
    from etude.app import App

NAME = "shop"
REVENUE = """SELECT year(o.ordered) AS year, c.country,
  round(sum(l.quantity * l.unit_price), 2) AS revenue
FROM order_lines l JOIN orders o USING (order_id) JOIN customers c USING (customer_id)
WHERE o.status = 'completed' GROUP BY ALL ORDER BY revenue DESC LIMIT 6"""
BEST_SELLERS = {
    "from": "order_lines",
    "joins": [{"table": "products", "on": [["order_lines.product_id", "products.product_id"]]}],
    "group_by": ["products.category", "products.name"],
    "aggregate": [
        {"fn": "sum", "of": {"op": "*", "args": ["quantity", "unit_price"]}, "as": "revenue"},
        {"fn": "count", "of": "order_id", "distinct": True, "as": "orders"},
    ],
    "top": {"n": 1, "per": ["category"], "by": "revenue"},
    "order_by": [{"by": "revenue", "desc": True}],
}
CELLS = (
    # Plain Python: pandas is an extra, and the demo must work without it.
    "import etude\ndb = etude.connect()\norders = db.sql('SELECT channel, amount FROM orders').rows()",
    "from statistics import median\nweb = [amount for channel, amount in orders if channel == 'web' and amount]\n"
    "len(web), round(median(web), 2)",
)
QUESTIONS = (
    "How many customers are there per country?",
    "What is the total amount per month in 2025?",
    "only for web",
)
WATCHED = "SELECT count(*) FROM orders"
WATCHER = "order-count"
"""The agent that is at work on the page."""
PLAYBOOK = """---
name: count-orders-once
description: Use when orders are counted by status, channel or country.
metadata:
  trigger: [orders by]
---

1. Count `order_id` in `orders`; lines and products repeat it.
2. Leave out no status unless the question names one.
3. Say if a column that you group by has nulls, and how many.
"""
COUNTED = ("status", "channel", "discount_percent")
SCRIPTED = [
    {
        "asked": f"orders by {column}",
        "turns": [
            {
                "calls": [
                    {
                        "name": "execute_sql",
                        "arguments": {
                            "dataset": NAME,
                            "query": f"SELECT {column}, count(*) AS orders FROM orders GROUP BY ALL ORDER BY ALL",
                        },
                    }
                ]
            },
            {"text": "The table has the orders of each."},
        ],
    }
    for column in COUNTED
]
PATIENCE_S = 30.0
ATTACK = "SELECT * FROM read_csv('/etc/passwd')"
EXAMPLES = (
    "etude demo",
    "etude demo --folder shop",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--folder", help="where to write the shop's files; under etude's home by default")
    parser.add_argument("--no-serve", action="store_true", help="do not end by serving the page, even in a terminal")


def run(options: argparse.Namespace) -> int:
    """Create the shop, ask and query it, use it from Python, catalog and watch it, and attack it.

    If a part fails, say so and show the others; exit with 1.
    """
    from etude.app import App

    with App() as app:
        app.pool.warm()
        folder = Path(options.folder or app.settings.home / NAME).absolute()
        _add_shop(app, folder)
        parts: list[tuple[str, Callable[[], None]]] = [
            ("questions", lambda: _ask(app)),
            ("the same question again", lambda: _ask_again(app)),
            ("queries", lambda: _query(app)),
            ("Python", lambda: _study(app)),
            ("the catalog and the agent", lambda: _keep_watch(app, folder)),
            ("the attack", lambda: _attack(app)),
        ]
        failed = [name for name, show in parts if not _succeeds(name, show)]
        _say("Each of these is a recorded run; `etude runs show RUN` shows its details:")
        print_runs(app.store.runs(limit=5), sys.stdout)
        _say('Now try your own data:  etude ask PATH_OR_URL "question"  (CSV, JSON, Parquet, DuckDB, SQLite, ...)')
        if failed:
            sys.stderr.write(f"error: {len(failed)} of {len(parts)} parts failed: {', '.join(failed)}.\n")
        # A pipe, a test or a build must not wait for a server that no one looks at.
        serves = not failed and not options.no_serve and sys.stdin.isatty() and sys.stdout.isatty()
        if serves:
            _leave_at_work(app)
    if serves:
        _serve()
    return 1 if failed else 0


def _leave_at_work(app: App) -> None:
    """Leave something in every view of the page: an agent that looks every minute, and a playbook on trial."""
    import tempfile

    if not any(agent.id == WATCHER for agent in app.agents.list().items):
        app.agents.create("watch", {"source": NAME, "sql": WATCHED, "every_s": 60}, WATCHER)
    with tempfile.TemporaryDirectory(prefix="etude-demo-") as folder:
        skill, script = Path(folder, "SKILL.md"), Path(folder, "script.json")
        skill.write_text(PLAYBOOK, encoding="utf-8")
        app.playbooks.add(skill)
        # Only models are shown playbooks, so a model that plays a script asks here.
        script.write_text(json.dumps(SCRIPTED), encoding="utf-8")
        thread = None
        for column in COUNTED * 2:  # drawn by lot for each of them whether it is shown the playbook
            question = f"Count the orders by {column}"
            answer = app.ask(NAME, question, model=f"scripted:{script}", thread_id=thread, fresh=True)
            thread = answer.thread_id


def _serve() -> None:
    from etude.cli import serve

    _say("Everything above is on the page, which opens in a browser now. Ctrl-C ends it.")
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    serve.run(parser.parse_args(["--port", "0"]))


def _succeeds(name: str, show: Callable[[], None]) -> bool:
    """Show a part of the demo; report its error instead of raising it."""
    from etude.cli.main import report_main_error

    try:
        show()
    except Exception as error:
        if os.environ.get("ETUDE_DEBUG"):
            raise
        sys.stdout.flush()
        sys.stderr.write(f"The part about {name} failed:\n")
        report_main_error(error, argparse.Namespace())
        return False
    return True


def _add_shop(app: App, folder: Path) -> None:
    from etude.entities import SourceSpec
    from etude.sample import write_shop

    _say(f"A small shop with two years of orders and some bad data: {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    write_shop(folder)
    if NAME in app.sources():
        app.remove_source(NAME)
    print_source_schema(app.add_source(NAME, SourceSpec(url=str(folder))), as_json=False)
    sys.stdout.write(f"`{NAME}` is now a name for this folder; `etude sources remove {NAME}` removes it.\n")


def _ask(app: App) -> None:
    from etude.cli.ask import AskSteps, print_asked_answer

    _say("Questions in words, answered by rules: no model, no key, and every number is computed")
    thread = None
    for question in QUESTIONS:
        _say(question)
        answer = app.ask(NAME, question, model="offline", thread_id=thread, on_entry=AskSteps(sys.stdout)).require()
        thread = answer.thread_id
        print_asked_answer(answer, sys.stdout)


def _ask_again(app: App) -> None:
    from etude.cli.ask import print_asked_answer
    from etude.replays.script_compiler import compiled_run_ms

    _say(f"The same question again is answered by the script of the first run: {QUESTIONS[1]}")
    first = app.ask(NAME, QUESTIONS[1], model="offline", fresh=True).require()
    app.scripts.settle()  # the script is compiled in the background
    second = app.ask(NAME, QUESTIONS[1], model="offline").require()
    print_asked_answer(second, sys.stdout)
    for label, answer in (("first", first), ("second", second)):
        used = answer.run.usage.tokens_in + answer.run.usage.tokens_out
        sys.stdout.write(f"{label:<8}{compiled_run_ms(answer.run):>8,.0f} ms  {used} tokens\n")
    sys.stdout.write(f"`etude runs script {first.run_id}` prints it as a Python file.\n")


def _query(app: App) -> None:
    printed = argparse.Namespace(format="table", output=None)
    _say(f"SQL, in a process that has no network and can read only these files:\n\n{REVENUE}\n")
    write_result_output(app.sql(NAME, REVENUE), printed)
    _say(f"The best seller of each category, as a QueryPlan:\n\n{json.dumps(BEST_SELLERS)}\n")
    result = app.plan(NAME, BEST_SELLERS)
    write_result_output(result, printed)


def _study(app: App) -> None:
    from etude.cli.py import print_py_cell_end

    _say("The same data from Python, in a sandboxed session that keeps its variables:")
    with app.open_session(NAME) as session:
        for code in CELLS:
            sys.stdout.write("\n" + "".join(f"  > {line}\n" for line in code.splitlines()))
            cell = session.execute(code)
            if cell.error:
                raise SandboxError(f"{cell.error.get('type')}: {cell.error.get('message')}")
            print_py_cell_end(cell)
        level = session.isolation["level"]
        sys.stdout.write(f"\nisolation level {level}: no network, no other programs, no files of this machine\n")


def _keep_watch(app: App, folder: Path) -> None:
    from etude.agents.hub import Hub
    from etude.agents.worker import Worker
    from etude.cli.catalog import print_catalog
    from etude.sample import spoil_sample_orders

    _say("A catalog of the shop, as one HTML page:")
    print_catalog(app.cataloger.run(NAME), sys.stdout)
    agents = app.agents
    _say(f"An agent that runs a query every second, and survives a restart of its worker:\n\n{WATCHED}\n")
    agent = agents.create("watch", {"source": NAME, "sql": WATCHED, "every_s": 1}).id
    with Hub(agents.queue) as hub:
        events = hub.subscribe(["agent.step", "watch.changed"], agent=agent)
        with Worker(app, agents.queue):
            _wait_for(events, "agent.step")
        info = agents.get(agent)
        sys.stdout.write(f"{agent}: {info.last_error or _count(info.last_output['answer'])}\n")
        _say("A bad import arrives while no worker runs. The next worker continues where the last one stopped:")
        spoil_sample_orders(folder)
        with Worker(app, agents.queue):
            change = _wait_for(events, "watch.changed")
        sys.stdout.write(f"{agent}: {_count(change['was'])} became {_count(change['now'])}\n")
    agents.destroy(agent, grace=0)
    _say("A new catalog page shows what is wrong with the imported rows:")
    print_catalog(app.cataloger.run(NAME), sys.stdout)


def _wait_for(events: HubSubscription, topic: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for event in events.read(timeout=1.0):
            if event.topic == topic:
                return event.body
    raise Unavailable(f"The agent sent no event within {PATIENCE_S:g} s.", hint="`etude agents list` shows its errors.")


def _count(rows: list[list[int]]) -> str:
    return f"{rows[0][0]:,}"


def _attack(app: App) -> None:
    _say(f"Anything but a read-only query is refused:\n\n{ATTACK}\n")
    try:
        app.sql(NAME, ATTACK)
    except Refused as refusal:
        sys.stdout.write(f"{refusal} (line {refusal.details['line']}, column {refusal.details['column']})\n")


def _say(text: str) -> None:
    sys.stdout.write(f"\n▸ {text}\n")
    sys.stdout.flush()
