"""The number gate: every number in an answer's prose is looked for in what was computed.

A number counts as verified when it is, at the precision it is written with, a value of a result, or follows from values
by a step that the sentence itself names: a share, a change, a difference, a ratio, a sum, a count. Any two values of a
large result have some ratio, so that nearly every percentage is the ratio of something. Derivations are therefore made
from narrow sets first (what the sentence names), then wider ones, and a match is no evidence where so many candidates
lie around the number that one would have matched by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etude.runtime.gate.derived import find_derived, find_thresholds
from etude.runtime.gate.evidence import Evidence, tables_of
from etude.runtime.gate.mentions import MARK, Mention, find_numbers, settle_readings
from etude.runtime.gate.stated import find_given, find_stated, note_cells
from etude.runtime.gate.surroundings import Ground

__all__ = ["Evidence", "Mention", "Verdict", "check_numbers", "explain", "find_numbers", "mark_unverified"]


@dataclass(frozen=True)
class CheckedNumber:
    """A mention with its verdict. `because` says where the number comes from, or why it was not found."""

    mention: Mention
    verified: bool
    because: str


@dataclass(frozen=True)
class Verdict:
    """What the check of one text found, number by number."""

    text: str
    mentions: tuple[CheckedNumber, ...]

    @property
    def unverified(self) -> tuple[CheckedNumber, ...]:
        """The numbers that were not found."""
        return tuple(checked for checked in self.mentions if not checked.verified)

    @property
    def ok(self) -> bool:
        """Whether every number was found."""
        return not self.unverified


def check_numbers(text: str, results: Sequence[Evidence], question: str = "", context: Sequence[str] = ()) -> Verdict:
    """Looks for each number of `text` in `results`, and in what the user wrote: `question` and `context`.

    `context` holds other texts whose numbers may be repeated, such as the queries that were run.
    """
    written = find_numbers(text)
    if not written:
        return Verdict(text, ())
    bare = text.replace(MARK, "")
    mentions = settle_readings(find_numbers(bare))
    ground = Ground(bare, mentions, [table for result in results for table in tables_of(result)], question, context)
    found: dict[int, str] = {}
    # What stands in the results comes first: it tells which values the derived numbers around it speak of.
    for find in (find_given, find_stated, find_derived):
        for i, mention in enumerate(mentions):
            if i not in found and (because := find(ground, mention)):
                found[i] = because
                note_cells(ground, mention, because)
    found |= find_thresholds(ground, found)
    checked = (CheckedNumber(mention, i in found, found.get(i, _NOT_FOUND)) for i, mention in enumerate(written))
    return Verdict(text, tuple(checked))


def mark_unverified(text: str, verdict: Verdict) -> str:
    """The text with a mark behind each number that was not found; a number that has its mark gets no second."""
    marked = _mark(verdict)
    if text not in (verdict.text, marked):
        raise ValueError("the verdict is of another text")
    return marked


def explain(verdict: Verdict) -> str:
    """What to tell a model whose answer holds numbers that were not found; empty where there are none."""
    if verdict.ok:
        return ""
    lines = ["These numbers of your answer are in no computed result, nor do they follow from one:"]
    # The numbers alone: what stands around them may come from data, and this is said in the person's place.
    lines.append(", ".join(dict.fromkeys(f"`{checked.mention.text}`" for checked in verdict.unverified)))
    lines.append(
        "Write the answer again. Use the values of the results as they are, rounded correctly. If you need a value "
        "that was not computed, compute it with a tool first. Otherwise leave the number out. Do not estimate."
    )
    return "\n".join(lines)


_NOT_FOUND = "in no computed result"


def _mark(verdict: Verdict) -> str:
    pieces, at = [], 0
    for checked in verdict.unverified:
        end = checked.mention.end
        if verdict.text[end : end + 1] == "`":  # Inside code the mark would be part of the value.
            end += 1
        pieces.append(verdict.text[at:end])
        if not verdict.text.startswith(MARK, end):
            pieces.append(MARK)
        at = end
    return "".join([*pieces, verdict.text[at:]])
