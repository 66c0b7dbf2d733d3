"""The sortable list of all tables of a catalog."""

from __future__ import annotations

from etude.catalog.model import TableProfile
from etude.catalog.page.changes import SIGNS
from etude.catalog.page.context import PageContext
from etude.catalog.page.marks import freshness_badge, purpose, rows_line
from etude.catalog.page.markup import Markup, fill, join, short, size


def render_overview(context: PageContext) -> Markup:
    """Render the list of all tables."""
    if not context.profile.tables:
        return Markup('<section id="tables"><h2>Tables</h2><p class="calm">No tables.</p></section>')
    history = bool(context.history)
    heads = [("Table", "text"), ("Rows", "number"), ("Columns", "number")]
    if _has_sizes(context):
        heads.append(("Size", "number"))
    heads.append(("Newest", "text"))
    if context.changes:
        heads.append(("Changes", "number"))
    rows = join(_overview_row(context, t, history) for t in context.profile.tables)
    return fill(
        '<section id="tables"><h2>Tables</h2><div class="wide" role="region" aria-label="All tables" tabindex="0">'
        '<table class="sortable"><thead><tr>{heads}{line}</tr></thead><tbody>{rows}</tbody></table></div></section>',
        heads=join(
            fill('<th scope="col" class="{kind}"><button type="button">{name}</button></th>', kind=kind, name=name)
            for name, kind in heads
        ),
        line=Markup('<th scope="col">Rows over time</th>') if history else None,
        rows=rows,
    )


def _has_sizes(context: PageContext) -> bool:
    return any(t.bytes is not None for t in context.profile.tables[:100])


def _overview_row(context: PageContext, table: TableProfile, history: bool) -> Markup:
    cells = [
        _number_cell(table.rows, short(table.rows) if table.rows is not None else "failed"),
        _number_cell(len(table.columns), str(len(table.columns))),
        _number_cell(table.bytes, size(table.bytes)) if _has_sizes(context) else "",
        fill("<td>{badge}</td>", badge=freshness_badge(context.profile, table.freshness)),
    ]
    if context.changes:
        changes = context.by_table.get(table.name, [])
        worst = next((s for s in ("high", "medium", "low") if any(c.severity == s for c in changes)), "")
        sign = fill('<span class="sign {s}" aria-hidden="true">{c}</span> ', s=worst, c=SIGNS[worst]) if worst else ""
        cells.append(
            fill(
                '<td class="number" data-v="{n}">{sign}{shown}</td>',
                n=len(changes),
                sign=sign,
                shown=len(changes) or "",
            )
        )
    if history:
        cells.append(fill("<td>{line}</td>", line=rows_line(context, table)))
    return fill(
        '<tr><th scope="row"><a href="#{anchor}">{name}</a><small>{purpose}</small></th>{cells}</tr>',
        anchor=context.anchors[table.name],
        name=table.name,
        purpose=purpose(table) or _plain_shape(table),
        cells=join(cells),
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


def _number_cell(value: float | None, shown: str) -> Markup:
    return fill('<td class="number" data-v="{v}">{s}</td>', v="" if value is None else value, s=shown)
