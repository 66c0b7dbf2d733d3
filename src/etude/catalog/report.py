"""The catalog as one HTML file: no request, no library, for reading, searching and printing.

The sections of the tables are made here, all of them. In a small catalog they stand in the page as they are. In a
large one they are packed (deflate, base64) and the page's script unpacks those that come into view.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from etude.catalog import svg
from etude.catalog.column_drift import Change, epoch, place
from etude.catalog.markup import (
    Markup,
    anchors,
    clean,
    escape,
    fill,
    join,
    page,
    percent,
    script_json,
    sentence,
    short,
    show,
    size,
    span,
    when,
)
from etude.catalog.model import (
    ColumnProfile,
    ForeignKeyEvidence,
    Freshness,
    KeyEvidence,
    Provenance,
    Scalar,
    SourceProfile,
    TableProfile,
    number,
)
from etude.catalog.starters import starter_queries

UNPACKED = 350_000
"""Sections of more characters than this, together, are packed."""
PACK = 200_000
"""Characters that are packed together."""
SHOWN_CHANGES = 12
SEARCHED = 60
"""Characters of a value that the search knows."""


@dataclass(frozen=True)
class Context:
    """What the parts of a page need to know of the whole."""

    profile: SourceProfile
    changes: Sequence[Change]
    history: Sequence[SourceProfile]
    anchors: Mapping[str, str]
    referring: Mapping[str, list[tuple[str, ForeignKeyEvidence]]]
    """Table to those that refer to it."""
    by_table: Mapping[str, list[Change]]
    tables: Mapping[str, TableProfile]
    """By their names in lower case."""
    page: str
    """Where the tables are, if not on this page."""
    past: Sequence[Mapping[str, TableProfile]]
    """The tables of each earlier run."""
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """Filled as they are asked for: the fragments of the columns of a table."""

    def series(self, table: str) -> list[TableProfile | None]:
        """A table over the runs, this one last."""
        return [*(tables.get(table) for tables in self.past), self.tables.get(table.lower())]

    def column_anchors(self, table: TableProfile) -> dict[str, str]:
        """The fragments of a table's columns."""
        if table.name not in self.columns:
            self.columns[table.name] = anchors((c.name for c in table.columns), self.anchors[table.name] + ".")
        return self.columns[table.name]

    def target(self, table: str, column: str | None = None) -> str | None:
        """The fragment of a table or column that may no longer be there."""
        found = self.tables.get(table.lower())
        if found is None:
            return None
        return self.column_anchors(found).get(column or "", self.anchors[found.name])


def make_context(
    profile: SourceProfile, changes: Sequence[Change], history: Sequence[SourceProfile], page: str = ""
) -> Context:
    """The context of a page."""
    referring: dict[str, list[tuple[str, ForeignKeyEvidence]]] = defaultdict(list)
    for table in profile.tables:
        for key in table.foreign_keys:
            referring[key.to_table.lower()].append((table.name, key))
    by_table: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_table[change.table].append(change)
    # Of two that differ in case only, the first is meant, as everywhere.
    tables = {t.name.lower(): t for t in reversed(profile.tables)}
    earlier = [p for p in history if p is not profile and (p.made_at is None or p.made_at != profile.made_at)]
    fragments = anchors((t.name for t in profile.tables), "t.")
    past = [{t.name: t for t in p.tables} for p in earlier]
    return Context(profile, changes, earlier, fragments, referring, by_table, tables, page, past)


def render_catalog(
    profile: SourceProfile,
    changes: Sequence[Change] = (),
    history: Sequence[SourceProfile] = (),
    about: Mapping[str, str] | None = None,
) -> str:
    """The catalog of a source as one self-contained HTML page.

    `history` holds earlier runs, oldest first. `about` adds facts of this run to the provenance: run id, duration,
    script, limits.
    """
    context = make_context(profile, changes, history)
    bodies = [_table_body(context, t) for t in profile.tables]
    packed = sum(len(body) for body in bodies) > UNPACKED
    packs, places = _pack_together(bodies) if packed else ([], [""] * len(bodies))
    body = fill(
        _BODY,
        source=profile.source,
        tables=join(_contents(context)),
        head=_head(context),
        changes=render_changes(context, "What changed since the last run"),
        overview=_overview(context),
        sections=join(_section(context, *each) for each in zip(profile.tables, bodies, places)),
        about=_about(context, about or {}),
        noscript=Markup(_NOSCRIPT) if packed else None,
        packs=join(packs),
        index=_index(context, packed),
        packed="1" if packed else "",
    )
    return page(f"{clean(profile.source)}: catalog", body)


