"""Data mutants: the ways in which data go wrong between two answers, and changes that are harmless."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb

from etude.errors import Invalid
from etude.ids import new_id
from etude.replays.guards import check_guards, derive_guards, guarded_shapes
from etude.replays.mutants import MutantReport, find_guards_by_mutants
from etude.replays.query_facts import read_query_facts
from etude.replays.repair import find_repair, measure_for_repair, repair_query
from etude.replays.script import Script, ScriptStep
from etude.sources.source import make_source_catalog

if TYPE_CHECKING:
    from etude.entities import Catalog

TABLES = (
    """CREATE TABLE orders AS SELECT i AS order_id, 1 + (i * 7919) % 200 AS customer_id,
        TIMESTAMP '2024-01-01 08:00:00' + to_hours(CAST(i * 6 AS INTEGER)) AS ordered,
        ['completed', 'completed', 'completed', 'returned', 'cancelled'][1 + (i * 31) % 5] AS status,
        ['web', 'app', 'store'][1 + (i * 17) % 3] AS channel,
        CAST(round(5 + ((i * 2654435761) % 100000) / 250.0, 2) AS DOUBLE) AS amount,
        CAST(1 + (i * 13) % 6 AS INTEGER) AS quantity FROM range(1, 2401) t(i)""",
    """CREATE TABLE customers AS SELECT i AS customer_id, 'Customer ' || ((i * 37) % 1009) AS name,
        ['DE', 'FR', 'ES', 'PL', 'US'][1 + (i * 11) % 5] AS country,
        ['Berlin', 'Paris', 'Madrid', 'Warsaw', 'Austin'][1 + (i * 11) % 5] AS city,
        ['consumer', 'business'][1 + (i * 3) % 2] AS segment FROM range(1, 201) t(i)""",
    """CREATE TABLE payments AS SELECT ['card', 'cash', 'transfer'][1 + (i * 5) % 3] AS method,
        CAST(round(3 + ((i * 40503) % 70000) / 300.0, 2) AS DOUBLE) AS paid,
        DATE '2024-01-01' + CAST((i * 7) % 600 AS INTEGER) AS paid_on FROM range(1, 1501) t(i)""",
)
QUESTIONS: dict[str, str] = {
    "total by channel": "SELECT channel, sum(amount) AS total FROM orders GROUP BY channel ORDER BY channel",
    "completed": "SELECT count(*) AS n, sum(amount) AS total FROM orders WHERE status = 'completed'",
    "by month": """SELECT CAST(date_trunc('month', ordered) AS DATE) AS month, sum(amount) AS total FROM orders
        GROUP BY 1 ORDER BY 1""",
    "by country": """SELECT c.country, sum(o.amount) AS total FROM orders o JOIN customers c USING (customer_id)
        GROUP BY c.country ORDER BY c.country""",
    "average basket": "SELECT avg(amount / quantity) AS price FROM orders",
    "large orders": "SELECT count(*) AS n FROM orders WHERE amount > 300",
    "best customers": """SELECT c.name, sum(o.amount) AS total FROM orders o JOIN customers c USING (customer_id)
        GROUP BY c.name ORDER BY total DESC, c.name LIMIT 5""",
    "by city and segment": "SELECT city, segment, count(*) AS n FROM customers GROUP BY ALL ORDER BY 1, 2",
    "payments by method": "SELECT method, sum(paid) AS total FROM payments GROUP BY method ORDER BY method",
    "payments in 2024": "SELECT count(*) AS n, sum(paid) AS total FROM payments WHERE paid_on < DATE '2025-01-01'",
    "by hour": "SELECT hour(ordered) AS hour, count(*) AS n FROM orders GROUP BY 1 ORDER BY 1",
    "returned share": """SELECT c.segment, avg(CASE WHEN o.status = 'returned' THEN 1.0 ELSE 0.0 END) AS share
        FROM orders o JOIN customers c USING (customer_id) GROUP BY c.segment ORDER BY c.segment""",
}
USED: dict[str, dict[str, Sequence[str]]] = {
    "total by channel": {"orders": ("channel", "amount")},
    "completed": {"orders": ("status", "amount")},
    "by month": {"orders": ("ordered", "amount")},
    "by country": {"orders": ("customer_id", "amount"), "customers": ("customer_id", "country")},
    "average basket": {"orders": ("amount", "quantity")},
    "large orders": {"orders": ("amount",)},
    "best customers": {"orders": ("customer_id", "amount"), "customers": ("customer_id", "name")},
    "by city and segment": {"customers": ("city", "segment")},
    "payments by method": {"payments": ("method", "paid")},
    "payments in 2024": {"payments": ("paid_on", "paid")},
    "by hour": {"orders": ("ordered",)},
    "returned share": {"orders": ("customer_id", "status"), "customers": ("customer_id", "segment")},
}
NUMBERS = {"amount", "quantity", "paid"}
ENUMS = {"channel", "status", "country", "city", "segment", "method"}
TIMES = {"ordered", "paid_on"}
SWAPPED = {
    "amount": "quantity", "quantity": "amount", "channel": "status", "status": "channel", "country": "city",
    "city": "country", "segment": "country", "name": "country", "customer_id": "order_id", "method": "note",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of the data. `kind` is what went wrong."""

    question: str
    kind: str
    statements: tuple[str, ...]


