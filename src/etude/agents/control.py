"""The verbs: create, message, pause, resume, steer, interrupt, destroy, reload.

Three intents, three verbs: stop later and keep the place (pause), change course (steer, or interrupt where it cannot
wait), stop for good (destroy). What was said is on record first; then the worker that runs the agent is woken.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from inspect import isabstract
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from etude import plugins
from etude.agents.base import Kind
from etude.entities import Entity
from etude.errors import Conflict, EtudeError, Invalid, LimitExceeded, NotFound
from etude.ids import new_id
from etude.store.agents import ActionInfo, AgentInfo, AgentStep, AgentStore
from etude.store.base import Page, Store
from etude.store.identity import Role
from etude.store.queue import Queue
from etude.validation import explain

if TYPE_CHECKING:
    from etude.agents.app import AgentApp

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
LARGEST_BODY = 1 << 20
MOST_URGENCY = 1000
LONGEST_DELAY_S = 31_536_000.0
ENDED = frozenset({"done", "failed", "cancelled"})


class Sent(Entity):
    """A message that was taken."""

    action: str


class Agents:
    """The agents of one tenant."""

    def __init__(self, store: Store, queue: Queue | None = None) -> None:
        self.queue = queue or Queue(store)
        self.agent_store = AgentStore(self.queue)

    # Looking.

    def get(self, agent_id: str) -> AgentInfo:
        """The agent."""
        return self.agent_store.agent(agent_id)

    def list(self, status: str | None = None, limit: int = 50, cursor: str | None = None) -> Page[AgentInfo]:
        """Agents, the newest first; those that were destroyed only where asked for."""
        return self.agent_store.agents(status, limit, cursor)

    def steps(self, agent_id: str, after: int = 0, limit: int = 100) -> Sequence[AgentStep]:
        """The steps of an agent above `after`, in order."""
        return self.agent_store.steps(agent_id, after, limit)

    def state(self, agent_id: str) -> dict[str, Any]:
        """What the agent remembers."""
        return self.agent_store.state(agent_id)

    def config(self, agent_id: str) -> dict[str, Any]:
        """The agent's configuration in full, secrets included."""
        return self.agent_store.config(agent_id)

    def wait(self, action_id: str, timeout: float = 60.0) -> ActionInfo:
        """Wait until an action has ended, and return it."""
        rung = threading.Event()
        stop = self.queue.listen(lambda *_: rung.set())
        give_up = time.monotonic() + timeout
        try:
            while True:
                rung.clear()
                found = self.agent_store.action(action_id)
                if found is None:
                    raise NotFound(f"There is no action `{action_id}`.", hint="It may have ended long ago.")
                if found.state in ENDED:
                    return found
                left = give_up - time.monotonic()
                if left <= 0:
                    raise LimitExceeded(
                        f"Action `{action_id}` is still {found.state} after {timeout:g} s.",
                        hint="Look at its agent, or wait longer.",
                    )
                rung.wait(min(left, 0.5))
        finally:
            stop()

    # Verbs.

    def create(
        self, kind: str, config: Mapping[str, Any] | None = None, id: str | None = None, key_id: str | None = None
    ) -> AgentInfo:
        """A new agent, which begins at once; what it uses counts against the day of the key, where one is given."""
        agent_id = new_id("agent") if id is None else id
        if not ID.fullmatch(agent_id):
            raise Invalid(
                f"`{agent_id[:140]}` cannot name an agent.",
                hint="Use letters, digits, and . _ : -, at most 128, a letter or a digit first.",
            )
        checked = check_config(kind, config or {})
        self.agent_store.create(agent_id, kind, checked, key_id, listens=load_kind(kind).listens)
        return self.get(agent_id)

    def message(
        self, agent_id: str, body: Any, *, urgency: int = 100, delay: float = 0.0, id: str | None = None
    ) -> str:
        """Have the agent read this in a step of its own; the id of the action. The same id twice is one message."""
        _check_body(body)
        if not isinstance(urgency, int) or not 0 <= urgency <= MOST_URGENCY:
            raise Invalid(f"`{urgency}` is no urgency.", hint=f"Give a whole number, 0 (first) to {MOST_URGENCY}.")
        if not 0 <= delay <= LONGEST_DELAY_S:
            raise Invalid(f"A delay of {delay:g} s is not possible.", hint=f"Give at most {LONGEST_DELAY_S:g} s.")
        if id is not None and not 0 < len(id) <= 128:
            raise Invalid(f"An id of {len(id):,} characters is not possible.", hint="Give 1 to 128.")
        name = self.agent_store.message(agent_id, body, urgency=urgency, delay=delay, id=id)
        if id is not None and (known := self.agent_store.action(id)) is not None and known.agent != agent_id:
            raise Conflict(f"Message `{id}` went to agent `{known.agent}`.", hint="Choose another id.")
        return name

    def pause(self, agent_id: str, mode: Literal["after_step", "now"] = "after_step") -> AgentInfo:
        """Make no further step; `now` also breaks off the one that runs, which begins anew after `resume`."""
        if mode not in ("after_step", "now"):
            raise Invalid(f"`{mode}` is no way to pause.", hint="Give `after_step` or `now`.")
        self.agent_store.pause(agent_id, mode == "now")
        return self.get(agent_id)

    def resume(self, agent_id: str, guidance: Any = None) -> AgentInfo:
        """Go on; where guidance is given, a step begins with it at once."""
        _check_body(guidance)
        self.agent_store.resume(agent_id, guidance)
        return self.get(agent_id)

    def steer(self, agent_id: str, guidance: Any) -> AgentInfo:
        """Have this read before the next call of a model; nothing is broken off, and an idle agent is not woken."""
        if guidance is None:
            raise Invalid("There is no guidance.", hint="Say what the agent should do.")
        _check_body(guidance)
        self.agent_store.steer(agent_id, guidance)
        return self.get(agent_id)

    def interrupt(self, agent_id: str, guidance: Any = None, step_no: int | None = None) -> AgentInfo:
        """Break off the step that runs and begin the next with the guidance; a paused agent goes on.

        With `step_no`, only where the agent has made so many steps: a late interrupt hits nothing that it did not mean.
        """
        _check_body(guidance)
        self.agent_store.interrupt(agent_id, guidance, step_no)
        return self.get(agent_id)

    def destroy(self, agent_id: str, grace: float = 30.0) -> AgentInfo:
        """End the agent: nothing more is begun, a step that runs has `grace` seconds. What it did stays on record."""
        if not 0 <= grace <= 86_400:
            raise Invalid(f"A grace of {grace:g} s is not possible.", hint="Give seconds between 0 and 86400.")
        self.agent_store.destroy(agent_id, grace)
        return self.get(agent_id)

    def reload(self, agent_id: str, config: Mapping[str, Any] | None = None) -> AgentInfo:
        """Have the next step see settings, sources and configuration as they are now, in a fresh session."""
        kind = self.get(agent_id).kind
        self.agent_store.reload(agent_id, None if config is None else check_config(kind, config))
        return self.get(agent_id)


