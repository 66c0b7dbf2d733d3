from __future__ import annotations

from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from etude.entities import Catalog, Column, Table
from etude.replays.script import Parameter
from etude.replays.script_parameters import check_parameter_value


@pytest.mark.parametrize("dialect", ["mysql", "postgres", "sqlite", "duckdb"])
@pytest.mark.parametrize("value", ["a\\", "\\' OR 1 = 1 OR '", "it's", "C:\\new"])
def test_a_text_is_looked_up_as_the_dialect_of_the_source_writes_it(dialect: str, value: str) -> None:
    column = Column(name="name", type="VARCHAR")
    table = Table(name="customers", columns=(column,))
    catalog = Catalog(source="shop", kind="test", dialect=dialect, fingerprint="", tables=(table,))
    parameter = Parameter(name="name", kind="text", default="x", position=0, table="customers", column="name")
    asked: list[str] = []

    def run(sql: str) -> Any:
        asked.append(sql)
        return [(1, 1)]

    assert check_parameter_value(parameter, value, catalog, run) is None
    texts = [node.this for node in sqlglot.parse_one(asked[0], dialect=dialect).find_all(exp.Literal) if node.is_string]
    assert sorted(texts) == sorted([value, value.lower().strip()])
