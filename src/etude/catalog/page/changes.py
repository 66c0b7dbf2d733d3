"""The list of changes on the pages, ranked, with a sign for the severity of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etude.catalog.drift.change import Change
from etude.catalog.page.context import PageContext
from etude.catalog.page.markup import Markup, fill, join, sentence

SHOWN_CHANGES = 12


def render_changes(
    context: PageContext, title: str, line_of: Callable[[Change], Markup] = lambda _: Markup("")
) -> Markup:
    """Render the ranked changes, each with its line over the runs; all after the first dozen are collapsed."""
    if not context.changes:
        if not context.history:
            return Markup("")
        return fill(
            '<section id="changes"><h2>{title}</h2><p class="calm">No significant changes.</p></section>',
            title=title,
        )
    items = [render_change(context, c, line_of(c)) for c in context.changes]
    rest = (
        fill(
            '<details><summary>{n} more</summary><ol class="changes">{items}</ol></details>',
            n=len(items) - SHOWN_CHANGES,
            items=join(items[SHOWN_CHANGES:]),
        )
        if len(items) > SHOWN_CHANGES
        else None
    )
    return fill(
        '<section id="changes"><h2>{title}</h2><ol class="changes">{items}</ol>{rest}</section>',
        title=title,
        items=join(items[:SHOWN_CHANGES]),
        rest=rest,
    )


SIGNS = {"high": "▲", "medium": "◆", "low": "○"}


def render_change(context: PageContext, change: Change, line: Markup | None = None) -> Markup:
    """Render one change with its text, location, kind, severity and status."""
    target = context.target(change.table, change.column)
    name = f"{change.table}.{change.column}" if change.column else change.table
    link = fill('<a href="{page}#{to}">{n}</a>', page=context.page, to=target, n=name) if target else name
    return fill(
        '<li class="{severity} {status}"><span class="sign" title="{severity}" aria-hidden="true">{sign}</span>'
        '<span class="away">{severity}: </span><div><p>{text}</p><p class="where">{link} · {kind}{since}</p>{known}'
        "</div>{line}</li>",
        severity=change.severity,
        status=change.status,
        sign="✓" if change.status == "recovered" else SIGNS[change.severity],
        text=sentence(change.text),
        link=link,
        kind=change.kind.replace("-", " "),
        since=_since(change),
        known=_known(change),
        line=line,
    )


def _since(change: Change) -> Markup | None:
    day = f"{change.since:%Y-%m-%d}" if change.since else ""
    match change.status:
        case "open":
            return fill(' · <em class="state">open</em> since {day}', day=day)
        case "known":
            return fill(' · <em class="state">known</em> since {day}', day=day)
        case "recovered":
            return fill(' · <em class="state">recovered</em> found {day}', day=day)
    return None


def _known(change: Change) -> Markup | None:
    known = change.acknowledged
    if known is None:
        return None
    return fill(
        '<p class="why">{why} <small>{by}, {day}</small></p>', why=known.why, by=known.by, day=f"{known.at:%Y-%m-%d}"
    )


def worst_severity(changes: Sequence[Change]) -> str:
    """Return the highest severity of the changes that are new or open; empty if there are none."""
    found = {c.severity for c in changes if c.pending}
    return next((s for s in SIGNS if s in found), "")
