"""Running one step of an agent: from a claimed action to the record of its result."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from etude.agents.agent_kinds import load_agent_kind, parse_agent_config
from etude.agents.agent_session import AgentSession
from etude.agents.base import InboxItem, Kind, StepContext, StepResult, check_agent_step
from etude.agents.running_step import RunningStep
from etude.agents.settings_reload import SettingsReload
from etude.errors import (
    EtudeError,
    Invalid,
    LimitExceeded,
    Unavailable,
    is_outage_error,
    is_storage_quota_error,
    problem,
)
from etude.store.action import OUTAGE_ATTEMPTS, ActionClaim, End, Finish, NewEvent, StepRecord, action_backoff
from etude.store.agents import AgentStore
from etude.store.identity import Identity, Spent
from etude.store.queue_dialect import json_for_queue
from etude.store.topics import check_topic_event

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp

log = logging.getLogger("etude.agents")

MAX_EVENT_OUTPUT = 4000
"""Longer outputs, in characters, are left out of the step's event; the record of the step has them."""
MAX_OUTPUT = 1 << 22
MAX_STATE = 1 << 24
FULL_S = 60.0
"""A step of a tenant whose storage is used up is tried again after this many seconds, or after half of it."""
MAX_DELAY_S = 3e9
"""About a century: later times cannot be represented as dates."""


class StepRunner:
    """Runs steps, in any thread, one at a time for each agent."""

    def __init__(
        self, app: AgentApp, agent_store: AgentStore, identity: Identity, kinds: Mapping[str, type[Kind[Any]]]
    ) -> None:
        self.app = app
        self.agent_store = agent_store
        self.settings_reload = SettingsReload(app)
        self._threads: dict[int, str] = {}
        """The thread ids of agents that used their session in this process."""
        self._identity = identity
        self._kinds = dict(kinds)

    def run(self, running: RunningStep) -> Finish:
        """Run the step and return how it ended; never raise an `Exception`."""
        claim = running.claim
        inbox = self._inbox(running)
        running.accepts_control = True
        if not inbox:
            return Finish(claim, "done", applied=(*running.delivered, *running.acknowledged))
        started = time.monotonic()
        input_json = json.dumps([{"kind": item.kind, "body": item.body} for item in inbox])
        context = self._context(running)
        try:
            context.app.store.check_storage()
        except LimitExceeded as error:
            return _wait_for_storage(running, error)
        except EtudeError as error:
            return self.fail(running, error, StepRecord(input_json, "error", 0.0, error=describe_step_error(error)))
        try:
            running.cancel.check()
            self.settings_reload.refresh()
            if claim.key_id is not None:
                self._identity.check_budget(self._identity.key(claim.key_id), self.app.settings.server)
            kind = self._kind(claim.agent_kind)
            agent = kind(parse_agent_config(claim.agent_kind, kind, claim.config))
            step = check_agent_step(agent.step(context, json.loads(claim.state), inbox))
            # Some kinds report their usage themselves; for the others the context has counted it.
            context.tokens, context.cost_usd = context.tokens or step.tokens, context.cost_usd or step.cost_usd
            return self._finish(running, context, step, input_json, time.monotonic() - started)
        except Exception as error:
            seconds, partial = time.monotonic() - started, _recordable(context.partial)
            if running.cancel.cancelled and not isinstance(error, Unavailable):
                return self._finish(running, context, StepResult(output=partial, interrupted=True), input_json, seconds)
            if not isinstance(error, EtudeError):
                log.exception("agent %s: step %d failed", claim.agent_id, context.step_no)
            record = StepRecord(
                input_json,
                "error",
                seconds,
                output=None if partial is None else json_for_queue(partial),
                error=describe_step_error(error),
                tokens=context.tokens,
                cost_usd=context.cost_usd,
            )
            return self.fail(running, error, record)
        finally:
            self._charge(claim, context, time.monotonic() - started)

    def has_session(self, agent: int) -> bool:
        """Return True if the agent used its session in this process."""
        return agent in self._threads

    def agents_with_sessions(self) -> set[int]:
        """Return the agents that used their session in this process."""
        return set(self._threads)

    def close_session(self, agent: int) -> None:
        """Close the session of an agent; it is restored from its record when it is needed again."""
        thread_id = self._threads.pop(agent, None)
        if thread_id is not None:
            with suppress(EtudeError):
                self.app.session_pool.drop(thread_id)

    def _charge(self, claim: ActionClaim, context: StepContext, seconds: float) -> None:
        if claim.key_id is not None:
            used = Spent(tokens=context.tokens, cost_usd=context.cost_usd, seconds=seconds)
            self._identity.spend(claim.key_id, used)

    def _inbox(self, running: RunningStep) -> list[InboxItem]:
        """Return the inputs of the step: guidance first, then the action."""
        claim = running.claim
        inbox: list[InboxItem] = []
        for _, seq, verb, body in self.agent_store.pending_control([claim.agent]) if claim.has_control else ():
            running.last_control = seq
            (running.delivered if verb in ("steer", "interrupt", "resume") else running.acknowledged).append(seq)
            if verb == "reload":
                self.close_session(claim.agent)
                self.settings_reload.outdated.set()
            elif body is not None and verb != "destroy":
                inbox.append(InboxItem("guidance", body))
        if claim.kind != "wake":
            inbox.append(InboxItem(claim.kind, json.loads(claim.payload), claim.id))  # type: ignore[arg-type]
        return inbox

    def _kind(self, name: str) -> type[Kind[Any]]:
        # Cached: finding a package takes longer than many steps.
        if name not in self._kinds:
            self._kinds[name] = load_agent_kind(name)
        return self._kinds[name]

    def _is_quiet(self, name: str) -> bool:
        """Return True if steps of the kind emit no events, or if the kind is no longer installed.

        Such a kind may have been one that events wake, and its failures would wake it again and again.
        """
        try:
            return self._kind(name).quiet
        except EtudeError:
            return True

    def _context(self, running: RunningStep) -> StepContext:
        claim = running.claim
        app = self.app if claim.tenant == self.app.store.tenant else self.app.scoped(claim.tenant)

        def find_thread(source: str | None) -> str:
            if running.thread_id is None:
                running.thread_id = str(app.store.create_thread(f"agent {claim.agent_id}", source).id)
                self.agent_store.set_thread(claim.agent, running.thread_id)
            return running.thread_id

        def open_session(source: str | None = None, **options: Any) -> AgentSession:
            running.cancel.check()
            self._threads[claim.agent] = thread_id = find_thread(source)
            opened = app.source(source) if source is not None else None
            return AgentSession(app, thread_id, opened, options or None, running.cancel)

        return StepContext(
            agent_id=claim.agent_id,
            tenant=claim.tenant,
            step_no=claim.step_no + 1,
            key=claim.id,
            app=app,
            cancel=running.cancel,
            _open_session=open_session,
            _find_thread=find_thread,
            _guidance=running.guidance,
            _delivered=running.delivered,
        )

    def _finish(
        self, running: RunningStep, context: StepContext, step: StepResult, input_json: str, seconds: float
    ) -> Finish:
        claim, outcome = running.claim, "interrupted" if step.interrupted else "ok"
        if step.interrupted and running.reason in ("lost", "stop"):
            # The worker caused the interruption, so the step runs again and nothing is recorded.
            return Finish(claim, "ready")
        output = None if step.output is None else _encode("output", step.output, MAX_OUTPUT)
        # An unchanged state is not written again.
        state = None if step.state is None else _encode("state", dict(step.state), MAX_STATE)
        record = StepRecord(
            input_json,
            outcome,
            seconds,
            output=output,
            state=None if state == claim.state else state,
            done=bool(step.next and step.next.done),
            tokens=step.tokens or context.tokens,
            cost_usd=step.cost_usd or context.cost_usd,
        )
        facts = {"step": context.step_no, "outcome": outcome, "about": claim.kind}
        if output is not None and len(output) <= MAX_EVENT_OUTPUT:
            facts["output"] = step.output
        events = [NewEvent(topic, check_topic_event(topic, body, MAX_OUTPUT)) for topic, body in step.events]
        if not self._is_quiet(claim.agent_kind):
            events.insert(0, NewEvent("agent.step", json_for_queue(facts)))
        end: End = "done"
        applied = [*running.delivered, *running.acknowledged]
        if step.interrupted:
            end = "cancelled" if running.reason == "destroy" else "ready"
            # Without a new state the guidance had no effect, so the next step gets it again.
            applied = running.acknowledged if step.state is None else applied
        return Finish(
            claim,
            end,
            step=record,
            events=tuple(events),
            applied=tuple(applied),
            tick=None if step.next is None or step.next.after is None else min(step.next.after, MAX_DELAY_S),
            drop_tick=bool(step.next and step.next.after is None),
        )

    def fail(self, running: RunningStep, error: BaseException, record: StepRecord) -> Finish:
        """Return the end of a step that failed: retried after a backoff, or failed after the last attempt.

        An outage ends by itself, so it is retried for minutes, unless the action may run only once.
        """
        claim, text = running.claim, describe_step_error(error)
        facts = json_for_queue({"step": claim.step_no + 1, "outcome": "error", "about": claim.kind, "error": text})
        events = () if self._is_quiet(claim.agent_kind) else (NewEvent("agent.step", facts),)
        outage = (is_outage_error(error) or is_storage_quota_error(error)) and claim.max_attempts > 1
        if claim.attempts >= (max(OUTAGE_ATTEMPTS, claim.max_attempts) if outage else claim.max_attempts):
            applied = (*running.delivered, *running.acknowledged)
            return Finish(claim, "failed", error=text, step=record, events=events, applied=applied)
        wait = action_backoff(claim.attempts)
        if isinstance(error, LimitExceeded):
            # A daily quota is reset at midnight.
            wait = max(wait, float(error.details.get("retry_after_s", 0.0)))
        applied, deferred = tuple(running.acknowledged), tuple(running.delivered)
        return Finish(claim, "delayed", text, wait, record, events, applied, deferred, outage=outage)


