"""Routes of the actions of agents: list, look, cancel, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from etude.agents.agent_control import AgentControl
from etude.api.agents import ActionId, Reasoned, hold_agent
from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Listing
from etude.entities import Entity
from etude.store.agents import ActionInfo, ActionState, AgentStep

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall


router = APIRouter(tags=["agents"], route_class=JsonRoute)


class ActionView(Entity):
    """An action with its attempts."""

    action: ActionInfo
    attempts: list[AgentStep]


@router.get("/actions", response_model=Listing[ActionInfo])
async def list_actions(
    call: ReaderCall,
    agent: Annotated[str | None, Query(max_length=128, description="Only actions of this agent.")] = None,
    state: ActionState | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> Listing[ActionInfo]:
    """List the actions in the queue, newest first, with their state, attempts and last error."""
    page = await call.access_store(call.app.agents.actions, agent, state, limit, cursor)
    return Listing(items=list(page.items), next=page.next)


@router.get("/actions/{action_id}", response_model=ActionView)
async def show_action(call: ReaderCall, action_id: ActionId) -> ActionView:
    """Return an action with its attempts."""

    def show() -> ActionView:
        found = call.app.agents.action(action_id)
        return ActionView(action=found, attempts=list(call.app.agents.attempts(found)))

    return await call.access_store(show)


def _hold_action(call: ApiCall, action_id: str) -> AgentControl:
    return hold_agent(call, call.app.agents.action(action_id).agent)


@router.post("/actions/{action_id}/cancel", response_model=ActionInfo)
async def cancel_action(call: AnalystCall, action_id: ActionId, body: Reasoned | None = None) -> ActionInfo:
    """Cancel an action that waits; interrupt its agent to stop one that runs."""
    cause = call.cause(body.reason if body else None)
    return await call.access_store(lambda: _hold_action(call, action_id).cancel_action(action_id, cause=cause))


@router.post("/actions/{action_id}/retry", response_model=ActionInfo)
async def retry_action(call: AnalystCall, action_id: ActionId, body: Reasoned | None = None) -> ActionInfo:
    """Queue an action again that failed or was cancelled."""
    cause = call.cause(body.reason if body else None)
    return await call.access_store(lambda: _hold_action(call, action_id).retry_action(action_id, cause=cause))
