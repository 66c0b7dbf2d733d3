"""No model at all: rules read the question, a plan computes it, and the answer is said with the result's own values.

It takes the place of a model in the same loop, so that its runs are recorded, paused and resumed like all others.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from etude.cancellation import Cancellation
from etude.entities import Catalog, Run, ToolCall, Turn, Usage
from etude.errors import NotUnderstood, from_problem
from etude.models.base import Model, ModelReply, ModelRequest
from etude.offline.deadline import OutOfTime, within
from etude.offline.sentence import say
from etude.offline.understand import Clarification, Outcome, Refusal, Understanding, answer, understand
from etude.offline.vocabulary import Vocabulary, build_vocabulary, vocabulary_from_json
from etude.runtime.answer import Read, read_table
from etude.runtime.thread import thread_runs
from etude.runtime.tool_context import RunResources
from etude.store.base import Store

ROWS = 1_000
EARLIER = 6
"""Questions of the thread that a follow-up may refer to, one through the other."""
READ_S = 10.0
"""How long the rules may think about one question; looking at the data is limited by the budget of the run."""
WAIT_S = 0.1
"""How often a run that waits for its turn looks whether it was cancelled."""
KEPT = 4
"""Vocabularies that stay in memory."""
FRESH_S = 3600
"""How long what is known of a server's values counts as true; files tell by themselves when they change."""


class OfflineModel(Model):
    """Answers the question of one run."""

    name = "offline"

    def __init__(
        self,
        store: Store,
        resources: RunResources,
        run_id: str,
        cache: Path,
        read: Read,
    ) -> None:
        self._store = store
        self._resources = resources
        self._run_id = run_id
        self._cache = cache
        self._read = read

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """A plan to run, a question back, or the answer."""
        run = self._store.run(self._run_id)
        dataset, meant = self._understand(run, cancel)
        turn = self._turn(run, dataset, meant)
        on_text(turn.text)
        return ModelReply(turn, Usage(), price_known=True)

    def _turn(self, run: Run, dataset: str, meant: Outcome) -> Turn:
        match meant:
            case Refusal(reason=reason, nearest=nearest):
                hint = (
                    "Try: " + "; ".join(f"“{n}”" for n in nearest)
                    if nearest
                    else "Ask in other words, or name a model."
                )
                raise NotUnderstood(reason, hint=hint, suggestions=list(nearest))
            case Clarification(ask=question, choices=choices):
                arguments = {"question": question, "choices": [c.label for c in choices]}
                return _call("ask_user", arguments, "")
            case Understanding(plan=plan, reading=reading):
                failed = next((s for s in run.steps if s.error is not None and s.shown is not None), None)
                if failed is not None and failed.error is not None:
                    raise from_problem(failed.error)
                result = read_table(run, self._read)
                if result is None:
                    body = plan.model_dump(mode="json", exclude_none=True, by_alias=True)
                    return _call("execute_query_plan", {"dataset": dataset, "plan": body}, reading)
                rows = list(itertools.islice(result.iter_rows(), ROWS))
                return Turn(text=say(meant, [c.name for c in result.columns], rows, result.row_count))

    def _understand(self, run: Run, cancel: Cancellation) -> tuple[str, Outcome]:
        """What the question means: on its dataset, or on the only one of several that it fits."""
        names = self._resources.names
        found = [(name, self._read_question(run, name, cancel)) for name in names]
        fitting = [f for f in found if isinstance(f[1], Understanding)]
        if len(found) == 1 or len(fitting) == 1:
            return (fitting or found)[0]
        if not found:
            raise NotUnderstood("There is no dataset to ask.", hint="Add one: `etude sources add NAME PATH`.")
        meant = ", ".join(f"`{name}`" for name, _ in fitting or found)
        raise NotUnderstood(f"It is not clear which dataset is meant: {meant}.", hint="Name the dataset.")

    def _read_question(self, run: Run, dataset: str, cancel: Cancellation) -> Outcome:
        vocabulary = self._vocabulary(dataset, cancel)
        previous: Understanding | None = None
        try:
            with _THINKING.turn(cancel), within(READ_S, cancel):
                for earlier in self._earlier(run):
                    meant = _read_run(earlier, vocabulary, previous)
                    previous = meant if isinstance(meant, Understanding) else previous
                return _read_run(run, vocabulary, previous)
        except OutOfTime as error:
            raise NotUnderstood(
                f"The rules did not find out within {error.seconds:g} s what the question means: `{dataset}` has "
                f"{len(vocabulary.tables):,} tables that it may be about.",
                hint="Name the table as the source does, grant fewer tables, or use a model.",
            ) from None

    def _earlier(self, run: Run) -> list[Run]:
        if run.thread_id is None:
            return []
        before = itertools.takewhile(lambda i: i != run.id, thread_runs(self._store, run.thread_id))
        runs = [self._store.run(run_id) for run_id in list(before)[-4 * EARLIER :]]
        asked = [r for r in runs if r.kind == "ask" and r.model == self.name and r.status == "succeeded"]
        return [r for r in asked if r.source == run.source][-EARLIER:]

    def _vocabulary(self, dataset: str, cancel: Cancellation) -> Vocabulary:
        """What is known of the dataset, looked up once as long as its data stays the same."""
        catalog = self._resources.find_catalog(dataset)
        place = self._resources.fingerprints[dataset]
        path = self._cache / f"{_fingerprint(catalog, place)}.json"
        lasting = all(table.fingerprint for table in catalog.tables)
        with _turns_of(path).turn(cancel), within(math.inf, cancel):
            made = path.stat().st_mtime if path.is_file() else None
            if made is not None and (lasting or time.time() - made < FRESH_S):
                return _load(place, path, made)
            known = self._resources.find_known(dataset)
            vocabulary = build_vocabulary(catalog, lambda sql: self._rows(dataset, sql, cancel), known)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{self._run_id}")
            part.write_text(vocabulary.to_json(), encoding="utf-8")
            part.replace(path)
            _keep(place, _Kept(path, path.stat().st_mtime, vocabulary))
            return vocabulary

    def _rows(self, dataset: str, sql: str, cancel: Cancellation) -> Iterator[tuple[Any, ...]]:
        return self._resources.query_unrecorded(dataset, sql, cancel).iter_rows()