def mutants_of(question: str) -> Iterator[Mutant]:
    """Yield mutants of the columns that a question uses."""
    for table, columns in USED[question].items():
        key = f"{table[:-1]}_id" if table != "payments" else ""
        some = f"hash({key or 'paid'}) % 100"

        def make(kind: str, *statements: str) -> Mutant:
            return Mutant(question, kind, statements)

        for share in (1, 3, 5, 30, 101):
            yield make("duplicated keys", f"INSERT INTO {table} SELECT * FROM {table} WHERE {some} < {share}")
        for share in (1, 3, 10, 25, 60):
            yield make("partial load", f"DELETE FROM {table} WHERE {some} < {share}")
        for column in columns:
            yield from (make(kind, *statements) for kind, *statements in _column_mutants(table, column, key, some))


def _column_mutants(table: str, column: str, key: str, some: str) -> Iterator[tuple[str, ...]]:
    yield "renamed column", f"ALTER TABLE {table} RENAME {column} TO {column}_old"
    for share in (1, 2, 10, 50):
        yield "null burst", f"UPDATE {table} SET {column} = NULL WHERE {some} < {share}"
    if column in NUMBERS:
        # Small whole numbers stay as they are if they are 8% larger, and dates if they are hours later.
        for factor in ("100", "1000", "0.01", "1.609", "0.4536", *(("1.08",) if column != "quantity" else ("2.205",))):
            yield "unit change", f"UPDATE {table} SET {column} = {column} * {factor}"
        for share in (5, 20, 50):
            yield "unit change", f"UPDATE {table} SET {column} = {column} * 100 WHERE {some} < {share}"
        yield "type drift", f"ALTER TABLE {table} ALTER {column} TYPE VARCHAR"
        yield "type drift", f"ALTER TABLE {table} ALTER {column} TYPE DECIMAL(18, 1)"
        yield "sign", f"UPDATE {table} SET {column} = -{column} WHERE {some} < 10"
    if column in ENUMS:
        for share in (1, 5, 20):
            yield "new value", f"UPDATE {table} SET {column} = 'other' WHERE {some} < {share}"
        yield "new value", f"UPDATE {table} SET {column} = upper({column}) || ' ' WHERE {some} < 30"
        yield "new value", f"UPDATE {table} SET {column} = lower({column}) || 'x' WHERE {some} < 3"
    if column in TIMES:
        hours = ("INTERVAL 1 HOUR", "INTERVAL 5 HOUR", "INTERVAL 13 HOUR", "INTERVAL 1 DAY")
        days = ("INTERVAL 1 DAY", "INTERVAL 2 DAY", "INTERVAL 7 DAY", "INTERVAL 30 DAY")
        for shift in days if column == "paid_on" else hours:
            for sign in "+-":
                yield "time zone", f"UPDATE {table} SET {column} = {column} {sign} {shift}"
        yield "time zone", f"UPDATE {table} SET {column} = {column} + INTERVAL 30 HOUR WHERE {some} < 40"
        yield "type drift", f"ALTER TABLE {table} ALTER {column} TYPE VARCHAR"
    if column.endswith("_id"):
        yield "type drift", f"ALTER TABLE {table} ALTER {column} TYPE VARCHAR"
        yield "keys moved", f"UPDATE {table} SET {column} = {column} + 1"
    other = SWAPPED.get(column)
    if other and not (table == "payments" or (table == "customers" and other == "order_id")):
        moved = f"SELECT * REPLACE ({other} AS {column}, {column} AS {other}) FROM {table}"
        yield "swapped columns", f"CREATE OR REPLACE TABLE {table} AS {moved}"


def harmless_changes(question: str, chance: random.Random) -> Iterator[Mutant]:
    """Yield changes that leave the answer right: more rows of the same kind, another order, an unused column."""
    table = chance.choice(list(USED[question]))
    key = f"{table[:-1]}_id" if table != "payments" else ""
    while True:
        rows = chance.choice((3, 20, 100, 300))
        replaced = f"REPLACE ((SELECT max({key}) FROM {table}) + row_number() OVER () AS {key})" if key else ""
        seed = chance.randrange(1_000_000)
        sample = f"SELECT * FROM {table} ORDER BY hash({key or 'paid'} + {seed}) LIMIT {rows}"
        more = f"INSERT INTO {table} SELECT * {replaced} FROM ({sample})"
        if not key:
            # Whole rows of a table without a key would be duplicates: new ones mix the values of others.
            mixed = "row_number() OVER (ORDER BY hash(paid_on, {0}))"
            one, other = (f"SELECT *, {mixed.format(seed + n)} AS n FROM {table}" for n in (0, 1))
            joined = f"({one}) a JOIN ({other}) b USING (n)"
            more = f"INSERT INTO {table} SELECT a.method, a.paid, b.paid_on FROM {joined} LIMIT {rows}"
        kinds = {
            "more rows": (more,),
            "another order": (
                f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {table} ORDER BY hash({seed} + rowid)",
            ),
            "new column": (f"ALTER TABLE {table} ADD COLUMN note_{seed} VARCHAR DEFAULT 'x'",),
            "new table": (f"CREATE TABLE extra_{seed} AS SELECT {seed} AS x",),
        }
        kind = chance.choices(list(kinds), (4, 2, 2, 1))[0]
        yield Mutant(question, kind, kinds[kind])


