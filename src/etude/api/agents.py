"""Routes for agents: create, inspect, control and follow them; and events that other programs publish and read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from etude.agents.control import (
    ID,
    LONGEST_DELAY_S,
    MAX_REASON,
    MOST_URGENCY,
    Agents,
    KindInfo,
    Sent,
    check_agent_rights,
    list_kinds,
    require_agent_control,
)
from etude.api import streams
from etude.api.call import AnalystCall, ReaderCall
from etude.api.schemas import Body, Listing
from etude.api.streams import EventStream, LastEventId, format_server_sent_event, parse_event_seq
from etude.entities import Entity
from etude.errors import Invalid
from etude.store.action import URGENCY
from etude.store.agents import ActionInfo, ActionState, AgentInfo, AgentStep, Status
from etude.store.topics import ANY, TOPIC, HubEvent, Topics

if TYPE_CHECKING:
    from etude.agents.hub import Subscription
    from etude.api.call import ApiCall

AGENT_EVENTS = "hub"
"""The name that streams of agent events pass to the run watcher instead of a run's id."""
RESERVED_TOPICS = "agent."
"""Only agents publish topics with this prefix: a forged `agent.destroyed` would end the streams of that agent."""
TOPICS = r"^[a-z0-9_*]+([.-][a-z0-9_*]+)*$"
AgentId = Annotated[str, Path(pattern=f"^{ID.pattern}$", max_length=128)]
ActionId = Annotated[str, Path(min_length=1, max_length=128)]
After = Annotated[int | None, Query(ge=0, le=1 << 53, description="Only events beyond this id.")]
router = APIRouter(tags=["agents"])


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


class EventRequest(Body):
    """An event to publish."""

    topic: str = Field(max_length=128, pattern=f"^{TOPIC.pattern}$", description="Such as `tests.completed`.")
    body: Any = None
    agent: str | None = Field(default=None, max_length=128, description="The agent that the event is about.")


class ActionView(Entity):
    """An action with its attempts."""

    action: ActionInfo
    attempts: list[AgentStep]


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
    """List agents, newest first; destroyed ones only with `status=destroyed`."""
    page = await call.access_store(call.app.agents.list, status, limit, cursor)
    return Listing(items=list(page.items), next=page.next)


@router.get("/agents/kinds", response_model=Listing[KindInfo])
async def list_agent_kinds(call: ReaderCall) -> Listing[KindInfo]:
    """List the kinds of agents, each with the JSON Schema of its configuration."""
    return Listing(items=await call.run_in_thread(list_kinds))


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
    """List the steps of an agent, in order. `next` is the value of `after` for the next page."""
    found = await call.access_store(call.app.agents.steps, agent_id, after, limit + 1)
    return Listing(items=list(found[:limit]), next=str(found[limit - 1].step_no) if len(found) > limit else None)


# Control.


def _hold(call: ApiCall, agent_id: str) -> Agents:
    return require_agent_control(call.app.agents, agent_id, call.caller.require)


@router.post("/agents/{agent_id}/message", status_code=202, response_model=Sent)
async def message_agent(call: AnalystCall, agent_id: AgentId, body: MessageRequest) -> Sent:
    """Send a message to an agent, which handles it in its own step."""

    def send() -> str:
        how: dict[str, Any] = {"urgency": body.urgency, "delay": body.delay_s, "id": body.id}
        return _hold(call, agent_id).message(agent_id, body.body, cause=call.cause(body.reason), **how)

    return Sent(action=await call.access_store(send))


@router.post("/agents/{agent_id}/pause", response_model=AgentInfo)
async def pause_agent(call: AnalystCall, agent_id: AgentId, body: PauseRequest | None = None) -> AgentInfo:
    """Pause an agent after its current step; `now` interrupts that step."""
    request = body or PauseRequest()
    cause = call.cause(request.reason)
    return await call.access_store(lambda: _hold(call, agent_id).pause(agent_id, request.mode, cause=cause))


@router.post("/agents/{agent_id}/resume", response_model=AgentInfo)
async def resume_agent(call: AnalystCall, agent_id: AgentId, body: GuidanceRequest | None = None) -> AgentInfo:
    """Resume a paused agent; if there is guidance, a step starts with it."""
    request = body or GuidanceRequest()
    cause = call.cause(request.reason)
    return await call.access_store(lambda: _hold(call, agent_id).resume(agent_id, request.guidance, cause=cause))


@router.post("/agents/{agent_id}/steer", response_model=AgentInfo)
async def steer_agent(call: AnalystCall, agent_id: AgentId, body: GuidanceRequest) -> AgentInfo:
    """Give guidance to an agent, which reads it before its next model call; nothing is interrupted."""
    cause = call.cause(body.reason)
    return await call.access_store(lambda: _hold(call, agent_id).steer(agent_id, body.guidance, cause=cause))


@router.post("/agents/{agent_id}/interrupt", response_model=AgentInfo)
async def interrupt_agent(call: AnalystCall, agent_id: AgentId, body: InterruptRequest | None = None) -> AgentInfo:
    """Interrupt the current step of an agent; its next step starts with the guidance."""
    request = body or InterruptRequest()
    what, cause = (agent_id, request.guidance, request.step_no), call.cause(request.reason)
    return await call.access_store(lambda: _hold(call, agent_id).interrupt(*what, cause=cause))


