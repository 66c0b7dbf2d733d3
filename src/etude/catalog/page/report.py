"""The catalog as one HTML file to read, search and print: no requests, no libraries.

The page contains the sections of all tables: as plain HTML in a small catalog, and compressed (deflate, base64) in a
large one. The page's script decompresses the sections that come into view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from etude.catalog.drift.change import Change
from etude.catalog.model import SourceProfile, TableProfile
from etude.catalog.page.changes import change_sign, render_changes, worst_change_severity
from etude.catalog.page.context import PageContext, make_page_context, page_context_table_link
from etude.catalog.page.diagram import render_diagram
from etude.catalog.page.html_markup import (
    Markup,
    clean_for_html,
    fill_html_template,
    html_page,
    join_markup,
    sentence_to_html,
)
from etude.catalog.page.overview import render_overview
from etude.catalog.page.page_format import format_page_count, format_page_time
from etude.catalog.page.page_index import make_page_index
from etude.catalog.page.page_packing import pack_page_bodies
from etude.catalog.page.table_groups import MANY, group_tables
from etude.catalog.page.tables import render_table

UNPACKED = 350_000
"""If all sections together have more characters than this, they are packed."""


def render_catalog(
    profile: SourceProfile,
    changes: Sequence[Change] = (),
    history: Sequence[SourceProfile] = (),
    about: Mapping[str, str] | None = None,
) -> str:
    """Render the catalog of a source as one self-contained HTML page.

    `history` holds earlier runs, oldest first. `about` adds facts about this run: run id, duration, script, limits.
    """
    context = make_page_context(profile, changes, history)
    bodies = [render_table(context, t) for t in profile.tables]
    packed = sum(len(body) for body in bodies) > UNPACKED
    packs, positions = pack_page_bodies(bodies) if packed else ([], [""] * len(bodies))
    body = fill_html_template(
        _BODY,
        source=profile.source,
        tables=_contents(context),
        diagram=render_diagram(context),
        folded=Markup(" data-folded") if len(profile.tables) > MANY else None,
        head=_head(context),
        changes=render_changes(context, "Changes since the last run"),
        overview=render_overview(context),
        sections=join_markup(_section(context, *each) for each in zip(profile.tables, bodies, positions)),
        about=_about(context, about or {}),
        noscript=Markup(_NOSCRIPT) if packed else None,
        packs=join_markup(packs),
        index=make_page_index(context, packed),
        packed="1" if packed else "",
    )
    return html_page(f"{clean_for_html(profile.source)}: catalog", body)


_NOSCRIPT = (
    "<noscript><p class=note>This catalog is large; its details are compressed and need JavaScript.</p></noscript>"
)

_BODY = """<a class="skip" href="#main">Skip to the content</a>
<header>
<a class="brand" href="#main">{source}</a>
<div class="find" role="search">
<label class="away" for="q">Search tables, columns and values</label>
<input id="q" type="search" autocomplete="off" spellcheck="false" placeholder="Search names and values"
 role="combobox" aria-expanded="false" aria-controls="hits" aria-autocomplete="list"><kbd aria-hidden="true">/</kbd>
