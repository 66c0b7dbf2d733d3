"""Agents: created, looked at, told things, followed; and events that other programs tell and hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from etude.agents.control import ID, LONGEST_DELAY_S, MOST_URGENCY, Agents, Sent, check_reach, require_hold
from etude.api import streams
from etude.api.call import AnalystCall, ReaderCall
from etude.api.runs import check_room
from etude.api.schemas import Body, Listing
from etude.api.streams import EventStream, LastEventId, parse_seq, to_event
from etude.errors import Invalid
from etude.store.action import URGENCY
from etude.store.agents import AgentInfo, AgentStep
from etude.store.topics import TOPIC, Topics

if TYPE_CHECKING:
    from etude.agents.hub import Subscription
    from etude.api.call import ApiCall

NEWS = "hub"
"""What those who wait for events of agents listen to, in the place of a run's id."""
OWN_TOPICS = "agent."
"""What begins so is told by agents alone: a forged `agent.destroyed` would end the streams of those who watch."""
TOPICS = r"^[a-z0-9_*]+([.-][a-z0-9_*]+)*$"
AgentId = Annotated[str, Path(pattern=f"^{ID.pattern}$", max_length=128)]
After = Annotated[int | None, Query(ge=0, le=1 << 53, description="Only events beyond this id.")]
router = APIRouter(tags=["agents"])


class AgentRequest(Body):
    """A new agent."""

    kind: str = Field(min_length=1, max_length=100)
    id: str | None = Field(default=None, max_length=128, description="Made up where none is given.")
    config: dict[str, Any] = Field(default_factory=dict, description="What its kind takes.")


class MessageRequest(Body):
    """Something for the agent to read in a step of its own."""

    body: Any = Field(description="Text or an object.")
    urgency: int = Field(default=URGENCY, ge=0, le=MOST_URGENCY, description="Lower comes first.")
    delay_s: float = Field(default=0.0, ge=0, le=LONGEST_DELAY_S)
    id: str | None = Field(default=None, min_length=1, max_length=128, description="The same id twice is one message.")


class GuidanceRequest(Body):
    """What an agent should heed."""

    guidance: Any = Field(default=None, description="Text or an object.")


class InterruptRequest(GuidanceRequest):
    """What an agent should heed at once."""

    step_no: int | None = Field(default=None, ge=0, le=1 << 31, description="Only where it made so many steps so far.")


class PauseRequest(Body):
    """How to pause."""

    mode: Literal["after_step", "now"] = "after_step"


class DestroyRequest(Body):
    """How to end."""

    grace_s: float = Field(default=30.0, ge=0, le=86_400, description="For the step that runs.")


class ReloadRequest(Body):
    """What changes."""

    config: dict[str, Any] | None = Field(default=None, description="The whole configuration; as it was by default.")


class EventRequest(Body):
    """Something that happened elsewhere."""

    topic: str = Field(max_length=128, pattern=f"^{TOPIC.pattern}$", description="Such as `tests.completed`.")
    body: Any = None
    agent: str | None = Field(default=None, max_length=128, description="The agent that it is about.")


# Create and look.


@router.post("/agents", status_code=201, response_model=AgentInfo)
async def create_agent(call: AnalystCall, body: AgentRequest, response: Response) -> AgentInfo:
    """A new agent, which begins at once."""

    def create() -> AgentInfo:
        check_reach(call.app, body.kind, body.config, call.caller.require)
        key = call.caller.key
        return call.app.agents.create(body.kind, body.config, body.id, key.id if key else None)

    await call.look(check_room, call)
    made = await call.do(create)
    response.headers["Location"] = f"/api/agents/{made.id}"
    return made


