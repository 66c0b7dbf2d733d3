"""A diagram of the whole database: tables in layers, references from left to right, as one SVG."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from etude.catalog.page.changes import worst_change_severity
from etude.catalog.page.context import PageContext
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup
from etude.catalog.page.table_groups import group_tables, table_group_anchors

HEIGHT = 24
LETTER = 7.3
"""The width of a letter of the labels."""
ACROSS, DOWN = 56, 10
"""The space between two layers and between two boxes of a layer."""
BEND = 12
"""The room that a line takes in a layer that it passes."""
DRAWN = 120
"""With more connected tables than this, groups of tables are drawn instead."""
LONGEST = 24
STRONGEST = 3
"""The maximum number of groups that a group is drawn to refer to."""
ROUNDS = 8
LEAST_WIDTH = 1000

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
        layout = lay_out_diagram(edges)
        drawing = _draw(layout, edges, {n: _node(context, n) for n in layout.places}, "Tables and their references")
        note = "An arrow leads from a table to the table it refers to."
    if not drawing:
        return Markup("")
    if alone and not grouped:
        note += f" Not drawn: {len(alone):,} table{' that refers' if len(alone) == 1 else 's that refer'} to no other."
    return fill_html_template(
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


@dataclass(frozen=True)
class Layout:
    """Where the boxes are and which points each line passes."""

    width: float
    """The width of a box."""
    places: dict[str, tuple[float, float]]
    """The left upper corner of each box."""
    bends: dict[tuple[str, str], list[tuple[float, float]]]
    """The points between the ends of a line that passes other layers."""


def lay_out_diagram(edges: Edges, labels: Mapping[str, str] | None = None) -> Layout:
    """Place the nodes in layers by the longest way to a node that refers to nothing, with few crossings.

    A line that passes a layer gets a place there like a node, so that it runs between boxes and not behind them.
    """
    nodes = sorted({*edges, *(to for targets in edges.values() for to in targets)})
    longest = max(min(LONGEST, len((labels or {}).get(n, n))) for n in nodes)
    step = (width := 18 + LETTER * longest) + ACROSS
    layout = Layout(width, {}, defaultdict(list))
    left = top = tallest = limit = 0.0
    for part in _components(nodes, edges):
        layers, chains = _with_bends(_layers(part, edges), edges)
        _uncross(layers, chains)
        heights = [sum(BEND if isinstance(n, tuple) else HEIGHT + DOWN for n in layer) for layer in layers]
        limit = limit or max(len(layers) * step, LEAST_WIDTH)
        if left and left + len(layers) * step > limit:  # small parts stand side by side
            left, top, tallest = 0.0, top + tallest + DOWN, 0.0
        for number, layer in enumerate(layers):
            y = top + (max(heights) - heights[number]) / 2
            for node in layer:
                if isinstance(node, tuple):
                    layout.bends[node[:2]].append((left + number * step + width / 2, y + BEND / 2))
                    y += BEND
                else:
                    layout.places[node] = left + number * step, y
                    y += HEIGHT + DOWN
        left, tallest = left + len(layers) * step, max(tallest, *heights)
    return layout


Node = str | tuple[str, str, int]
"""A table, or the place of a line (from, to) in a layer that it passes."""


def _with_bends(layers: list[list[str]], edges: Edges) -> tuple[list[list[Node]], dict[Node, list[Node]]]:
    """Add a place for each line in each layer that it passes; return the layers and the neighbours of each node."""
    found: list[list[Node]] = [list(layer) for layer in layers]
    at = {name: number for number, layer in enumerate(layers) for name in layer}
    near: dict[Node, list[Node]] = defaultdict(list)
    for name, targets in edges.items():
        for to in targets:
            if name not in at:
                continue
            chain: list[Node] = [name, *((name, to, i) for i in range(at[name] + 1, at[to])), to]
            for node in chain[1:-1]:
                found[node[2]].append(node)  # type: ignore[index]
            for one, other in pairwise(chain):
                near[one].append(other)
                near[other].append(one)
    return found, near


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


def _uncross(layers: list[list[Node]], near: Mapping[Node, Sequence[Node]]) -> None:
    """Order each layer by the mean position of the neighbours, back and forth."""
    at = {n: i - len(layer) / 2 for layer in layers for i, n in enumerate(layer)}

    def weight(node: Node) -> tuple[float, str]:
        found = [at[n] for n in near.get(node, ())]
        return (sum(found) / len(found) if found else at[node]), str(node)

    for number in range(ROUNDS):
        for layer in layers if number % 2 else layers[::-1]:
            layer.sort(key=weight)
            at.update({n: i - len(layer) / 2 for i, n in enumerate(layer)})


def _node(context: PageContext, name: str) -> tuple[str, str, str]:
    """Return the label, the link and the class of a table."""
    worst = worst_change_severity(context.by_table.get(name, []))
    return name, context.anchors[name], worst


def _draw_groups(context: PageContext, edges: Edges) -> tuple[Markup, str]:
    groups = group_tables(context.profile.tables)
    group_of = {t.name: label for label, tables in groups for t in tables}
    counts = Counter((group_of[name], group_of[to]) for name, targets in edges.items() for to in targets)
    kept: dict[str, list[str]] = defaultdict(list)
    for (one, other), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        # Of two groups that refer to each other, the stronger direction is drawn.
        back = counts[other, one], other > one
        if one != other and (count, one > other) > back and len(kept[one]) < STRONGEST:
            kept[one].append(other)
    kept = {label: targets for label, targets in kept.items() if targets}
    if not kept:
        return Markup(""), ""
    nodes, places = {}, table_group_anchors(groups)
    for label, tables in groups:
        worst = worst_change_severity([c for t in tables for c in context.by_table.get(t.name, [])])
        nodes[label] = (f"{label} · {len(tables):,}", places[label], worst)
    layout = lay_out_diagram(kept, {label: node[0] for label, node in nodes.items()})
    drawing = _draw(layout, kept, nodes, "Groups of tables and their references")
    return (
        drawing,
        "Each box is a group of tables with its number of tables; an arrow leads to a group it refers to most.",
    )


def _draw(layout: Layout, edges: Edges, nodes: Mapping[str, tuple[str, str, str]], label: str) -> Markup:
    places = layout.places
    points = [*places.values(), *(p for bends in layout.bends.values() for p in bends)]
    width = max(x for x, _ in points) + layout.width + ACROSS / 2
    height = max(y for _, y in points) + HEIGHT + 6
    names = {name: i for i, name in enumerate(places)}
    lines = [_line(layout, name, to, names) for name, targets in edges.items() for to in targets]
    boxes = [_box(places[name], layout.width, names[name], *nodes[name]) for name in places]
    return fill_html_template(
        '<svg class="whole" width="{w}" height="{h}" viewBox="-1 -5 {w} {h}" role="group" aria-label="{label}">'
        '<g class="links">{lines}</g>{boxes}</svg>',
        w=f"{width:.0f}",
        h=f"{height:.0f}",
        label=label,
        lines=join_markup(lines),
        boxes=join_markup(boxes),
    )


def _line(layout: Layout, name: str, to: str, names: Mapping[str, int]) -> Markup:
    (x1, y1), (x2, y2) = layout.places[name], layout.places[to]
    start, y1, y2 = x1 + layout.width, y1 + HEIGHT / 2, y2 + HEIGHT / 2
    half = layout.width / 2
    if x2 > x1:
        path, x, y = f"M{start:.0f} {y1:.0f}", start, y1
        for bend_x, bend_y in layout.bends.get((name, to), ()):
            path += _curve(x, y, bend_x - half, bend_y) + f"H{bend_x + half:.0f}"
            x, y = bend_x + half, bend_y
        path += _curve(x, y, x2 - 5, y2)
        tip = f"M{x2 - 6:.0f} {y2 - 3:.0f}l6 3-6 3z"
    else:  # references in a circle
        end = x2 + layout.width
        out = max(start, end) + ACROSS * 0.45
        path = f"M{start:.0f} {y1:.0f}C{out:.0f} {y1:.0f} {out:.0f} {y2:.0f} {end + 5:.0f} {y2:.0f}"
        tip = f"M{end + 6:.0f} {y2 - 3:.0f}l-6 3 6 3z"
    return Markup(f'<g data-a="{names[name]}" data-b="{names[to]}"><path d="{path}"/><path class="tip" d="{tip}"/></g>')


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (x1 + x2) / 2
    return f"C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"


def _box(place: tuple[float, float], width: float, number: int, label: str, anchor: str, worst: str) -> Markup:
    x, y = place
    shown = label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"
    return fill_html_template(
        '<a href="#{anchor}" data-n="{n}" class="{worst}"><rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3"/>'
        '<text x="{tx}" y="{ty}">{shown}</text>{dot}<title>{label}</title></a>',
        anchor=anchor,
        n=number,
        worst=worst,
        x=f"{x:.0f}",
        y=f"{y:.0f}",
        w=f"{width:.0f}",
        h=HEIGHT,
        tx=f"{x + 8:.0f}",
        ty=f"{y + 16:.0f}",
        shown=shown,
        label=label,
        dot=Markup(f'<circle cx="{x + width - 1:.0f}" cy="{y + 1:.0f}" r="4"/>') if worst else None,
    )
