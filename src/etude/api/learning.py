"""Routes for what was learned: edits of code, the learning curve, drafts of playbooks, and findings of the observer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Response

from etude.api.api_call import AdminCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import (
    CurvePoint,
    DraftSummary,
    EditSummary,
    FindingSummary,
    Listing,
    RefuseRequest,
    RevertRequest,
)
from etude.learning.edits.learner import revert_learned_edit
from etude.learning.observer.findings import Finding, find_findings_of_counts
from etude.learning.observer.recent_operations import RecentOperations
from etude.learning.playbooks.playbook_summary import PlaybookSummary, summarise_playbook
from etude.learning.statistical_tests import wilson_interval
from etude.store.diagnoses import StoredDiagnoses
from etude.store.edits import EditStatus, StoredEdits

if TYPE_CHECKING:
    from etude.learning.playbooks.playbook_library import LibraryDraft
    from etude.store.edits import StoredEdit, StoredSuiteRun

FIELDS = frozenset({"rationale", "reason", "hunks", "score_before", "score_after", "wins", "losses", "log_e"})
"""The facts of an edit that have fields of their own."""
MOST_LOG = 300.0
"""JSON has no number beyond this power of e."""
Repo = Annotated[str | None, Query(max_length=4000, description="Only those of this folder.")]
router = APIRouter(tags=["learning"], route_class=JsonRoute)


@router.get("/learning/edits", response_model=Listing[EditSummary])
async def list_edits(
    call: ReaderCall,
    repo: Repo = None,
    status: EditStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Listing[EditSummary]:
    """List the edits that were proposed for code, newest first, with their evidence."""
    found = await call.run_in_thread(StoredEdits(call.app.store).list, repo, 2000 if status else limit)
    return Listing(items=[_edit(e) for e in found if status is None or e.status == status][:limit])


@router.get("/learning/edits/{edit_id}", response_model=EditSummary)
async def show_edit(call: ReaderCall, edit_id: str) -> EditSummary:
    """Return an edit: its change, its reason, and the tests with and without it."""
    return _edit(await call.run_in_thread(StoredEdits(call.app.store).get, edit_id))


@router.post("/learning/edits/{edit_id}/revert", response_model=EditSummary)
async def take_edit_back(call: AdminCall, edit_id: str, body: RevertRequest | None = None) -> EditSummary:
    """Take a merged edit back: the code before it is restored."""
    reason = (body or RevertRequest()).reason
    edits, home = StoredEdits(call.app.store), call.app.settings.home
    return _edit(await call.run_in_thread(revert_learned_edit, edits, home, edit_id, reason))


def _edit(edit: StoredEdit) -> EditSummary:
    body = edit.body
    known: dict[str, Any] = {k: body[k] for k in ("score_before", "score_after", "wins", "losses") if k in body}
    if "log_e" in body:
        known["e_value"] = math.exp(min(body["log_e"], MOST_LOG))
    return EditSummary(
        id=edit.id,
        repo=edit.repo,
        proposer=edit.proposer,
        status=edit.status,
        created_at=edit.created_at,
        rationale=str(body.get("rationale", "")),
        reason=str(body.get("reason", "")),
        hunks=list(body.get("hunks", ())),
        facts={k: v for k, v in body.items() if k not in FIELDS},
        **known,
    )


@router.get("/learning/curve", response_model=Listing[CurvePoint])
async def learning_curve(
    call: ReaderCall, repo: Repo = None, limit: Annotated[int, Query(ge=1, le=5000)] = 1000
) -> Listing[CurvePoint]:
    """List the runs of test suites, oldest first: the share of tests that passed, without and with edits."""

    def read() -> list[CurvePoint]:
        edits = StoredEdits(call.app.store)
        repos = [repo] if repo is not None else sorted({e.repo for e in edits.list(limit=2000)})
        runs = sorted((r for name in repos for r in edits.runs(name, limit)), key=lambda r: r.at)
        return [_point(run) for run in runs[-limit:]]

    return Listing(items=await call.run_in_thread(read))


def _point(run: StoredSuiteRun) -> CurvePoint:
    return CurvePoint(
        at=run.at,
        repo=run.repo,
        suite=run.suite,
        stage=run.stage,
        edit_id=run.edit_id,
        passed=run.passed,
        total=run.total,
        interval=wilson_interval(run.passed, run.total),
    )


@router.get("/learning/findings", response_model=Listing[FindingSummary])
async def list_findings(call: ReaderCall) -> Listing[FindingSummary]:
    """List failures that happened several times, with a diagnosis and their evidence, the most frequent first."""
    store = call.app.store

    def find() -> list[Finding]:
        # Of operations that did not fail, no texts are read.
        return find_findings_of_counts(RecentOperations(store).count(), StoredDiagnoses(store).all())

    found = await call.server.findings.read(store.tenant, lambda: call.run_large(find))
    return Listing(
        items=[
            FindingSummary(
                kind=f.kind,
                error_key=f.error_key,
                count=f.count,
                of=f.of,
                first_at=f.first_at,
                last_at=f.last_at,
                diagnosis=f.diagnosis,
                suggestion=f.suggestion,
                evidence=list(f.evidence),
            )
            for f in found
        ]
    )


@router.get("/learning/drafts", response_model=Listing[DraftSummary])
async def list_drafts(call: ReaderCall, refused: bool = False) -> Listing[DraftSummary]:
    """List the drafts of playbooks that wait for a person; those that were refused only if asked for."""
    found = await call.run_in_thread(call.app.playbooks.drafts)
    return Listing(items=[_draft(d) for d in found if refused or not d.refused])


@router.post("/learning/drafts/{draft}/accept", status_code=201, response_model=PlaybookSummary)
async def accept_draft(call: AdminCall, draft: str) -> PlaybookSummary:
    """Make a playbook of a draft; models are shown it from now on, and its effect is measured."""
    return summarise_playbook(await call.run_in_thread(call.app.playbooks.accept_draft, draft))


@router.post("/learning/drafts/{draft}/refuse", status_code=204, response_class=Response)
async def refuse_draft(call: AdminCall, draft: str, body: RefuseRequest | None = None) -> Response:
    """Refuse a draft, which is not proposed again."""
    await call.run_in_thread(call.app.playbooks.refuse_draft, draft, body.reason if body is not None else "")
    return Response(status_code=204)


def _draft(draft: LibraryDraft) -> DraftSummary:
    return DraftSummary(
        name=draft.name,
        description=draft.description,
        text=draft.text,
        state="refused" if draft.refused else "draft",
    )
