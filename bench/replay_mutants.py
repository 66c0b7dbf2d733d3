"""Data mutants: the ways in which data go wrong between two answers, and changes that are harmless."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from etude.replays.guards import DataGuard, TableShape, check_guards, derive_guards, shapes_of
from etude.replays.query_facts import read_query
from etude.sources.source import make_catalog

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
        for factor in ("100", "1000", "0.01", "1.609", "0.4536", "1.08"):
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
        for shift in ("INTERVAL 1 HOUR", "INTERVAL 5 HOUR", "INTERVAL 13 HOUR", "INTERVAL 1 DAY"):
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
        return self.db.execute(sql).fetchall()

    def catalog(self) -> Catalog:
        """Return the tables and columns."""
        tables = []
        for (name,) in self.query("SELECT table_name FROM duckdb_tables()"):
            described = self.query(f"DESCRIBE {name}")
            tables.append({"name": name, "columns": [{"name": c[0], "type": c[1]} for c in described]})
        return make_catalog("shop", "duckdb", "duckdb", tables)

    def answer(self, question: str) -> object:
        """Return the rows of a question, rounded; None if the query fails."""
        try:
            rows = self.query(QUESTIONS[question])
        except duckdb.Error:
            return None
        return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows]

    def guards(self, question: str) -> tuple[tuple[TableShape, ...], tuple[DataGuard, ...]]:
        """Return the guards of a question."""
        catalog = self.catalog()
        tables = {t.name: t for t in catalog.tables if t.name in USED[question]}
        facts = read_query(QUESTIONS[question], "duckdb", tables)
        shapes = shapes_of(catalog, [facts])
        return shapes, derive_guards(catalog, shapes, facts.joined, self.query)


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


def judge_guards(mutants: Sequence[Mutant], changes: Sequence[Mutant]) -> MutantsJudged:
    """Derive the guards of each question from clean data, then check them on every mutant and harmless change."""
    judged = MutantsJudged()
    clean = Shop()
    names = {m.question for m in (*mutants, *changes)}
    guards = {name: clean.guards(name) for name in names}
    gold = {name: clean.answer(name) for name in names}
    for mutant in mutants:
        shop = Shop(mutant)
        judged.mutants += 1
        if _stopped(shop, *guards[mutant.question]):
            judged.stopped += 1
            judged.kinds[mutant.kind] += 1
        elif shop.answer(mutant.question) in (gold[mutant.question], None):
            judged.harmless_mutants += 1
        else:
            judged.silent.append(mutant)
    for change in changes:
        judged.changes += 1
        reason = _stopped(Shop(change), *guards[change.question])
        if reason:
            judged.false_stops.append((change, reason))
    return judged


def _stopped(shop: Shop, shapes: Sequence[TableShape], guards: Sequence[DataGuard]) -> str:
    """Return why a script does not run on these data; empty if it does."""
    catalog = shop.catalog()
    for shape in shapes:
        if (failure := shape.check(catalog)) is not None:
            return failure
    return check_guards(guards, "duckdb", shop.query) or ""
