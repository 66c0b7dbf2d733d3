"""Names that nothing the model saw contains, next to a value of a row that the answer does not name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.mentions import MONTHS, Mention, mention_word_set
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.other_names import other_names
from etude.runtime.number_check.passage import Passage

_NAME = re.compile(r"(?<![\w.])[^\W\d_a-z][^\W\d_]*(?:[-'\u2019][^\W\d_]+)*(?!\w)")
_WORD = re.compile(r"[^\W\d_]{2,}")
_COMMON = frozenset(MONTHS) | mention_word_set(
    "this that they with only both each every most more total mean median average monday tuesday wednesday thursday "
    "friday saturday sunday north south east west sept europe asia africa america markdown excel"
)
_ENGLISH = mention_word_set(
    "the of is and with in to are has for by at on from as was than it its that all each have had"
)
_LEAST = 4


def find_unknown_names(passage: Passage, used: dict[int, Candidate], shown: Iterable[str]) -> dict[int, str]:
    """Return the numbers whose row the answer does not name, while a name stands there that nothing contains."""
    known: set[str] | None = None
    found: dict[int, str] = {}
    words = _WORD.findall(passage.text.lower())
    if sum(word in _ENGLISH for word in words) < 0.12 * len(words):
        return found  # In another language names are translated, and German capitalises every noun.
    for i, match in used.items():
        operand, mention = match.operand, passage.mentions[i]
        if operand is None or operand.row < 0 or operand.table < 0 or operand.kind not in ("cell", "quotient"):
            continue
        table = passage.tables[operand.table]
        if table.kind != "result" or table.printed or table.rows < 2:
            continue
        names = list(_names(passage, mention))
        if not names:
            continue
        known = _known_words(passage, shown) if known is None else known
        strange = [name for name, _ in names if _is_strange(name, known)]
        if strange and _is_named(passage, mention, operand):
            strange = [name for name, at in names if _is_strange(name, known) and _continues(passage, operand, at)]
        if strange:
            found[i] = f"no result has `{strange[0]}`; the value is that of {table.row_label(operand.row)}"
    return found


def _is_named(passage: Passage, mention: Mention, operand: Operand) -> bool:
    """Return whether the sentence, the one before or the question names a row by its name, or it has no name."""
    column = passage.tables[operand.table].name_column
    if column is None:
        return True
    index = passage.sentence(mention.start)
    near = [*passage.labels_in(index, operand.table), *passage.labels_in(index - 1, operand.table), *passage.asked]
    return any(x.table == operand.table and operand.row in x.rows and x.column in (column, -1) for x in near)


def _continues(passage: Passage, operand: Operand, at: int) -> bool:
    """Return whether a word stands within the name of a row, as `Tailor` does in `Sarah Tailor` for `Sarah Taylor`."""
    for label in passage.labels:
        if label.table == operand.table and operand.row in label.rows and label.column >= 0:
            between = passage.text[label.end : at] if at >= label.end else passage.text[at : label.start]
            if len(between) < 20 and re.fullmatch(r"[^\W\d_]*\s?", between):
                return True
    return False


def _names(passage: Passage, mention: Mention) -> Iterable[tuple[str, int]]:
    """Yield the capitalised words of a sentence, except its first word if it may be any word."""
    index = passage.sentence(mention.start)
    start, end = passage.bounds(index)
    text = passage.text[start:end]
    words = _WORD.findall(text)
    if sum(word[0].isupper() for word in words) > 0.45 * len(words) and len(words) > 8:
        return  # German capitalises every noun, and headings every word.
    for match in _NAME.finditer(text):
        first = not re.search(r"\w", text[: match.start()])
        follows = re.match(r"[\s*_]+[^\W\d_a-z]\w+\b", text[match.end() :])
        if not first or follows:
            yield match.group(), start + match.start()


def _is_strange(name: str, known: set[str]) -> bool:
    words = [_plain(word) for word in re.findall(r"[^\W\d_]+", re.sub(r"['\u2019]s?$", "", name))]
    if any(_plain(other) in known for other in other_names(name)):
        return False
    return all(
        len(word) >= _LEAST
        and word not in _COMMON
        and not any(other[:_LEAST] == word[:_LEAST] or (len(other) == 3 and word.startswith(other)) for other in known)
        for word in words
    )


def _known_words(passage: Passage, shown: Iterable[str]) -> set[str]:
    texts = [passage.question, *shown]
    for table in passage.tables:
        texts += [table.name, *(column.name.replace("_", " ") for column in table.columns)]
        texts += [str(value) for column in table.columns for value in column.values if isinstance(value, str)]
    initials = {_plain("".join(re.findall(r"\b[A-Z]", text))) for text in texts}
    return initials | {_plain(word) for text in texts for word in re.findall(r"[^\W\d_]+", text)}


def _plain(word: str) -> str:
    folded = unicodedata.normalize("NFKD", word.casefold())
    return "".join(c for c in folded if not unicodedata.combining(c))
