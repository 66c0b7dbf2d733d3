"""Routes of the events of agents and topics: list, publish, follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from etude.api import event_streams
from etude.api.agents import After, AgentId
from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.event_streams import EventStream, LastEventId, format_server_sent_event, parse_event_seq
from etude.api.json_route import JsonRoute, is_small
from etude.api.schemas import Body, Listing
from etude.errors import Invalid
from etude.store.topics import ANY, TOPIC, HubEvent, Topics

if TYPE_CHECKING:
    from etude.agents.hub import HubSubscription
    from etude.api.api_call import ApiCall


router = APIRouter(tags=["agents"], route_class=JsonRoute)


AGENT_EVENTS = "hub"
"""The name that streams of agent events pass to the run watcher instead of a run's id."""


RESERVED_TOPICS = "agent."
"""Only agents publish topics with this prefix: a forged `agent.destroyed` would end the streams of that agent."""


TOPICS = r"^[a-z0-9_*]+([.-][a-z0-9_*]+)*$"


class EventRequest(Body):
    """An event to publish."""

    topic: str = Field(max_length=128, pattern=f"^{TOPIC.pattern}$", description="Such as `tests.completed`.")
    body: Any = None
    agent: str | None = Field(default=None, max_length=128, description="The agent that the event is about.")


@router.get("/agents/{agent_id}/events", responses=event_streams.DOCUMENTED, response_class=Response)
async def agent_events(
    call: ReaderCall, agent_id: AgentId, after: After = None, last_event_id: LastEventId = None
) -> Response:
    """Stream the events of an agent until it is destroyed; from its creation if no id is given."""

    start = parse_event_seq(last_event_id) if last_event_id else after

    def open_subscription() -> HubSubscription | None:
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
    """List events in order: the newest, or those after an id. `next` is the value of `after` for the next page.

    A page has at most 1 MiB of bodies, so it may be shorter than `limit`.
    """
    topics = Topics(call.app.agents.queue)
    found, more = await call.access_store(topics.page, topic, agent, after, limit)
    return Listing(items=list(found), next=str(found[-1].id) if more else None)


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
        call.app.store.check_storage()
        Topics(agents.queue).publish(body.topic, body.body, body.agent)

    await call.access_store(publish)
    return Response(status_code=202)


@router.get("/events/{topic}", responses=event_streams.DOCUMENTED, response_class=Response)
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
    call: ApiCall, subscription: HubSubscription, agent_id: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a subscription; with `agent_id`, until that agent is destroyed."""
    yield b"retry: 1000\n\n"
    hub, watch, changed = call.server.hub, call.server.run_watcher, True
    with watch.listening(call.app.store, {AGENT_EVENTS: 0}) as listener:
        while not watch.closed:
            listener.woken.clear()
            if found := await call.access_store(subscription.read):
                changed = True
                write = partial(_write_events, found)
                yield write() if is_small(found) else await call.compute(write)
            if subscription.at < hub.at:
                continue
            if changed and agent_id is not None:
                last = await call.access_store(last_event, call, agent_id)
                if last is not None and subscription.at >= last:
                    return
                changed = last is not None
            try:
                async with asyncio.timeout(event_streams.HEARTBEAT_S):
                    await listener.woken.wait()
            except TimeoutError:
                changed = True
                yield b": still here\n\n"


def _write_events(events: Sequence[HubEvent]) -> bytes:
    return b"".join(
        format_server_sent_event(event.model_dump_json(exclude={"tenant"}), str(event.id), event.topic)
        for event in events
    )


def last_event(call: ApiCall, agent_id: str) -> int | None:
    """Return the last event of a destroyed agent; None if more events may follow."""
    if call.app.agents.get(agent_id).status != "destroyed":
        return None
    return call.server.hub.topics.bounds(call.app.tenant, agent_id)[1]