class _Turns:
    """Lets one run at a time compute: rules are pure Python, so two at once are no faster and starve other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def turn(self, cancel: Cancellation) -> Iterator[None]:
        """Wait for a turn, or until the run is cancelled."""
        while not self._lock.acquire(timeout=WAIT_S):
            cancel.check()
        try:
            yield
        finally:
            self._lock.release()


_THINKING = _Turns()
_building: WeakValueDictionary[Path, _Turns] = WeakValueDictionary()
_building_lock = threading.Lock()


@dataclass(frozen=True)
class _Kept:
    path: Path
    made: float
    """When the file was written: after an hour it may be written anew under the same name."""
    vocabulary: Vocabulary


_kept: OrderedDict[str, _Kept] = OrderedDict()
"""The vocabularies in memory, one for each place; those used last stay."""


def _turns_of(path: Path) -> _Turns:
    """Those who want the same vocabulary: one makes it, the others wait for it."""
    with _building_lock:
        return _building.setdefault(path, _Turns())


def _load(place: str, path: Path, made: float) -> Vocabulary:
    kept = _kept.get(place)
    if kept is None or (kept.path, kept.made) != (path, made):
        kept = _Kept(path, made, vocabulary_from_json(path.read_text(encoding="utf-8")))
    _keep(place, kept)
    return kept.vocabulary


def _keep(place: str, kept: _Kept) -> None:
    _kept[place] = kept
    _kept.move_to_end(place)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)


def _read_run(run: Run, vocabulary: Vocabulary, previous: Understanding | None) -> Outcome:
    """What the question of a run means, with what the person said when it was asked back."""
    # The day it was asked, so that "last month" stays what it was when the run goes on later.
    meant = understand(run.text, vocabulary, previous=previous, today=run.created_at.date())
    for step in run.steps:
        if isinstance(meant, Clarification) and step.code == "ask_user" and step.shown is not None:
            meant = answer(meant, step.shown)
    return meant


def _call(tool: str, arguments: dict[str, Any], text: str) -> Turn:
    return Turn(text=text, calls=(ToolCall(id="rules", name=tool, arguments=json.dumps(arguments)),), stop="calls")


def _fingerprint(catalog: Catalog, place: str) -> str:
    facts = [(t.name, t.fingerprint, t.row_count) for t in catalog.tables]
    return hashlib.sha256(json.dumps([place, catalog.fingerprint, facts]).encode()).hexdigest()[:24]
