"""What a reader of a table should know before using it: one line of findings from its profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etude.catalog.model import ColumnProfile, TableProfile
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup
from etude.catalog.page.page_format import format_page_share

NAMED = 3
"""Columns that a finding names."""
MOSTLY_NULL = 0.5
OUTLYING = 0.01


def render_quality(table: TableProfile) -> Markup:
    """Render the findings about a table; a table without any says what was checked."""
    if table.plan == "failed" or not table.rows:
        return Markup("")
    found = [*_findings(table)]
    if not found:
        found = [("fine", "No nulls, broken keys, missing references, outer spaces or constant columns.")]
    items = join_markup(
        fill_html_template('<li class="{kind}">{text}</li>', kind=kind, text=text) for kind, text in found
    )
    return fill_html_template(
        '<ul class="quality" aria-label="Quality of {name}">{items}</ul>', name=table.name, items=items
    )


def _findings(table: TableProfile) -> Iterator[tuple[str, str]]:
    for key in table.keys:
        if key.unique is False:
            yield "bad", f"The key {', '.join(key.columns)} has repeated values"
    for reference in table.foreign_keys:
        if reference.missing:
            one = reference.missing == 1
            text = f"{reference.missing:,} value{'' if one else 's'} of {', '.join(reference.columns)}"
            yield "bad", f"{text} {'has' if one else 'have'} no match in {reference.to_table}"
    filled = [c for c in table.columns if c.rows]
    empty = [c.name for c in filled if c.empty]
    if empty:
        yield "odd", f"Empty: {_listed(empty)}"
    with_nulls = sorted((c for c in filled if c.nulls and not c.empty), key=lambda c: -(c.null_share or 0))
    if with_nulls:
        worst = [f"{c.name} {format_page_share(c.null_share)}" for c in with_nulls]
        mostly = (with_nulls[0].null_share or 0) > MOSTLY_NULL
        counted = f"{len(with_nulls)} of {len(table.columns)} columns"
        yield "odd" if mostly else "note", f"Nulls in {counted}: {_listed(worst)}"
    padded = [f"{c.name} {_share(c, c.lengths.padded)}" for c in filled if c.lengths and c.lengths.padded]
    if padded:
        yield "odd", f"Spaces at the ends: {_listed(padded)}"
    blank = [f"{c.name} {_share(c, c.lengths.empty)}" for c in filled if c.lengths and c.lengths.empty and not c.empty]
    if blank:
        yield "note", f"Empty texts: {_listed(blank)}"
    nans = [f"{c.name} {_share(c, c.nans)}" for c in filled if c.nans]
    if nans:
        yield "odd", f"NaN: {_listed(nans)}"
    constant = [c.name for c in filled if c.constant and (c.rows or 0) > 1]
    if constant:
        yield "note", f"Constant: {_listed(constant)}"
    outlying = [
        f"{c.name} {_share(c, beyond)}"
        for c in filled
        if c.outliers and (beyond := c.outliers.below + c.outliers.above) > OUTLYING * (c.rows or 1)
    ]
    if outlying:
        yield "note", f"Outliers: {_listed(outlying)}"


def _share(column: ColumnProfile, count: int | None) -> str:
    return format_page_share((count or 0) / max(1, (column.rows or 0) - (column.nulls or 0)))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
