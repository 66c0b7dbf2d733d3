"""SQL of another dialect, in the words of the engine that refused it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from etude.errors import Refused
from etude.learning.edits.python_rewriting import parse_python_tree
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis
from etude.sources.sql_parsing import parse_sql

NAME = "casts"
_ENGINES = {"sqlite3": "sqlite", "duckdb": "duckdb", "psycopg": "postgres", "pymysql": "mysql", "_duckdb": "duckdb"}
_WRITTEN_FOR = ("postgres", "mysql", "duckdb", "tsql", "bigquery", "snowflake", "sqlite")
_STARTS = ("select", "with", "insert", "update", "delete")


def propose_casts(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that translate a query to the dialect of the engine that raised the error."""
    for test, failure in diagnosis.failures:
        engine = _ENGINES.get(failure.error.partition(".")[0])
        if engine is None:
            continue
        paths = list(dict.fromkeys(path for path, _ in diagnosis.places(failure)))
        for path in paths:
            tree = parse_python_tree(diagnosis.workspace.read(path))
            for node in tree.nodes(cst.SimpleString) if tree else ():
                text = node.evaluated_value
                if tree is None or not isinstance(text, str) or not text.lstrip().lower().startswith(_STARTS):
                    continue
                for made in dict.fromkeys(_translations(text, engine)):
                    literal = cst.SimpleString(f'"""{made}"""' if '"' in made or "\n" in made else f'"{made}"')
                    why = f"{failure.error} in `{test}`: the query at `{path}` line {tree.line(node)} for {engine}"
                    yield from diagnosis.propose(NAME, path, tree.replace(node, literal), why)


def _translations(text: str, engine: str) -> Iterator[str]:
    from sqlglot.errors import SqlglotError

    for dialect in _WRITTEN_FOR:
        if dialect == engine:
            continue
        try:
            made = [tree.sql(dialect=engine) if tree else "" for tree in parse_sql(text, dialect)]
        except (SqlglotError, RecursionError, Refused):
            continue
        if len(made) == 1 and "".join(made[0].split()) != "".join(text.split()) and '"""' not in made[0]:
            yield made[0]
