"""Small pieces of the pages: names as code, values, provenance of numbers, freshness, rows and purpose of tables."""

from __future__ import annotations

from collections.abc import Sequence

from etude.catalog.measure.axis import axis_position, axis_seconds
from etude.catalog.model import Freshness, Provenance, Scalar, SourceProfile, TableProfile
from etude.catalog.page import svg
from etude.catalog.page.context import PageContext
from etude.catalog.page.html_markup import Markup, escape_html, fill_html_template, join_markup
from etude.catalog.page.page_format import format_page_duration, format_page_share, format_page_value


def names_fragment(names: Sequence[str]) -> Markup:
    """Render names as code, separated by commas."""
    return join_markup((fill_html_template("<code>{n}</code>", n=n) for n in names), ", ")


METHODS = {
    "sampled": ("~", "sampled"),
    "approximate": ("≈", "approximate"),
    "metadata": ("≈", "from the source's own statistics"),
}


def provenance_fragment(provenance: Provenance | None) -> Markup:
    """Render a sign after a number that is not exact, with the reason as its tooltip."""
    if provenance is None or provenance.method == "exact":
        return Markup("")
    sign, word = METHODS[provenance.method]
    return fill_html_template(
        '<abbr title="{word}">{sign}</abbr>',
        word=", ".join(x for x in (word, error_bound_fragment(provenance)) if x),
        sign=sign,
    )


def error_bound_fragment(provenance: Provenance) -> str:
    """Describe the error bound of a number: rows of the sample, detail or relative error."""
    parts = []
    if provenance.rows is not None:
        parts.append(f"{provenance.rows:,} rows")
    if provenance.detail:
        parts.append(provenance.detail)
    elif provenance.error is not None:
        parts.append(f"within {format_page_share(provenance.error)}")
    return ", ".join(parts)


def value_fragment(value: Scalar, limit: int = 80, grouped: bool = True) -> Markup:
    """Render a value; nulls, empty text and outer spaces become visible; `grouped` separates thousands."""
    if value is None:
        return Markup("<i>null</i>")
    if value == "" and isinstance(value, str):
        return Markup("<i>empty</i>")
    shown = format_page_value(value, limit)
    if not grouped and isinstance(value, int | float) and not isinstance(value, bool):
        shown = shown.replace(",", "")
    if shown != shown.strip() or not shown.strip():
        return fill_html_template('<span class="blank">{v}</span>', v=shown.replace(" ", "·"))
    return escape_html(shown)


def freshness_fragment(profile: SourceProfile, fresh: Freshness | None) -> Markup:
    """Render the newest timestamp of a table and, if the time of the run is known, its age at that time."""
    if fresh is None:
        return Markup("")
    newest = axis_position(fresh.newest)
    made = profile.made_at
    age = None
    if newest is not None and made is not None:
        age = axis_seconds(made) - newest
    kind, word = "", ""
    if age is not None:
        gap = max(fresh.typical_gap_s or 0.0, 86400.0)
        kind = "ahead" if age < -86400 else "fresh" if age <= 3 * gap else "still"
        word = f"{format_page_duration(age)} in the future" if age < -86400 else f"{format_page_duration(age)} old"
    return fill_html_template(
        '<span class="badge {kind}" title="newest {column}">{newest}</span> <small>{word}</small>',
        kind=kind,
        column=fresh.column,
        newest=format_page_value(fresh.newest)[:10],
        word=word,
    )


def row_counts_fragment(context: PageContext, table: TableProfile) -> Markup:
    """Draw the row count of a table over the runs."""
    counts = [t.rows if t else None for t in context.series(table.name)]
    return svg.draw_sparkline_svg(counts, f"rows of {table.name} over {len(counts)} runs")


def table_purpose_fragment(table: TableProfile) -> str | None:
    """Return the purpose of a table: its description, or the comment in the source."""
    return table.description or table.comment
