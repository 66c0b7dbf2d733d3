"""The verbs refuse invalid input and say what to do."""

from __future__ import annotations

from typing import Any

import pytest

from etude import plugins
from etude.agents.agent_control import AgentControl
from etude.agents.base import InboxItem, Kind, StepContext, StepResult
from etude.entities import Entity
from etude.errors import Conflict, Invalid, LimitExceeded, NotFound
from etude.store.action import Finish
from etude.store.topics import Topics


def test_an_agent_is_created_once(agents: AgentControl) -> None:
    made = agents.create("echo", {"subject": "tea"}, id="e")
    assert (made.id, made.status, made.activity) == ("e", "active", "queued")
    assert made.config == {"subject": "tea", "interval_s": 60.0}
    with pytest.raises(Conflict, match="Agent `e` already exists"):
        agents.create("echo", {"subject": "tea"}, id="e")
    assert agents.create("echo", {"subject": "tea"}).id.startswith("agent_")


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 200, "ä", ""])
def test_an_invalid_id_is_refused(agents: AgentControl, name: str) -> None:
    with pytest.raises(Invalid, match="is not a valid agent id"):
        agents.create("echo", {"subject": "tea"}, id=name)


def test_a_configuration_is_checked(agents: AgentControl) -> None:
    with pytest.raises(Invalid, match="cannot be `-1`: an interval must be at least 1 s") as caught:
        agents.create("echo", {"subject": "tea", "interval_s": -1})
    assert "`subject`" in caught.value.hint
    with pytest.raises(Invalid, match="`subjekt` of the configuration of a `echo` agent is not known") as caught:
        agents.create("echo", {"subjekt": "tea"})
    assert caught.value.hint == "Did you mean `subject`?"
    with pytest.raises(Invalid, match="contains NaN or infinity"):
        agents.create("echo", {"subject": "tea", "interval_s": float("inf")})
    with pytest.raises(Invalid, match="There is no kind of agent `nothing`"):
        agents.create("nothing")


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("echo", {"subject": "tea", "interval_s": 1e-6}),
        ("watch", {"source": "x", "sql": "SELECT 1", "every_s": 0.5}),
        ("catalog", {"source": "x", "every_s": 0.5}),
        ("redis", {"url": "redis://example.com", "interval_s": 0.1}),
    ],
)
def test_an_interval_below_a_second_is_refused(agents: AgentControl, kind: str, config: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="an interval must be at least 1 s"):
        agents.create(kind, config)


def test_reload_keeps_the_fields_that_are_left_out(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea", "interval_s": 5}, id="e")
    assert agents.reload("e", {"interval_s": 9}).config == {"subject": "tea", "interval_s": 9.0}
    assert agents.reload("e", {"subject": "coffee"}).config == {"subject": "coffee", "interval_s": 9.0}
    assert agents.reload("e").config == agents.reload("e", {}).config == {"subject": "coffee", "interval_s": 9.0}
    with pytest.raises(Invalid, match="`subject` of the configuration"):
        agents.reload("e", {"subject": ""})
    assert agents.config("e") == {"subject": "coffee", "interval_s": 9.0}


def test_the_error_of_an_invalid_configuration_shows_no_secret(agents: AgentControl) -> None:
    for kind, config in (
        ("webhook", {"url": "https://x.example", "secret": "hunt2"}),
        ("webhook", {"url": "https://u:hunt2@x.example", "secret": "long enough"}),
        ("redis", {"url": "redis://u:hunt2@x.example"}),
    ):
        with pytest.raises(Invalid) as caught:
            agents.create(kind, config)
        assert "hunt2" not in caught.value.message


class Unfinished(Kind[Entity]):
    """A kind without a step."""


class Loose(Unfinished):
    """A kind whose configuration is not a model."""

    Config = dict  # type: ignore[assignment]

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        return StepResult()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("etude_nowhere:Kind", "cannot be loaded: ModuleNotFoundError: No module named 'etude_nowhere'"),
        ("etude.errors:Missing", "cannot be loaded: AttributeError"),
        ("etude.errors:Invalid", "is not a kind of agent: its entry point names `Invalid`"),
        ("etude.ids:new_id", "is not a kind of agent: its entry point names `new_id`"),
        (f"{__name__}:Unfinished", "is not a kind of agent: its entry point names `Unfinished`"),
        (f"{__name__}:Loose", "The `Config` of the kind of agent `mine` is not a configuration"),
    ],
)
def test_the_error_of_a_broken_kind_says_what_is_wrong(
    agents: AgentControl, monkeypatch: pytest.MonkeyPatch, target: str, why: str
) -> None:
    monkeypatch.setitem(plugins.BUILT_IN["agent"], "mine", target)
    with pytest.raises(Invalid) as caught:
        agents.create("mine", id="m")
    assert why in caught.value.message and caught.value.hint
    assert not agents.list().items