@router.post("/agents/{agent_id}/destroy", response_model=AgentInfo)
async def destroy_agent(call: AnalystCall, agent_id: AgentId, body: DestroyRequest | None = None) -> AgentInfo:
    """Destroy an agent; its steps stay recorded."""
    request = body or DestroyRequest()
    cause = call.cause(request.reason)
    return await call.access_store(lambda: _hold(call, agent_id).destroy(agent_id, request.grace_s, cause=cause))


@router.post("/agents/{agent_id}/reload", response_model=AgentInfo)
async def reload_agent(call: AnalystCall, agent_id: AgentId, body: ReloadRequest | None = None) -> AgentInfo:
    """Reload settings, sources and configuration before the agent's next step."""

    def reload() -> AgentInfo:
        agents, config = call.app.agents, body.config if body else None
        check_agent_rights(call.app, agents.get(agent_id).kind, config or {}, call.caller.require)
        return agents.reload(agent_id, config, cause=call.cause(body.reason if body else None))

    return await call.run_in_thread(reload)


# Actions.


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


def _hold_action(call: ApiCall, action_id: str) -> Agents:
    return _hold(call, call.app.agents.action(action_id).agent)


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


# Events.


@router.get("/agents/{agent_id}/events", responses=streams.DOCUMENTED, response_class=Response)
async def agent_events(
    call: ReaderCall, agent_id: AgentId, after: After = None, last_event_id: LastEventId = None
) -> Response:
    """Stream the events of an agent until it is destroyed; from its creation if no id is given."""

    start = parse_event_seq(last_event_id) if last_event_id else after

    def open_subscription() -> Subscription | None:
        hub, tenant = call.server.hub, call.app.tenant
        status = call.app.agents.get(agent_id).status
        first, last = hub.topics.bounds(tenant, agent_id)
        subscription = hub.subscribe(agent=agent_id, tenant=tenant, after=first - 1 if start is None else start)
        return None if status == "destroyed" and subscription.at >= last else subscription

    subscription = await call.access_store(open_subscription)
    return (
        Response(status_code=204)
        if subscription is None
        else EventStream(call, send_events(call, subscription, agent_id))
    )


@router.get("/agent-events", response_model=Listing[HubEvent])
async def list_events(
    call: ReaderCall,
    topic: Annotated[str, Query(pattern=TOPICS, max_length=128, description="A topic, or a pattern.")] = ANY,
    agent: Annotated[str | None, Query(max_length=128, description="Only events of this agent.")] = None,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Listing[HubEvent]:
    """List events in order: the newest, or those after an id. `next` is the value of `after` for the next page."""
    topics = Topics(call.app.agents.queue)
    found = await call.access_store(topics.list, topic, agent, after, limit)
    return Listing(items=list(found), next=str(found[-1].id) if len(found) == limit else None)


@router.post("/events", status_code=202, response_class=Response)
async def publish_event(call: AnalystCall, body: EventRequest) -> Response:
    """Publish an event to the subscribers of a topic: streams and webhooks, in any process."""

    if body.topic.startswith(RESERVED_TOPICS):
        raise Invalid(
            f"Only agents publish `{body.topic}`.", hint="Use a topic of your own, such as `tests.completed`."
        )

    def publish() -> None:
        agents = call.app.agents
        if body.agent is not None:
            agents.get(body.agent)
        Topics(agents.queue).publish(body.topic, body.body, body.agent)

    await call.access_store(publish)
    return Response(status_code=202)


@router.get("/events/{topic}", responses=streams.DOCUMENTED, response_class=Response)
async def topic_events(
    call: ReaderCall,
    topic: Annotated[str, Path(pattern=TOPICS, max_length=128, description="A topic, or a pattern such as `agent.*`.")],
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream the events of a topic; from now on if no id is given."""
    start = parse_event_seq(last_event_id) if last_event_id else after
    subscription = call.server.hub.subscribe([topic], tenant=call.app.tenant, after=start)
    return EventStream(call, send_events(call, subscription))


async def send_events(
    call: ApiCall, subscription: Subscription, agent_id: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a subscription; with `agent_id`, until that agent is destroyed."""
    yield b"retry: 1000\n\n"
    hub, watch, changed = call.server.hub, call.server.run_watcher, True
    with watch.listening(call.app.store, {AGENT_EVENTS: 0}) as listener:
        while not watch.closed:
            listener.woken.clear()
            if found := await call.access_store(subscription.read):
                changed = True
                yield b"".join(
                    format_server_sent_event(event.model_dump_json(exclude={"tenant"}), str(event.id), event.topic)
                    for event in found
                )
            if subscription.at < hub.at:
                continue
            if changed and agent_id is not None:
                last = await call.access_store(last_event, call, agent_id)
                if last is not None and subscription.at >= last:
                    return
                changed = last is not None
            try:
                async with asyncio.timeout(streams.HEARTBEAT_S):
                    await listener.woken.wait()
            except TimeoutError:
                changed = True
                yield b": still here\n\n"


def last_event(call: ApiCall, agent_id: str) -> int | None:
    """Return the last event of a destroyed agent; None if more events may follow."""
    if call.app.agents.get(agent_id).status != "destroyed":
        return None
    return call.server.hub.topics.bounds(call.app.tenant, agent_id)[1]
