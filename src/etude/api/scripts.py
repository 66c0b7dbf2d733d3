"""Routes for the scripts that answer questions again: list them, see what they answered, withdraw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Listing, ScriptSummary, ScriptUsage, WithdrawRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etude.api.api_call import ApiCall
    from etude.store.scripts import ScriptUse, StoredScript

router = APIRouter(tags=["scripts"], route_class=JsonRoute)


@router.get("/scripts", response_model=Listing[ScriptSummary])
async def list_scripts(call: ReaderCall, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> Listing[ScriptSummary]:
    """List the scripts that were compiled from runs, newest first, with the runs that used them."""

    def read() -> list[ScriptSummary]:
        stored = call.app.scripts.stored
        return [_summary(script, stored.uses(script.id)) for script in stored.list(limit)]

    return Listing(items=await call.run_in_thread(read))


@router.get("/scripts/{script_id}", response_model=ScriptSummary)
async def show_script(call: ReaderCall, script_id: str) -> ScriptSummary:
    """Return a script by its id, or by the id of the run that it was compiled from."""
    return await call.access_store(_read, call, script_id)


def _read(call: ApiCall, script_id: str) -> ScriptSummary:
    stored = call.app.scripts.stored
    script = stored.get(script_id)
    return _summary(script, stored.uses(script.id))


@router.post("/scripts/{script_id}/withdraw", response_model=ScriptSummary)
async def withdraw_script(call: AnalystCall, script_id: str, body: WithdrawRequest | None = None) -> ScriptSummary:
    """Let a script answer nothing from now on; its `uses` are the answers that it gave."""
    by = call.caller.key.name if call.caller.key else "A person"
    reason = f"{by} withdrew it" + (f": {body.reason}" if body is not None and body.reason else ".")

    def withdraw() -> ScriptSummary:
        script, answered = call.app.scripts.withdraw(script_id, reason)
        return _summary(script, answered)

    return await call.access_store(withdraw)


def _summary(script: StoredScript, uses: Sequence[ScriptUse]) -> ScriptSummary:
    return ScriptSummary(
        id=script.id,
        run_id=script.run_id,
        source=script.source,
        question=script.question,
        state=script.state,
        reason=script.reason,
        created_at=script.created_at,
        uses=[ScriptUsage(run_id=use.run_id, level=use.level, at=use.at) for use in uses],
    )
