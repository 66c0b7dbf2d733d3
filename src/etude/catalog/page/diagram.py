"""A diagram of the whole database: tables in layers, references from left to right, as one SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from etude.catalog.page.changes import worst_severity
from etude.catalog.page.context import PageContext
from etude.catalog.page.groups import group_tables
from etude.catalog.page.markup import Markup, fill, join

WIDTH, HEIGHT = 164, 24
ACROSS, DOWN = 84, 10
"""The space between two layers and between two tables of a layer."""
DRAWN = 120
"""With more connected tables than this, groups of tables are drawn instead."""
LONGEST = 24
ROUNDS = 6
TALLEST = 26
"""A layer with more nodes than this continues in another column."""

Edges = Mapping[str, Sequence[str]]
"""For each node the nodes it refers to."""


def render_diagram(context: PageContext) -> Markup:
    """Render the diagram of all tables that refer to others or are referred to; empty if there are none."""
    edges = _references(context)
    if not edges:
        return Markup("")
    linked = {*edges, *(to for targets in edges.values() for to in targets)}
    alone = [t.name for t in context.profile.tables if t.name not in linked]
    grouped = len(linked) > DRAWN
    if grouped:
        drawing, note = _draw_groups(context, edges)
    else:
        places = lay_out(edges)
        drawing = _draw(places, edges, {n: _node(context, n) for n in places}, "Tables and their references")
        note = "An arrow leads from a table to the table it refers to."
    if not drawing:
        return Markup("")
    if alone and not grouped:
        note += f" Not drawn: {len(alone):,} table{' that refers' if len(alone) == 1 else 's that refer'} to no other."
    return fill(
        '<section id="diagram"><h2>Diagram</h2><div class="wide map" role="region" tabindex="0" '
        'aria-label="Diagram of the database">{drawing}</div><p class="how">{note}</p></section>',
        drawing=drawing,
        note=note,
    )


def _references(context: PageContext) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for table in context.profile.tables:
        for key in table.foreign_keys:
            target = context.tables.get(key.to_table.lower())
            if target is not None and target.name != table.name and target.name not in found[table.name]:
                found[table.name].append(target.name)
    return {name: targets for name, targets in found.items() if targets}


def lay_out(edges: Edges) -> dict[str, tuple[float, float]]:
    """Return the place of each node: layers by the longest way to a node that refers to nothing, few crossings."""
    nodes = sorted({*edges, *(to for targets in edges.values() for to in targets)})
    places: dict[str, tuple[float, float]] = {}
    top = 0.0
    for part in _components(nodes, edges):
        layers = _layers(part, edges)
        _uncross(layers, edges)
        columns = [layer[i : i + TALLEST] for layer in layers for i in range(0, len(layer), TALLEST)]
        tallest = max(map(len, columns))
        for number, column in enumerate(columns):
            offset = (tallest - len(column)) * (HEIGHT + DOWN) / 2
            for i, name in enumerate(column):
                places[name] = number * (WIDTH + ACROSS), top + offset + i * (HEIGHT + DOWN)
        top += tallest * (HEIGHT + DOWN) + DOWN
    return places


def _components(nodes: Sequence[str], edges: Edges) -> list[list[str]]:
    """Return the connected parts, the largest first."""
    near: dict[str, set[str]] = defaultdict(set)
    for name, targets in edges.items():
        for to in targets:
            near[name].add(to)
            near[to].add(name)
    seen: set[str] = set()
    parts = []
    for start in nodes:
        if start in seen:
            continue
        part, waiting = [], [start]
        seen.add(start)
        while waiting:
            name = waiting.pop()
            part.append(name)
            waiting.extend(n for n in sorted(near[name]) if n not in seen)
            seen |= near[name]
        parts.append(sorted(part))
    return sorted(parts, key=lambda p: (-len(p), p[0]))


def _layers(part: Sequence[str], edges: Edges) -> list[list[str]]:
    """Put each node left of the nodes it refers to; references that close a circle are ignored."""
    depth: dict[str, int] = {}

    def measure(start: str) -> None:
        # Not recursive: a chain of tables may be longer than Python's stack.
        path, waiting = {start}, [(start, iter(edges.get(start, ())))]
        best = {start: 0}
        while waiting:
            name, targets = waiting[-1]
            for to in targets:
                if to in path:
                    continue
                if to in depth:
                    best[name] = max(best[name], depth[to] + 1)
                    continue
                path.add(to)
                best[to] = 0
                waiting.append((to, iter(edges.get(to, ()))))
                break
            else:
                waiting.pop()
                path.discard(name)
                depth[name] = best[name]
                if waiting:
                    parent = waiting[-1][0]
                    best[parent] = max(best[parent], depth[name] + 1)

    for name in part:
        if name not in depth:
            measure(name)
    deepest = max(depth[n] for n in part)
    layers: list[list[str]] = [[] for _ in range(deepest + 1)]
    for name in part:
        layers[deepest - depth[name]].append(name)
    return layers


def _uncross(layers: list[list[str]], edges: Edges) -> None:
    """Order each layer by the mean position of the neighbours, back and forth."""
    near: dict[str, list[str]] = defaultdict(list)
    for name, targets in edges.items():
        for to in targets:
            near[name].append(to)
            near[to].append(name)
    for number in range(ROUNDS):
        order = layers if number % 2 else layers[::-1]
        for layer in order:
            at = {n: (i - len(each) / 2) for each in layers for i, n in enumerate(each)}
            own = dict(at)

            def weight(name: str, at: dict[str, float] = own) -> tuple[float, str]:
                found = [at[n] for n in near[name] if n in at]
                return (sum(found) / len(found) if found else at[name]), name

            layer.sort(key=weight)


def _node(context: PageContext, name: str) -> tuple[str, str, str]:
    """Return the label, the link and the class of a table."""
    worst = worst_severity(context.by_table.get(name, []))
    return name, context.anchors[name], worst


def _draw_groups(context: PageContext, edges: Edges) -> tuple[Markup, str]:
    groups = group_tables(context.profile.tables)
    group_of = {t.name: label for label, tables in groups for t in tables}
    between: dict[str, list[str]] = defaultdict(list)
    for name, targets in edges.items():
        for to in targets:
            one, other = group_of[name], group_of[to]
            if one != other and other not in between[one]:
                between[one].append(other)
    kept = {label: targets for label, targets in between.items() if targets}
    if not kept:
        return Markup(""), ""
    places = lay_out(kept)
    nodes = {}
    for label, tables in groups:
        if label in places:
            worst = worst_severity([c for t in tables for c in context.by_table.get(t.name, [])])
            nodes[label] = (f"{label} · {len(tables):,}", group_anchor(label), worst)
    drawing = _draw(places, kept, nodes, "Groups of tables and their references")
    return drawing, "Each box is a group of tables with its number of tables; an arrow leads to a group it refers to."


def group_anchor(label: str) -> str:
    """Return the anchor of a group in the list of tables."""
    return "g." + "".join(c if c.isalnum() else "-" for c in label)


def _draw(
    places: Mapping[str, tuple[float, float]], edges: Edges, nodes: Mapping[str, tuple[str, str, str]], label: str
) -> Markup:
    width = max(x for x, _ in places.values()) + WIDTH + 2
    height = max(y for _, y in places.values()) + HEIGHT + 2
    names = {name: i for i, name in enumerate(places)}
    lines = [_line(places, name, to, names) for name, targets in edges.items() for to in targets]
    boxes = [_box(places[name], names[name], *nodes[name]) for name in places if name in nodes]
    return fill(
        '<svg class="whole" width="{w}" height="{h}" viewBox="-1 -1 {w} {h}" role="group" aria-label="{label}">'
        '<g class="links">{lines}</g>{boxes}</svg>',
        w=f"{width:.0f}",
        h=f"{height:.0f}",
        label=label,
        lines=join(lines),
        boxes=join(boxes),
    )


def _line(places: Mapping[str, tuple[float, float]], name: str, to: str, names: Mapping[str, int]) -> Markup:
    (x1, y1), (x2, y2) = places[name], places[to]
    y1, y2 = y1 + HEIGHT / 2, y2 + HEIGHT / 2
    if x2 > x1:
        start, end, bend = x1 + WIDTH, x2, min(ACROSS, (x2 - x1 - WIDTH)) * 0.6
        path = f"M{start:.0f} {y1:.0f}C{start + bend:.0f} {y1:.0f} {end - bend:.0f} {y2:.0f} {end - 5:.0f} {y2:.0f}"
        tip = f"M{end - 6:.0f} {y2 - 3:.0f}l6 3-6 3z"
    else:  # a circle of references, or a layer that continues in the next column
        start, end = x1 + WIDTH, x2 + WIDTH
        out = max(start, end) + ACROSS * 0.45
        path = f"M{start:.0f} {y1:.0f}C{out:.0f} {y1:.0f} {out:.0f} {y2:.0f} {end + 5:.0f} {y2:.0f}"
        tip = f"M{end + 6:.0f} {y2 - 3:.0f}l-6 3 6 3z"
    return Markup(f'<g data-a="{names[name]}" data-b="{names[to]}"><path d="{path}"/><path class="tip" d="{tip}"/></g>')


def _box(place: tuple[float, float], number: int, label: str, anchor: str, worst: str) -> Markup:
    x, y = place
    shown = label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"
    return fill(
        '<a href="#{anchor}" data-n="{n}" class="{worst}"><rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3"/>'
        '<text x="{tx}" y="{ty}">{shown}</text>{dot}<title>{label}</title></a>',
        anchor=anchor,
        n=number,
        worst=worst,
        x=f"{x:.0f}",
        y=f"{y:.0f}",
        w=WIDTH,
        h=HEIGHT,
        tx=f"{x + 8:.0f}",
        ty=f"{y + 16:.0f}",
        shown=shown,
        label=label,
        dot=Markup(f'<circle cx="{x + WIDTH:.0f}" cy="{y:.0f}" r="4"/>') if worst else None,
    )
