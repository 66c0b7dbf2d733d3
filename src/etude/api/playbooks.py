"""Routes of playbooks: list, add, pin, retire, and their history."""

from __future__ import annotations

from fastapi import APIRouter, Response

from etude.api.api_call import AdminCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Listing, PlaybookChange, PlaybookRequest
from etude.learning.playbooks.playbook_summary import (
    PlaybookExposure,
    PlaybookSummary,
    summarise_exposure,
    summarise_playbook,
)

router = APIRouter(tags=["gateway"], route_class=JsonRoute)


@router.get("/playbooks", response_model=Listing[PlaybookSummary])
async def list_playbooks(call: ReaderCall, retired: bool = False) -> Response:
    """List playbooks: lessons to read before complex work. Retired ones only if asked for."""

    def read() -> bytes:
        found = call.app.playbooks.entries()
        shown = [summarise_playbook(e) for e in found if retired or e.standing.state != "retired"]
        return Listing(items=shown).model_dump_json().encode()

    # It may have megabytes, so it is not made on the event loop.
    return Response(await call.run_large(read), media_type="application/json")


@router.post("/playbooks", status_code=201, response_model=PlaybookSummary)
async def add_playbook(call: AdminCall, body: PlaybookRequest) -> PlaybookSummary:
    """Add a playbook, or replace the one of the same name; its effect is then measured anew."""
    return summarise_playbook(await call.run_large(call.app.playbooks.add_text, body.text, body.pin))


@router.get("/playbooks/{playbook}", response_model=PlaybookSummary)
async def show_playbook(call: ReaderCall, playbook: str) -> PlaybookSummary:
    """Return a playbook with its state and its effect."""
    return summarise_playbook(await call.run_large(call.app.playbooks.entry, playbook))


@router.get("/playbooks/{playbook}/history", response_model=Listing[PlaybookChange])
async def playbook_history(call: ReaderCall, playbook: str) -> Response:
    """List the changes of a playbook, oldest first."""

    def read() -> bytes:
        found = call.app.playbooks.history(playbook)
        changes = [
            PlaybookChange(version=c.version, change=c.change, reason=c.reason, at=c.at, text=c.text) for c in found
        ]
        return Listing(items=changes).model_dump_json().encode()

    return Response(await call.run_large(read), media_type="application/json")


@router.get("/playbooks/{playbook}/exposures", response_model=Listing[PlaybookExposure])
async def playbook_exposures(call: ReaderCall, playbook: str) -> Listing[PlaybookExposure]:
    """List the runs that the current version of a playbook matched, oldest first, and whether each succeeded."""
    found = await call.run_large(call.app.playbooks.exposures, playbook)
    return Listing(items=[summarise_exposure(e) for e in found])


@router.post("/playbooks/{playbook}/pin", response_model=PlaybookSummary)
async def pin_playbook(call: AdminCall, playbook: str) -> PlaybookSummary:
    """Always show a playbook that matches. This also brings back a retired one."""
    return summarise_playbook(await call.run_large(call.app.playbooks.pin, playbook))


@router.post("/playbooks/{playbook}/retire", response_model=PlaybookSummary)
async def retire_playbook(call: AdminCall, playbook: str) -> PlaybookSummary:
    """Never show this version of a playbook again."""
    return summarise_playbook(await call.run_large(call.app.playbooks.retire, playbook))
