"""What was learned: every edit of code and every playbook with its reason, evidence and cost, as text and as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from etude.learning.playbooks.playbook_library import LibraryEntry, PlaybookLibrary
from etude.learning.playbooks.playbook_summary import summarise_playbook
from etude.learning.statistical_tests import wilson_interval
from etude.playbook import parse_playbook_metadata
from etude.store.edits import StoredEdit, StoredEdits, StoredSuiteRun
from etude.store.lessons import LessonChange

WIDTH, HEIGHT = 720, 180


@dataclass(frozen=True)
class LearningReport:
    """The edits and the runs of one repository, oldest first."""

    repo: str
    edits: Sequence[StoredEdit]
    runs: Sequence[StoredSuiteRun]

    @property
    def kept(self) -> list[StoredEdit]:
        """The edits that are in the code now."""
        return [e for e in self.edits if e.status == "merged"]

    def cost(self, edit: StoredEdit) -> tuple[int, float]:
        """Return the runs of the suite with an edit, and their seconds."""
        return self._costs.get(edit.id, (0, 0.0))

    @cached_property
    def _costs(self) -> dict[str, tuple[int, float]]:
        found: dict[str, tuple[int, float]] = {}
        for run in self.runs:
            if run.edit_id is not None:
                runs, seconds = found.get(run.edit_id, (0, 0.0))
                found[run.edit_id] = runs + 1, seconds + run.seconds
        return found


def read_learning_reports(edits: StoredEdits, repo: str | None = None) -> list[LearningReport]:
    """Return the reports of all repositories, or of one."""
    found = edits.list(repo, limit=2000)
    repos = [repo] if repo is not None else sorted({e.repo for e in found})
    return [
        LearningReport(name, [e for e in reversed(found) if e.repo == name], list(reversed(edits.runs(name))))
        for name in repos
    ]


def learning_report_as_json(report: LearningReport) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "repo": report.repo,
        "runs": len(report.runs),
        "seconds": round(sum(r.seconds for r in report.runs), 1),
        "edits": [
            {"id": e.id, "proposer": e.proposer, "status": e.status, "at": e.created_at.isoformat(), **e.body}
            | {"cost": {"runs": report.cost(e)[0], "seconds": round(report.cost(e)[1], 1)}}
            for e in report.edits
        ],
    }


def learning_report_as_text(report: LearningReport) -> str:
    """Return a report as text: first the totals, then each edit."""
    counts = {
        s: sum(e.status == s for e in report.edits) for s in ("merged", "proposed", "reverted", "dropped", "refused")
    }
    total = ", ".join(f"{n} {status}" for status, n in counts.items() if n) or "no edits"
    lines = [report.repo, f"  {total}; {len(report.runs)} runs of the suite, {_duration(report)}"]
    looks = [r for r in report.runs if r.stage == "base"]
    if looks:
        first, last = looks[:5], looks[-5:]
        lines.append(f"  passed: {_rate(first)} at first, {_rate(last)} at last")
    for edit in report.edits:
        body = edit.body
        lines.append("")
        lines.append(f"  {edit.id}  {edit.status}  by {edit.proposer}")
        lines.append(f"    {body['rationale']}")
        lines.append(f"    {body['reason']}{_scores(body)}")
        runs, seconds = report.cost(edit)
        if runs:
            lines.append(f"    cost: {runs} runs with it, {seconds:.0f} s")
        if body.get("parent"):
            lines.append(f"    after {body['parent']}")
        for name in ("commit", "branch", "patch", "reverted"):
            if body.get(name):
                lines.append(f"    {name}: {body[name]}")
        if watch := body.get("watch"):
            lines.append(f"    watched for {watch['runs']} runs: {watch['wins']} wins, {watch['losses']} losses")
    return "\n".join(lines) + "\n"


def _scores(body: Any) -> str:
    if "wins" not in body:
        return ""
    return (
        f"; {body['wins']} wins, {body['losses']} losses, {body['ties']} ties; e-value {_e_value(body['log_e'])}; "
        f"passed {body['score_before']:.1%} before, {body['score_after']:.1%} after"
    )


def _e_value(log_e: float) -> str:
    return f"{math.exp(min(log_e, 700)):.3g}"


def _rate(runs: Sequence[StoredSuiteRun]) -> str:
    passed, total = sum(r.passed for r in runs), sum(r.total for r in runs)
    low, high = wilson_interval(passed, total)
    return f"{passed} of {total} ({low:.0%} to {high:.0%})"


def _duration(report: LearningReport) -> str:
    seconds = sum(r.seconds for r in report.runs)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True)
class ReportedPlaybook:
    """A playbook with its lineage."""

    entry: LibraryEntry
    changes: Sequence[LessonChange]
    origin: tuple[str, ...]
    """The runs that it was drafted from."""

    @property
    def rates(self) -> str:
        """The success without it and with it."""
        shown, withheld = self.entry.standing.shown, self.entry.standing.withheld
        if not (shown.runs and withheld.runs):
            return "not measured yet"
        effect, low, high = self.entry.standing.effect
        return (
            f"{withheld.rate:.0%} of {withheld.runs} runs succeeded without, {shown.rate:.0%} of {shown.runs} with it: "
            f"{effect:+.0%} ({low:+.0%} to {high:+.0%})"
        )

    @property
    def lineage(self) -> str:
        """Its versions and changes in a line."""
        steps = [f"{c.change} {c.version} {c.at:%Y-%m-%d}" for c in self.changes]
        drafted = [f"drafted from {', '.join(self.origin)}"] if self.origin else []
        return "; ".join([*drafted, *steps])

    @property
    def tokens(self) -> int:
        """About how many tokens showing it has cost so far."""
        book = self.entry.lesson.playbook
        return self.entry.shown * (len(book.description) + len(book.text)) // 4


def read_reported_playbooks(library: PlaybookLibrary) -> list[ReportedPlaybook]:
    """Return all playbooks with their lineage."""
    found = []
    for entry in library.entries():
        text = (entry.lesson.folder / "SKILL.md").read_text(encoding="utf-8", errors="replace")
        runs = parse_playbook_metadata(text).get("runs") or ()
        origin = tuple(str(run) for run in runs) if isinstance(runs, list) else ()
        found.append(ReportedPlaybook(entry, library.history(entry.lesson.name), origin))
    return found


def reported_playbooks_as_text(playbooks: Sequence[ReportedPlaybook]) -> str:
    """Return playbooks as text."""
    lines = []
    for learned in playbooks:
        entry = learned.entry
        lines += [
            f"  {entry.lesson.name}  {entry.state}: {entry.standing.reason}",
            f"    {learned.rates}",
            f"    cost: shown to {entry.shown} of {entry.eligible} runs, about {learned.tokens:,} tokens",
            f"    {learned.lineage}",
        ]
    return "\n".join(["playbooks", *lines]) + "\n" if lines else ""


def reported_playbook_as_json(learned: ReportedPlaybook) -> dict[str, Any]:
    """Return a playbook with its lineage as JSON."""
    return summarise_playbook(learned.entry).model_dump(mode="json") | {
        "origin": list(learned.origin),
        "tokens": learned.tokens,
        "changes": [
            {"version": c.version, "change": c.change, "reason": c.reason, "at": c.at.isoformat()}
            for c in learned.changes
        ],
    }


def learning_reports_as_page(reports: Sequence[LearningReport], playbooks: Sequence[ReportedPlaybook] = ()) -> str:
    """Return one HTML page with the pass rate over all runs, each edit with its change, and the effect of playbooks.

    It needs no script.
    """
    body = "".join(_section(r) for r in reports) + _playbook_section(playbooks)
    return _PAGE.format(body=body or "<p>Nothing has been learned yet.</p>")


def _playbook_section(playbooks: Sequence[ReportedPlaybook]) -> str:
    if not playbooks:
        return ""
    rows = "".join(
        f"<tr><td>{escape(p.entry.lesson.name)}</td><td>{escape(p.entry.state)}<br><i>{escape(p.entry.standing.reason)}"
        f"</i></td><td>{escape(p.rates)}{_effect_plot(p)}</td><td>{p.entry.shown} of {p.entry.eligible} runs, about "
        f"{p.tokens:,} tokens</td><td>{escape(p.lineage)}</td></tr>"
        for p in playbooks
    )
    head = "<tr><th>playbook</th><th>state</th><th>success without and with it</th><th>cost</th><th>lineage</th></tr>"
    return f"<h2>Playbooks</h2><table>{head}{rows}</table>"


def _effect_plot(learned: ReportedPlaybook) -> str:
    """Draw the effect with its interval, from -100% to +100%; nothing if it is not measured."""
    effect, low, high = learned.entry.standing.effect
    if not (learned.entry.standing.shown.runs and learned.entry.standing.withheld.runs):
        return ""
    x = [100 + 95 * value for value in (low, effect, high)]
    return (
        '<svg viewBox="0 0 200 16" role="img" aria-label="effect with its 95% interval">'
        '<line x1="100" x2="100" y1="0" y2="16" class="zero"/>'
        f'<line x1="{x[0]:.1f}" x2="{x[2]:.1f}" y1="8" y2="8" class="interval"/>'
        f'<circle cx="{x[1]:.1f}" cy="8" r="3" class="edit"/></svg>'
    )


def _section(report: LearningReport) -> str:
    rows = "".join(_row(e, report) for e in report.edits)
    return (
        f"<h2>{escape(report.repo)}</h2><p>{len(report.runs)} runs of the suite, {_duration(report)}; "
        f"{len(report.kept)} edits are in the code.</p>{_plot(report)}"
        "<table><tr><th>edit</th><th>status</th><th>proposer</th><th>why</th><th>before</th><th>after</th>"
        f"<th>wins, losses</th><th>e-value</th><th>cost</th></tr>{rows}</table>"
    )


def _row(edit: StoredEdit, report: LearningReport) -> str:
    body = edit.body
    judged = "wins" in body
    runs, seconds = report.cost(edit)
    cells = [
        f"{body['score_before']:.0%}" if judged else "",
        f"{body['score_after']:.0%}" if judged else "",
        f"{body['wins']}, {body['losses']}" if judged else "",
        _e_value(body["log_e"]) if judged else "",
        f"{runs} runs, {seconds:.0f} s" if runs else "",
    ]
    hunks = "".join(
        f"<pre><b>{escape(h['path'])}</b>\n{_lines('-', h['old'])}{_lines('+', h['new'])}</pre>" for h in body["hunks"]
    )
    why = f"{escape(body['rationale'])}<br><i>{escape(str(body['reason']))}</i>"
    why += f"<br>after {escape(body['parent'][-8:])}" if body.get("parent") else ""
    why += f"<br>{escape(body['reverted'])}" if body.get("reverted") else ""
    return (
        f"<tr class={edit.status}><td><code>{escape(edit.id[-8:])}</code></td><td>{edit.status}</td>"
        f"<td>{escape(edit.proposer)}</td><td>{why}<details><summary>change</summary>{hunks}</details></td>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def _lines(mark: str, text: str) -> str:
    return "".join(f"{mark} {escape(line)}\n" for line in text.splitlines())


def _plot(report: LearningReport) -> str:
    """Draw the share of tests that passed in each run: of the code as it was, and with edits; merges are lines."""
    runs = [r for r in report.runs if r.total and r.stage != "screen"]
    if len(runs) < 2:
        return ""
    step = (WIDTH - 40) / (len(runs) - 1)

    def point(number: int, run: StoredSuiteRun) -> tuple[float, float]:
        return 35 + number * step, 10 + (HEIGHT - 30) * (1 - run.passed / run.total)

    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" class="{"edit" if r.edit_id else "base"}"/>'
        for n, r in enumerate(runs)
        for x, y in [point(n, r)]
    )
    merges = ""
    for edit in report.edits:
        if edit.status in ("merged", "reverted"):
            after = next((n for n, r in enumerate(runs) if r.at >= edit.created_at), len(runs) - 1)
            x = 35 + after * step
            merges += f'<line x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{HEIGHT - 20}" class="merge"/>'
    grid = "".join(
        f'<text x="0" y="{14 + (HEIGHT - 30) * (1 - share):.0f}">{share:.0%}</text>' for share in (0.0, 0.5, 1.0)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="share of tests that passed, by run">'
        f"{grid}{merges}{dots}</svg>"
        "<p class=key>Each dot is one run: grey without, blue with an edit. A line is a merge.</p>"
    )


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>What was learned</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ text-align: left; vertical-align: top; padding: .3rem .5rem }}
tr {{ border-bottom: 1px solid #ddd }} pre {{ overflow-x: auto; background: #f6f6f6; padding: .5rem }}
tr.merged td:nth-child(2) {{ color: #060 }} tr.reverted td:nth-child(2) {{ color: #a00 }}
svg {{ width: 100%; font-size: 11px }} circle.base {{ fill: #999 }} circle.edit {{ fill: #15c }}
line.zero {{ stroke: #bbb }} line.interval {{ stroke: #15c }} td svg {{ max-width: 14rem; display: block }}
line.merge {{ stroke: #090; stroke-dasharray: 3 }} .key {{ color: #666; font-size: 13px }}
</style><h1>What was learned</h1>{body}</html>
"""
