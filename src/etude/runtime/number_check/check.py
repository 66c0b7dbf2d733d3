"""The number gate: check every number in an answer's text against the computed results.

A number is verified if it equals a value of a result at the precision it is written with, or follows from values by a
step that the sentence itself names: a share, a change, a difference, a ratio, a sum, a count. In a large result nearly
every percentage is the ratio of some two values. The gate therefore derives numbers from the values that the sentence
names first, then from wider sets, and rejects a match if one was likely by chance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etude.runtime.number_check.derived import find_derived, find_thresholds
from etude.runtime.number_check.evidence import Evidence, tables_of
from etude.runtime.number_check.mentions import MARK, Mention, find_numbers, resolve_readings
from etude.runtime.number_check.stated import find_given, find_stated, record_cells
from etude.runtime.number_check.surroundings import GateContext

__all__ = ["Evidence", "Mention", "Verdict", "check_numbers", "explain", "find_numbers", "mark_unverified"]


@dataclass(frozen=True)
class CheckedNumber:
    """A mentioned number with its verdict. `because` says where the number comes from, or why it was not found."""

    mention: Mention
    verified: bool
    because: str


@dataclass(frozen=True)
class Verdict:
    """The result of checking one text, number by number."""

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
    """Look for each number of `text` in `results`, in the question and in `context`.

    `context` holds other texts whose numbers an answer may repeat, such as the queries that were run.
    """
    written = find_numbers(text)
    if not written:
        return Verdict(text, ())
    bare = text.replace(MARK, "")
    mentions = resolve_readings(find_numbers(bare))
    gate = GateContext(bare, mentions, [table for result in results for table in tables_of(result)], question, context)
    found: dict[int, str] = {}
    # Numbers that the results contain come first: they show which values the derived numbers nearby refer to.
    for find in (find_given, find_stated, find_derived):
        for i, mention in enumerate(mentions):
            if i not in found and (because := find(gate, mention)):
                found[i] = because
                record_cells(gate, mention, because)
    found |= find_thresholds(gate, found)
    checked = (CheckedNumber(mention, i in found, found.get(i, _NOT_FOUND)) for i, mention in enumerate(written))
    return Verdict(text, tuple(checked))


def mark_unverified(text: str, verdict: Verdict) -> str:
    """Return the text with a mark after each number that was not found; numbers already marked stay as they are."""
    marked = _mark(verdict)
    if text not in (verdict.text, marked):
        raise ValueError("the verdict belongs to another text")
    return marked


def explain(verdict: Verdict) -> str:
    """Return the instructions for a model whose answer has unverified numbers; empty if it has none."""
    if verdict.ok:
        return ""
    lines = ["These numbers in your answer are not in any computed result and do not follow from one:"]
    # Only the numbers: the text around them may come from data, and this message has the role of the user.
    lines.append(", ".join(dict.fromkeys(f"`{checked.mention.text}`" for checked in verdict.unverified)))
    lines.append(
        "Write the answer again. Use the values of the results, rounded correctly. If you need a value that was not "
        "computed, compute it with a tool first. Otherwise leave the number out. Do not estimate."
    )
    return "\n".join(lines)


_NOT_FOUND = "not in any computed result"


def _mark(verdict: Verdict) -> str:
    pieces, at = [], 0
    for checked in verdict.unverified:
        end = checked.mention.end
        if verdict.text[end : end + 1] == "`":  # Inside backticks the mark would become part of the value.
            end += 1
        pieces.append(verdict.text[at:end])
        if not verdict.text.startswith(MARK, end):
            pieces.append(MARK)
        at = end
    return "".join([*pieces, verdict.text[at:]])
