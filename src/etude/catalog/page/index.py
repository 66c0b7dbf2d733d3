"""What the search of the page knows: names of tables and columns, and values that are not masked."""

from __future__ import annotations

import json

from etude.catalog.model import ColumnProfile, TableProfile
from etude.catalog.page.context import PageContext
from etude.catalog.page.marks import purpose
from etude.catalog.page.markup import Markup, clean, script_json
from etude.catalog.page.packing import pack

SEARCHED = 60
"""Characters of a value that the search knows."""


def _searched(table: TableProfile, column: ColumnProfile) -> list[str]:
    """The values of a column that the page shows, each once: frequent ones, the ends, those of the sample rows."""
    values = [t.value for t in column.top] + [column.min, column.max]
    if table.samples is not None and column.name in table.samples.columns:
        at = table.samples.columns.index(column.name)
        values += [row[at] for row in table.samples.rows]
    known = (str(v).lower() if isinstance(v, bool) else clean(str(v)[:SEARCHED]) for v in values if v is not None)
    return [v for v in dict.fromkeys(known) if v]


def make_index(context: PageContext, packed: bool) -> Markup:
    """What the search knows: of each table its name, purpose and columns; of each column its name, type and values."""
    tables = []
    for table in context.profile.tables:
        ids = context.column_anchors(table)
        columns = [
            [
                clean(c.name),
                ids[c.name][len(context.anchors[table.name]) :],
                clean(c.type[:24]),
                _searched(table, c),
                clean((c.description or c.comment or "")[:120]),
            ]
            for c in table.columns
        ]
        said = " ".join(x for x in (purpose(table), table.owner, *table.tags) if x)
        tables.append([clean(table.name), context.anchors[table.name], clean(said[:160]), columns])
    if not packed:
        return script_json(tables)
    return pack(json.dumps(tables, separators=(",", ":"), ensure_ascii=False))
