"""The list of changes on the pages, ranked, with a sign for the severity of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etude.catalog.drift.change import Change
from etude.catalog.model import ColumnProfile, profile_number
from etude.catalog.page import svg
from etude.catalog.page.context import PageContext
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup, sentence_to_html
from etude.catalog.page.page_format import format_page_share, format_page_value

SHOWN_CHANGES = 12


def render_changes(
    context: PageContext, title: str, line_of: Callable[[Change], Markup] = lambda _: Markup("")
) -> Markup:
    """Render the ranked changes, each with its line over the runs; all after the first dozen are collapsed."""
    if not context.changes:
        if not context.history:
            return Markup("")
        return fill_html_template(
            '<section id="changes"><h2>{title}</h2><p class="calm">No significant changes.</p></section>',
            title=title,
        )
    items = [render_change(context, c, line_of(c)) for c in context.changes]
    rest = (
        fill_html_template(
            '<details><summary>{n} more</summary><ol class="changes">{items}</ol></details>',
            n=len(items) - SHOWN_CHANGES,
            items=join_markup(items[SHOWN_CHANGES:]),
        )
        if len(items) > SHOWN_CHANGES
        else None
    )
    return fill_html_template(
        '<section id="changes"><h2>{title}</h2><ol class="changes">{items}</ol>{rest}</section>',
        title=title,
        items=join_markup(items[:SHOWN_CHANGES]),
        rest=rest,
    )


SIGNS = {"high": "▲", "medium": "◆", "low": "○"}


def render_change(context: PageContext, change: Change, line: Markup | None = None) -> Markup:
    """Render one change with its text, location, kind, severity and status."""
    target = context.target(change.table, change.column)
    name = f"{change.table}.{change.column}" if change.column else change.table
    link = fill_html_template('<a href="{page}#{to}">{n}</a>', page=context.page, to=target, n=name) if target else name
    return fill_html_template(
        '<li class="{severity} {status}"><span class="sign" title="{severity}" aria-hidden="true">{sign}</span>'
        '<span class="away">{severity}: </span><div><p>{text}</p><p class="where">{link} · {kind}{since}</p>{known}'
        "</div>{line}</li>",
        severity=change.severity,
        status=change.status,
        sign="✓" if change.status == "recovered" else SIGNS[change.severity],
        text=sentence_to_html(change.text),
        link=link,
        kind=change.kind.replace("-", " "),
        since=_since(change),
        known=_known(change),
        line=line or _drift(context, change),
    )


DRAWN = frozenset(
    {"scale", "sign", "shift", "spread", "outliers", "range", "negative", "precision", "time-shift", "future", "mix",
     "new-value", "vanished-value", "spike", "spelling"}
)  # fmt: skip
"""Kinds of change that two distributions show."""
SHOWN_VALUES = 5


def _drift(context: PageContext, change: Change) -> Markup | None:
    """Draw a column before and after a change."""
    if change.kind not in DRAWN or change.column is None or change.status == "recovered":
        return None
    table = context.tables.get(change.table.lower())
    after = table.column(change.column) if table else None
    before = context.column_before(change)
    if before is None or after is None or before.masked or after.masked:
        return None
    drawing = svg.draw_before_after_svg(before, after) if after.family != "text" or after.quantiles else Markup("")
    if drawing:
        places = svg.svg_quantiles_on_axis(before), svg.svg_quantiles_on_axis(after)
        middles = [_median(c) for c in (before, after)]
        words = '<figcaption>median <s class="was"></s>{a} <s class="now"></s>{b}</figcaption>'
        legend = fill_html_template(words, a=middles[0], b=middles[1])
        return (
            fill_html_template('<figure class="drift">{d}{legend}</figure>', d=drawing, legend=legend)
            if all(places)
            else None
        )
    return _values_before_after(before, after)


def _median(column: ColumnProfile) -> str:
    value = column.quantiles[10]
    figure = profile_number(value) if column.family == "decimal" else None
    return format_page_value(value if figure is None else figure)[:19]


def _values_before_after(before: ColumnProfile, after: ColumnProfile) -> Markup | None:
    """Draw the shares of the frequent values before and after as pairs of bars."""
    was, now = ({t.value: t.share for t in c.top} for c in (before, after))
    values = sorted({*was, *now}, key=lambda v: (-abs(now.get(v, 0) - was.get(v, 0)), str(v)))[:SHOWN_VALUES]
    if not values or max([*was.values(), *now.values()]) < 0.02:
        return None
    rows = join_markup(
        fill_html_template(
            '<tr><th scope="row">{v}</th><td>{a}</td><td class="number">{x}</td><td>{b}</td><td class="number">{y}</td>'
            "</tr>",
            v=format_page_value(v, 18),
            a=svg.draw_share_bar_svg(was.get(v, 0)),
            x=format_page_share(was.get(v, 0)),
            b=svg.draw_share_bar_svg(now.get(v, 0)),
            y=format_page_share(now.get(v, 0)),
        )
        for v in values
    )
    return fill_html_template(
        '<table class="drift"><thead><tr><td></td><th scope="col" colspan="2">before</th><th scope="col" colspan="2">'
        "after</th></tr></thead><tbody>{rows}</tbody></table>",
        rows=rows,
    )


def _since(change: Change) -> Markup | None:
    day = f"{change.since:%Y-%m-%d}" if change.since else ""
    match change.status:
        case "open":
            return fill_html_template(' · <em class="state">open</em> since {day}', day=day)
        case "known":
            return fill_html_template(' · <em class="state">known</em> since {day}', day=day)
        case "recovered":
            return fill_html_template(' · <em class="state">recovered</em> found {day}', day=day)
    return None


def _known(change: Change) -> Markup | None:
    known = change.acknowledged
    if known is None:
        return None
    said = [known, *known.earlier]
    return join_markup(
        fill_html_template(
            '<p class="why">{why} <small>{by}, {day}</small></p>', why=a.why, by=a.by, day=f"{a.at:%Y-%m-%d}"
        )
        for a in said
    )


def worst_change_severity(changes: Sequence[Change]) -> str:
    """Return the highest severity of the changes that are new or open; empty if there are none."""
    found = {c.severity for c in changes if c.pending}
    return next((s for s in SIGNS if s in found), "")


def change_sign(severity: str, count: int) -> Markup | None:
    """Render the sign of a severity with the number of changes; None if there are none."""
    if not severity:
        return None
    return fill_html_template(
        '<span class="sign {s}" title="{title}"><i aria-hidden="true">{sign}</i> {n}<span class="away"> changes, {s}'
        "</span></span>",
        s=severity,
        title=f"{count} change{'' if count == 1 else 's'}, {severity}",
        sign=SIGNS[severity],
        n=count,
    )
