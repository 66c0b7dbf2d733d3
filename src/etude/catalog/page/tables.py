"""The section of a table on the page: purpose, columns, keys, sample rows, example queries, and provenance."""

from __future__ import annotations

from etude.catalog.model import TableProfile
from etude.catalog.page.changes import render_change
from etude.catalog.page.columns import render_columns
from etude.catalog.page.context import PageContext, page_context_table_link
from etude.catalog.page.fragments import (
    freshness_fragment,
    names_fragment,
    provenance_fragment,
    row_counts_fragment,
    table_purpose_fragment,
    value_fragment,
)
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup, sentence_to_html
from etude.catalog.page.page_format import format_page_bytes
from etude.catalog.page.quality import render_quality
from etude.catalog.page.relations import render_correlations, render_dependencies, render_relations
from etude.catalog.page.starters import starter_queries


def render_table(context: PageContext, table: TableProfile) -> Markup:
    """Render the section of a table, without its heading."""
    changes = context.by_table.get(table.name, [])
    items = join_markup(render_change(context, c) for c in changes)
    parts = [
        fill_html_template('<p class="purpose">{p}</p>', p=table_purpose_fragment(table))
        if table_purpose_fragment(table)
        else "",
        _table_facts(context, table),
        fill_html_template('<p class="error">{error}</p>', error=table.error) if table.error else "",
        fill_html_template('<ol class="changes">{items}</ol>', items=items) if changes else "",
        render_quality(table),
        render_columns(context, table),
        render_relations(context, table),
        render_dependencies(table),
        render_correlations(table),
        _samples(table),
        _queries(context, table),
        _table_provenance(table),
    ]
    return join_markup(parts)


def _table_facts(context: PageContext, table: TableProfile) -> Markup:
    facts: list[object] = []
    if table.rows is not None:
        facts.append(
            fill_html_template(
                "<b>{rows}</b> rows {mark}", rows=f"{table.rows:,}", mark=provenance_fragment(table.rows_provenance)
            )
        )
    facts.append(fill_html_template("<b>{n}</b> columns", n=len(table.columns)))
    if table.bytes is not None:
        facts.append(fill_html_template("<b>{size}</b> stored", size=format_page_bytes(table.bytes)))
    if table.freshness is not None:
        badge = freshness_fragment(context.profile, table.freshness)
        facts.append(fill_html_template("newest {column} {badge}", column=table.freshness.column, badge=badge))
    line = row_counts_fragment(context, table) if context.history else ""
    if line:
        facts.append(line)
    if table.owner:
        facts.append(fill_html_template("owner {owner}", owner=table.owner))
    facts.extend(fill_html_template('<span class="tag">{t}</span>', t=t) for t in table.tags)
    shape = _shape(context, table)
    return fill_html_template(
        '<p class="facts">{facts}</p>{shape}',
        facts=join_markup((fill_html_template("<span>{f}</span>", f=f) for f in facts), " "),
        shape=fill_html_template('<p class="shape">{shape}</p>', shape=shape) if shape else None,
    )


def _shape(context: PageContext, table: TableProfile) -> Markup:
    """Describe in a sentence what a row is and which tables it is related to."""
    parts = []
    key = table.primary_key
    if key is not None and key.unique is not False:
        parts.append(fill_html_template("One row per {columns}.", columns=names_fragment(key.columns)))
    to = list(dict.fromkeys(k.to_table for k in table.foreign_keys))
    by = list(dict.fromkeys(name for name, _ in context.referring.get(table.name.lower(), [])))
    for names, words in ((to, "Refers to"), (by, "Referred to by")):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            links = join_markup([page_context_table_link(context, n) for n in names[:6]], ", ")
            parts.append(fill_html_template("{words} {links}{more}.", words=words, links=links, more=more))
    return join_markup(parts, " ")


def _samples(table: TableProfile) -> Markup:
    samples = table.samples
    if samples is None or not samples.rows:
        return Markup("")
    masked = {c.name for c in table.columns if c.masked}
    heads = join_markup(fill_html_template('<th scope="col">{c}</th>', c=c) for c in samples.columns)
    rows = join_markup(
        fill_html_template(
            "<tr>{cells}</tr>",
            cells=join_markup(fill_html_template("<td>{v}</td>", v=value_fragment(v, 60, grouped=False)) for v in row),
        )
        for row in samples.rows
    )
    note = " Suspected personal data is masked." if masked & set(samples.columns) else ""
    return fill_html_template(
        '<details class="samples"><summary>Sample rows</summary><div class="wide" role="region" tabindex="0" '
        'aria-label="Sample rows of {name}"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        '<p class="how">{n} rows.{note}</p></details>',
        name=table.name,
        heads=heads,
        rows=rows,
        n=len(samples.rows),
        note=note,
    )


def _queries(context: PageContext, table: TableProfile) -> Markup:
    if table.plan == "failed":
        return Markup("")
    blocks = join_markup(
        fill_html_template(
            '<figure><figcaption>{title}<button type="button" class="copy" aria-label="Copy: {title}">Copy</button>'
            '</figcaption><pre tabindex="0">{sql}</pre></figure>',
            title=title,
            sql=sql,
        )
        for title, sql in starter_queries(context.profile, table)
    )
    return fill_html_template(
        '<details class="sql"><summary>Example queries</summary><div>{b}</div></details>', b=blocks
    )


_PLANS = {
    "exact": "All statistics are exact: every row was read.",
    "light": "A light profile: the most expensive statistics were left out.",
    "sampled": "Counts cover all rows; distributions and frequent values come from a sample.",
    "failed": "The table could not be profiled.",
}


def _table_provenance(table: TableProfile) -> Markup:
    return fill_html_template(
        '<p class="how">{plan} {notes}</p>',
        plan=_PLANS[table.plan],
        notes=join_markup((sentence_to_html(n) for n in table.notes), " "),
    )
