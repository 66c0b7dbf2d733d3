"""The number check on answers as models write them: how many honest ones it stops, how many false ones it catches.

`python -m bench.number_check FILE.jsonl [--all]` reads one answer per line and prints four rates. Fields of a line:

    question   the question that was asked
    results    the results that the model saw: [{"id": "r1", "columns": ["city", "revenue"], "rows": [["Oslo", 523]]}]
               dates and times as ISO text; an optional "row_count" if the rows are only the first of more
    answer     the text of the answer
    planted    null if every claim of the answer is true; else what was made false:
               {"kind": "number", "text": "421", "true": "412"} or {"kind": "label", "text": "Canada", "true": "USA"};
               `text` occurs in the answer as it stands; an optional "at" is its position if it occurs more than once
    thread     optional: the earlier messages of the conversation, as a list of texts
    schema     optional: the description of the tables that the model was shown, as text
    code       optional: the code that was run, as text
    output     optional: what the code printed, as text
    figures    optional: the honest origin of each plain figure: [{"text": "42%", "at": 110, "expression": "..."}]
    origins    optional: what the model replied when it was asked for the origins of figures, by their numbers

The answer may have expressions such as `{{ r1.revenue[0] }}`; `text` of `planted` may be one of them, `true` another.

If the check asks for origins, the model of this bench replies with the expressions of `figures`; if it is asked for a
figure that it wrote as an expression, with that expression, or with the true one (or its value) if it was planted.

An honest answer is *sent back* if the model is asked to write it again, and *marked* if any number of it is marked or
it is sent back. It is *asked* if the model has to say where figures come from. A false number is caught if it
is marked or named as contradicted; a false label is caught if a number of its sentence is. `--all` prints each
answer that is judged wrongly. `--random N` also replaces N numbers of honest answers by random ones, and says how many
of those are caught.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.figure import Figure, print_table
from etude.runtime.expression import ExpressionRows
from etude.runtime.figures import OPEN, computed_spans, render_figures
from etude.runtime.number_check.check import Evidence, NumberCheckVerdict, check_numbers
from etude.runtime.number_check.mentions import find_number_mentions
from etude.runtime.number_check.passage import Passage
from etude.runtime.origins import figures_without_origin, trace_origins

BATTERY = Path(__file__).parents[1] / "tests" / "runtime" / "number_check" / "answers.jsonl"
MOST = {
    "honest answers sent back": 2.0,
    "honest answers marked": 5.0,
    "false numbers missed": 5.0,
    "false labels missed": 20.0,
}
ASKED = "honest answers asked"


def _values(line: dict[str, Any]) -> dict[str, ExpressionRows]:
    """Return the results of a line as expressions read them."""
    return {r["id"]: ExpressionRows(r["id"], r["columns"], partial(_tuples, r["rows"])) for r in line["results"]}


def _tuples(rows: list[list[object]]) -> list[tuple[object, ...]]:
    return [tuple(row) for row in rows]


def judge(line: dict[str, Any], answer: str | None = None) -> NumberCheckVerdict:
    """Check one answer; figures whose origins the model was asked for are traced by its reply."""
    written, values = line["answer"] if answer is None else answer, _values(line)
    verdict = check(line, written, values)
    return trace_origins(verdict, line.get("origins") or reply(line, written, verdict, values), values).verdict


def check(line: dict[str, Any], written: str, values: dict[str, ExpressionRows]) -> NumberCheckVerdict:
    """Check one answer before the model is asked for anything."""
    rendered = render_figures(written, values)
    results = [
        Evidence(r["id"], tuple(r["columns"]), [tuple(row) for row in r["rows"]], r.get("row_count"))
        for r in line["results"]
    ]
    if line.get("output"):
        results.append(Evidence("printed", text=line["output"]))
    code = line.get("code") or ""
    return check_numbers(
        rendered.text,
        results,
        line["question"],
        [code] if isinstance(code, str) else code,
        line.get("schema") or "",
        line.get("thread") or (),
        computed_spans(rendered.text, rendered.figures),
        rendered.computed,
    )


def reply(
    line: dict[str, Any], written: str, verdict: NumberCheckVerdict, values: dict[str, ExpressionRows]
) -> dict[str, str | None]:
    """Return what a model replies that knows where its figures come from."""
    known = [
        (_place(written, figure["at"], values), len(figure["text"]), figure["expression"])
        for figure in line.get("figures") or ()
    ]
    planted = line.get("planted") or {}
    for match in re.finditer(r"\{\{(.*?)\}\}", written):
        start, end = _place(written, match.start(), values), _place(written, match.end(), values)
        false = match.start() <= planted.get("at", -1) < match.end() or match.group() == planted.get("text")
        known.append((start, end - start, _as_expression(planted["true"], line) if false else match.group()))
    given: dict[str, str | None] = {}
    for number, checked in enumerate(figures_without_origin(verdict), 1):
        mention = checked.mention
        own = [e for at, length, e in known if at < mention.end and mention.start < at + length]
        given[str(number)] = own[0] if own else None
    return given


def _as_expression(true: str, line: dict[str, Any]) -> str:
    """Return the true expression of a planted one; some sets only have its value."""
    numbers = [m for m in find_number_mentions(true) if m.readings]
    if re.search(r"\b[rp]\d+\b", true) or not numbers:
        return true
    value = numbers[0].readings[0].value / (100 if numbers[0].kind in ("percent", "points") else 1)
    return f"{value:f} + 0 * count({line['results'][0]['id']})".replace("-", "0 - ", 1)


def _place(written: str, at: int, values: dict[str, ExpressionRows]) -> int:
    """Return the place in the text of an answer for one before its expressions were filled in."""
    return len(render_figures(written[:at], values).text)


def is_caught(line: dict[str, Any], verdict: NumberCheckVerdict) -> bool:
    """Return whether the planted falsehood was found."""
    planted, text, values = line["planted"], verdict.text, _values(line)
    at = planted.get("at", line["answer"].find(planted["text"]) if OPEN in planted["text"] else -1)
    if at >= 0:
        start, end = (_place(line["answer"], place, values) for place in (at, at + len(planted["text"])))
    else:
        alone = re.search(rf"(?<![\d.,]){re.escape(planted['text'])}", text)  # not the 3.6 of 43.6
        start = alone.start() if alone else text.find(planted["text"])
        end = start + len(planted["text"])
    if planted["kind"] == "number":
        if any(c.mention.start < end and start < c.mention.end for c in verdict.unverified):
            return True
        if OPEN in planted["text"] or (
            any(ch.isdigit() for ch in planted["text"]) and not re.search("[A-Za-z]{3}", planted["text"])
        ):
            return False
    passage = Passage(text, (), [], "")
    sentence = passage.sentence(start)
    return any(passage.sentence(c.mention.start) == sentence for c in verdict.unverified)


def measure_file(path: Path, show: bool = False) -> list[Figure]:
    """Return the four rates of a file, in percent."""
    tally = {name: [0, 0] for name in [*MOST, ASKED]}
    for raw in path.read_text().splitlines():
        line = json.loads(raw)
        verdict = judge(line)
        if line["planted"] is None:
            _count(tally["honest answers sent back"], verdict.sends_back)
            _count(tally["honest answers marked"], not verdict.ok or verdict.sends_back)
            before = check(line, line["answer"], _values(line))
            _count(tally[ASKED], bool(figures_without_origin(before)))
            wrong = not verdict.ok
        else:
            wrong = not is_caught(line, verdict)
            _count(tally[f"false {line['planted']['kind']}s missed"], wrong)
        if wrong and show:
            flagged = [(c.mention.text, c.because if c.contradicted else "") for c in verdict.unverified]
            print(
                f"{line['planted'] or 'HONEST'} {flagged if line['planted'] is None else ''}\n    {line['answer']!r}\n"
            )
            if line["planted"] and line["planted"]["kind"] == "number":
                print(
                    "    ",
                    [
                        (c.mention.text, c.because)
                        for c in verdict.mentions
                        if c.mention.text in line["planted"]["text"] or line["planted"]["text"] in c.mention.text
                    ],
                )
    figures = []
    for name, (bad, all_) in tally.items():
        figures.append(Figure(f"{name}, of {all_}", 100 * bad / max(all_, 1), None, "%", most=MOST.get(name)))
    return figures


def measure_random(path: Path, count: int) -> Figure:
    """Return how many random numbers in honest answers are missed, in percent."""
    rng = random.Random(1)
    lines = [line for line in map(json.loads, path.read_text().splitlines()) if line["planted"] is None]
    missed = tried = 0
    while tried < count:
        line = rng.choice(lines)
        bare = re.sub(r"\{\{.*?\}\}", lambda m: "{" * len(m.group()), line["answer"])
        found = list(re.finditer(r"(?<![\w.,{])\d[\d,]*(?:\.\d+)?(?![\w{]|[.,]\d)", bare))
        if not found:
            continue
        match = rng.choice(found)
        digits = [i for i in range(match.start(), match.end()) if line["answer"][i].isdigit()]
        text = list(line["answer"])
        for i in digits:
            text[i] = rng.choice("123456789" if i == digits[0] else "0123456789")
        changed = "".join(text)
        if changed == line["answer"]:
            continue
        tried += 1
        verdict = judge(line, changed)
        start, end = (_place(changed, at, _values(line)) for at in match.span())
        missed += not any(c.mention.start < end and start < c.mention.end for c in verdict.unverified)
    return Figure(f"random numbers missed, of {tried}", 100 * missed / tried, None, "%")


def measure_time(path: Path) -> list[Figure]:
    """Return how long a check takes: the median of a file, and an answer about a result of 1,000 rows."""
    rows = [[f"City {i}", i % 97 + 3, 1000 + i * 7.25] for i in range(1000)]
    long = {
        "question": "Which city leads?",
        "results": [{"id": "r1", "columns": ["city", "orders", "revenue"], "rows": rows}],
        "answer": "City 999 leads with $8,242.75, ahead of City 998 ($8,235.50). All total $4,621,375.",
    }
    taken = []
    for line in [*map(json.loads, path.read_text().splitlines()), long]:
        start = time.perf_counter()
        judge(line)
        taken.append(1000 * (time.perf_counter() - start))
    return [
        Figure("time of a check, median", statistics.median(taken[:-1]), None, "ms", most=50),
        Figure("time of a check, 1,000 rows", taken[-1], None, "ms", most=300),
    ]


def measure() -> list[Figure]:
    """Measure the battery of the tests."""
    return [*measure_file(BATTERY), measure_random(BATTERY, 100), *measure_time(BATTERY)]


def _count(pair: list[int], bad: bool) -> None:
    pair[0] += bad
    pair[1] += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.number_check")
    parser.add_argument("file", type=Path)
    parser.add_argument("--all", action="store_true", help="print each answer that is judged wrongly")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="also try N random numbers")
    options = parser.parse_args()
    figures = measure_file(options.file, options.all)
    if options.random:
        figures.append(measure_random(options.file, options.random))
    figures += measure_time(options.file)
    print_table(figures)
    return 0 if all(f.holds for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