_NOSCRIPT = (
    "<noscript><p class=note>The details of so many tables are packed; showing them needs JavaScript.</p></noscript>"
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
<nav aria-label="Tables"><ol>{tables}</ol></nav>
<main id="main" tabindex="-1">
{head}
{changes}
{overview}
{noscript}
{sections}
{about}
</main>
</div>
<p class="away" role="status" id="say"></p>
{packs}
<script type="application/json" id="index" data-packed="{packed}">{index}</script>"""


# The front matter.


def _contents(context: Context) -> list[Markup]:
    return [
        fill(
            '<li><a href="#{anchor}">{name}</a><span>{rows}</span></li>',
            anchor=context.anchors[t.name],
            name=t.name,
            rows=short(t.rows) if t.rows is not None else "",
        )
        for t in context.profile.tables
    ]


def _head(context: Context) -> Markup:
    profile = context.profile
    counted = [t.rows for t in profile.tables if t.rows is not None]
    facts = [
        f"{len(profile.tables):,} table{'' if len(profile.tables) == 1 else 's'}",
        f"{sum(len(t.columns) for t in profile.tables):,} columns",
        f"{sum(counted):,} rows",
        profile.kind,
        f"profiled {when(profile.made_at)}" if profile.made_at else "",
    ]
    failed = [t for t in profile.tables if t.plan == "failed"]
    warning = (
        fill(
            '<p class="note">{n} of them could not be profiled: {names}.</p>',
            n=len(failed),
            names=join([table_link(context, t.name) for t in failed[:8]], ", "),
        )
        if failed
        else None
    )
    return fill(
        '<section class="head"><h1>{source}</h1><p class="facts">{facts}</p>{warning}{notes}</section>',
        source=profile.source,
        facts=join((fill("<span>{f}</span>", f=f) for f in facts if f), " "),
        warning=warning,
        notes=join(fill('<p class="note">{n}</p>', n=sentence(n)) for n in profile.notes),
    )


def render_changes(context: Context, title: str, line_of: Callable[[Change], Markup] = lambda _: Markup("")) -> Markup:
    """The list of changes, ranked, each with a line over the runs; the first dozen open, the rest to unfold."""
    if not context.changes:
        if not context.history:
            return Markup("")
        return fill(
            '<section id="changes"><h2>{title}</h2><p class="calm">Nothing beyond what chance explains.</p></section>',
            title=title,
        )
    items = [_change(context, c, line_of(c)) for c in context.changes]
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


_SIGNS = {"high": "▲", "medium": "◆", "low": "○"}


def _change(context: Context, change: Change, line: Markup | None = None) -> Markup:
    target = context.target(change.table, change.column)
    place_of = f"{change.table}.{change.column}" if change.column else change.table
    link = fill('<a href="{page}#{to}">{n}</a>', page=context.page, to=target, n=place_of) if target else place_of
    return fill(
        '<li class="{severity}"><span class="sign" title="{severity}" aria-hidden="true">{sign}</span>'
        '<span class="away">{severity}: </span><div><p>{text}</p><p class="where">{link} · {kind}</p></div>{line}</li>',
        severity=change.severity,
        sign=_SIGNS[change.severity],
        text=sentence(change.text),
        link=link,
        kind=change.kind.replace("-", " "),
        line=line,
    )


def _overview(context: Context) -> Markup:
    if not context.profile.tables:
        return Markup('<section id="tables"><h2>Tables</h2><p class="calm">There are none.</p></section>')
    history = bool(context.history)
    heads = [("Table", "text"), ("Rows", "number"), ("Columns", "number")]
    if _sized(context):
        heads.append(("Size", "number"))
    heads.append(("Newest", "text"))
    if context.changes:
        heads.append(("Changes", "number"))
    rows = join(_overview_row(context, t, history) for t in context.profile.tables)
    return fill(
        '<section id="tables"><h2>Tables</h2><div class="wide" role="region" aria-label="All tables" tabindex="0">'
        '<table class="sortable"><thead><tr>{heads}{line}</tr></thead><tbody>{rows}</tbody></table></div></section>',
        heads=join(
            fill('<th scope="col" class="{kind}"><button type="button">{name}</button></th>', kind=kind, name=name)
            for name, kind in heads
        ),
        line=Markup('<th scope="col">Rows over the runs</th>') if history else None,
        rows=rows,
    )


def _sized(context: Context) -> bool:
    return any(t.bytes is not None for t in context.profile.tables[:100])


def _overview_row(context: Context, table: TableProfile, history: bool) -> Markup:
    cells = [
        _number_cell(table.rows, short(table.rows) if table.rows is not None else "failed"),
        _number_cell(len(table.columns), str(len(table.columns))),
        _number_cell(table.bytes, size(table.bytes)) if _sized(context) else "",
        fill("<td>{badge}</td>", badge=freshness_badge(context.profile, table.freshness)),
    ]
    if context.changes:
        told = context.by_table.get(table.name, [])
        worst = next((s for s in ("high", "medium", "low") if any(c.severity == s for c in told)), "")
        sign = fill('<span class="sign {s}" aria-hidden="true">{c}</span> ', s=worst, c=_SIGNS[worst]) if worst else ""
        cells.append(
            fill('<td class="number" data-v="{n}">{sign}{shown}</td>', n=len(told), sign=sign, shown=len(told) or "")
        )
    if history:
        cells.append(fill("<td>{line}</td>", line=_rows_line(context, table)))
    return fill(
        '<tr><th scope="row"><a href="#{anchor}">{name}</a><small>{purpose}</small></th>{cells}</tr>',
        anchor=context.anchors[table.name],
        name=table.name,
        purpose=_purpose(table) or _plain_shape(table),
        cells=join(cells),
    )


def _plain_shape(table: TableProfile) -> str:
    """What the table is by its keys, where nobody told what it is for."""
    said = []
    if table.primary_key is not None and table.primary_key.unique is not False:
        said.append("One row per " + ", ".join(table.primary_key.columns))
    to = list(dict.fromkeys(k.to_table for k in table.foreign_keys))
    if to:
        said.append(f"refers to {', '.join(to[:4])}{' and others' if len(to) > 4 else ''}")
    return "; ".join(said)


def _number_cell(value: float | None, shown: str) -> Markup:
    return fill('<td class="number" data-v="{v}">{s}</td>', v="" if value is None else value, s=shown)


def _purpose(table: TableProfile) -> str | None:
    return table.description or table.comment


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


def _rows_line(context: Context, table: TableProfile) -> Markup:
    counts = [t.rows if t else None for t in context.series(table.name)]
    return svg.sparkline(counts, f"rows of {table.name} over {len(counts)} runs")


# A table.


def _section(context: Context, table: TableProfile, content: Markup, place_in_pack: str) -> Markup:
    return fill(
        '<section class="table" id="{anchor}" aria-label="{name}" tabindex="-1"{mark}><h2>{name}{kind}</h2>{content}'
        "</section>",
        anchor=context.anchors[table.name],
        name=table.name,
        kind=Markup(" <small>view</small>") if table.kind == "view" else None,
        mark=fill(' data-packed="{p}"', p=place_in_pack) if place_in_pack else None,
        content=None if place_in_pack else content,
    )


def _pack_together(bodies: Sequence[Markup]) -> tuple[list[Markup], list[str]]:
    """Sections in packs of several, since they resemble each other, and the place of each: pack and position."""
    groups: list[list[str]] = [[]]
    places = []
    for body in bodies:
        if groups[-1] and sum(map(len, groups[-1])) + len(body) > PACK:
            groups.append([])
        places.append(f"{len(groups) - 1}.{len(groups[-1])}")
        groups[-1].append(body)
    packs = [
        fill(
            '<script type="text/plain" id="pack{i}">{data}</script>', i=i, data=pack(json.dumps(g, ensure_ascii=False))
        )
        for i, g in enumerate(groups)
    ]
    return packs, places


def pack(text: str) -> Markup:
    """Text in the form that the page's script unpacks: raw deflate as base64."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return Markup(base64.b64encode(squeeze.compress(text.encode()) + squeeze.flush()).decode())


def _table_body(context: Context, table: TableProfile) -> Markup:
    told = context.by_table.get(table.name, [])
    parts = [
        fill('<p class="purpose">{p}</p>', p=_purpose(table)) if _purpose(table) else "",
        _table_facts(context, table),
        fill('<p class="error">{error}</p>', error=table.error) if table.error else "",
        fill('<ol class="changes">{items}</ol>', items=join(_change(context, c) for c in told)) if told else "",
        _columns(context, table),
        _relations(context, table),
        _dependencies(table),
        _samples(table),
        _queries(context, table),
        _table_provenance(table),
    ]
    return join(parts)


def _table_facts(context: Context, table: TableProfile) -> Markup:
    facts: list[object] = []
    if table.rows is not None:
        facts.append(fill("<b>{rows}</b> rows {mark}", rows=f"{table.rows:,}", mark=_mark(table.rows_provenance)))
    facts.append(fill("<b>{n}</b> columns", n=len(table.columns)))
    if table.bytes is not None:
        facts.append(fill("<b>{size}</b>", size=size(table.bytes)))
    if table.freshness is not None:
        badge = freshness_badge(context.profile, table.freshness)
        facts.append(fill("newest {column} {badge}", column=table.freshness.column, badge=badge))
    line = _rows_line(context, table) if context.history else ""
    if line:
        facts.append(line)
    if table.owner:
        facts.append(fill("owner {owner}", owner=table.owner))
    facts.extend(fill('<span class="tag">{t}</span>', t=t) for t in table.tags)
    shape = _shape(context, table)
    return fill(
        '<p class="facts">{facts}</p>{shape}',
        facts=join((fill("<span>{f}</span>", f=f) for f in facts), " "),
        shape=fill('<p class="shape">{shape}</p>', shape=shape) if shape else None,
    )


def _shape(context: Context, table: TableProfile) -> Markup:
    """What a row is and what it hangs together with, in a sentence."""
    said = []
    key = table.primary_key
    if key is not None and key.unique is not False:
        said.append(fill("One row per {columns}.", columns=_codes(key.columns)))
    to = list(dict.fromkeys(k.to_table for k in table.foreign_keys))
    by = list(dict.fromkeys(name for name, _ in context.referring.get(table.name.lower(), [])))
    for names, words in ((to, "Refers to"), (by, "Referred to by")):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            links = join([table_link(context, n) for n in names[:6]], ", ")
            said.append(fill("{words} {links}{more}.", words=words, links=links, more=more))
    return join(said, " ")


def table_link(context: Context, name: str) -> Markup:
    """The name of a table, as a link if it is there."""
    target = context.target(name)
    return fill('<a href="{page}#{t}">{name}</a>', page=context.page, t=target, name=name) if target else escape(name)


def _codes(names: Sequence[str]) -> Markup:
    return join((fill("<code>{n}</code>", n=n) for n in names), ", ")


_METHODS = {
    "sampled": ("~", "sampled"),
    "approximate": ("≈", "approximate"),
    "metadata": ("≈", "from the source's own statistics"),
}


def _mark(provenance: Provenance | None) -> Markup:
    """A sign behind a number that is not exact, with the reason."""
    if provenance is None or provenance.method == "exact":
        return Markup("")
    sign, word = _METHODS[provenance.method]
    return fill(
        '<abbr title="{word}">{sign}</abbr>', word=", ".join(x for x in (word, _bound(provenance)) if x), sign=sign
    )


def _bound(provenance: Provenance) -> str:
    said = []
    if provenance.rows is not None:
        said.append(f"{provenance.rows:,} rows")
    if provenance.detail:
        said.append(provenance.detail)
    elif provenance.error is not None:
        said.append(f"within {percent(provenance.error)}")
    return ", ".join(said)


def _columns(context: Context, table: TableProfile) -> Markup:
    if not table.columns:
        return Markup("")
    ids = context.column_anchors(table)
    keys = {c for k in table.keys if k.primary for c in k.columns}
    others = {c for k in table.keys if not k.primary for c in k.columns}
    references = {c: k for k in table.foreign_keys for c in k.columns}
    changed: dict[str | None, Change] = {}
    for change in context.by_table.get(table.name, []):
        changed.setdefault(change.column, change)
    strips = []
    for column in table.columns:
        marks = []
        if column.name in keys:
            marks.append(("key", "key", "identifies a row"))
        elif column.name in others:
            marks.append(("key", "unique", "a further key"))
        if column.name in references:
            marks.append(("ref", "→ " + references[column.name].to_table, "refers to another table"))
        if column.pii:
            marks.append(("pii", column.pii[0].kind, "may be personal data: " + column.pii[0].reason))
        if column.constant:
            marks.append(("odd", "constant", "one value in all rows"))
        if column.empty:
            marks.append(("odd", "empty", "no values"))
        if column.name in changed:
            change = changed[column.name]
            marks.append((change.severity, "new" if change.kind == "column-added" else "changed", change.text))
        strips.append(_strip(column, ids[column.name], marks))
    return fill(
        '<div class="columns"><div class="strip heads" aria-hidden="true"><span>Column</span><span>Type</span>'
        "<span>Nulls</span><span>Distinct</span><span>Distribution</span><span>Values</span></div>{strips}</div>",
        strips=join(strips),
    )


def _strip(column: ColumnProfile, anchor: str, marks: Sequence[tuple[str, str, str]]) -> Markup:
    share = column.null_share
    nulls = (
        fill(
            '{bar}<i class="away">nulls </i>{share}{mark}',
            bar=svg.bar(share) if share else Markup('<s class="b"></s>'),
            share=percent(share),
            mark=_mark(column.provenance.counts),
        )
        if share is not None
        else None
    )
    distinct = (
        fill("{n}<i class=away> distinct</i>{mark}", n=short(column.distinct), mark=_mark(column.provenance.distinct))
        if column.distinct is not None
        else None
    )
    return fill(
        '<details class="column" id="{id}"><summary class="strip"><span class="name"><b>{name}</b>{marks}</span>'
        '<span class="type">{type}</span><span class="nulls">{nulls}</span><span class="distinct">{distinct}</span>'
        '<span class="dist">{drawing}</span><span class="range">{range}</span></summary>{detail}</details>',
        id=anchor,
        name=column.name,
        marks=join(
            fill(' <em class="{kind}" title="{title}">{word}</em>', kind=kind, title=title, word=word)
            for kind, word, title in marks
        ),
        type=_short_type(column.type),
        nulls=nulls,
        distinct=distinct,
        drawing=svg.distribution(column),
        range=_range(column),
        detail=_detail(column),
    )


def _short_type(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


def _range(column: ColumnProfile) -> Markup:
    """The values in a few words: from the least to the greatest, or the most frequent."""
    if column.family in ("text", "boolean", "uuid", "json", "nested", "other", "binary", "interval"):
        if column.top and not column.unique and (column.top[0].share > 0.005 or column.distinct == len(column.top)):
            shown = [
                fill("{v} <small>{s}</small>", v=_value(column.top[i].value, 22), s=percent(column.top[i].share))
                for i in range(min(2, len(column.top)))
            ]
            return join(shown, " · ")
        if column.patterns:
            pattern = column.patterns[0]
            return fill("{kind} <small>{form}</small>", kind=pattern.kind, form=pattern.form or "")
        if column.lengths is not None:
            return fill("<small>{a} to {b} characters</small>", a=column.lengths.min, b=column.lengths.max)
        return Markup("")
    if column.min is None or column.max is None:
        return Markup("")
    if column.min == column.max:
        return _value(column.min)
    if column.family == "timestamp" and str(column.min)[:10] != str(column.max)[:10]:
        return fill("{a} <small>to</small> {b}", a=str(column.min)[:10], b=str(column.max)[:10])
    return fill("{a} <small>to</small> {b}", a=_number(column, column.min, 19), b=_number(column, column.max, 19))


def _number(column: ColumnProfile, value: Scalar, limit: int = 80) -> Markup:
    """A value of a column; digits that came as text (a decimal) are grouped as numbers are."""
    figure = number(value) if column.family == "decimal" and isinstance(value, str) else None
    if figure is None or abs(figure) < 10_000 or len(str(value)) > 30:
        return _value(value, limit)
    return escape(f"{Decimal(str(value)):,f}")


def _value(value: Scalar, limit: int = 80) -> Markup:
    """A value, with what cannot be seen made visible."""
    if value is None:
        return Markup("<i>null</i>")
    if value == "" and isinstance(value, str):
        return Markup("<i>empty</i>")
    shown = show(value, limit)
    if shown != shown.strip() or not shown.strip():
        return fill('<span class="blank">{v}</span>', v=shown.replace(" ", "·"))
    return escape(shown)


_POINTS = ((0, "min"), (1, "5%"), (5, "25%"), (10, "median"), (15, "75%"), (19, "95%"), (20, "max"))


def _detail(column: ColumnProfile) -> Markup:
    how = column.provenance
    panels = [_about_column(column), _top(column), _quantiles(column), _text_facts(column)]
    groups = (
        ("counts", how.counts),
        ("distinct", how.distinct if column.distinct is not None else None),
        ("quantiles", how.quantiles if column.quantiles else None),
        ("values", how.top if column.top else None),
        ("patterns", how.patterns if column.patterns else None),
    )
    inexact = [(name, p) for name, p in groups if p is not None and p.method != "exact"]
    exact = [name for name, p in groups if p is not None and p.method == "exact"]
    said = ["exact: " + ", ".join(exact)] if exact else []
    for name, p in inexact:
        bound = _bound(p)
        said.append(f"{name} {_METHODS[p.method][1]}" + (f" ({bound})" if bound else ""))
    return fill('<div class="detail">{panels}<p class="how">{how}</p></div>', panels=join(panels), how="; ".join(said))


def _about_column(column: ColumnProfile) -> Markup:
    lines: list[object] = []
    if column.description or column.comment:
        lines.append(fill("<p>{d}</p>", d=column.description or column.comment))
    if len(column.type) > 24:
        lines.append(fill("<p><code>{t}</code></p>", t=column.type[:400]))
    for hint in column.pii:
        lines.append(
            fill(
                '<p><em class="pii">{kind}</em> {reason} <small>({c} sure)</small>{masked}</p>',
                kind=hint.kind,
                reason=sentence(hint.reason),
                c=percent(hint.confidence),
                masked=" Values are masked." if column.masked else "",
            )
        )
    lines.extend(fill('<p class="note">{n}</p>', n=sentence(n)) for n in column.notes)
    lines.extend(fill('<span class="tag">{t}</span>', t=t) for t in column.tags)
    return fill('<div class="wide-panel">{lines}</div>', lines=join(lines)) if lines else Markup("")


def _top(column: ColumnProfile) -> Markup:
    if not column.top:
        return Markup("")
    if column.unique and len(column.top) > 1:
        some = join((fill("<span>{v}</span>", v=_value(t.value, 44)) for t in column.top[:3]), ", ")
        return fill('<p class="once">No value repeats: {some}, …</p>', some=some)
    rows = join(
        fill(
            "<tr><th>{v}</th><td>{bar}</td><td>{n}</td><td>{s}</td></tr>",
            v=_number(column, t.value, 44),
            bar=svg.bar(t.share),
            n=f"{t.count:,}",
            s=percent(t.share),
        )
        for t in column.top
    )
    there = (column.rows or 0) - (column.nulls or 0)
    left = there - sum(t.count for t in column.top)
    others = (column.distinct or 0) - len(column.top)
    exact = column.provenance.top is not None and column.provenance.top.method == "exact"
    rest = (
        fill(
            '<tr class="rest"><th>{n} others</th><td></td><td>{c}</td><td>{s}</td></tr>',
            n=f"{others:,}",
            c=f"{left:,}",
            s=percent(left / there),
        )
        if others > 0 and left > 0 and exact
        else None
    )
    return fill(
        '<table class="top"><caption>Frequent values{mark}</caption><tbody>{rows}{rest}</tbody></table>',
        mark=_mark(column.provenance.top),
        rows=rows,
        rest=rest,
    )


def _quantiles(column: ColumnProfile) -> Markup:
    rows: list[tuple[str, object]] = []
    if len(column.quantiles) == 21:
        rows.extend((name, _number(column, column.quantiles[i])) for i, name in _POINTS)
    elif column.min is not None and column.family not in ("boolean",):
        rows.extend([("min", _value(column.min, 60)), ("max", _value(column.max, 60))])
    if column.mean is not None:
        rows.append(("mean", show(column.mean)))
    if column.stddev is not None:
        rows.append(("deviation", show(column.stddev)))
    for count, name in (
        (column.zeros, "zeros"),
        (column.negatives, "negative"),
        (column.nans, "NaN"),
        (column.infinities, "infinite"),
    ):
        if count:
            rows.append((name, f"{count:,}"))
    if column.outliers is not None:
        out = column.outliers
        sides = ((out.below, "below", out.low), (out.above, "above", out.high))
        told = [f"{count:,} {word} {show(fence)}" for count, word, fence in sides if count]
        if told:
            rows.append(("outliers", ", ".join(told)))
    if not rows:
        return Markup("")
    body = join(fill("<tr><th>{k}</th><td>{v}</td></tr>", k=k, v=v) for k, v in rows)
    return fill(
        '<table class="points"><caption>Range{mark}</caption><tbody>{body}</tbody></table>',
        mark=_mark(column.provenance.quantiles if column.quantiles else None),
        body=body,
    )


def _text_facts(column: ColumnProfile) -> Markup:
    rows: list[tuple[object, object]] = []
    if column.lengths is not None:
        rows.append(
            ("length", f"{column.lengths.min} to {column.lengths.max}, mean {show(round(column.lengths.mean, 1))}")
        )
        if column.lengths.empty:
            rows.append(("empty", f"{column.lengths.empty:,}"))
    for pattern in column.patterns:
        form = fill(" <code>{f}</code>", f=pattern.form) if pattern.form else ""
        rows.append((fill("{k}{form}", k=pattern.kind, form=form), percent(pattern.share)))
    if not rows:
        return Markup("")
    body = join(fill("<tr><th>{k}</th><td>{v}</td></tr>", k=k, v=v) for k, v in rows)
    return fill('<table class="points"><caption>Text</caption><tbody>{body}</tbody></table>', body=body)


def _relations(context: Context, table: TableProfile) -> Markup:
    referring = context.referring.get(table.name.lower(), [])
    if not (table.keys or table.foreign_keys or referring):
        return Markup("")
    rows = [_key_row(k) for k in table.keys]
    rows += [_reference_row(context, table.name, k) for k in table.foreign_keys]
    rows += [_reference_row(context, name, k, came_from=True) for name, k in referring]
    left = [(n, ", ".join(k.columns), context.target(n) or "tables") for n, k in referring]
    right = [(k.to_table, ", ".join(k.columns), context.target(k.to_table) or "tables") for k in table.foreign_keys]
    diagram = (
        fill(
            '<details class="diagram"><summary>Diagram of the neighbours</summary><div class="wide" role="region" '
            'tabindex="0" aria-label="Neighbours of {name}">{drawing}</div></details>',
            name=table.name,
            drawing=svg.neighbourhood(table.name, left, right, f"{table.name} and the tables beside it"),
        )
        if left or right
        else None
    )
    return fill(
        '<h3>Keys and references</h3><div class="wide" role="region" aria-label="Keys and references of {name}" '
        'tabindex="0"><table class="keys"><thead><tr><th scope="col">Columns</th><th scope="col">Role</th>'
        '<th scope="col">Known by</th><th scope="col">Evidence</th></tr></thead><tbody>{rows}</tbody></table></div>'
        "{diagram}",
        name=table.name,
        rows=join(rows),
        diagram=diagram,
    )


def _key_row(key: KeyEvidence) -> Markup:
    broken = key.unique is False
    reasons = [r for r in key.reasons if r != key.origin]
    if broken:
        reasons.insert(0, "the data breaks it: values repeat")
    elif key.unique and not reasons:
        reasons.append("no value repeats")
    return fill(
        '<tr{broken}><th scope="row">{columns}</th><td>{what}</td><td>{origin}</td><td>{why}</td></tr>',
        broken=Markup(' class="broken"') if broken else None,
        columns=_codes(key.columns),
        what="the key" if key.primary else "a further key",
        origin=key.origin if key.origin == "declared" else f"inferred, {percent(key.score)} sure",
        why=sentence("; ".join(reasons)),
    )


def _reference_row(context: Context, owner: str, key: ForeignKeyEvidence, came_from: bool = False) -> Markup:
    why = []
    if key.containment is not None:
        missing = f" ({key.missing:,} without a partner)" if key.missing else ""
        why.append(f"{percent(key.containment)} of the values found{missing}")
    if key.coverage is not None:
        why.append(f"{percent(key.coverage)} of the other side used")
    if key.cardinality:
        why.append(key.cardinality)
    why.extend(r for r in key.reasons if r not in why and r != key.origin)
    what = (
        fill("referred to by {link} {columns}", link=table_link(context, owner), columns=_codes(key.columns))
        if came_from
        else fill("refer to {link} {columns}", link=table_link(context, key.to_table), columns=_codes(key.to_columns))
    )
    return fill(
        '<tr><th scope="row">{columns}</th><td>{what}</td><td>{origin}</td><td>{why}{mark}</td></tr>',
        columns=_codes(key.to_columns if came_from else key.columns),
        what=what,
        origin=key.origin if key.origin == "declared" else f"inferred, {percent(key.score)} sure",
        why=sentence("; ".join(why)),
        mark=_mark(key.provenance),
    )


def _dependencies(table: TableProfile) -> Markup:
    if not table.dependencies:
        return Markup("")
    words = {"determines": "determines", "one-to-one": "goes one to one with", "equal": "equals"}
    items = join(
        fill(
            "<li>{columns} {word} {other} <small>{reason}</small></li>",
            columns=_codes(d.columns),
            word=words[d.kind],
            other=_codes((d.determines,)),
            reason=sentence(d.reason),
        )
        for d in table.dependencies
    )
    return fill("<h3>Dependencies</h3><ul class=plain>{items}</ul>", items=items)


def _samples(table: TableProfile) -> Markup:
    samples = table.samples
    if samples is None or not samples.rows:
        return Markup("")
    masked = {c.name for c in table.columns if c.masked}
    heads = join(fill('<th scope="col">{c}</th>', c=c) for c in samples.columns)
    rows = join(
        fill("<tr>{cells}</tr>", cells=join(fill("<td>{v}</td>", v=_value(v, 60)) for v in row)) for row in samples.rows
    )
    note = " Suspected personal data is masked." if masked & set(samples.columns) else ""
    return fill(
        '<details class="samples"><summary>Sample rows</summary><div class="wide" role="region" tabindex="0" '
        'aria-label="Sample rows of {name}"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        '<p class="how">{n} rows.{note}</p></details>',
        name=table.name,
        heads=heads,
        rows=rows,
        n=len(samples.rows),
        note=note,
    )


def _queries(context: Context, table: TableProfile) -> Markup:
    if table.plan == "failed":
        return Markup("")
    blocks = join(
        fill(
            '<figure><figcaption>{title}<button type="button" class="copy" aria-label="Copy: {title}">Copy</button>'
            '</figcaption><pre tabindex="0">{sql}</pre></figure>',
            title=title,
            sql=sql,
        )
        for title, sql in starter_queries(context.profile, table)
    )
    return fill('<details class="sql"><summary>Queries to begin with</summary><div>{b}</div></details>', b=blocks)


_PLANS = {
    "exact": "All statistics are exact: every row was read.",
    "light": "A light profile: what costs most on small tables was left out.",
    "sampled": "Counts are of all rows; distributions and frequent values are of a sample.",
    "failed": "The table could not be profiled.",
}


def _table_provenance(table: TableProfile) -> Markup:
    return fill(
        '<p class="how">{plan} {notes}</p>',
        plan=_PLANS[table.plan],
        notes=join((sentence(n) for n in table.notes), " "),
    )


def _about(context: Context, about: Mapping[str, str]) -> Markup:
    profile = context.profile
    plans = Counter(table.plan for table in profile.tables)
    facts = {
        "Source": f"{profile.source} ({profile.kind}, {profile.dialect})",
        "Made": when(profile.made_at),
        "Schema fingerprint": profile.fingerprint,
        "Profiles": ", ".join(f"{n:,} {plan}" for plan, n in sorted(plans.items())),
        "Earlier runs shown": str(len(context.history)) if context.history else "",
        **about,
        **{f"Version of {k}": v for k, v in sorted(profile.versions.items())},
    }
    rows = join(fill("<dt>{k}</dt><dd>{v}</dd>", k=k, v=v) for k, v in facts.items() if v)
    return fill(
        '<section id="about"><h2>How this was made</h2><dl>{rows}</dl><p class="how">A number without a mark is exact. '
        "<b>~</b> comes from a sample, <b>≈</b> is approximate; the mark tells the bound. Values of suspected personal "
        "data are masked. Press <kbd>/</kbd> to search, <kbd>Alt</kbd> <kbd>↑</kbd> <kbd>↓</kbd> to go from table to "
        "table.</p></section>",
        rows=rows,
    )


def _searched(table: TableProfile, column: ColumnProfile) -> list[str]:
    """The values of a column that the page shows, each once: frequent ones, the ends, those of the sample rows."""
    values = [t.value for t in column.top] + [column.min, column.max]
    if table.samples is not None and column.name in table.samples.columns:
        at = table.samples.columns.index(column.name)
        values += [row[at] for row in table.samples.rows]
    known = (str(v).lower() if isinstance(v, bool) else clean(str(v)[:SEARCHED]) for v in values if v is not None)
    return [v for v in dict.fromkeys(known) if v]


def _index(context: Context, packed: bool) -> Markup:
    """What the search knows: of each table its name, purpose and columns; of each column its name, type and values."""
    tables = []
    for table in context.profile.tables:
        ids = context.column_anchors(table)
        columns = [
            [
                clean(c.name),
                ids[c.name][len(context.anchors[table.name]) :],
                clean(c.type[:24]),
                _searched(table, c),
                clean((c.description or c.comment or "")[:120]),
            ]
            for c in table.columns
        ]
        purpose = " ".join(x for x in (_purpose(table), table.owner, *table.tags) if x)
        tables.append([clean(table.name), context.anchors[table.name], clean(purpose[:160]), columns])
    if not packed:
        return script_json(tables)
    return pack(json.dumps(tables, separators=(",", ":"), ensure_ascii=False))
