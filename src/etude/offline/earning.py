"""Who earns how much: `employees earning over 100k`, `who earns the most`, if a column holds the pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.column_traits import is_numeric_column
from etude.offline.phrase_index import SYNONYM, Meaning, phrase_index_of
from etude.offline.question_parts import NamePart
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary

_EARNING = frozenset(("earn", "earns", "earning", "earned"))
_MOST = {"most": "highest", "least": "lowest"}


def read_earning(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the column of the pay in place of the verb, if one column of the source holds it."""
    made = list(items)
    at = next((n for n, i in enumerate(made[:-1]) if i.tag in "ruC" and i.text.lower() in _EARNING), None)
    if at is None or any(item.text == "how much" for item in made):
        return made
    pay = _pay_of(vocabulary)
    people = [item for item in made[:at] if item.tag == "T"]
    if pay is None or any(pay.table not in {m.table for m in item.data.tables} for item in people):
        return made
    if any(pay in item.data.columns for n, item in enumerate(made) if item.tag == "C" and n != at):
        return made  # "who earn more than 30000 in salary"
    named = replace(made[at], tag="C", text=str(pay.column), data=NamePart(str(pay.column), (pay,)))
    rows = [] if people else [TaggedItem("T", pay.table, NamePart(pay.table, (Meaning(pay.table),)))]
    following = made[at + 1]
    if following.tag in "cw":
        return [*made[:at], *rows, named, *made[at + 1 :]]
    end = made[at + 2].tag if at + 2 < len(made) else "."
    if following.text in _MOST and end in ".p":
        direction = "desc" if following.text == "most" else "asc"
        best = TaggedItem("S", _MOST[following.text], (direction, ""))
        return [*made[:at], *rows, best, named, *made[at + 2 :]]
    return made


def _pay_of(vocabulary: Vocabulary) -> Meaning | None:
    names = phrase_index_of(vocabulary).names.get(("salary",), ())
    found = {(m.table, m.column) for m in names if m.column is not None and m.cost <= SYNONYM}
    if len(found) != 1:
        return None
    ((table, column),) = found
    return Meaning(table, column) if is_numeric_column(vocabulary.table(table).column(str(column))) else None
