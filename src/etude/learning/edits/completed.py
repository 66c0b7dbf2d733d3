"""The event `tests_completed`: what it says, and whether it wakes the learning agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from etude.entities import Entity
from etude.learning.edits.decision import should_wake
from etude.store.queue import Queue
from etude.store.topics import Topics

if TYPE_CHECKING:
    from etude.store.base import Store

TOPIC = "tests_completed"


class TestsCompleted(Entity):
    """The body of the event: a suite ran on a repository."""

    __test__ = False  # not a test of pytest
    repo: str
    passed: int = Field(ge=0)
    total: int = Field(ge=0)
    suite: str = ""

    @property
    def wakes(self) -> bool:
        """True if the pass rate is below 80%, and surely so by its Wilson bound."""
        return should_wake(self.passed, self.total)


def publish(store: Store, event: TestsCompleted) -> None:
    """Publish that a suite ran."""
    Topics(Queue(store)).publish(TOPIC, event.model_dump())


def parse_event(body: Any) -> TestsCompleted | None:
    """Return the event of a body; None if it is not one."""
    try:
        return TestsCompleted.model_validate(body)
    except ValidationError:
        return None
