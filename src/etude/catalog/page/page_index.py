"""The search index of the page: names of tables and columns, and values that are not masked."""

from __future__ import annotations

import json

from etude.catalog.model import ColumnProfile, TableProfile
from etude.catalog.page.context import PageContext
from etude.catalog.page.fragments import table_purpose_fragment
from etude.catalog.page.html_markup import Markup, clean_for_html, json_for_html_script
from etude.catalog.page.page_packing import compress_packed_page

SEARCHED = 60
"""Characters of a value in the search index."""


def _searched(table: TableProfile, column: ColumnProfile) -> list[str]:
    """Return the distinct values of a column that the page shows: frequent values, min and max, sample rows."""
    values = [t.value for t in column.top] + [column.min, column.max]
    if table.samples is not None and column.name in table.samples.columns:
        at = table.samples.columns.index(column.name)
        values += [row[at] for row in table.samples.rows]
    known = (
        str(v).lower() if isinstance(v, bool) else clean_for_html(str(v)[:SEARCHED]) for v in values if v is not None
    )
    return [v for v in dict.fromkeys(known) if v]


def make_page_index(context: PageContext, packed: bool) -> Markup:
    """Build the search index: name, purpose and columns of each table; name, type and values of each column."""
    tables = []
    for table in context.profile.tables:
        ids = context.column_anchors(table)
        columns = [
            [
                clean_for_html(c.name),
                ids[c.name][len(context.anchors[table.name]) :],
                clean_for_html(c.type[:24]),
                _searched(table, c),
                clean_for_html((c.description or c.comment or "")[:120]),
            ]
            for c in table.columns
        ]
        note = " ".join(x for x in (table_purpose_fragment(table), table.owner, *table.tags) if x)
        tables.append([clean_for_html(table.name), context.anchors[table.name], clean_for_html(note[:160]), columns])
    if not packed:
        return json_for_html_script(tables)
    return compress_packed_page(json.dumps(tables, separators=(",", ":"), ensure_ascii=False))
