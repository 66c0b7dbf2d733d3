"""The same examples run outside, on a connection, and inside, in a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import etude

EXAMPLES = {
    "positional": "db.sql('SELECT name FROM customers WHERE id = ?', [2]).rows() == [('Bob',)]",
    "named": "db.sql('SELECT name FROM customers WHERE id = $id OR name = :n ORDER BY id', {'id': 2, 'n': 'Cy'})"
    ".fetchall() == [('Bob',), ('Cy',)]",
    "hostile": "db.sql('SELECT ? AS v', [\"'; DROP TABLE customers; --\"]).fetchone()[0].endswith('--')",
    "iteration": "[row[0] for row in db.sql('FROM customers ORDER BY id')] == [1, 2, 3]",
    "len": "len(db.sql('FROM customers')) == 3",
    "fetchone": "(r := db.sql('FROM customers ORDER BY id')).fetchone()[0] == 1 and len(r.fetchall()) == 2"
    " and r.fetchone() is None",
    "pandas": "db.sql('FROM customers').to_pandas().shape == db.sql('FROM customers').df().shape == (3, 3)",
    "arrow": "db.sql('FROM customers').arrow().num_rows == 3",
    "capsule": "__import__('pyarrow').table(db.sql('FROM customers')).num_rows == 3",
    "html": "'<td>Ann</td>' in db.sql('FROM customers')._repr_html_()",
    "text": "'Ann' in repr(db.sql('FROM customers')) and '3 rows' in repr(db.sql('FROM customers'))",
    "limit": "db.sql('FROM customers ORDER BY id', limit=2).truncated",
    "many": "int(db.sql('SELECT i FROM range(1500000) r(i)').df()['i'].sum()) == 1500000 * 1499999 // 2",
    "ibis": "db.table('customers').count().execute() == 3",
    "ibis table": "list(db.table('customers').order_by('id').name.execute()) == ['Ann', 'Bob', 'Cy']",
    "registered": "[db.register('sales', {'customer': [1, 1, 3], 'amount': [5, 6, 7]}),"
    " db.sql('SELECT name, sum(amount) AS s FROM customers JOIN sales ON customer = id GROUP BY 1 ORDER BY 1').rows()]"
    " [1] == [('Ann', 11), ('Cy', 7)]",
    "frame": "[db.register('frame', db.sql('FROM customers').df()), len(db.sql('FROM frame')), 'frame' in db.tables()]"
    "[1:] == [3, True]",
}


@pytest.fixture(scope="module")
def crm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crm") / "crm.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR, country VARCHAR)")
        db.execute("INSERT INTO customers VALUES (1, 'Ann', 'DE'), (2, 'Bob', 'FR'), (3, 'Cy', 'DE')")
    return path


@pytest.fixture(params=["outside", "inside"], scope="module")
def holds(
    request: pytest.FixtureRequest, crm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Any]]:
    with etude.App(home=tmp_path_factory.mktemp("home")) as app:
        if request.param == "outside":
            with etude.connect(crm, app=app) as db:
                yield lambda code: eval(code, {"db": db, "etude": etude})
            return
        with app.open_session(str(crm)) as session:
            session.execute("import etude\ndb = etude.connect()")

            def run(code: str) -> Any:
                cell = session.execute(code)
                return cell.value if cell.ok else cell.error

            yield run


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_holds_outside_and_inside(holds: Callable[[str], Any], example: str) -> None:
    if example.startswith("ibis"):
        pytest.importorskip("ibis")
    assert holds(EXAMPLES[example]) is True, EXAMPLES[example]