<ul id="hits" role="listbox" aria-label="Results" hidden></ul>
</div>
<button id="theme" type="button">Theme</button>
</header>
<div class="page">
<nav aria-label="Tables">{tables}</nav>
<main id="main" tabindex="-1"{folded}>
{head}
{changes}
{overview}
{diagram}
{noscript}
{sections}
{about}
</main>
</div>
<p class="away" role="status" id="say"></p>
{packs}
<script type="application/json" id="index" data-packed="{packed}">{index}</script>"""


def _contents(context: PageContext) -> Markup:
    """Render the side bar: the tables, in groups if there are many, with a sign for changed ones."""
    groups = group_tables(context.profile.tables)
    if len(groups) == 1:
        return fill_html_template("<ol>{items}</ol>", items=join_markup(_entry(context, t) for t in groups[0][1]))
    return join_markup(
        fill_html_template(
            "<details><summary>{label} <span>{n}</span>{sign}</summary><ol>{items}</ol></details>",
            label=label,
            n=f"{len(tables):,}",
            sign=_nav_sign(context, *(t.name for t in tables)),
            items=join_markup(_entry(context, t) for t in tables),
        )
        for label, tables in groups
    )


def _entry(context: PageContext, table: TableProfile) -> Markup:
    return fill_html_template(
        '<li><a href="#{anchor}">{name}</a><span>{sign}{rows}</span></li>',
        anchor=context.anchors[table.name],
        name=table.name,
        sign=_nav_sign(context, table.name),
        rows=format_page_count(table.rows) if table.rows is not None else "",
    )


def _nav_sign(context: PageContext, *tables: str) -> Markup | None:
    changes = [c for name in tables for c in context.by_table.get(name, []) if c.pending]
    return change_sign(worst_change_severity(changes), len(changes))


def _head(context: PageContext) -> Markup:
    profile = context.profile
    counted = [t.rows for t in profile.tables if t.rows is not None]
    facts = [
        f"{len(profile.tables):,} table{'' if len(profile.tables) == 1 else 's'}",
        f"{sum(len(t.columns) for t in profile.tables):,} columns",
        f"{sum(counted):,} rows",
        profile.kind,
        f"profiled {format_page_time(profile.made_at)}" if profile.made_at else "",
    ]
    failed = [t for t in profile.tables if t.plan == "failed"]
    warning = (
        fill_html_template(
            '<p class="note">Tables that could not be profiled ({n}): {names}.</p>',
            n=len(failed),
            names=join_markup([page_context_table_link(context, t.name) for t in failed[:8]], ", "),
        )
        if failed
        else None
    )
    return fill_html_template(
        '<section class="head"><h1>{source}</h1><p class="facts">{facts}</p>{warning}{notes}</section>',
        source=profile.source,
        facts=join_markup((fill_html_template("<span>{f}</span>", f=f) for f in facts if f), " "),
        warning=warning,
        notes=join_markup(fill_html_template('<p class="note">{n}</p>', n=sentence_to_html(n)) for n in profile.notes),
    )


def _section(context: PageContext, table: TableProfile, content: Markup, packed_at: str) -> Markup:
    return fill_html_template(
        '<section class="table" id="{anchor}" aria-label="{name}" tabindex="-1"{mark}>{back}<h2>{name}{kind}</h2>'
        "{content}</section>",
        anchor=context.anchors[table.name],
        name=table.name,
        kind=Markup(" <small>view</small>") if table.kind == "view" else None,
        back=Markup('<p class="back"><a href="#tables">All tables</a></p>')
        if len(context.profile.tables) > MANY
        else None,
        mark=fill_html_template(' data-packed="{p}"', p=packed_at) if packed_at else None,
        content=None if packed_at else content,
    )


def _about(context: PageContext, about: Mapping[str, str]) -> Markup:
    profile = context.profile
    plans = Counter(table.plan for table in profile.tables)
    facts = {
        "Source": f"{profile.source} ({profile.kind}, {profile.dialect})",
        "Profiled": format_page_time(profile.made_at),
        "Schema fingerprint": profile.fingerprint,
        "Profiles": ", ".join(f"{n:,} {plan}" for plan, n in sorted(plans.items())),
        "Earlier runs shown": str(len(context.history)) if context.history else "",
        **about,
        **{f"Version of {k}": v for k, v in sorted(profile.versions.items())},
    }
    rows = join_markup(fill_html_template("<dt>{k}</dt><dd>{v}</dd>", k=k, v=v) for k, v in facts.items() if v)
    return fill_html_template(
        '<section id="about"><h2>About this catalog</h2><dl>{rows}</dl><p class="how">Numbers without a mark are '
        "exact. <b>~</b> means from a sample, <b>≈</b> means approximate; hover over the mark for the error bound. "
        "Values of suspected personal data are masked. Press <kbd>/</kbd> to search, <kbd>Alt</kbd> <kbd>↑</kbd> "
        "<kbd>↓</kbd> to move between tables.</p></section>",
        rows=rows,
    )