def load_kind(name: str) -> type[Kind[Any]]:
    """The kind of agent of this name: built in, or of a package."""
    try:
        found = plugins.load("agent", name)
    except EtudeError as error:
        raise Invalid(f"There is no kind of agent `{name}`.", hint=error.hint) from None
    except Exception as error:  # whatever the module of a package does when it is imported
        raise Invalid(
            f"The kind of agent `{name}` cannot be loaded: {type(error).__name__}: {error}.",
            hint="Correct the package that adds it, or its entry point in `etude.agent`.",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Kind)) or isabstract(found):
        raise Invalid(
            f"`{name}` is no kind of agent: its entry point names `{getattr(found, '__name__', found)}`.",
            hint="Name a class that derives from `etude.agents.base.Kind` and has a `step`.",
        )
    if not (isinstance(found.Config, type) and issubclass(found.Config, Entity)):
        raise Invalid(
            f"The `Config` of the kind of agent `{name}` is no configuration.",
            hint="Give a class that derives from `etude.entities.Entity`.",
        )
    return found


def check_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in full, where it is one of this kind of agent."""
    checked: dict[str, Any] = read_config(kind, load_kind(kind), config).model_dump(mode="json")
    try:
        json.dumps(checked, allow_nan=False)
    except ValueError:
        raise Invalid(
            f"The configuration of a `{kind}` agent has a number without end.", hint="Give one that can be written."
        ) from None
    return checked


def read_config(name: str, kind: type[Kind[Any]], config: Mapping[str, Any] | str) -> Entity:
    """The configuration, given or as JSON, as the kind has it."""
    try:
        if isinstance(config, str):
            return kind.Config.model_validate_json(config)
        return kind.Config.model_validate(dict(config))
    except ValidationError as error:
        raise explain(
            error,
            f"the configuration of a `{name}` agent",
            model=kind.Config,
            hint=f"Its fields are: {', '.join(f'`{field}`' for field in kind.Config.model_fields)}.",
        ) from None


def check_reach(app: AgentApp, kind: str, config: Mapping[str, Any], require: Callable[[Role], None]) -> None:
    """Refuse what only somebody at the machine may have: a path as the source, any model, a kind that reaches far.

    `require` raises where the caller has not the role.
    """
    require("admin" if load_kind(kind).admin else "analyst")
    source, model = config.get("source"), config.get("model")
    if source is not None:
        app.source_name(str(source))
    if model is not None:
        app.check_model(str(model))


def require_hold(agents: Agents, agent_id: str, require: Callable[[Role], None]) -> Agents:
    """The agents, for one who may tell this one what to do: who may not have one of its kind may not end one either."""
    try:
        far = load_kind(agents.get(agent_id).kind).admin
    except Invalid:
        far = True  # nobody knows any more how far it reaches
    require("admin" if far else "analyst")
    return agents


def _check_body(body: Any) -> None:
    try:
        size = len(json.dumps(body, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"This cannot be said as JSON: {error}.", hint="Use text, numbers, lists and objects.") from None
    if size > LARGEST_BODY:
        raise Invalid(f"{size:,} bytes are too many for a message.", hint=f"At most {LARGEST_BODY:,}.")
