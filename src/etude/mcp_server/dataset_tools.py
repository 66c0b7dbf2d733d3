"""MCP tools for datasets: list, describe, search and match them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from etude.entities import Entity, Table
from etude.errors import LimitExceeded, NotFound
from etude.mcp_server.caller import Dataset, McpCaller, Tool
from etude.search.index_base import Kind, Mode
from etude.search.search_results import MatchPage, SearchPage
from etude.similar_names import similar_names

DESCRIBED = 20
"""The most tables that are described in one answer; of larger datasets a client gets the list of tables first."""

DESCRIBED_COLUMNS = 5_000
"""The most columns of those tables: the answer is one message, which the event loop writes."""


class DatasetEntry(Entity):
    """A dataset."""

    name: str
    kind: str


class Datasets(Entity):
    """The available datasets."""

    datasets: list[DatasetEntry]


class TableEntry(Entity):
    """A table in the list of tables."""

    name: str
    kind: str
    columns: int
    rows: int | None = None


class DatasetDescription(Entity):
    """The described tables of a dataset, or a page of the list of its tables."""

    source: str
    kind: str
    dialect: str
    table_count: int
    tables: list[Table] = []
    """The described tables: all of a small dataset, or those asked for."""
    entries: list[TableEntry] = []
    """A page of the list of tables, if the dataset has too many to describe at once."""
    next: int | None = None
    """The `offset` of the next page of the list."""
    hint: str = ""
    notes: tuple[str, ...] = ()


def list_datasets(caller: McpCaller) -> Datasets:
    """List the datasets."""
    app = caller.app
    return Datasets(datasets=[DatasetEntry(name=n, kind=app.source(n).kind) for n in app.sources()])


def describe_dataset(
    caller: McpCaller,
    dataset: Dataset = None,
    tables: Annotated[list[str] | None, Field(max_length=DESCRIBED, description="the tables to describe")] = None,
    offset: Annotated[int, Field(ge=0, description="where the page of the list of tables begins")] = 0,
    limit: Annotated[int, Field(ge=1, le=1000, description="most tables in a page of the list")] = 200,
) -> DatasetDescription:
    """Return the tables, columns, types, keys and row counts of a dataset.

    If the dataset has many tables, this returns the list of their names, in pages: pass `next` as `offset` for the next
    page, and the names you need as `tables` to get their columns.
    """
    catalog = caller.app.catalog(caller.app.source_name(dataset))
    found = DatasetDescription(
        source=catalog.source,
        kind=catalog.kind,
        dialect=catalog.dialect,
        table_count=len(catalog.tables),
        notes=catalog.notes,
    )
    if tables is not None:
        tables = list(dict.fromkeys(tables))
        chosen = [catalog.table(name) for name in tables]
        missing = [name for name, table in zip(tables, chosen) if table is None]
        if missing:
            near = similar_names(missing[0], [t.name for t in catalog.tables], n=1)
            hint = f"Did you mean `{near[0]}`?" if near else "Call `describe_dataset` without `tables` for the list."
            raise NotFound(f"`{catalog.source}` has no table `{missing[0][:100]}`.", hint=hint)
        described = [t for t in chosen if t is not None]
        if (count := _count_columns(described)) > DESCRIBED_COLUMNS:
            raise LimitExceeded(
                f"These tables have {count:,} columns; {DESCRIBED_COLUMNS:,} are described at once.",
                hint="Name fewer tables, or read `information_schema.columns` with SQL.",
                limit="columns",
                value=DESCRIBED_COLUMNS,
            )
        return found.model_copy(update={"tables": described})
    if len(catalog.tables) <= DESCRIBED and _count_columns(catalog.tables) <= DESCRIBED_COLUMNS:
        return found.model_copy(update={"tables": list(catalog.tables)})
    page = [
        TableEntry(name=t.name, kind=t.kind, columns=len(t.columns), rows=t.row_count)
        for t in catalog.tables[offset : offset + limit]
    ]
    after = offset + limit if offset + limit < len(catalog.tables) else None
    hint = f"Call again with `tables`, at most {DESCRIBED} names, to get their columns."
    return found.model_copy(update={"entries": page, "next": after, "hint": hint})


def _count_columns(tables: Sequence[Table]) -> int:
    return sum(len(table.columns) for table in tables)


def search(
    caller: McpCaller,
    query: Annotated[str, Field(min_length=1, max_length=2_000, description="words, in any language")],
    dataset: Annotated[str | None, Field(description="A name from list_datasets; all datasets by default.")] = None,
    kinds: Annotated[
        list[Kind] | None, Field(description="Only these: row, value, table, column, file, playbook, run.")
    ] = None,
    tables: Annotated[list[str] | None, Field(max_length=100, description="Only in these tables.")] = None,
    k: Annotated[int, Field(ge=1, le=100)] = 10,
    offset: Annotated[int, Field(ge=0, le=1_000)] = 0,
    mode: Mode = "hybrid",
) -> SearchPage:
    """Find tables, columns, values, rows, documents, playbooks and past questions by words and by meaning.

    Use it to find the right table among many, how a value is spelt, or a run that answered this before.
    """
    name = caller.app.source_name(dataset) if dataset is not None else None
    return caller.app.search(query, name, kinds=kinds, tables=tables, k=k, offset=offset, mode=mode)


def match(
    caller: McpCaller,
    table: Annotated[str, Field(min_length=1, max_length=1_000)],
    like: Annotated[str | dict[str, Any], Field(description='a text, or the key of a row such as {"id": 17}')],
    where: Annotated[
        str | dict[str, Any] | list[dict[str, Any]] | None,
        Field(description="a condition in the dataset's SQL, or filters of a QueryPlan; it holds exactly"),
    ] = None,
    dataset: Dataset = None,
    columns: Annotated[list[str] | None, Field(max_length=20, description="The columns to compare.")] = None,
    facets: Annotated[list[str] | None, Field(max_length=8, description="Columns to count the values of.")] = None,
    k: Annotated[int, Field(ge=1, le=1_000)] = 10,
    offset: Annotated[int, Field(ge=0, le=100_000)] = 0,
) -> MatchPage:
    """Return the rows of a table that pass `where`, most similar first to `like`, each with the reason."""
    caller.check_capacity()
    name = caller.app.source_name(dataset)
    return caller.app.match(name, table, like, where, columns=columns or (), k=k, offset=offset, facets=facets or ())


# Clients see the docstrings of these functions, and the annotations of all arguments except the first.
TOOLS: tuple[Tool, ...] = (
    (list_datasets, "reader", True),
    (describe_dataset, "reader", True),
    (search, "reader", True),
    (match, "analyst", True),
)
