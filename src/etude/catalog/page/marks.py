"""Small pieces of the pages: names as code, values, how a number was obtained, how fresh a table is."""

from __future__ import annotations

from collections.abc import Sequence

from etude.catalog.measure.axis import epoch, place
from etude.catalog.model import Freshness, Provenance, Scalar, SourceProfile, TableProfile
from etude.catalog.page import svg
from etude.catalog.page.context import PageContext
from etude.catalog.page.markup import Markup, escape, fill, join, percent, show, span


def codes(names: Sequence[str]) -> Markup:
    """Names as code, one after the other."""
    return join((fill("<code>{n}</code>", n=n) for n in names), ", ")


METHODS = {
    "sampled": ("~", "sampled"),
    "approximate": ("≈", "approximate"),
    "metadata": ("≈", "from the source's own statistics"),
}


def provenance_mark(provenance: Provenance | None) -> Markup:
    """A sign behind a number that is not exact, with the reason."""
    if provenance is None or provenance.method == "exact":
        return Markup("")
    sign, word = METHODS[provenance.method]
    return fill(
        '<abbr title="{word}">{sign}</abbr>', word=", ".join(x for x in (word, bound(provenance)) if x), sign=sign
    )


def bound(provenance: Provenance) -> str:
    """How far a number may be off, in words."""
    said = []
    if provenance.rows is not None:
        said.append(f"{provenance.rows:,} rows")
    if provenance.detail:
        said.append(provenance.detail)
    elif provenance.error is not None:
        said.append(f"within {percent(provenance.error)}")
    return ", ".join(said)


def show_value(value: Scalar, limit: int = 80) -> Markup:
    """A value, with what cannot be seen made visible."""
    if value is None:
        return Markup("<i>null</i>")
    if value == "" and isinstance(value, str):
        return Markup("<i>empty</i>")
    shown = show(value, limit)
    if shown != shown.strip() or not shown.strip():
        return fill('<span class="blank">{v}</span>', v=shown.replace(" ", "·"))
    return escape(shown)


def freshness_badge(profile: SourceProfile, fresh: Freshness | None) -> Markup:
    """The newest moment of a table and, where the time of the run is known, how long ago that was."""
    if fresh is None:
        return Markup("")
    newest = place(fresh.newest)
    made = profile.made_at
    age = None
    if newest is not None and made is not None:
        age = epoch(made) - newest
    kind, word = "", ""
    if age is not None:
        gap = max(fresh.typical_gap_s or 0.0, 86400.0)
        kind = "ahead" if age < -86400 else "fresh" if age <= 3 * gap else "still"
        word = f"{span(age)} ahead" if age < -86400 else f"{span(age)} old"
    return fill(
        '<span class="badge {kind}" title="newest {column}">{newest}</span> <small>{word}</small>',
        kind=kind,
        column=fresh.column,
        newest=show(fresh.newest)[:10],
        word=word,
    )


def rows_line(context: PageContext, table: TableProfile) -> Markup:
    """The rows of a table over the runs."""
    counts = [t.rows if t else None for t in context.series(table.name)]
    return svg.sparkline(counts, f"rows of {table.name} over {len(counts)} runs")


def purpose(table: TableProfile) -> str | None:
    """What a table is for, as people or the source say it."""
    return table.description or table.comment
