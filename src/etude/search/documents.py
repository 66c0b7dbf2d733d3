"""What is indexed: tables, columns, rows and values of a source, files beside its tables, playbooks and runs.

The catalog chooses the columns. Values of a column that it masks as personal data are never part of a document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.cell_text import cell_to_json
from etude.entities import RunFilter
from etude.errors import EtudeError, Invalid
from etude.search.index_base import Document, make_index_document
from etude.sources.quoting import quote_identifier, quote_table

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Limits
    from etude.sources.source import Source

TEXT = 8_000
"""The most characters of a row, a run or a playbook that are indexed."""
TITLE = 120
VALUES = 20_000
"""A column with at most this many distinct values, most of them repeated, is indexed value by value."""
RUNS = 10_000
"""The latest runs of a source that are indexed."""
_CODES = frozenset({"uuid", "hex", "date", "timestamp", "time", "number", "integer", "boolean", "ip", "iban", "card"})


class TextColumns:
    """The columns of a source whose texts are indexed, and those that are masked."""

    def __init__(self, profile: SourceProfile, named: Sequence[str] = ()) -> None:
        self.texts = {t.name: _chosen(t, named) for t in profile.tables}
        self.masked = {t.name: {c.name: _kind(c) for c in t.columns if c.masked} for t in profile.tables}
        self.keys = {t.name: _usable_key(t) for t in profile.tables}
        for name in named:
            table, _, column = name.rpartition(".")
            known = profile.table(table)
            if known is None or known.column(column) is None:
                raise Invalid(f"The column `{name}` does not exist.", hint="Write TABLE.COLUMN, as in the catalog.")
            if column in self.masked[known.name]:
                raise Invalid(
                    f"`{name}` is masked as personal data ({self.masked[known.name][column]}), so it is not indexed.",
                    hint="Name other columns.",
                )


def _chosen(table: TableProfile, named: Sequence[str]) -> tuple[str, ...]:
    wanted = {n.rpartition(".")[2] for n in named if n.rpartition(".")[0].lower() == table.name.lower()}
    return tuple(c.name for c in table.columns if (c.name in wanted if named else _is_text(c)) and not c.masked)


def _is_text(column: ColumnProfile) -> bool:
    coded = any(p.kind in _CODES and p.share > 0.9 for p in column.patterns)
    same = column.constant and (column.rows or 0) > 1
    return column.family == "text" and not (coded or same or column.empty)


def _kind(column: ColumnProfile) -> str:
    return column.pii[0].kind if column.pii else "personal data"


def _usable_key(table: TableProfile) -> tuple[str, ...]:
    key = table.primary_key
    usable = key is not None and key.unique is not False
    masked = {c.name for c in table.columns if c.masked}
    return key.columns if key is not None and usable and not masked & set(key.columns) else ()


def schema_documents(profile: SourceProfile) -> Iterator[Document]:
    """Yield the tables and columns with their descriptions and frequent values."""
    for table in profile.tables:
        columns = ", ".join(_spaced(c.name) for c in table.columns)
        parts = [_spaced(table.name), table.description or table.comment or "", " ".join(table.tags), columns]
        notes = [c.description or c.comment or "" for c in table.columns]
        text = "\n".join(p for p in (*parts, *notes) if p)[:TEXT]
        yield make_index_document(f"table:{table.name}", "table", table.name, text, table=table.name)
        for column in table.columns:
            yield _describe_column(table, column)


def _describe_column(table: TableProfile, column: ColumnProfile) -> Document:
    shown = [str(v.value) for v in column.top if isinstance(v.value, str)] if not column.masked else []
    parts = [f"{_spaced(column.name)} of {_spaced(table.name)}", column.description or column.comment or ""]
    text = "\n".join(p for p in (*parts, ", ".join(v[:80] for v in shown)) if p)[:TEXT]
    name = f"{table.name}.{column.name}"
    return make_index_document(f"column:{name}", "column", name, text, table=table.name, column=column.name)


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def row_documents(app: App, source: Source, table: str, columns: TextColumns, limits: Limits) -> Iterator[Document]:
    """Yield the rows of a table that have a text, each with its key; equal rows without a key become one document."""
    texts, key = columns.texts[table], columns.keys[table]
    if not texts:
        return
    dialect = app.catalog(source).dialect
    chosen = list(dict.fromkeys((*key, *texts)))
    listed = ", ".join(quote_identifier(name, dialect) for name in chosen)
    # The engine runs what etude itself wrote, but through the guard, like every query.
    result = app.sql(source, f"SELECT {listed} FROM {quote_table(table, dialect)}", limits=limits, record=False)
    seen: set[str] = set()
    for row in result.iter_rows():
        values = dict(zip(chosen, row))
        text = row_document_text(values, texts)
        if not text:
            continue
        shown = json.dumps({k: cell_to_json(values[k]) for k in key}, ensure_ascii=False) if key else ""
        title = next((str(values[c])[:TITLE] for c in texts if values[c] not in (None, "")), "")
        made = make_index_document("", "row", title, text, table=table, key=shown)
        made = made._replace(id=f"row:{table}:{shown or made.fingerprint}")
        if not key:
            if made.id in seen:
                continue
            seen.add(made.id)
        yield made


def row_document_text(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the text of a row: its texts, one on each line."""
    return "\n".join(str(values[c]) for c in columns if values.get(c) not in (None, ""))[:TEXT]


def value_documents(
    app: App, source: Source, profile: SourceProfile, columns: TextColumns, limits: Limits
) -> Iterator[Document]:
    """Yield the distinct values of columns in which values repeat, such as cities; a question can then name any."""
    dialect = app.catalog(source).dialect
    for table in profile.tables:
        for name in columns.texts[table.name]:
            column = table.column(name)
            distinct = column.distinct if column is not None else None
            if not distinct or distinct > VALUES or (table.rows and distinct > table.rows // 2):
                continue
            quoted = quote_identifier(name, dialect)
            sql = f"SELECT DISTINCT {quoted} FROM {quote_table(table.name, dialect)} WHERE {quoted} IS NOT NULL"
            for (value,) in app.sql(source, sql, limits=limits, record=False).iter_rows():
                text = str(value)[:TEXT]
                if text.strip():
                    found = make_index_document("", "value", text[:TITLE], text, table=table.name, column=name)
                    yield found._replace(id=f"value:{table.name}.{name}:{found.fingerprint}")


def playbook_documents(app: App) -> Iterator[Document]:
    """Yield the approved playbooks of the tenant."""
    for playbook in app.playbooks.approved():
        text = f"{playbook.description}\n{playbook.text}"[:TEXT]
        yield make_index_document(f"playbook:{playbook.name}", "playbook", playbook.name, text)


def run_documents(app: App, source: Source) -> Iterator[Document]:
    """Yield the latest successful questions on a source; those on a file without a name are not told apart."""
    if not source.named:
        return
    cursor, seen = None, set[str]()
    with suppress(EtudeError):  # an unreadable history hides no rows
        for _ in range(RUNS // 500):
            page = app.store.runs(RunFilter(source=source.name, status="succeeded", kind="ask"), 500, cursor)
            for run in page.items:
                if run.text not in seen:  # the latest of each question
                    seen.add(run.text)
                    yield make_index_document(f"run:{run.id}", "run", run.text[:TITLE], run.text[:TEXT], key=run.id)
            cursor = page.next
            if cursor is None:
                return