class Shop:
    """The data in memory, as a mutant leaves them. The checks run the guards' own queries on it."""

    def __init__(self, mutant: Mutant | None = None) -> None:
        self.db = duckdb.connect()
        for statement in (*TABLES, *(mutant.statements if mutant else ())):
            self.db.execute(statement)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        try:
            return self.db.execute(sql).fetchall()
        except duckdb.Error as error:
            raise Invalid(str(error)[:200]) from None

    def catalog(self) -> Catalog:
        """Return the tables and columns."""
        tables = []
        for (name,) in self.query("SELECT table_name FROM duckdb_tables()"):
            described = self.query(f"DESCRIBE {name}")
            tables.append({"name": name, "columns": [{"name": c[0], "type": c[1]} for c in described]})
        return make_source_catalog("shop", "duckdb", "duckdb", tables)

    def answer(self, sql: str) -> object:
        """Return the rows of a query, rounded; None if it fails."""
        try:
            rows = self.query(sql)
        except Invalid:
            return None
        return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows]

    def script(self, question: str) -> Script:
        """Return the script of a question, with the guards that follow from its data and from mutants of them."""
        catalog, query = self.catalog(), QUESTIONS[question]
        facts = read_query_facts(query, "duckdb", {t.name: t for t in catalog.tables if t.name in USED[question]})
        shapes = guarded_shapes(catalog, [facts])
        guards = derive_guards(catalog, shapes, facts.joined, self.query)
        added, report = find_guards_by_mutants([query], catalog, shapes, guards, self.query)
        return Script(
            id=new_id("script"),
            question=question,
            source="shop",
            dialect="duckdb",
            model="offline",
            run_id="run",
            asked_at=datetime.now(UTC),
            key="",
            steps=(ScriptStep(kind="sql", code=query),),
            shapes=shapes,
            guards=(*guards, *added),
            mutants=report,
            profiles=measure_for_repair(catalog, shapes, self.query),
            tables=tuple(t.name for t in catalog.tables),
        )


@dataclass
class MutantsJudged:
    """What the guards did with mutants and with harmless changes."""

    mutants: int = 0
    stopped: int = 0
    harmless_mutants: int = 0
    """Not stopped, and the answer is still right."""
    silent: list[Mutant] = field(default_factory=list)
    changes: int = 0
    false_stops: list[tuple[Mutant, str]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    repaired: int = 0
    """Found again under another name or type, with the right answer; counted as stopped, too, as the schema changed."""
    mined: list[MutantReport] = field(default_factory=list)
    """What the mutants that etude makes itself showed, by script."""


def judge_guards(mutants: Sequence[Mutant], changes: Sequence[Mutant]) -> MutantsJudged:
    """Derive the guards of each question from clean data, then check them on every mutant and harmless change."""
    judged = MutantsJudged()
    clean = Shop()
    scripts = {name: clean.script(name) for name in {m.question for m in (*mutants, *changes)}}
    judged.mined = [script.mutants for script in scripts.values()]
    gold = {name: clean.answer(QUESTIONS[name]) for name in scripts}
    for mutant in mutants:
        shop = Shop(mutant)
        judged.mutants += 1
        reason, sql, repaired = _replay(shop, scripts[mutant.question])
        if reason:
            judged.stopped += 1
            judged.kinds[mutant.kind] += 1
        elif shop.answer(sql) not in (gold[mutant.question], None):
            judged.silent.append(mutant)
        elif repaired:
            judged.stopped += 1
            judged.repaired += 1
        else:
            judged.harmless_mutants += 1
    for change in changes:
        judged.changes += 1
        reason, _, _ = _replay(Shop(change), scripts[change.question])
        if reason:
            judged.false_stops.append((change, reason))
    return judged


def _replay(shop: Shop, script: Script) -> tuple[str, str, bool]:
    """Return why a script does not run on these data, or its query, and whether that had to be repaired."""
    catalog, sql = shop.catalog(), script.steps[0].code
    failure = next((failure for shape in script.shapes if (failure := shape.check(catalog)) is not None), None)
    repair = find_repair(script, catalog, shop.query) if failure else None
    if failure and repair is None:
        return failure, sql, False
    relations = repair.relations if repair else {}
    try:
        stopped = check_guards(script.guards, "duckdb", shop.query, relations) or ""
    except Invalid as error:
        stopped = error.message
    return stopped, repair_query(sql, "duckdb", relations), bool(relations)
