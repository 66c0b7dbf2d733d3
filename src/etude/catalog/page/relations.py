"""The keys, references and dependencies of a table on the page, each with its evidence."""

from __future__ import annotations

from etude.catalog.model import ForeignKeyEvidence, KeyEvidence, TableProfile
from etude.catalog.page import svg
from etude.catalog.page.context import PageContext, page_context_table_link
from etude.catalog.page.fragments import names_fragment, provenance_fragment
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup, sentence_to_html
from etude.catalog.page.page_format import format_page_share

MINUS = "\u2212"


def render_relations(context: PageContext, table: TableProfile) -> Markup:
    """Render the keys of a table, its references in both directions, and a diagram of them."""
    referring = context.referring.get(table.name.lower(), [])
    if not (table.keys or table.foreign_keys or referring):
        return Markup("")
    rows = [_key_row(k) for k in table.keys]
    rows += [_reference_row(context, table.name, k) for k in table.foreign_keys]
    rows += [_reference_row(context, name, k, incoming=True) for name, k in referring]
    left = [(n, ", ".join(k.columns), context.target(n) or "tables") for n, k in referring]
    right = [(k.to_table, ", ".join(k.columns), context.target(k.to_table) or "tables") for k in table.foreign_keys]
    diagram = (
        fill_html_template(
            '<details class="diagram"><summary>Diagram of related tables</summary><div class="wide" role="region" '
            'tabindex="0" aria-label="Tables related to {name}">{drawing}</div></details>',
            name=table.name,
            drawing=svg.draw_neighbourhood_svg(table.name, left, right, f"{table.name} and its related tables"),
        )
        if left or right
        else None
    )
    return fill_html_template(
        '<h3>Keys and references</h3><div class="wide" role="region" aria-label="Keys and references of {name}" '
        'tabindex="0"><table class="keys"><thead><tr><th scope="col">Columns</th><th scope="col">Role</th>'
        '<th scope="col">Origin</th><th scope="col">Evidence</th></tr></thead><tbody>{rows}</tbody></table></div>'
        "{diagram}",
        name=table.name,
        rows=join_markup(rows),
        diagram=diagram,
    )


def _key_row(key: KeyEvidence) -> Markup:
    broken = key.unique is False
    reasons = [r for r in key.reasons if r != key.origin]
    if broken:
        reasons.insert(0, "violated by the data: values repeat")
    elif key.unique and not reasons:
        reasons.append("no value repeats")
    return fill_html_template(
        '<tr{broken}><th scope="row">{columns}</th><td>{what}</td><td>{origin}</td><td>{why}</td></tr>',
        broken=Markup(' class="broken"') if broken else None,
        columns=names_fragment(key.columns),
        what="primary key" if key.primary else "alternative key",
        origin=key.origin if key.origin == "declared" else f"inferred, {format_page_share(key.score)} confidence",
        why=sentence_to_html("; ".join(reasons)),
    )


def _reference_row(context: PageContext, owner: str, key: ForeignKeyEvidence, incoming: bool = False) -> Markup:
    why = []
    if key.containment is not None:
        missing = f" ({key.missing:,} without a match)" if key.missing else ""
        why.append(f"{format_page_share(key.containment)} of the values have a match{missing}")
    if key.coverage is not None:
        why.append(f"{format_page_share(key.coverage)} of the other side is referenced")
    if key.cardinality:
        why.append(key.cardinality)
    why.extend(r for r in key.reasons if r not in why and r != key.origin)
    what = (
        fill_html_template(
            "referred to by {link} {columns}",
            link=page_context_table_link(context, owner),
            columns=names_fragment(key.columns),
        )
        if incoming
        else fill_html_template(
            "refers to {link} {columns}",
            link=page_context_table_link(context, key.to_table),
            columns=names_fragment(key.to_columns),
        )
    )
    return fill_html_template(
        '<tr><th scope="row">{columns}</th><td>{what}</td><td>{origin}</td><td>{why}{mark}</td></tr>',
        columns=names_fragment(key.to_columns if incoming else key.columns),
        what=what,
        origin=key.origin if key.origin == "declared" else f"inferred, {format_page_share(key.score)} confidence",
        why=sentence_to_html("; ".join(why)),
        mark=provenance_fragment(key.provenance),
    )


def render_dependencies(table: TableProfile) -> Markup:
    """Render the columns that other columns determine."""
    if not table.dependencies:
        return Markup("")
    words = {"determines": "determines", "one-to-one": "corresponds one to one with", "equal": "equals"}
    items = join_markup(
        fill_html_template(
            "<li>{columns} {word} {other} <small>{reason}</small></li>",
            columns=names_fragment(d.columns),
            word=words[d.kind],
            other=names_fragment((d.determines,)),
            reason=sentence_to_html(d.reason),
        )
        for d in table.dependencies
    )
    return fill_html_template("<h3>Dependencies</h3><ul class=plain>{items}</ul>", items=items)


def render_correlations(table: TableProfile) -> Markup:
    """Render the numeric columns that rise and fall together; references and keys are not compared."""
    references = {c for k in table.foreign_keys for c in k.columns}
    kept = [c for c in table.correlations if not references & set(c.columns)]
    if not kept:
        return Markup("")
    rows = join_markup(
        fill_html_template(
            '<tr><th scope="row">{a} and {b}</th><td>{bar}</td><td class="number">{r}{mark}</td></tr>',
            a=names_fragment(c.columns[:1]),
            b=names_fragment(c.columns[1:]),
            bar=svg.draw_share_bar_svg(abs(c.coefficient)),
            r=f"{c.coefficient:+.2f}".replace("-", MINUS),
            mark=provenance_fragment(c.provenance),
        )
        for c in kept
    )
    return fill_html_template(
        '<h3>Correlations</h3><table class="correlations"><tbody>{rows}</tbody></table><p class="how">Rank correlation '
        "(Spearman) of numeric columns, from 0.3 on; +1 rises together, {minus}1 against each other.</p>",
        minus=MINUS,
        rows=rows,
    )
