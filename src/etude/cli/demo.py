"""`etude demo`: the main job in one command, on a small shop with some dirt in it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from etude.cli.output import write_result
from etude.cli.runs import print_runs
from etude.cli.sources import show_catalog

if TYPE_CHECKING:
    from etude.app import App

NAME = "shop"
REVENUE = """SELECT year(try_cast(o.ordered AS DATE)) AS year, c.country,
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
    "import etude\ndb = etude.connect()\norders = db.sql('SELECT channel, amount FROM orders').df()",
    "orders.groupby('channel').amount.agg(['count', 'mean']).round(2)",
)
QUESTIONS = (
    "How many customers are there per country?",
    "What is the total amount per month in 2025?",
    "only for web",
)
ATTACK = "SELECT * FROM read_csv('/etc/passwd')"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--folder", help="where to write the shop's files; under etude's home by default")


def run(options: argparse.Namespace) -> None:
    """Make the shop, add it, ask it, query it, study it, try to break it, and look at what was recorded."""
    from etude.app import App

    with App() as app:
        app.pool.warm()
        _add_shop(app, Path(options.folder or app.settings.home / NAME).absolute())
        _ask(app)
        _query(app)
        _study(app)
        _attack(app)
        _say("Every one of these is a recorded run; `etude runs show RUN` tells all of it:")
        print_runs(app.store.runs(limit=5), sys.stdout)
        _say('Yours next:  etude ask PATH_OR_URL "question"  (CSV, JSON, Parquet, Excel, DuckDB, SQLite, Postgres)')


def _add_shop(app: App, folder: Path) -> None:
    from etude.entities import SourceSpec
    from etude.sample import write_shop

    _say(f"A small shop, two years of it, with some dirt: {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    write_shop(folder)
    if NAME in app.sources():
        app.remove_source(NAME)
    show_catalog(app.add_source(NAME, SourceSpec(url=str(folder))), as_json=False)


def _ask(app: App) -> None:
    from etude.cli.ask import Steps, print_answer

    _say("Questions in words, answered by rules alone: no model, no key, and no number that was not computed")
    thread = None
    for question in QUESTIONS:
        _say(question)
        answer = app.ask(NAME, question, model="offline", thread_id=thread, on_entry=Steps(sys.stdout)).require()
        thread = answer.thread_id
        print_answer(answer, sys.stdout)


def _query(app: App) -> None:
    printed = argparse.Namespace(format="table", output=None)
    _say(f"SQL, in a process without network that may read these files and nothing else:\n\n{REVENUE}\n")
    write_result(app.sql(NAME, REVENUE), printed)
    _say(f"The best seller of each category, as a QueryPlan:\n\n{json.dumps(BEST_SELLERS)}\n")
    result = app.plan(NAME, BEST_SELLERS)
    write_result(result, printed)


def _study(app: App) -> None:
    from etude.cli.py import print_end
    from etude.errors import SandboxError

    _say("The same data from Python, in a sandboxed session that keeps its variables:")
    try:
        with app.open_session(NAME) as session:
            for code in CELLS:
                sys.stdout.write("\n" + "".join(f"  > {line}\n" for line in code.splitlines()))
                print_end(session.execute(code))
            level = session.isolation["level"]
            sys.stdout.write(f"\nisolation level {level}: no network, no program, no file of this machine\n")
    except SandboxError as error:
        sys.stdout.write(f"{error} {error.hint}\n")


def _attack(app: App) -> None:
    from etude.errors import Refused

    _say(f"What is no query on the shop is refused:\n\n{ATTACK}\n")
    try:
        app.sql(NAME, ATTACK)
    except Refused as refusal:
        sys.stdout.write(f"refused (line {refusal.details['line']}, column {refusal.details['column']}): {refusal}\n")


def _say(text: str) -> None:
    sys.stdout.write(f"\n▸ {text}\n")
    sys.stdout.flush()
