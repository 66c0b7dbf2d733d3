"""Routes for agents: create, inspect and control them, and their steps and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from etude.agents.agent_control import (
    ID,
    LONGEST_DELAY_S,
    MAX_REASON,
    MOST_URGENCY,
    AgentControl,
    Sent,
    require_agent_control,
)
from etude.agents.agent_kinds import KindInfo, check_agent_rights, describe_agent_kinds
from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Body, Listing
from etude.store.action import URGENCY
from etude.store.agents import AgentInfo, AgentStep, Status

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

AgentId = Annotated[str, Path(pattern=f"^{ID.pattern}$", max_length=128)]
ActionId = Annotated[str, Path(min_length=1, max_length=128)]
After = Annotated[int | None, Query(ge=0, le=1 << 53, description="Only events beyond this id.")]
router = APIRouter(tags=["agents"], route_class=JsonRoute)


class Reasoned(Body):
    """What someone does, and why."""

    reason: str | None = Field(
        default=None, max_length=MAX_REASON, description="Why; events and the audit log have it."
    )


class AgentRequest(Reasoned):
    """A new agent."""

    kind: str = Field(min_length=1, max_length=100)
    id: str | None = Field(default=None, max_length=128, description="Generated if not given.")
    config: dict[str, Any] = Field(default_factory=dict, description="The configuration of this kind.")


class MessageRequest(Reasoned):
    """A message for the agent, handled in its own step."""

    body: Any = Field(description="Text or an object.")
    urgency: int = Field(default=URGENCY, ge=0, le=MOST_URGENCY, description="Lower values are handled first.")
    delay_s: float = Field(default=0.0, ge=0, le=LONGEST_DELAY_S)
    id: str | None = Field(
        default=None, min_length=1, max_length=128, description="Messages with the same id count as one."
    )


class GuidanceRequest(Reasoned):
    """Guidance for an agent."""

    guidance: Any = Field(default=None, description="Text or an object.")


class InterruptRequest(GuidanceRequest):
    """Guidance for an agent, with an interrupt of its current step."""

    step_no: int | None = Field(
        default=None, ge=0, le=1 << 31, description="Only if the agent has made this many steps."
    )


class PauseRequest(Reasoned):
    """How to pause an agent."""

    mode: Literal["after_step", "now"] = "after_step"


class DestroyRequest(Reasoned):
    """How to destroy an agent."""

    grace_s: float = Field(default=30.0, ge=0, le=86_400, description="Seconds for the current step to finish.")


class ReloadRequest(Reasoned):
    """What to change in an agent."""

    config: dict[str, Any] | None = Field(
        default=None, description="The whole new configuration; unchanged by default."
    )


# Create and read.


@router.post("/agents", status_code=201, response_model=AgentInfo)
async def create_agent(call: AnalystCall, body: AgentRequest, response: Response) -> AgentInfo:
    """Create an agent, which starts at once."""

    def create() -> AgentInfo:
        check_agent_rights(call.app, body.kind, body.config, call.caller.require)
        key = call.caller.key
        made_by = key.id if key else None
        return call.app.agents.create(body.kind, body.config, body.id, made_by, cause=call.cause(body.reason))

    await call.access_store(call.check_capacity)
    made = await call.run_in_thread(create)
    response.headers["Location"] = f"/api/agents/{made.id}"
    return made


@router.get("/agents", response_model=Listing[AgentInfo])
async def list_agents(
    call: ReaderCall,
    status: Status | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> Listing[AgentInfo]:
    """List agents, newest first; destroyed ones only with `status=destroyed`.

    A page has at most 1 MiB of configurations and outputs, so it may be shorter than `limit`.
    """
    page = await call.access_store(call.app.agents.list, status, limit, cursor)
    return Listing(items=list(page.items), next=page.next)


@router.get("/agents/kinds", response_model=Listing[KindInfo])
async def list_agent_kinds(call: ReaderCall) -> Listing[KindInfo]:
    """List the kinds of agents, each with the JSON Schema of its configuration."""
    return Listing(items=await call.run_in_thread(describe_agent_kinds))


@router.get("/agents/{agent_id}", response_model=AgentInfo)
async def show_agent(call: ReaderCall, agent_id: AgentId) -> AgentInfo:
    """Return an agent: its activity, its steps so far, its cost, its last result and its last error."""
    return await call.access_store(call.app.agents.get, agent_id)


@router.get("/agents/{agent_id}/state", response_model=dict[str, Any])
async def agent_state(call: ReaderCall, agent_id: AgentId) -> dict[str, Any]:
    """Return the state that an agent keeps between steps, such as the `document` of an analyst."""
    return await call.access_store(call.app.agents.state, agent_id)


@router.get("/agents/{agent_id}/steps", response_model=Listing[AgentStep])
async def agent_steps(
    call: ReaderCall,
    agent_id: AgentId,
    after: Annotated[int, Query(ge=0, le=1 << 31, description="Only steps beyond this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Listing[AgentStep]:
    """List the steps of an agent, in order. `next` is the value of `after` for the next page.

    A page has at most 1 MiB of inputs and outputs, so it may be shorter than `limit`.
    """
    page = await call.access_store(call.app.agents.steps_page, agent_id, after, limit)
    return Listing(items=list(page.items), next=page.next)


# Control.


def hold_agent(call: ApiCall, agent_id: str) -> AgentControl:
    """Return the agents, if the caller may control this one."""
    return require_agent_control(call.app.agents, agent_id, call.caller.require)


@router.post("/agents/{agent_id}/message", status_code=202, response_model=Sent)
async def message_agent(call: AnalystCall, agent_id: AgentId, body: MessageRequest) -> Sent:
    """Send a message to an agent, which handles it in its own step."""

    def send() -> str:
        how: dict[str, Any] = {"urgency": body.urgency, "delay": body.delay_s, "id": body.id}
        return hold_agent(call, agent_id).message(agent_id, body.body, cause=call.cause(body.reason), **how)

    return Sent(action=await call.access_store(send))


@router.post("/agents/{agent_id}/pause", response_model=AgentInfo)
async def pause_agent(call: AnalystCall, agent_id: AgentId, body: PauseRequest | None = None) -> AgentInfo:
    """Pause an agent after its current step; `now` interrupts that step."""
    request = body or PauseRequest()
    cause = call.cause(request.reason)
    return await call.access_store(lambda: hold_agent(call, agent_id).pause(agent_id, request.mode, cause=cause))


@router.post("/agents/{agent_id}/resume", response_model=AgentInfo)
async def resume_agent(call: AnalystCall, agent_id: AgentId, body: GuidanceRequest | None = None) -> AgentInfo:
    """Resume a paused agent; if there is guidance, a step starts with it."""
    request = body or GuidanceRequest()
    cause = call.cause(request.reason)
    return await call.access_store(lambda: hold_agent(call, agent_id).resume(agent_id, request.guidance, cause=cause))


@router.post("/agents/{agent_id}/steer", response_model=AgentInfo)
async def steer_agent(call: AnalystCall, agent_id: AgentId, body: GuidanceRequest) -> AgentInfo:
    """Give guidance to an agent, which reads it before its next model call; nothing is interrupted."""
    cause = call.cause(body.reason)
    return await call.access_store(lambda: hold_agent(call, agent_id).steer(agent_id, body.guidance, cause=cause))


@router.post("/agents/{agent_id}/interrupt", response_model=AgentInfo)
async def interrupt_agent(call: AnalystCall, agent_id: AgentId, body: InterruptRequest | None = None) -> AgentInfo:
    """Interrupt the current step of an agent; its next step starts with the guidance."""
    request = body or InterruptRequest()
    what, cause = (agent_id, request.guidance, request.step_no), call.cause(request.reason)
    return await call.access_store(lambda: hold_agent(call, agent_id).interrupt(*what, cause=cause))


@router.post("/agents/{agent_id}/destroy", response_model=AgentInfo)
async def destroy_agent(call: AnalystCall, agent_id: AgentId, body: DestroyRequest | None = None) -> AgentInfo:
    """Destroy an agent; its steps stay recorded."""
    request = body or DestroyRequest()
    cause = call.cause(request.reason)
    return await call.access_store(lambda: hold_agent(call, agent_id).destroy(agent_id, request.grace_s, cause=cause))


@router.post("/agents/{agent_id}/reload", response_model=AgentInfo)
async def reload_agent(call: AnalystCall, agent_id: AgentId, body: ReloadRequest | None = None) -> AgentInfo:
    """Reload settings, sources and configuration before the agent's next step."""

    def reload() -> AgentInfo:
        agents, config = call.app.agents, body.config if body else None
        check_agent_rights(call.app, agents.get(agent_id).kind, config or {}, call.caller.require)
        return agents.reload(agent_id, config, cause=call.cause(body.reason if body else None))

    return await call.run_in_thread(reload)


# Actions.


# Events.
