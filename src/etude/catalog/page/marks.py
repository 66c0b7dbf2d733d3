"""Small pieces of the pages: names as code, values, provenance of numbers, freshness of tables."""

from __future__ import annotations

from collections.abc import Sequence

from etude.catalog.measure.axis import epoch, position
from etude.catalog.model import Freshness, Provenance, Scalar, SourceProfile, TableProfile
from etude.catalog.page import svg
from etude.catalog.page.context import PageContext
from etude.catalog.page.markup import Markup, escape, fill, join, percent, show, span


def codes(names: Sequence[str]) -> Markup:
    """Render names as code, separated by commas."""
    return join((fill("<code>{n}</code>", n=n) for n in names), ", ")


METHODS = {
    "sampled": ("~", "sampled"),
    "approximate": ("≈", "approximate"),
    "metadata": ("≈", "from the source's own statistics"),
}


def provenance_mark(provenance: Provenance | None) -> Markup:
    """Render a sign after a number that is not exact, with the reason as its tooltip."""
    if provenance is None or provenance.method == "exact":
        return Markup("")
    sign, word = METHODS[provenance.method]
    return fill(
        '<abbr title="{word}">{sign}</abbr>', word=", ".join(x for x in (word, bound(provenance)) if x), sign=sign
    )


def bound(provenance: Provenance) -> str:
    """Describe the error bound of a number: rows of the sample, detail or relative error."""
    parts = []
    if provenance.rows is not None:
        parts.append(f"{provenance.rows:,} rows")
    if provenance.detail:
        parts.append(provenance.detail)
    elif provenance.error is not None:
        parts.append(f"within {percent(provenance.error)}")
    return ", ".join(parts)


def render_value(value: Scalar, limit: int = 80, grouped: bool = True) -> Markup:
    """Render a value; nulls, empty text and outer spaces become visible; `grouped` separates thousands."""
    if value is None:
        return Markup("<i>null</i>")
    if value == "" and isinstance(value, str):
        return Markup("<i>empty</i>")
    shown = show(value, limit)
    if not grouped and isinstance(value, int | float) and not isinstance(value, bool):
        shown = shown.replace(",", "")
    if shown != shown.strip() or not shown.strip():
        return fill('<span class="blank">{v}</span>', v=shown.replace(" ", "·"))
    return escape(shown)


def freshness_badge(profile: SourceProfile, fresh: Freshness | None) -> Markup:
    """Render the newest timestamp of a table and, if the time of the run is known, its age at that time."""
    if fresh is None:
        return Markup("")
    newest = position(fresh.newest)
    made = profile.made_at
    age = None
    if newest is not None and made is not None:
        age = epoch(made) - newest
    kind, word = "", ""
    if age is not None:
        gap = max(fresh.typical_gap_s or 0.0, 86400.0)
        kind = "ahead" if age < -86400 else "fresh" if age <= 3 * gap else "still"
        word = f"{span(age)} in the future" if age < -86400 else f"{span(age)} old"
    return fill(
        '<span class="badge {kind}" title="newest {column}">{newest}</span> <small>{word}</small>',
        kind=kind,
        column=fresh.column,
        newest=show(fresh.newest)[:10],
        word=word,
    )


def rows_line(context: PageContext, table: TableProfile) -> Markup:
    """Draw the row count of a table over the runs."""
    counts = [t.rows if t else None for t in context.series(table.name)]
    return svg.sparkline(counts, f"rows of {table.name} over {len(counts)} runs")


def purpose(table: TableProfile) -> str | None:
    """Return the purpose of a table: its description, or the comment in the source."""
    return table.description or table.comment
