"""`get_dataset_schema`: show the tables of a dataset by name, or those that best match a search."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Catalog, Entity
from etude.similar_names import similar_names
from etude.tools.base import ONLY, Tool, ToolContext
from etude.tools.result_text import CHARS, table_result_text_for_model
from etude.tools.table_ranking import rank_tables, ranking_words


class Arguments(Entity):
    """The tables to show."""

    dataset: str = Field(default="", description=ONLY)
    tables: tuple[str, ...] = Field(default=(), description="names")
    search: str = Field(default="", description="words")


def _absent(name: str, catalog: Catalog, context: ToolContext) -> str:
    """Say that the table is missing, and which ones have a similar name or hold such a thing."""
    by_name = {table.name.lower(): table.name for table in catalog.tables}
    near = [by_name[n] for n in similar_names(name.lower(), by_name, n=3, cutoff=0.5)]
    best = rank_tables(catalog, name)[:3] if ranking_words(name) and not near else []
    near += [
        table.name
        for table in best
        if set(ranking_words(name)) & set(ranking_words(table_result_text_for_model(table)))
    ]
    meant = f" Did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
    return context.quote(f"There is no table `{name}`.{meant}")


class GetDatasetSchema(Tool):
    """Columns, types, keys and comments."""

    name = "get_dataset_schema"
    description = (
        "Show columns, types, keys, values and comments of tables that are not listed in full: by name, or those that "
        "best match some words."
    )
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return as many tables in full as fit, and the names of the others."""
        catalog = context.catalog(arguments.dataset)
        if arguments.tables:
            wanted = [catalog.table(name) for name in arguments.tables]
            missing = [name for name, table in zip(arguments.tables, wanted) if table is None]
            tables = [table for table in wanted if table is not None]
            note = "".join(f"\n{_absent(name, catalog, context)}" for name in missing)
        else:
            tables = list(context.rank(arguments.dataset, f"{arguments.search} {context.question}"))
            note = ""
        shown: list[str] = []
        used = 0
        for table in tables:
            text = table_result_text_for_model(table, catalog.tables)
            if shown and used + len(text) > CHARS:
                break
            shown.append(text)
            used += len(text)
        rest = [table.name for table in tables[len(shown) :]]
        if rest:
            shown.append(f"and {len(rest)} more: {', '.join(rest)}"[: CHARS // 4])
        return context.quote("\n\n".join(shown)) + note
