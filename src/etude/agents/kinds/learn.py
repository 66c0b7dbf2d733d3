"""An agent that learns on a folder of code: woken by tests that fail, by a schedule, or by a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from etude.agents.base import IDLE, InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.hub import TopicPatterns
from etude.agents.schedule import Interval
from etude.entities import Entity
from etude.errors import Refused
from etude.learning.edits.learner import WATCHED, Learner, LearnOptions, load_learner_proposers
from etude.learning.edits.program_sandbox import ProgramLimits
from etude.learning.edits.suite import Suite
from etude.learning.edits.tests_completed import TOPIC, CompletedTestsHistory, TestsCompleted, parse_tests_completed
from etude.store.queue import Queue
from etude.store.topics import Topics

BATCH = 200


class LearnConfig(Entity):
    """The code, its tests, and what the agent may do."""

    repo: str = Field(min_length=1)
    """The folder of the code."""
    suite: str = Field(min_length=1)
    """The command that runs its tests."""
    every_s: Interval | None = None
    """Seconds between two looks; None to wait for events and messages."""
    propose_only: bool = False
    edits: int = Field(default=3, ge=1, le=100)
    """The most edits kept in one step."""
    runs: int = Field(default=300, ge=1)
    """The most runs of the suite in one step."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Seconds of one run."""
    model: str | None = None
    """A model that proposes edits as well."""
    topics: TopicPatterns = (TOPIC,)
    """The events that wake it."""


class LearnAgent(Kind[LearnConfig]):
    """Learns if `tests_completed` of its folder tells of a reason; on a schedule; or when told.

    Reasons are a pass rate surely under 80%, a new error that was seen three times, and tests that became slower.
    Guidance or a message `{"proposers": ["retry"]}` restricts the proposers. Edits that it merged are watched in the
    following steps, and reverted if they do worse.
    """

    Config = LearnConfig
    listens: ClassVar[bool] = True
    admin: ClassVar[bool] = True
    local: ClassVar[bool] = True

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Learn once, watch what was merged, or wait."""
        memory = {"at": None, "looks": 0, "watching": [], "proposers": [], "history": {}} | state
        bodies = [item.body for item in inbox if item.body is not None] + ctx.guidance()
        for body in bodies:
            if isinstance(body, dict) and isinstance(body.get("proposers"), list):
                memory["proposers"] = [str(name) for name in body["proposers"]]
        history = CompletedTestsHistory.model_validate(memory["history"])
        reasons = []
        for event in self._events(ctx, memory):
            history, reason = history.add(event)
            reasons += [reason] if reason else []
        memory["history"] = history.model_dump(mode="json")
        told = any(item.kind == "message" and item.body is not None for item in inbox)
        due = self.config.every_s is not None and any(item.kind in ("tick", "start") for item in inbox)
        output: dict[str, Any] = {}
        events: tuple[tuple[str, Any], ...] = ()
        if reasons or told or (due and not memory["watching"]):
            output = self._learn(ctx, memory) | ({"woken_by": reasons[-1]} if reasons else {})
            events = (("learn.finished", output),)
        elif memory["watching"]:
            output = self._watch(ctx, memory)
            events = (("learn.watched", output),)
        return StepResult(state=memory, output=output or {"waiting": True}, next=self._next(memory), events=events)

    def _next(self, memory: dict[str, Any]) -> Next:
        if memory["watching"]:
            return Next(after=1.0)
        return IDLE if self.config.every_s is None else Next(after=self.config.every_s)

    def _events(self, ctx: StepContext, memory: dict[str, Any]) -> Iterator[TestsCompleted]:
        """Yield the events about its folder since the last step."""
        topics = Topics(Queue(ctx.app.store))
        if memory["at"] is None:
            memory["at"] = topics.bounds(ctx.tenant, ctx.agent_id)[0]
        repo = str(Path(self.config.repo).expanduser().resolve())
        while events := topics.read(memory["at"], BATCH):
            for event in events:
                memory["at"] = event.id
                found = (
                    parse_tests_completed(event.body) if event.topic == TOPIC and event.tenant == ctx.tenant else None
                )
                if found is not None and found.repo == repo:
                    yield found

    def _learner(self, ctx: StepContext, memory: dict[str, Any]) -> Learner:
        config = self.config
        proposers = load_learner_proposers()
        if config.model:
            from etude.learning.edits.proposers.model_proposer import NAME, propose_with_model

            proposers[NAME] = propose_with_model(ctx.app.open_model(config.model), ctx.cancel)
        chosen = tuple(name for name in memory["proposers"] if name in proposers)
        options = LearnOptions(config.propose_only, config.runs, config.edits, chosen, 10 * memory["looks"])
        memory["looks"] += 1
        suite = Suite(config.suite, ProgramLimits(wall_s=config.timeout_s))
        home = ctx.app.settings.home
        return Learner(ctx.app.store, home, Path(config.repo), suite, options, proposers=proposers, check=ctx.check)

    def _learn(self, ctx: StepContext, memory: dict[str, Any]) -> dict[str, Any]:
        learned = self._learner(ctx, memory).once()
        memory["watching"] = [*memory["watching"], *(e.id for e in learned.kept if e.status == "merged")]
        return {
            "before": {"passed": learned.passed_before, "total": learned.total_before},
            "after": {"passed": learned.passed_after, "total": learned.total_after},
            "kept": [{"id": e.id, "why": e.body["rationale"]} for e in learned.kept],
            "dropped": len(learned.dropped),
            "runs": learned.runs,
            "reason": learned.reason,
        }

    def _watch(self, ctx: StepContext, memory: dict[str, Any]) -> dict[str, Any]:
        edit_id = memory["watching"][0]
        learner = self._learner(ctx, memory)
        try:
            edit = learner.watch(edit_id, 10)
        except Refused as error:
            # Somebody has changed the same lines since, so there is nothing to compare with.
            memory["watching"].remove(edit_id)
            return {"edit": edit_id, "status": "changed since", "reason": error.message}
        seen = edit.body.get("watch", {"runs": 0})
        if edit.status != "merged" or seen["runs"] >= WATCHED:
            memory["watching"].remove(edit_id)
        return {"edit": edit.id, "status": edit.status, "watched": seen}
