"""The page of recent changes: changes since the last run, tables over the runs, and the newest rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from etude.catalog.drift.change import Change
from etude.catalog.measure.axis import axis_position, axis_seconds
from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.catalog.page import svg
from etude.catalog.page.changes import render_changes
from etude.catalog.page.context import PageContext, make_page_context, page_context_table_link
from etude.catalog.page.fragments import freshness_fragment
from etude.catalog.page.html_markup import Markup, fill_html_template, html_page, join_markup
from etude.catalog.page.page_format import (
    format_page_count,
    format_page_duration,
    format_page_share,
    format_page_time,
    format_page_value,
)

CATALOG = "catalog.html"
"""The page with the sections of the tables, in the same folder."""
SHOWN = 60
"""The maximum number of tables in a list."""

_BODY = """<a class="skip" href="#main">Skip to the content</a>
<header><a class="brand" href="{catalog}">{source}</a><button id="theme" type="button">Theme</button></header>
<main id="main" class="single" tabindex="-1">
<section class="head"><h1>What is new in {source}</h1><p class="facts">{facts}</p></section>
{changes}
{runs}
{recent}
</main>"""


def render_summary(profile: SourceProfile, changes: Sequence[Change], history: Sequence[SourceProfile]) -> str:
    """Render the page of recent changes. `history` holds the earlier runs, oldest first."""
    context = make_page_context(profile, changes, history, CATALOG)
    last = context.history[-1] if context.history else None
    since = f"since {format_page_time(last.made_at)}" if last is not None and last.made_at else ""
    facts = [
        format_page_time(profile.made_at),
        since,
        f"{len(changes)} change{'' if len(changes) == 1 else 's'}" if last is not None else "the first run",
    ]
    first = (
        Markup("")
        if last is not None
        else fill_html_template('<p class="calm">{t}</p>', t="Changes appear from the second run on.")
    )
    body = fill_html_template(
        _BODY,
        catalog=CATALOG,
        source=profile.source,
        facts=join_markup((fill_html_template("<span>{f}</span>", f=f) for f in facts if f), " "),
        changes=render_changes(context, "Changes", lambda c: _line(context, c)) or first,
        runs=_runs(context) if context.history else None,
        recent=_recent(context),
    )
    return html_page(f"{profile.source}: what is new", body)


def _line(context: PageContext, change: Change) -> Markup:
    """Draw the figure that a change is about over the runs."""
    tables = context.series(change.table)
    if change.kind in ("volume", "table-emptied"):
        return svg.draw_sparkline_svg([t.rows if t else None for t in tables], "rows over the runs")
    columns = [t.column(change.column) if t and change.column else None for t in tables]
    if change.kind in ("nulls", "emptied", "filled"):
        return svg.draw_sparkline_svg([c.null_share if c else None for c in columns], "nulls over the runs")
    if change.kind in ("shift", "scale", "sign", "spread"):
        middles = [axis_position(c.quantiles[10]) if c and len(c.quantiles) == 21 else None for c in columns]
        return svg.draw_sparkline_svg(middles, "median over the runs")
    if change.kind in ("cardinality", "constant", "duplicates", "key-broken", "new-value", "vanished-value"):
        return svg.draw_sparkline_svg([c.distinct if c else None for c in columns], "distinct values over the runs")
    return Markup("")


def _runs(context: PageContext) -> Markup:
    """Render rows, nulls and freshness of each table over the runs; tables that changed most come first."""
    last = context.history[-1]
    tables = sorted(
        context.profile.tables,
        key=lambda t: (-max((c.score for c in context.by_table.get(t.name, [])), default=0), -_growth(last, t), t.name),
    )
    more = f"{len(tables) - SHOWN:,} more tables changed less." if len(tables) > SHOWN else ""
    heads = ("Table", "Rows", "Since last run", "", "Nulls", "", "Newest", "Age at each run")
    return fill_html_template(
        '<section><h2>Over {n} runs</h2><div class="wide" role="region" aria-label="Tables over the runs" tabindex="0">'
        '<table class="lines"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        '<p class="how">{more}</p></section>',
        n=len(context.history) + 1,
        heads=join_markup(
            fill_html_template('<th scope="col">{h}</th>', h=h) if h else Markup("<td></td>") for h in heads
        ),
        rows=join_markup(_run_row(context, t) for t in tables[:SHOWN]),
        more=more,
    )


def _growth(last: SourceProfile, table: TableProfile) -> float:
    before = last.table(table.name)
    if before is None or before.rows is None or table.rows is None:
        return 0.0
    return abs(table.rows - before.rows) / max(1, before.rows)


def _run_row(context: PageContext, table: TableProfile) -> Markup:
    runs = (*context.history, context.profile)
    series = context.series(table.name)
    before = series[-2]
    rows = [t.rows if t else None for t in series]
    nulls = [_nulls(t) if t else None for t in series]
    ages = [_age(run, t) if t else None for run, t in zip(runs, series)]
    step = (
        f"{table.rows - before.rows:+,}"
        if before is not None and before.rows is not None and table.rows is not None and table.rows != before.rows
        else ""
    )
    return fill_html_template(
        '<tr><th scope="row">{name}</th><td class="number">{rows}</td><td class="number">{step}</td><td>{row_line}</td>'
        '<td class="number">{nulls}</td><td>{null_line}</td><td>{badge}</td><td>{age_line}</td></tr>',
        name=page_context_table_link(context, table.name),
        rows=format_page_count(table.rows),
        step=step,
        row_line=svg.draw_sparkline_svg(rows, f"rows of {table.name}"),
        nulls=format_page_share(nulls[-1]) if nulls[-1] is not None else "",
        null_line=svg.draw_sparkline_svg(nulls, f"nulls of {table.name}"),
        badge=freshness_fragment(context.profile, table.freshness),
        age_line=svg.draw_sparkline_svg(ages, f"age of the newest row of {table.name}"),
    )


def _nulls(table: TableProfile) -> float | None:
    """Return the mean share of nulls over the columns."""
    shares = [s for c in table.columns if (s := c.null_share) is not None]
    return fmean(shares) if shares else None


def _age(run: SourceProfile, table: TableProfile) -> float | None:
    newest = axis_position(table.freshness.newest) if table.freshness else None
    if newest is None or run.made_at is None:
        return None
    return axis_seconds(run.made_at) - newest


def _recent(context: PageContext) -> Markup:
    """Render when the rows of each table were added, estimated from the quantiles of their dates."""
    dated = [t for t in context.profile.tables if t.freshness is not None]
    dated.sort(key=lambda t: (t.freshness.newest if t.freshness else "", t.name), reverse=True)
    cards = [c for t in dated[:SHOWN] for c in _card(context, t)]
    if not cards:
        return Markup("")
    return fill_html_template(
        '<section><h2>Rows over time</h2><div class="recent">{cards}</div><p class="how">Each chart shows rows per '
        "time, estimated from the quantiles of the date: each bar holds a twentieth of the rows.</p></section>",
        cards=join_markup(cards),
    )


def _card(context: PageContext, table: TableProfile) -> Iterator[Markup]:
    fresh = table.freshness
    column = table.column(fresh.column) if fresh else None
    if fresh is None or column is None:
        return
    drawing, rate = _volume(column)
    if not drawing:
        return
    yield fill_html_template(
        '<article><h3>{name}</h3><p>{badge} <small>{column}</small></p>{drawing}<p class="how">{rate}</p></article>',
        name=page_context_table_link(context, table.name),
        badge=freshness_fragment(context.profile, fresh),
        column=fresh.column,
        drawing=drawing,
        rate=rate,
    )


def _volume(column: ColumnProfile) -> tuple[Markup, str]:
    """Return a chart of rows over time, and a sentence that compares the latest rate with the average."""
    edges = [e for q in column.quantiles if (e := axis_position(q)) is not None]
    rows = (column.rows or 0) - (column.nulls or 0)
    if len(edges) != 21 or edges[20] <= edges[0] or not rows:
        return Markup(""), ""
    drawing = svg.draw_columns_over_time_svg(edges, [rows / 20] * 20, f"rows over time by {column.name}")
    ends = fill_html_template(
        '<p class="ends"><span>{a}</span><span>{b}</span></p>', a=_day(column, 0), b=_day(column, 20)
    )
    last = edges[20] - edges[19]
    usual = rows / (edges[20] - edges[0]) * 86400
    words = f"{_rate(usual)} on average."
    if last > 0:
        words = (
            f"The latest 5% of the rows span {format_page_duration(last)}: {_rate(rows / 20 / last * 86400)}; {words}"
        )
    return join_markup([drawing, ends]), words


def _day(column: ColumnProfile, at: int) -> str:
    return format_page_value(column.quantiles[at])[:10]


def _rate(per_day: float) -> str:
    if per_day >= 1:
        return f"{format_page_count(per_day) if per_day >= 10 else f'{per_day:.1f}'} per day"
    return f"{per_day * 7:.1f} per week" if per_day * 7 >= 1 else f"{per_day * 365.25:.1f} per year"
