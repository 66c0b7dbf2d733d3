"""MCP tools for agents: create, list and show them, and every verb that controls one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from etude.agents.agent_control import (
    LONGEST_DELAY_S,
    MAX_REASON,
    MOST_URGENCY,
    AgentControl,
    Sent,
    require_agent_control,
)
from etude.agents.agent_kinds import check_agent_rights
from etude.entities import Entity
from etude.mcp_server.caller import McpCaller, Tool
from etude.store.action import URGENCY
from etude.store.agents import AgentCause, AgentInfo, AgentStep
from etude.store.processes import RUN_AGENTS, Processes

AgentId = Annotated[str, Field(max_length=128, description="The id of an agent.")]
Reason = Annotated[str | None, Field(max_length=MAX_REASON, description="Why; events have it.")]
Guidance = Annotated[str | dict[str, Any] | None, Field(description="Text or an object.")]
NO_WORKER = "No worker runs, so the agent does not start: have the person run `etude serve` or `etude worker`."


class CreatedAgent(AgentInfo):
    """A new agent; `next` says what must be done so that it starts, if anything."""

    next: str = ""


class AgentPage(Entity):
    """One page of agents; `next` is the cursor of the next page."""

    agents: list[AgentInfo]
    next: str | None = None


class AgentView(Entity):
    """An agent with its state and its last steps."""

    agent: AgentInfo
    state: dict[str, Any]
    steps: list[AgentStep]


def agents_create(
    caller: McpCaller,
    kind: Annotated[
        str, Field(max_length=100, description="`analyst`, `watch`, `catalog`, `index`, `echo`, or an installed kind")
    ],
    config: Annotated[
        dict[str, Any], Field(description="the configuration of this kind; an error says what is wrong with it")
    ],
    id: Annotated[str | None, Field(max_length=128)] = None,
) -> CreatedAgent:
    """Create an agent that works in the background, for minutes or months; `agents_show` shows its progress."""
    check_agent_rights(caller.app, kind, config, caller.require)
    caller.check_capacity()
    made = caller.app.agents.create(kind, config, id, caller.key_id, cause=_cause(caller, None))
    runs = any(p.alive and p.role in RUN_AGENTS for p in Processes(caller.app.store).list())
    return CreatedAgent(**dict(made), next="" if runs else NO_WORKER)


def agents_list(
    caller: McpCaller, limit: Annotated[int, Field(ge=1, le=500)] = 50, cursor: str | None = None
) -> AgentPage:
    """List agents, newest first."""
    page = caller.app.agents.list(limit=limit, cursor=cursor)
    return AgentPage(agents=list(page.items), next=page.next)


def agents_show(caller: McpCaller, agent_id: AgentId, steps: Annotated[int, Field(ge=0, le=100)] = 10) -> AgentView:
    """Return an agent with its state and its last steps."""
    agents = caller.app.agents
    info = agents.get(agent_id)
    last = agents.steps(agent_id, after=max(0, info.step_no - steps), limit=steps) if steps else []
    return AgentView(agent=info, state=agents.state(agent_id), steps=list(last))


def agents_message(
    caller: McpCaller,
    agent_id: AgentId,
    body: Annotated[str | dict[str, Any], Field(description="Text or an object.")],
    id: Annotated[
        str | None, Field(min_length=1, max_length=128, description="messages with the same id count as one")
    ] = None,
    urgency: Annotated[int, Field(ge=0, le=MOST_URGENCY, description="lower values are handled first")] = URGENCY,
    delay_s: Annotated[float, Field(ge=0, le=LONGEST_DELAY_S, description="seconds to wait before its step")] = 0.0,
    reason: Reason = None,
) -> Sent:
    """Send a message to an agent, which handles it in its own step."""
    how: dict[str, Any] = {"id": id, "urgency": urgency, "delay": delay_s}
    return Sent(action=_hold(caller, agent_id).message(agent_id, body, cause=_cause(caller, reason), **how))


def agents_steer(caller: McpCaller, agent_id: AgentId, guidance: Guidance, reason: Reason = None) -> AgentInfo:
    """Give guidance to an agent, which reads it before its next model call; nothing is interrupted."""
    return _hold(caller, agent_id).steer(agent_id, guidance, cause=_cause(caller, reason))


def agents_pause(
    caller: McpCaller,
    agent_id: AgentId,
    mode: Literal["after_step", "now"] = "after_step",
    reason: Reason = None,
) -> AgentInfo:
    """Pause an agent after its current step; `now` interrupts that step."""
    return _hold(caller, agent_id).pause(agent_id, mode, cause=_cause(caller, reason))


def agents_resume(caller: McpCaller, agent_id: AgentId, guidance: Guidance = None, reason: Reason = None) -> AgentInfo:
    """Resume a paused agent; if there is guidance, a step starts with it."""
    return _hold(caller, agent_id).resume(agent_id, guidance, cause=_cause(caller, reason))


def agents_interrupt(
    caller: McpCaller, agent_id: AgentId, guidance: Guidance = None, reason: Reason = None
) -> AgentInfo:
    """Interrupt the current step of an agent; its next step starts with the guidance."""
    return _hold(caller, agent_id).interrupt(agent_id, guidance, cause=_cause(caller, reason))


def agents_reload(
    caller: McpCaller, agent_id: AgentId, config: dict[str, Any] | None = None, reason: Reason = None
) -> AgentInfo:
    """Reload settings and sources before an agent's next step, and use the new configuration if one is given."""
    agents = caller.app.agents
    check_agent_rights(caller.app, agents.get(agent_id).kind, config or {}, caller.require)
    return agents.reload(agent_id, config, cause=_cause(caller, reason))


def agents_destroy(
    caller: McpCaller,
    agent_id: AgentId,
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 30,
    reason: Reason = None,
) -> AgentInfo:
    """Destroy an agent; its steps stay recorded."""
    return _hold(caller, agent_id).destroy(agent_id, grace_s, cause=_cause(caller, reason))


def _cause(caller: McpCaller, reason: str | None) -> AgentCause:
    return AgentCause(caller.key_id or "mcp", reason or "")


def _hold(caller: McpCaller, agent_id: str) -> AgentControl:
    return require_agent_control(caller.app.agents, agent_id, caller.require)


# Clients see the docstrings of these functions, and the annotations of all arguments except the first.
TOOLS: tuple[Tool, ...] = (
    (agents_create, "analyst", False),
    (agents_list, "reader", True),
    (agents_show, "reader", True),
    (agents_message, "analyst", False),
    (agents_steer, "analyst", False),
    (agents_pause, "analyst", False),
    (agents_resume, "analyst", False),
    (agents_interrupt, "analyst", False),
    (agents_reload, "analyst", False),
    (agents_destroy, "analyst", False),
)