def test_verbs_refuse_an_agent_that_does_not_exist(agents: AgentControl) -> None:
    for verb in (
        agents.pause,
        agents.resume,
        agents.interrupt,
        agents.destroy,
        agents.reload,
        agents.steps,
        agents.get,
    ):
        with pytest.raises(NotFound, match="There is no agent `nobody`"):
            verb("nobody")
    with pytest.raises(NotFound):
        agents.steer("nobody", "hello")


def test_messages_and_guidance_are_json_of_limited_size(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea"}, id="e")
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        agents.message("e", object())
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        agents.steer("e", {"share": float("nan")})
    with pytest.raises(Invalid, match="The message has 2,097,154 bytes"):
        agents.interrupt("e", "x" * (1 << 21))
    with pytest.raises(Invalid, match="The guidance is empty"):
        agents.steer("e", None)
    with pytest.raises(Invalid, match="`soon` is not a valid pause mode"):
        agents.pause("e", mode="soon")  # type: ignore[arg-type]


def test_lists_have_pages(agents: AgentControl) -> None:
    for n in range(5):
        agents.create("echo", {"subject": "tea"}, id=f"e{n}")
    first = agents.list(limit=3)
    assert [a.id for a in first.items] == ["e4", "e3", "e2"]
    assert [a.id for a in agents.list(limit=3, cursor=first.next).items] == ["e1", "e0"]
    with pytest.raises(Invalid, match="not a cursor"):
        agents.list(cursor="x")
    assert len(agents.list(limit=10**20).items) == 5
    assert agents.steps("e0", after=10**20, limit=10**20) == []
    with pytest.raises(Invalid, match="at least 1, not 0"):
        agents.steps("e0", limit=0)


def test_waiting_for_an_action_times_out(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea"}, id="e")
    name = agents.message("e", "hello")
    with pytest.raises(LimitExceeded, match=r"still ready after 0\.05 s"):
        agents.wait(name, timeout=0.05)


def test_a_secret_is_not_shown(agents: AgentControl) -> None:
    made = agents.create("webhook", {"url": "https://example.com/x", "secret": "swordfish!"}, id="w")
    assert made.config["secret"] == "***" and agents.config("w")["secret"] == "swordfish!"


def test_an_invalid_urgency_delay_or_id_of_a_message_is_refused(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea"}, id="e")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"urgency": -1}, "is not a valid urgency"),
        ({"urgency": 10**12}, "is not a valid urgency"),
        ({"urgency": 1.5}, "is not a valid urgency"),
        ({"delay": float("nan")}, "A delay of nan s"),
        ({"delay": float("inf")}, "A delay of inf s"),
        ({"delay": -1.0}, "A delay of -1 s"),
        ({"id": ""}, "An id of 0 characters"),
        ({"id": "x" * 129}, "An id of 129 characters"),
    ]
    for how, why in wrong:
        with pytest.raises(Invalid, match=why):
            agents.message("e", "hello", **how)


def test_a_message_id_cannot_be_used_for_another_agent(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea"}, id="a")
    agents.create("echo", {"subject": "tea"}, id="b")
    agents.message("a", "hello", id="once")
    with pytest.raises(Conflict, match="Message `once` was already sent to agent `a`"):
        agents.message("b", "hello", id="once")


def test_a_lone_surrogate_is_stored_as_a_question_mark(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea"}, id="e")
    name = agents.message("e", "half \ud83d")
    found = agents.agent_store.action(name)
    assert found is not None and found.payload == "half ?"


def test_the_end_of_an_agent_is_published_once(agents: AgentControl) -> None:
    agents.create("echo", {"subject": "tea"}, id="e")
    (claim,) = agents.queue.turn(claim=1).claimed
    agents.destroy("e")
    agents.destroy("e", grace=60)
    agents.queue.turn([Finish(claim, "done")])
    agents.destroy("e")
    events = [event.topic for event in Topics(agents.queue).read(0)]
    assert events == ["agent.created", "agent.destroying", "agent.destroyed"]
