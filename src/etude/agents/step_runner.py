"""Making one step of an agent: what it is about goes in, and what is recorded of it comes out."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from etude.agents.base import InboxItem, Kind, StepContext, StepResult, check_step
from etude.agents.control import load_kind, read_config
from etude.agents.running_step import RunningStep
from etude.agents.session import AgentSession
from etude.agents.settings_reload import SettingsReload
from etude.errors import EtudeError, Invalid, LimitExceeded, Unavailable, problem
from etude.store.action import Claim, End, Finish, NewEvent, StepRecord, backoff
from etude.store.agents import AgentStore
from etude.store.identity import Identity, Spent
from etude.store.queue_dialect import to_text
from etude.store.topics import check_event

if TYPE_CHECKING:
    from etude.agents.app import AgentApp

log = logging.getLogger("etude.agents")

SHOWN = 4000
"""An output of more characters than this is told without its text; it is in the step."""
LARGEST_OUTPUT = 1 << 22
LARGEST_STATE = 1 << 24
LONGEST_S = 3e9
"""A century: what is planned for later has no date."""


class StepRunner:
    """Makes steps, in any thread, one at a time for each agent."""

    def __init__(
        self, app: AgentApp, agent_store: AgentStore, identity: Identity, kinds: Mapping[str, type[Kind[Any]]]
    ) -> None:
        self.app = app
        self.agent_store = agent_store
        self.settings_reload = SettingsReload(app)
        self._threads: dict[int, str] = {}
        """The threads of agents that used their session in this process."""
        self._identity = identity
        self._kinds = dict(kinds)

    def run(self, running: RunningStep) -> Finish:
        """Make the step, and say how it ended, whatever it did."""
        claim = running.claim
        inbox = self._inbox(running)
        running.listens = True
        if not inbox:
            return Finish(claim, "done", applied=(*running.taken, *running.settled))
        started = time.monotonic()
        shown = json.dumps([{"kind": item.kind, "body": item.body} for item in inbox])
        context = self._context(running)
        try:
            running.cancel.check()
            self.settings_reload.refresh()
            if claim.key_id is not None:
                self._identity.check_budget(self._identity.key(claim.key_id), self.app.settings.server)
            kind = self._kind(claim.agent_kind)
            agent = kind(read_config(claim.agent_kind, kind, claim.config))
            step = check_step(agent.step(context, json.loads(claim.state), inbox))
            # Not every kind asks by way of the context; those that do need not count.
            context.tokens, context.cost_usd = context.tokens or step.tokens, context.cost_usd or step.cost_usd
            return self._finish(running, context, step, shown, time.monotonic() - started)
        except Exception as error:
            seconds, partial = time.monotonic() - started, _shown(context.partial)
            if running.cancel.cancelled and not isinstance(error, Unavailable):
                return self._finish(running, context, StepResult(output=partial, interrupted=True), shown, seconds)
            if not isinstance(error, EtudeError):
                log.exception("agent %s: step %d failed", claim.agent_id, context.step_no)
            record = StepRecord(
                shown,
                "error",
                seconds,
                output=None if partial is None else to_text(partial),
                error=tell(error),
                tokens=context.tokens,
                cost_usd=context.cost_usd,
            )
            return self.fail(running, error, record)
        finally:
            self._charge(claim, context, time.monotonic() - started)

    def has_session(self, agent: int) -> bool:
        """Whether the agent used its session in this process."""
        return agent in self._threads

    def agents_with_sessions(self) -> set[int]:
        """Return the agents that used their session in this process."""
        return set(self._threads)

    def close_session(self, agent: int) -> None:
        """Close the session of an agent; it comes back from its record when it is needed."""
        thread_id = self._threads.pop(agent, None)
        if thread_id is not None:
            with suppress(EtudeError):
                self.app.session_pool.drop(thread_id)

    def _charge(self, claim: Claim, context: StepContext, seconds: float) -> None:
        if claim.key_id is not None:
            used = Spent(tokens=context.tokens, cost_usd=context.cost_usd, seconds=seconds)
            self._identity.spend(claim.key_id, used)

    def _inbox(self, running: RunningStep) -> list[InboxItem]:
        """What the step is about: guidance first, then the action."""
        claim = running.claim
        inbox: list[InboxItem] = []
        for _, seq, verb, body in self.agent_store.said([claim.agent]) if claim.told else ():
            running.heard = seq
            (running.taken if verb in ("steer", "interrupt", "resume") else running.settled).append(seq)
            if verb == "reload":
                self.close_session(claim.agent)
                self.settings_reload.outdated.set()
            elif body is not None and verb != "destroy":
                inbox.append(InboxItem("guidance", body))
        if claim.kind != "wake":
            inbox.append(InboxItem(claim.kind, json.loads(claim.payload), claim.id))  # type: ignore[arg-type]
        return inbox

    def _kind(self, name: str) -> type[Kind[Any]]:
        # Kept: to look for a package takes as long as many a step.
        if name not in self._kinds:
            self._kinds[name] = load_kind(name)
        return self._kinds[name]

    def _is_quiet(self, name: str) -> bool:
        """Whether steps of the kind are told to nobody; nor are those of one that is no longer installed.

        It may have been one that events wake, which would be woken by its own failures for ever.
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
                self.agent_store.keep_thread(claim.agent, running.thread_id)
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
            key=f"{claim.id}:{claim.step_no + 1}",
            app=app,
            cancel=running.cancel,
            _open_session=open_session,
            _find_thread=find_thread,
            _guidance=running.guidance,
            _taken=running.taken,
        )

    def _finish(
        self, running: RunningStep, context: StepContext, step: StepResult, shown: str, seconds: float
    ) -> Finish:
        claim, outcome = running.claim, "interrupted" if step.interrupted else "ok"
        if step.interrupted and running.reason in ("lost", "stop"):
            # Nobody asked for it: the step is run again as if nothing had been.
            return Finish(claim, "ready")
        output = None if step.output is None else _written("output", step.output, LARGEST_OUTPUT)
        record = StepRecord(
            shown,
            outcome,
            seconds,
            output=output,
            state=None if step.state is None else _written("state", dict(step.state), LARGEST_STATE),
            done=bool(step.next and step.next.done),
            tokens=step.tokens or context.tokens,
            cost_usd=step.cost_usd or context.cost_usd,
        )
        told = {"step": context.step_no, "outcome": outcome, "about": claim.kind}
        if output is not None and len(output) <= SHOWN:
            told["output"] = step.output
        events = [NewEvent(topic, check_event(topic, body, LARGEST_OUTPUT)) for topic, body in step.events]
        if not self._is_quiet(claim.agent_kind):
            events.insert(0, NewEvent("agent.step", to_text(told)))
        end: End = "done"
        applied = [*running.taken, *running.settled]
        if step.interrupted:
            end = "cancelled" if running.reason == "destroy" else "ready"
            # Nothing came of it: its guidance begins the next step too.
            applied = running.settled if step.state is None else applied
        return Finish(
            claim,
            end,
            step=record,
            events=tuple(events),
            applied=tuple(applied),
            tick=None if step.next is None or step.next.after is None else min(step.next.after, LONGEST_S),
            drop_tick=bool(step.next and step.next.after is None),
        )

    def fail(self, running: RunningStep, error: BaseException, record: StepRecord) -> Finish:
        """How a step ends that failed: tried again, or not any more."""
        claim, text = running.claim, tell(error)
        told = to_text({"step": claim.step_no + 1, "outcome": "error", "about": claim.kind, "error": text})
        events = () if self._is_quiet(claim.agent_kind) else (NewEvent("agent.step", told),)
        if claim.attempts >= claim.max_attempts:
            applied = (*running.taken, *running.settled)
            return Finish(claim, "failed", error=text, step=record, events=events, applied=applied)
        wait = backoff(claim.attempts)
        if isinstance(error, LimitExceeded):
            # A budget of the day begins anew at midnight.
            wait = max(wait, float(error.details.get("retry_after_s", 0.0)))
        applied, again = tuple(running.settled), tuple(running.taken)
        return Finish(claim, "delayed", text, wait, record, events, applied, again)


def _written(what: str, value: Any, largest: int) -> str:
    try:
        text = to_text(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"The {what} of the step is not JSON: {error}.") from None
    if len(text) > largest:
        raise Invalid(
            f"The {what} of the step has {len(text):,} characters, of {largest:,} that are possible.",
            hint="Keep what is large in a session, a file or a table, and say where it is.",
        )
    return text


def _shown(partial: Any) -> Any:
    """What was to be seen of a step that did not end, whatever it is: nothing of it may stop the record."""
    try:
        _written("partial output", partial, LARGEST_OUTPUT)
    except Invalid:
        return repr(partial)[:SHOWN]
    return partial


def tell(error: BaseException) -> str:
    """An error as it is kept."""
    if isinstance(error, EtudeError):
        return error.message
    # The text of an unexpected error may quote anything; the log has it.
    return str(problem(error)["detail"])
