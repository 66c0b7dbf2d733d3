"""What was learned on code: every edit with its reason, evidence, scores and cost, as text and as one page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from etude.learning.evidence import wilson_interval
from etude.store.edits import StoredEdit, StoredEdits, StoredSuiteRun

WIDTH, HEIGHT = 720, 180


@dataclass(frozen=True)
class LearnReport:
    """The edits and the runs of one repository, oldest first."""

    repo: str
    edits: Sequence[StoredEdit]
    runs: Sequence[StoredSuiteRun]

    @property
    def kept(self) -> list[StoredEdit]:
        """The edits that are in the code now."""
        return [e for e in self.edits if e.status == "merged"]


def read_reports(edits: StoredEdits, repo: str | None = None) -> list[LearnReport]:
    """Return the reports of all repositories, or of one."""
    found = edits.list(repo, limit=2000)
    repos = [repo] if repo is not None else sorted({e.repo for e in found})
    return [
        LearnReport(name, [e for e in reversed(found) if e.repo == name], list(reversed(edits.runs(name))))
        for name in repos
    ]


def as_json(report: LearnReport) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "repo": report.repo,
        "runs": len(report.runs),
        "seconds": round(sum(r.seconds for r in report.runs), 1),
        "edits": [
            {"id": e.id, "proposer": e.proposer, "status": e.status, "at": e.created_at.isoformat(), **e.body}
            for e in report.edits
        ],
    }


def as_text(report: LearnReport) -> str:
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


def _duration(report: LearnReport) -> str:
    seconds = sum(r.seconds for r in report.runs)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def as_page(reports: Sequence[LearnReport]) -> str:
    """Return one HTML page with the pass rate over all runs, and each edit with its change. It needs no script."""
    return _PAGE.format(body="".join(_section(r) for r in reports) or "<p>Nothing has been learned yet.</p>")


def _section(report: LearnReport) -> str:
    rows = "".join(_row(e) for e in report.edits)
    return (
        f"<h2>{escape(report.repo)}</h2><p>{len(report.runs)} runs of the suite, {_duration(report)}; "
        f"{len(report.kept)} edits are in the code.</p>{_plot(report)}"
        "<table><tr><th>edit</th><th>status</th><th>proposer</th><th>why</th><th>before</th><th>after</th>"
        f"<th>wins, losses</th><th>e-value</th></tr>{rows}</table>"
    )


def _row(edit: StoredEdit) -> str:
    body = edit.body
    judged = "wins" in body
    cells = [
        f"{body['score_before']:.0%}" if judged else "",
        f"{body['score_after']:.0%}" if judged else "",
        f"{body['wins']}, {body['losses']}" if judged else "",
        _e_value(body["log_e"]) if judged else "",
    ]
    hunks = "".join(
        f"<pre><b>{escape(h['path'])}</b>\n{_lines('-', h['old'])}{_lines('+', h['new'])}</pre>" for h in body["hunks"]
    )
    why = f"{escape(body['rationale'])}<br><i>{escape(str(body['reason']))}</i>"
    return (
        f"<tr class={edit.status}><td><code>{escape(edit.id[-8:])}</code></td><td>{edit.status}</td>"
        f"<td>{escape(edit.proposer)}</td><td>{why}<details><summary>change</summary>{hunks}</details></td>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def _lines(mark: str, text: str) -> str:
    return "".join(f"{mark} {escape(line)}\n" for line in text.splitlines())


def _plot(report: LearnReport) -> str:
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
line.merge {{ stroke: #090; stroke-dasharray: 3 }} .key {{ color: #666; font-size: 13px }}
</style><h1>What was learned</h1>{body}</html>
"""
