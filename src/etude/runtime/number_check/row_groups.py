"""The groups of rows that a sentence speaks of: named ones, a period, the largest, those beyond a bound, the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from etude.runtime.number_check.mentions import SIZES, Mention
from etude.runtime.number_check.wording import Wording

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch


_FEW = "|".join(sorted((word for word, n in SIZES.items() if n > 1), key=len, reverse=True))
_CHOSEN = re.compile(
    r"\b(top|bottom|first|last|largest|biggest|highest|lowest|smallest|leading|best|worst|other|these|the|next)"
    rf"[\s-]+(\d{{1,3}}|{_FEW})\b"
    rf"|\b(\d{{1,2}}|{_FEW})\s+(?:\w+\s+)?(largest|biggest|highest|smallest|lowest|best|leading|top|"
    r"größten|stärksten|besten|teuersten|höchsten|kleinsten|premiers|premières|mayores|primeros|primeras)\b"
    rf"|\b(?:die|les|las|los|den|der)\s+(?:\w+\s+)?({_FEW})\s+(größten|stärksten|besten|premiers|premières|plus|mayores)",
    re.I,
)
_LOOKS_BACK = re.compile(
    r"\b(?:these|those|they|them|together|combined|both|their|the (?:two|three|four|five|six))\b", re.I
)


def spoken_row_groups(
    search: NumberSearch, mention: Mention, t: int, wording: Wording
) -> list[tuple[str, list[int], float]]:
    """Return the groups of rows that a sentence speaks of, each with how far-fetched it is."""
    passage, table = search.passage, search.tables[t]
    index = passage.sentence(mention.start)
    labels = passage.labels_in(index, t)
    found: list[tuple[str, list[int], float]] = []
    near = [
        x for x in passage._nearest(mention, [x for x in labels if x.end <= mention.start or x.start >= mention.end])[0]
    ]
    for label in labels:
        if len(label.rows) > 1:
            close = 0.1 if label in near else 0.5
            found.append((passage.text[label.start : label.end], list(label.rows), close))
    for group, cost in (
        (near, 0.1),
        (labels, 0.4),
        (passage.labels_in(index - 1, t), 0.7 if _LOOKS_BACK.search(wording.sentence) else 1.4),
    ):
        rows = list(dict.fromkeys(row for x in group if len(x.rows) == 1 for row in x.rows))
        if 2 <= len(rows) <= 30:
            found.append(("the named rows", rows, cost if wording.together else cost + 0.6))
            for cut in (rows[1:], rows[:-1]) if 3 <= len(rows) <= 6 and wording.together else ():
                found.append(("some of the named rows", cut, cost + 1.1))
    if _LOOKS_BACK.search(wording.sentence):
        rows = list(
            dict.fromkeys(
                row
                for back in range(index, max(-1, index - 4), -1)
                for x in passage.labels_in(back, t)
                if len(x.rows) == 1
                for row in x.rows
            )
        )
        if 2 <= len(rows) <= 30:
            found.append(("the rows named so far", rows, 0.8))
    for label in passage.asked:
        if label.table == t and 1 < len(label.rows) < table.rows:
            found.append((passage.question[label.start : label.end], list(label.rows), 0.5 if not labels else 0.8))
    found += _bounded(search, mention, t, index)
    both = list(dict.fromkeys(row for x in labels for row in x.rows))
    if any(len(x.rows) > 1 for x in labels) and len(labels) > 1 and len(both) < table.rows:
        found.append(("the named rows", both, 0.6))
    if table.periods and len(labels) >= 2:
        rows = [x.rows[0] for x in labels if len(x.rows) == 1]
        if len(rows) == 2 and abs(rows[0] - rows[1]) > 1:
            found.append(("the rows between", list(range(min(rows), max(rows) + 1)), 1.0))
        for first, last in pairwise(labels):
            gap = passage.text[first.end : last.start]
            if len(first.rows) == len(last.rows) == 1 and re.fullmatch(r"\s?(?:[-\u2013]|to|through|and)\s?", gap):
                ends = sorted((first.rows[0], last.rows[0]))
                close = min(abs(mention.start - last.end), abs(first.start - mention.end)) < 12
                found.append(("the rows between", list(range(ends[0], ends[1] + 1)), 0.3 if close else 0.9))
    found += _selected(search, t, wording, index)
    found += search.active_near(mention, t)
    if table.complete:
        named = sorted({row for _, rows, cost in found for row in rows if cost < 1})
        single = sorted({row for x in labels for row in x.rows})
        for taken in {tuple(named), tuple(single)}:
            rest = [row for row in range(table.rows) if row not in taken]
            if taken and rest:
                found.append(("the other rows", rest, 0.4 if wording.rest else 1.6))
        if wording.rest:
            earlier = [x for x in passage.labels_in(index - 1, t) if len(x.rows) == 1][:1]
            largest = {column.extremes[0] for column in table.measures if column.extremes}
            for left_out in {*(x.rows[0] for x in earlier), *largest}:
                kept = [row for row in range(table.rows) if row != left_out]
                found.append((f"all but {table.row_label(left_out)}", kept, 0.7))
        for what, rows, cost in list(found):
            rest = [row for row in range(table.rows) if row not in rows]
            if rest and cost <= 0.5 and what != "the other rows" and wording.rest:
                found.append((f"all but {what}", rest, 0.5))
    return found


def _bounded(search: NumberSearch, mention: Mention, t: int, index: int) -> Iterator[tuple[str, list[int], float]]:
    """Yield the rows beyond a bound that this sentence or the one before it states, as in `under 10,000`."""
    table, passage = search.tables[t], search.passage
    if not table.complete or table.rows < 3:
        return
    for other in passage.mentions:
        away = index - passage.sentence(other.start)
        if other is mention or other.hedge not in ("over", "under") or away not in (0, 1, 2) or not other.readings:
            continue
        bound, sign = float(other.readings[0].value), 1 if other.hedge == "over" else -1
        for c in search.column_costs(mention, t):
            column = table.columns[c]
            rows = [r for r, v in column.numbers.items() if (v * column.factor - bound) * sign > 0]
            if 1 < len(rows) < table.rows:
                yield f"those with {column.name} beyond {bound:g}", rows, 0.5 + 0.2 * away


def _selected(search: NumberSearch, t: int, wording: Wording, index: int) -> Iterator[tuple[str, list[int], float]]:
    """Yield the `n` largest or smallest rows if the sentence says `top n`, in the order of each measure."""
    table, text = search.tables[t], wording.sentence
    shown = re.search(r"\b(?:shown|listed|displayed|above|below)\b", text, re.I)
    if not table.complete and shown:
        yield "the rows shown", list(range(table.rows)), 0.4
    for match in _CHOSEN.finditer(text):
        word, number = (match[1] or match[4] or match[6]).lower(), (match[2] or match[3] or match[5]).lower()
        n = int(number) if number.isdigit() else SIZES.get(number, 0)
        if not 1 < n <= table.rows or (n == table.rows and table.complete):
            continue
        low = word in ("bottom", "last", "lowest", "smallest", "worst")
        cost = 0.3 if word not in ("other", "these", "the", "next") else 1.0
        if not table.complete and (low or n != table.rows):
            continue  # The rows after the first ones are not known.
        orders = {tuple(range(n))} if not low else {tuple(range(table.rows - n, table.rows))}
        for column in table.measures:
            ordered = sorted(column.numbers, key=column.numbers.__getitem__, reverse=not low)
            orders.add(tuple(sorted(ordered[:n])))
        named = {row for x in search.passage.labels_in(index, t) if len(x.rows) == 1 for row in x.rows}
        for rows in list(orders)[:4]:
            if len(named) == n and named != set(rows):
                continue  # The sentence names other rows than these.
            yield f"the {word} {n}", list(rows), cost