def _wait_for_storage(running: RunningStep, error: LimitExceeded) -> Finish:
    """Return the end of a step that did not begin, because the storage quota of the tenant is used up.

    The action waits for as long as that takes. Nothing is recorded: that would take storage too.
    """
    wait = FULL_S * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    applied, deferred = tuple(running.acknowledged), tuple(running.delivered)
    return Finish(running.claim, "delayed", error.message, wait, applied=applied, deferred=deferred, outage=True)


def _encode(what: str, value: Any, largest: int) -> str:
    try:
        text = json_for_queue(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"The {what} of the step cannot be written as JSON: {error}.") from None
    if len(text) > largest:
        raise Invalid(
            f"The {what} of the step has {len(text):,} characters; the limit is {largest:,}.",
            hint="Keep large values in a session, a file or a table, and return their location.",
        )
    return text


def _recordable(partial: Any) -> Any:
    """Return a partial output, or its `repr` if it cannot be recorded."""
    try:
        _encode("partial output", partial, MAX_OUTPUT)
    except Invalid:
        return repr(partial)[:MAX_EVENT_OUTPUT]
    return partial


def describe_step_error(error: BaseException) -> str:
    """Return the text of an error as it is recorded."""
    if isinstance(error, EtudeError):
        return error.message
    # The text of an unexpected error may contain secrets, so only the log has it.
    return str(problem(error)["detail"])
