"""The columns of a table on the page: a strip for each, with details that open below it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from etude.catalog.drift.change import Change
from etude.catalog.keys.key_names import key_name_words
from etude.catalog.model import ColumnProfile, Scalar, TableProfile, profile_number
from etude.catalog.page import svg
from etude.catalog.page.context import PageContext
from etude.catalog.page.fragments import METHODS, error_bound_fragment, provenance_fragment, value_fragment
from etude.catalog.page.html_markup import Markup, escape_html, fill_html_template, join_markup, sentence_to_html
from etude.catalog.page.page_format import format_page_count, format_page_share, format_page_value


def render_columns(context: PageContext, table: TableProfile) -> Markup:
    """Render the columns of a table."""
    if not table.columns:
        return Markup("")
    ids = context.column_anchors(table)
    keys = {c for k in table.keys if k.primary for c in k.columns}
    others = {c for k in table.keys if not k.primary for c in k.columns}
    # A reference of a single column takes precedence over one that the column shares with others.
    by_size = sorted(table.foreign_keys, key=lambda k: -len(k.columns))
    references = {c: k for k in by_size for c in k.columns}
    changed: dict[str | None, Change] = {}
    for change in context.by_table.get(table.name, []):
        changed.setdefault(change.column, change)
    strips = []
    for column in table.columns:
        marks = []
        if column.name in keys:
            marks.append(("key", "key", "identifies a row"))
        elif column.name in others:
            marks.append(("key", "unique", "an alternative key"))
        if column.name in references:
            marks.append(("ref", "→ " + references[column.name].to_table, "refers to another table"))
        if column.pii:
            marks.append(("pii", column.pii[0].kind, "may be personal data: " + column.pii[0].reason))
        if column.constant:
            marks.append(("odd", "constant", "the same value in every row"))
        if column.empty:
            marks.append(("odd", "empty", "no values"))
        if column.name in changed:
            change = changed[column.name]
            marks.append((change.severity, "new" if change.kind == "column-added" else "changed", change.text))
        strips.append(_strip(column, ids[column.name], marks))
    return fill_html_template(
        '<div class="columns"><div class="strip heads" aria-hidden="true"><span>Column</span><span>Type</span>'
        "<span>Nulls</span><span>Distinct</span><span>Distribution</span><span>Values</span></div>{strips}</div>",
        strips=join_markup(strips),
    )


def _strip(column: ColumnProfile, anchor: str, marks: Sequence[tuple[str, str, str]]) -> Markup:
    share = column.null_share
    nulls = (
        fill_html_template(
            '{bar}<i class="away">nulls </i>{share}{mark}',
            bar=svg.draw_share_bar_svg(share) if share else Markup('<s class="b"></s>'),
            share=format_page_share(share),
            mark=provenance_fragment(column.provenance.counts),
        )
        if share is not None
        else None
    )
    distinct = (
        fill_html_template(
            "{n}<i class=away> distinct</i>{mark}",
            n=format_page_count(column.distinct),
            mark=provenance_fragment(column.provenance.distinct),
        )
        if column.distinct is not None
        else None
    )
    return fill_html_template(
        '<details class="column" id="{id}"><summary class="strip"><span class="name"><b>{name}</b>{marks}</span>'
        '<span class="type">{type}</span><span class="nulls">{nulls}</span><span class="distinct">{distinct}</span>'
        '<span class="dist">{drawing}</span><span class="range">{range}</span></summary>{detail}</details>',
        id=anchor,
        name=column.name,
        marks=join_markup(
            fill_html_template(' <em class="{kind}" title="{title}">{word}</em>', kind=kind, title=title, word=word)
            for kind, word, title in marks
        ),
        type=_short_type(column.type),
        nulls=nulls,
        distinct=distinct,
        drawing=svg.draw_distribution_svg(column),
        range=_range(column),
        detail=_detail(column),
    )


def _short_type(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


def _range(column: ColumnProfile) -> Markup:
    """Summarize the values: the range, the most frequent values, the pattern or the lengths."""
    if column.family in ("text", "boolean", "uuid", "json", "nested", "other", "binary", "interval"):
        if column.top and not column.unique and (column.top[0].share > 0.005 or column.distinct == len(column.top)):
            shown = [
                fill_html_template(
                    "{v} <small>{s}</small>",
                    v=value_fragment(column.top[i].value, 22),
                    s=format_page_share(column.top[i].share),
                )
                for i in range(min(2, len(column.top)))
            ]
            return join_markup(shown, " · ")
        if column.patterns:
            pattern = column.patterns[0]
            return fill_html_template("{kind} <small>{form}</small>", kind=pattern.kind, form=pattern.form or "")
        if column.lengths is not None:
            return fill_html_template(
                "<small>{a} to {b} characters</small>", a=column.lengths.min, b=column.lengths.max
            )
        return Markup("")
    if column.min is None or column.max is None:
        return Markup("")
    if column.min == column.max:
        return value_fragment(column.min)
    if column.family == "timestamp" and str(column.min)[:10] != str(column.max)[:10]:
        return fill_html_template("{a} <small>to</small> {b}", a=str(column.min)[:10], b=str(column.max)[:10])
    return fill_html_template(
        "{a} <small>to</small> {b}", a=_number(column, column.min, 19), b=_number(column, column.max, 19)
    )


def _number(column: ColumnProfile, value: Scalar, limit: int = 80) -> Markup:
    """Show a value of a column; decimals arrive as text and get thousands separators like other numbers."""
    if column.family == "integer":
        return value_fragment(value, limit, grouped=not _names_things(column))
    figure = profile_number(value) if column.family == "decimal" and isinstance(value, str) else None
    if figure is None or len(str(value)) > 30:
        return value_fragment(value, limit)
    return escape_html(f"{Decimal(str(value)):,f}")


def _names_things(column: ColumnProfile) -> bool:
    """Return whether whole numbers are names, such as years and ids, which have no thousands separators."""
    if column.unique or {"id", "key", "code", "no", "number", "nr", "zip", "year"} & set(key_name_words(column.name)):
        return True
    low, high = profile_number(column.min), profile_number(column.max)
    return low is not None and high is not None and 1800 <= low <= high <= 2200


_POINTS = ((0, "min"), (1, "5%"), (5, "25%"), (10, "median"), (15, "75%"), (19, "95%"), (20, "max"))


def _detail(column: ColumnProfile) -> Markup:
    how = column.provenance
    panels = [_about_column(column), _chart(column), _top(column), _quantiles(column), _text_facts(column)]
    groups = (
        ("counts", how.counts),
        ("distinct", how.distinct if column.distinct is not None else None),
        ("quantiles", how.quantiles if column.quantiles else None),
        ("values", how.top if column.top else None),
        ("patterns", how.patterns if column.patterns else None),
    )
    inexact = [(name, p) for name, p in groups if p is not None and p.method != "exact"]
    exact = [name for name, p in groups if p is not None and p.method == "exact"]
    parts = ["exact: " + ", ".join(exact)] if exact else []
    for name, p in inexact:
        error = error_bound_fragment(p)
        parts.append(f"{name} {METHODS[p.method][1]}" + (f" ({error})" if error else ""))
    return fill_html_template(
        '<div class="detail">{panels}<p class="how">{how}</p></div>', panels=join_markup(panels), how="; ".join(parts)
    )


def _chart(column: ColumnProfile) -> Markup:
    """Draw the distribution again, larger and with its axis."""
    drawing = svg.draw_distribution_svg(column, large=True)
    if not drawing:
        return Markup("")
    low, middle, high = (_number(column, column.quantiles[i], 19) for i in (0, 10, 20))
    return fill_html_template(
        '<figure class="chart">{drawing}<p class="ends"><span>{low}</span><span>median {middle}</span>'
        "<span>{high}</span></p></figure>",
        drawing=drawing,
        low=low,
        middle=middle,
        high=high,
    )


def _about_column(column: ColumnProfile) -> Markup:
    lines: list[object] = []
    if column.description or column.comment:
        lines.append(fill_html_template("<p>{d}</p>", d=column.description or column.comment))
    if len(column.type) > 24:
        lines.append(fill_html_template("<p><code>{t}</code></p>", t=column.type[:400]))
    for hint in column.pii:
        lines.append(
            fill_html_template(
                '<p><em class="pii">{kind}</em> {reason} <small>({c} confidence)</small>{masked}</p>',
                kind=hint.kind,
                reason=sentence_to_html(hint.reason),
                c=format_page_share(hint.confidence),
                masked=" Values are masked." if column.masked else "",
            )
        )
    lines.extend(fill_html_template('<p class="note">{n}</p>', n=sentence_to_html(n)) for n in column.notes)
    lines.extend(fill_html_template('<span class="tag">{t}</span>', t=t) for t in column.tags)
    return (
        fill_html_template('<div class="wide-panel">{lines}</div>', lines=join_markup(lines)) if lines else Markup("")
    )


def _top(column: ColumnProfile) -> Markup:
    if not column.top:
        return Markup("")
    if column.unique and len(column.top) > 1:
        some = join_markup(
            (fill_html_template("<span>{v}</span>", v=value_fragment(t.value, 44)) for t in column.top[:3]), ", "
        )
        return fill_html_template('<p class="once">Every value is unique: {some}, …</p>', some=some)
    rows = join_markup(
        fill_html_template(
            "<tr><th>{v}</th><td>{bar}</td><td>{n}</td><td>{s}</td></tr>",
            v=_number(column, t.value, 44),
            bar=svg.draw_share_bar_svg(t.share),
            n=f"{t.count:,}",
            s=format_page_share(t.share),
        )
        for t in column.top
    )
    filled = (column.rows or 0) - (column.nulls or 0)
    left = filled - sum(t.count for t in column.top)
    others = (column.distinct or 0) - len(column.top)
    exact = column.provenance.top is not None and column.provenance.top.method == "exact"
    rest = (
        fill_html_template(
            '<tr class="rest"><th>{n} others</th><td></td><td>{c}</td><td>{s}</td></tr>',
            n=f"{others:,}",
            c=f"{left:,}",
            s=format_page_share(left / filled),
        )
        if others > 0 and left > 0 and exact
        else None
    )
    return fill_html_template(
        '<table class="top"><caption>Frequent values{mark}</caption><tbody>{rows}{rest}</tbody></table>',
        mark=provenance_fragment(column.provenance.top),
        rows=rows,
        rest=rest,
    )


def _quantiles(column: ColumnProfile) -> Markup:
    rows: list[tuple[str, object]] = []
    if len(column.quantiles) == 21:
        rows.extend((name, _number(column, column.quantiles[i])) for i, name in _POINTS)
    elif column.min is not None and column.family not in ("boolean",):
        rows.extend([("min", value_fragment(column.min, 60)), ("max", value_fragment(column.max, 60))])
    if column.mean is not None:
        rows.append(("mean", format_page_value(column.mean)))
    if column.stddev is not None:
        rows.append(("std. deviation", format_page_value(column.stddev)))
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
        counts = [f"{count:,} {word} {format_page_value(fence)}" for count, word, fence in sides if count]
        if counts:
            rows.append(("outliers", ", ".join(counts)))
    if not rows:
        return Markup("")
    body = join_markup(fill_html_template("<tr><th>{k}</th><td>{v}</td></tr>", k=k, v=v) for k, v in rows)
    return fill_html_template(
        '<table class="points"><caption>Range{mark}</caption><tbody>{body}</tbody></table>',
        mark=provenance_fragment(column.provenance.quantiles if column.quantiles else None),
        body=body,
    )


def _text_facts(column: ColumnProfile) -> Markup:
    rows: list[tuple[object, object]] = []
    if column.lengths is not None:
        if column.lengths.padded:
            rows.append(("outer spaces", f"{column.lengths.padded:,}"))
        rows.append(
            (
                "length",
                f"{column.lengths.min:,} to {column.lengths.max:,}, "
                f"mean {format_page_value(round(column.lengths.mean, 1))}",
            )
        )
        if column.lengths.empty:
            rows.append(("empty", f"{column.lengths.empty:,}"))
    for pattern in column.patterns:
        form = fill_html_template(" <code>{f}</code>", f=pattern.form) if pattern.form else ""
        rows.append((fill_html_template("{k}{form}", k=pattern.kind, form=form), format_page_share(pattern.share)))
    if not rows:
        return Markup("")
    body = join_markup(fill_html_template("<tr><th>{k}</th><td>{v}</td></tr>", k=k, v=v) for k, v in rows)
    return fill_html_template('<table class="points"><caption>Text</caption><tbody>{body}</tbody></table>', body=body)