@router.get("/agents", response_model=Listing[AgentInfo])
async def list_agents(
    call: ReaderCall,
    status: Literal["active", "paused", "destroying", "destroyed"] | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> Listing[AgentInfo]:
    """Agents, the newest first; those that were destroyed only where asked for."""
    page = await call.look(call.app.agents.list, status, limit, cursor)
    return Listing(items=list(page.items), next=page.next)


@router.get("/agents/{agent_id}", response_model=AgentInfo)
async def show_agent(call: ReaderCall, agent_id: AgentId) -> AgentInfo:
    """An agent: what it does, how far it is, what it cost, its last result and error."""
    return await call.look(call.app.agents.get, agent_id)


@router.get("/agents/{agent_id}/state", response_model=dict[str, Any])
async def agent_state(call: ReaderCall, agent_id: AgentId) -> dict[str, Any]:
    """What an agent remembers, such as the `document` of an analyst."""
    return await call.look(call.app.agents.state, agent_id)


@router.get("/agents/{agent_id}/steps", response_model=Listing[AgentStep])
async def agent_steps(
    call: ReaderCall,
    agent_id: AgentId,
    after: Annotated[int, Query(ge=0, le=1 << 31, description="Only steps beyond this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Listing[AgentStep]:
    """The steps of an agent, in order. `next` is the number to ask for those after them."""
    found = await call.look(call.app.agents.steps, agent_id, after, limit + 1)
    return Listing(items=list(found[:limit]), next=str(found[limit - 1].step_no) if len(found) > limit else None)


# Verbs.


def _hold(call: ApiCall, agent_id: str) -> Agents:
    return require_hold(call.app.agents, agent_id, call.caller.require)


@router.post("/agents/{agent_id}/message", status_code=202, response_model=Sent)
async def message_agent(call: AnalystCall, agent_id: AgentId, body: MessageRequest) -> Sent:
    """Have an agent read something in a step of its own."""

    def send() -> str:
        how: dict[str, Any] = {"urgency": body.urgency, "delay": body.delay_s, "id": body.id}
        return _hold(call, agent_id).message(agent_id, body.body, **how)

    return Sent(action=await call.look(send))


@router.post("/agents/{agent_id}/pause", response_model=AgentInfo)
async def pause_agent(call: AnalystCall, agent_id: AgentId, body: PauseRequest | None = None) -> AgentInfo:
    """Have an agent make no further step; `now` breaks off the one that runs."""
    mode = body.mode if body else "after_step"
    return await call.look(lambda: _hold(call, agent_id).pause(agent_id, mode))


@router.post("/agents/{agent_id}/resume", response_model=AgentInfo)
async def resume_agent(call: AnalystCall, agent_id: AgentId, body: GuidanceRequest | None = None) -> AgentInfo:
    """Have a paused agent go on; where guidance is given, a step begins with it."""
    guidance = body.guidance if body else None
    return await call.look(lambda: _hold(call, agent_id).resume(agent_id, guidance))


@router.post("/agents/{agent_id}/steer", response_model=AgentInfo)
async def steer_agent(call: AnalystCall, agent_id: AgentId, body: GuidanceRequest) -> AgentInfo:
    """Have an agent heed this before its next call of a model; nothing is broken off."""
    return await call.look(lambda: _hold(call, agent_id).steer(agent_id, body.guidance))


@router.post("/agents/{agent_id}/interrupt", response_model=AgentInfo)
async def interrupt_agent(call: AnalystCall, agent_id: AgentId, body: InterruptRequest | None = None) -> AgentInfo:
    """Break off what an agent does; its next step begins with the guidance."""
    said = body or InterruptRequest()
    return await call.look(lambda: _hold(call, agent_id).interrupt(agent_id, said.guidance, said.step_no))


@router.post("/agents/{agent_id}/destroy", response_model=AgentInfo)
async def destroy_agent(call: AnalystCall, agent_id: AgentId, body: DestroyRequest | None = None) -> AgentInfo:
    """End an agent; what it did stays on record."""
    grace = (body or DestroyRequest()).grace_s
    return await call.look(lambda: _hold(call, agent_id).destroy(agent_id, grace))


@router.post("/agents/{agent_id}/reload", response_model=AgentInfo)
async def reload_agent(call: AnalystCall, agent_id: AgentId, body: ReloadRequest | None = None) -> AgentInfo:
    """Have the next step see settings, sources and configuration as they are now."""

    def reload() -> AgentInfo:
        agents, config = call.app.agents, body.config if body else None
        check_reach(call.app, agents.get(agent_id).kind, config or {}, call.caller.require)
        return agents.reload(agent_id, config)

    return await call.do(reload)


# Events.


@router.get("/agents/{agent_id}/events", responses=streams.DOCUMENTED, response_class=Response)
async def agent_events(
    call: ReaderCall, agent_id: AgentId, after: After = None, last_event_id: LastEventId = None
) -> Response:
    """What an agent does, as it happens; from its creation on where no id is given. Ends when it is destroyed."""

    start = parse_seq(last_event_id) if last_event_id else after

    def open_place() -> Subscription | None:
        hub, tenant = call.server.hub, call.app.tenant
        status = call.app.agents.get(agent_id).status
        first, last = hub.topics.bounds(tenant, agent_id)
        place = hub.subscribe(agent=agent_id, tenant=tenant, after=first - 1 if start is None else start)
        return None if status == "destroyed" and place.at >= last else place

    place = await call.look(open_place)
    return Response(status_code=204) if place is None else EventStream(call, send_events(call, place, agent_id))


@router.post("/events", status_code=202, response_class=Response)
async def publish_event(call: AnalystCall, body: EventRequest) -> Response:
    """Tell those who listen to a topic: streams, webhooks, in any process."""

    if body.topic.startswith(OWN_TOPICS):
        raise Invalid(
            f"`{body.topic}` is told by agents themselves.", hint="Use a topic of your own, such as `tests.completed`."
        )

    def publish() -> None:
        agents = call.app.agents
        if body.agent is not None:
            agents.get(body.agent)
        Topics(agents.queue).publish(body.topic, body.body, body.agent)

    await call.look(publish)
    return Response(status_code=202)


@router.get("/events/{topic}", responses=streams.DOCUMENTED, response_class=Response)
async def topic_events(
    call: ReaderCall,
    topic: Annotated[str, Path(pattern=TOPICS, max_length=128, description="A topic, or a pattern such as `agent.*`.")],
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Events of a topic as they happen; from now on where no id is given."""
    start = parse_seq(last_event_id) if last_event_id else after
    place = call.server.hub.subscribe([topic], tenant=call.app.tenant, after=start)
    return EventStream(call, send_events(call, place))


async def send_events(call: ApiCall, place: Subscription, agent_id: str | None = None) -> AsyncGenerator[bytes, None]:
    """The events from a place on, until the agent that they are of is destroyed."""
    yield b"retry: 1000\n\n"
    hub, watch, changed = call.server.hub, call.server.watch, True
    with watch.listening(call.app.store, {NEWS: 0}) as listener:
        while not watch.closed:
            listener.woken.clear()
            if found := await call.look(place.read):
                changed = True
                yield b"".join(to_event(event.model_dump_json(exclude={"tenant"}), str(event.id)) for event in found)
            if place.at < hub.at:
                continue
            if changed and agent_id is not None:
                last = await call.look(last_event, call, agent_id)
                if last is not None and place.at >= last:
                    return
                changed = last is not None
            try:
                async with asyncio.timeout(streams.HEARTBEAT_S):
                    await listener.woken.wait()
            except TimeoutError:
                changed = True
                yield b": still here\n\n"


def last_event(call: ApiCall, agent_id: str) -> int | None:
    """The last event of an agent that was destroyed; None where more may come."""
    if call.app.agents.get(agent_id).status != "destroyed":
        return None
    return call.server.hub.topics.bounds(call.app.tenant, agent_id)[1]
