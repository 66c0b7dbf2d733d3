"""The sortable list of all tables of a catalog."""

from __future__ import annotations

from collections.abc import Sequence

from etude.catalog.model import TableProfile
from etude.catalog.page.changes import change_sign, worst_change_severity
from etude.catalog.page.context import PageContext
from etude.catalog.page.fragments import freshness_fragment, row_counts_fragment, table_purpose_fragment
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup
from etude.catalog.page.page_format import format_page_bytes, format_page_count
from etude.catalog.page.table_groups import group_tables, table_group_anchors

OPENED = 12
"""A changed group of at most this many tables is open from the start."""


def render_overview(context: PageContext) -> Markup:
    """Render the list of all tables, in groups if there are many."""
    if not context.profile.tables:
        return Markup('<section id="tables"><h2>Tables</h2><p class="calm">No tables.</p></section>')
    groups = group_tables(context.profile.tables)
    if len(groups) == 1:
        listed: object = _list(context, groups[0][1], "All tables")
    else:
        places = table_group_anchors(groups)
        listed = join_markup(_group(context, label, tables, places[label]) for label, tables in groups)
    return fill_html_template('<section id="tables"><h2>Tables</h2>{listed}</section>', listed=listed)


def _group(context: PageContext, label: str, tables: Sequence[TableProfile], anchor: str) -> Markup:
    """Render a group that opens; a small one with changes is open."""
    changes = [c for t in tables for c in context.by_table.get(t.name, [])]
    worst = worst_change_severity(changes)
    rows = sum(t.rows or 0 for t in tables)
    return fill_html_template(
        '<details class="group" id="{id}"{open}><summary><b>{label}</b> <small>{n} tables, {rows} rows</small>{sign}'
        "</summary>{listed}</details>",
        id=anchor,
        open=Markup(" open") if worst and len(tables) <= OPENED else None,
        label=label,
        n=f"{len(tables):,}",
        rows=format_page_count(rows),
        sign=change_sign(worst, len([c for c in changes if c.pending])),
        listed=_list(context, tables, f"Tables of {label}"),
    )


def _list(context: PageContext, tables: Sequence[TableProfile], label: str) -> Markup:
    history = bool(context.history) and any(row_counts_fragment(context, t) for t in tables)
    heads = [("Table", "text"), ("Rows", "number"), ("Columns", "number")]
    if _has_sizes(context):
        heads.append(("Stored size", "number"))
    heads.append(("Newest", "text"))
    if context.changes:
        heads.append(("Changes", "number"))
    rows = join_markup(_overview_row(context, t, history) for t in tables)
    return fill_html_template(
        '<div class="wide" role="region" aria-label="{label}" tabindex="0">'
        '<table class="sortable"><thead><tr>{heads}{line}</tr></thead><tbody>{rows}</tbody></table></div>',
        label=label,
        heads=join_markup(
            fill_html_template(
                '<th scope="col" class="{kind}"><button type="button">{name}</button></th>', kind=kind, name=name
            )
            for name, kind in heads
        ),
        line=Markup('<th scope="col">Rows over time</th>') if history else None,
        rows=rows,
    )


def _has_sizes(context: PageContext) -> bool:
    return any(t.bytes is not None for t in context.profile.tables[:100])


def _overview_row(context: PageContext, table: TableProfile, history: bool) -> Markup:
    cells = [
        _number_cell(table.rows, format_page_count(table.rows) if table.rows is not None else "failed", "rows"),
        _number_cell(len(table.columns), str(len(table.columns)), "columns"),
        _number_cell(table.bytes, format_page_bytes(table.bytes), "") if _has_sizes(context) else "",
        fill_html_template("<td>{badge}</td>", badge=freshness_fragment(context.profile, table.freshness)),
    ]
    if context.changes:
        changes = [c for c in context.by_table.get(table.name, []) if c.pending]
        cells.append(
            fill_html_template(
                '<td class="number changed" data-v="{n}">{sign}</td>',
                n=len(changes),
                sign=change_sign(worst_change_severity(changes), len(changes)),
            )
        )
    if history:
        cells.append(fill_html_template('<td class="over">{line}</td>', line=row_counts_fragment(context, table)))
    return fill_html_template(
        '<tr><th scope="row"><a href="#{anchor}">{name}</a><small>{purpose}</small></th>{cells}</tr>',
        anchor=context.anchors[table.name],
        name=table.name,
        purpose=table_purpose_fragment(table) or _plain_shape(table),
        cells=join_markup(cells),
    )


def _plain_shape(table: TableProfile) -> str:
    """Describe a table by its keys; shown if it has no description."""
    parts = []
    if table.primary_key is not None and table.primary_key.unique is not False:
        parts.append("One row per " + ", ".join(table.primary_key.columns))
    to = list(dict.fromkeys(k.to_table for k in table.foreign_keys))
    if to:
        parts.append(f"refers to {', '.join(to[:4])}{' and others' if len(to) > 4 else ''}")
    return "; ".join(parts)


def _number_cell(value: float | None, shown: str, unit: str) -> Markup:
    """Render a number; its unit is shown if the list has no heads, on a phone."""
    known = "" if value is None else value
    return fill_html_template(
        '<td class="number" data-v="{v}">{s}<i class="unit"> {unit}</i></td>', v=known, s=shown, unit=unit
    )
