"""`etude eval SOURCE QUESTIONS.jsonl`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.evaluation import EvaluationScore, Judged

EXAMPLES = (
    "etude eval shop.duckdb questions.jsonl",
    "etude eval databases/ questions.jsonl --wrong",
    "etude eval shop.duckdb questions.jsonl --model openai:gpt-5 --json",
    'etude learn once --repo . --suite "etude eval data questions.jsonl --junit {junit}"',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help='a name, a path or a URL; a folder of databases if the questions have a "db"')
    parser.add_argument("questions", help='a file with lines such as {"question": "...", "sql": "..."}')
    parser.add_argument("--model", help="the model: `offline` (rules only) or for example `openai:gpt-5`")
    parser.add_argument("--wrong", action="store_true", help="show each wrong answer")
    parser.add_argument("--all", action="store_true", help="show each question and what became of it")
    parser.add_argument("--json", action="store_true", help="print each question and the figures as JSON lines")
    parser.add_argument("--junit", metavar="FILE", help="also write each question as a test in JUnit XML")


def run(options: argparse.Namespace) -> int:
    """Ask the questions, judge the answers, and print the figures."""
    from etude.app import App
    from etude.evaluation import evaluate, read_evaluation_questions

    cases = read_evaluation_questions(Path(options.questions))
    with App() as app:
        named = app.sources().get(options.source)
        model = options.model or app.settings.model
    source = named.url if named is not None else options.source

    def show(judged: Judged) -> None:
        if options.json:
            sys.stdout.write(json.dumps(_as_json(judged)) + "\n")
        elif options.all or (options.wrong and judged.verdict == "wrong"):
            sys.stdout.write(describe_eval_case(judged))
        sys.stdout.flush()

    # In a home of its own: thousands of questions would hide the other runs, and none of them is asked again.
    with tempfile.TemporaryDirectory(prefix="etude-eval-") as home, App(home=Path(home), replay="off") as app:
        judged = evaluate(app, source, cases, model, show)
    if options.junit:
        Path(options.junit).write_bytes(eval_cases_as_junit(judged))
    if options.json:
        sys.stdout.write(json.dumps(_figures(judged)) + "\n")
    else:
        sys.stdout.write(format_eval_scores(judged))
    return 0


def _as_json(judged: Judged) -> dict[str, Any]:
    body = asdict(judged)
    case = body.pop("case")
    return {"question": case["question"], "db": case["db"], "cause": case["cause"]} | body


def eval_cases_as_junit(judged: Sequence[Judged]) -> bytes:
    """Return the questions as tests in JUnit XML: a right answer passes, one without a reference is skipped."""
    from xml.etree import ElementTree as Xml

    suite = Xml.Element("testsuite", name="etude eval", tests=str(len(judged)))
    for each in judged:
        name = _xml_text(each.case.question)
        test = Xml.SubElement(
            suite, "testcase", classname=_xml_text(each.case.db), name=name, time=f"{each.seconds:.3f}"
        )
        if each.verdict == "no reference":
            Xml.SubElement(test, "skipped", message="its reference does not run")
        elif each.verdict != "right":
            failure = Xml.SubElement(test, "failure", type=each.verdict, message=_xml_text(each.said))
            failure.text = _xml_text(f"{each.reading}\n{each.said}")
    return bytes(Xml.tostring(suite, encoding="utf-8", xml_declaration=True))


def _xml_text(text: str) -> str:
    """Return a text without the control characters that XML cannot hold."""
    return "".join(
        c for c in text if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff")
    )


def describe_eval_case(judged: Judged) -> str:
    """Return a question and what became of it, in a few lines."""
    lines = [f"{judged.verdict}: {judged.case.db + ': ' if judged.case.db else ''}{judged.case.question}"]
    lines += [judged.reading, judged.said]
    lines += [f"reference: {judged.case.sql[0]}"] if judged.verdict == "wrong" and judged.case.sql else []
    return "\n    ".join(printable(line) for line in lines if line) + "\n"


def _figures(judged: list[Judged]) -> dict[str, Any]:
    from etude.evaluation import evaluation_scores_by_confidence, evaluation_scores_by_group, score_evaluation

    def body(found: EvaluationScore) -> dict[str, Any]:
        return asdict(found) | {"precision": found.precision, "coverage": found.coverage}

    return {
        "all": body(score_evaluation(judged)),
        "databases": {
            name: body(found) for name, found in evaluation_scores_by_group(judged, lambda each: each.case.db).items()
        },
        "causes": {
            name: body(found)
            for name, found in evaluation_scores_by_group(judged, lambda each: each.case.cause).items()
        },
        "confidence": [asdict(each) for each in evaluation_scores_by_confidence(judged)],
    }


def format_eval_scores(judged: list[Judged]) -> str:
    """Return the figures as a table: by database, by cause, in all, and by confidence."""
    from etude.evaluation import evaluation_scores_by_confidence, evaluation_scores_by_group, score_evaluation

    head = f"{'':<24}{'asked':>6}{'right':>6}{'wrong':>6}{'back':>6}{'refused':>8}{'failed':>7}{'precision':>10}"
    lines = [f"{head}{'coverage':>9}{'first s':>8}{'ms':>7}{'USD':>8}"]
    for key in (lambda each: each.case.db, lambda each: each.case.cause):
        groups = evaluation_scores_by_group(judged, key)
        lines += [_line(name or "other", found) for name, found in groups.items()] if len(groups) > 1 else []
    total = score_evaluation(judged)
    lines.append(_line("all", total))
    if total.unknown:
        lines.append(f"The reference of {total.unknown} questions does not run; they are not counted.")
    steps = evaluation_scores_by_confidence(judged)
    if steps:
        lines.append(f"\n{'confidence at least':<24}{'answered':>9}{'precision':>10}{'coverage':>9}")
        lines += [
            f"{each.least:<24.2f}{each.answered:>9}{_share(each.precision):>10}{_share(each.coverage):>9}"
            for each in steps
        ]
    return "\n".join(lines) + "\n"


def _line(name: str, found: EvaluationScore) -> str:
    later = "" if found.later_s is None else f"{found.later_s * 1e3:.0f}"
    first = "" if found.first_s is None else f"{found.first_s:.2f}"
    counts = f"{found.asked:>6}{found.right:>6}{found.wrong:>6}{found.asked_back:>6}{found.refused:>8}{found.failed:>7}"
    shares = f"{_share(found.precision):>10}{_share(found.coverage):>9}"
    return f"{printable(name)[:23]:<24}{counts}{shares}{first:>8}{later:>7}{found.cost_usd:>8.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
