"""Answers without a model: rules read the question, a query plan computes the result, and a sentence states its values.

`OfflineModel` replaces a model in the same loop, so its runs are recorded, paused and resumed like all others.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from etude.cancellation import Cancellation
from etude.entities import Catalog, Run, RunFilter, ToolCall, Turn, Usage
from etude.errors import NotUnderstood, from_problem
from etude.fair_share import HeldSlot, ThreadFairShare
from etude.models.base import Model, ModelReply, ModelRequest
from etude.offline.answer_sentence import write_answer_sentence
from etude.offline.collection import resume_garbage_collection
from etude.offline.deadline import OutOfTime, within_deadline
from etude.offline.defined_columns import define_columns
from etude.offline.left_out_groups import find_left_out_groups
from etude.offline.missing_markers import leave_out_markers
from etude.offline.namesakes import find_namesakes
from etude.offline.phrase_index import Hit, phrase_index_of
from etude.offline.result_check import doubt_repeated_result, doubt_result, settle_choices_by_result
from etude.offline.source_overview import describe_source
from etude.offline.tied_rows import find_tied_rows
from etude.offline.total_rows import leave_out_total_rows
from etude.offline.understand import Clarification, Outcome, Refusal, Understanding, take_choice, understand
from etude.offline.value_search import search_values
from etude.offline.vocabulary import Vocabulary, vocabulary_from_json
from etude.offline.vocabulary_build import build_vocabulary
from etude.playbook import Definition, apply_playbook_definitions
from etude.runtime.answer import Read, read_answer_table
from etude.runtime.thread import thread_runs
from etude.runtime.tool_context import ToolResources
from etude.sources.catalog_facts import once_per_catalog
from etude.sources.plan import QueryPlan
from etude.sources.plan.compile import compile_plan
from etude.store.base import MAIN, Store

_log = logging.getLogger("etude")

Values = dict[str, tuple[Hit, ...]]
"""Where phrases were found in the data."""
ROWS = 1_000
EARLIER = 6
"""How many earlier questions of the thread are read before a follow-up, which may refer to them."""
CACHE_BYTES = 256 << 20
"""The bytes of vocabularies that are kept on the disk."""
EARLIER_VERDICTS = 20
"""How many earlier runs with the words of the question are looked at for a verdict."""
READ_S = 10.0
"""How long the rules may take to read one question. The budget of the run limits its queries."""
WAIT_S = 0.1
"""How often a run that waits for a vocabulary checks whether it was cancelled."""
SLICE_S = 0.025
"""How long the rules compute for one question while others wait: a short question need not wait for a long one."""
ORIGIN = 24
"""How many characters of the hash of a source's place the names of its files begin with."""
KEPT = 4
"""How many vocabularies are kept in memory."""
VERSION = 8
"""Changes when a vocabulary holds more than one that was kept before."""
FRESH_S = 3600
"""How long the vocabulary of a database server is used. That of files is used until the files change."""


class OfflineModel(Model):
    """Answers the question of one run."""

    name = "offline"

    def __init__(
        self,
        store: Store,
        resources: ToolResources,
        run_id: str,
        cache: Path,
        read: Read,
        least_confidence: float = 0.0,
        define: Callable[[str], Sequence[Definition]] = lambda dataset: (),
        tenant: str = MAIN,
    ) -> None:
        self._store = store
        self._resources = resources
        self._run_id = run_id
        self._cache = cache
        self._read = read
        self._least_confidence = least_confidence
        self._define = define
        """Returns what playbooks say about words of questions on a dataset."""
        self._tenant = tenant
        self._meant: tuple[tuple[str, ...], str, Outcome] | None = None
        """The answers of the user so far, the dataset, and what the question means with them."""

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Return a query plan to run, a question to the user, or the answer."""
        run = self._store.run(self._run_id)
        overview = self._describe_source(run, cancel)
        turn = Turn(text=overview) if overview else self._turn(run, *self._settle(run, cancel), cancel)
        on_text(turn.text)
        return ModelReply(turn, Usage(), price_known=True)

    def _describe_source(self, run: Run, cancel: Cancellation) -> str:
        """Return what the only dataset holds, if the question asks for it in general; or ''."""
        if len(self._resources.names) != 1:
            return ""
        vocabulary = self.vocabulary(self._resources.names[0], cancel)
        with self._thinking(READ_S, cancel):
            return describe_source(run.text, vocabulary)

    def _turn(self, run: Run, dataset: str, meant: Outcome, cancel: Cancellation) -> Turn:
        match meant:
            case Refusal(reason=reason, nearest=nearest):
                hint = (
                    "Try: " + "; ".join(f"“{n}”" for n in nearest)
                    if nearest
                    else "Ask in other words, or choose a model."
                )
                raise NotUnderstood(reason, hint=hint, suggestions=list(nearest))
            case Clarification(ask=question, choices=choices):
                arguments = {"question": question, "choices": [c.label for c in choices]}
                return _call("ask_user", arguments, "")
            case Understanding(reading=reading) if meant.confidence < self._least_confidence:
                raise NotUnderstood(
                    f"The rules are not sure of this reading: {reading}",
                    hint="Ask in other words, choose a model, or lower `offline.confidence` in the settings.",
                )
            case Understanding(plan=plan, reading=reading):
                failed = next((s for s in run.steps if s.error is not None and s.shown is not None), None)
                if failed is not None and failed.error is not None:
                    raise from_problem(failed.error)
                result = read_answer_table(run, self._read)
                if result is None:
                    body = plan.model_dump(mode="json", exclude_none=True, by_alias=True)
                    said = " ".join((reading, *meant.reasons))
                    call = _call("execute_query_plan", {"dataset": dataset, "plan": body}, said)
                    return call.model_copy(update={"confidence": meant.confidence})
                rows = result.first_rows(ROWS)
                columns = [c.name for c in result.columns]
                catalog = self._resources.find_catalog(dataset)

                def run_plan(other: QueryPlan) -> Iterator[tuple[Any, ...]]:
                    return self._rows(dataset, compile_plan(other, catalog), cancel)

                doubt = doubt_result(meant, columns, rows, result.row_count) or doubt_repeated_result(meant, run_plan)
                if doubt:
                    raise NotUnderstood(doubt, hint="Ask in other words, or choose a model.")
                text = write_answer_sentence(meant, columns, rows, result.row_count)
                vocabulary = self.vocabulary(dataset, cancel)
                tied = find_tied_rows(plan, columns, rows, run_plan)
                others = find_namesakes(plan, vocabulary, lambda sql: self._rows(dataset, sql, cancel))
                left_out = find_left_out_groups(plan, vocabulary, run_plan)
                parts = (text, tied, left_out, others, *meant.told, self._marked_wrong(run))
                return Turn(text=" ".join(part for part in parts if part))

    def _marked_wrong(self, run: Run) -> str:
        """Return a sentence if the answer of an earlier run to the same question was marked wrong."""
        same = RunFilter(text=run.text, source=run.source, kind="ask")
        for found in self._store.runs(same, limit=EARLIER_VERDICTS).items:
            if found.id == run.id or found.text != run.text:
                continue
            earlier = self._store.run(found.id)
            if earlier.feedback is not None:
                wrong = earlier.feedback.verdict == "wrong" and earlier.model == self.name
                return (
                    f"An answer of these rules to this question was marked wrong before ({earlier.id})."
                    if wrong
                    else ""
                )
        return ""

    def _settle(self, run: Run, cancel: Cancellation) -> tuple[str, Outcome]:
        """Return the dataset and what the question means there, read once for each answer of the user.

        If all choices give the same result, it is one of them.
        """
        answers = tuple(step.shown for step in run.steps if step.code == "ask_user" and step.shown is not None)
        if self._meant is None or self._meant[0] != answers:
            dataset, meant = self._understand(run, cancel)
            if isinstance(meant, Clarification):
                meant = self._settle_by_result(meant, dataset, cancel) or meant
            if isinstance(meant, Understanding):
                catalog = self._resources.find_catalog(dataset)
                meant = leave_out_total_rows(meant, catalog)
                meant = leave_out_markers(
                    meant,
                    self.vocabulary(dataset, cancel),
                    lambda plan: self._rows(dataset, compile_plan(plan, catalog), cancel),
                )
            self._meant = answers, dataset, meant
        return self._meant[1:]

    def _settle_by_result(self, meant: Clarification, dataset: str, cancel: Cancellation) -> Understanding | None:
        """Return one of the choices, if all of them give the same result."""

        def choose(clarification: Clarification, text: str) -> Outcome:
            with self._thinking(math.inf, cancel):
                return take_choice(clarification, text)

        return settle_choices_by_result(meant, lambda sql: self._rows(dataset, sql, cancel), choose)

    def _understand(self, run: Run, cancel: Cancellation) -> tuple[str, Outcome]:
        """Return the dataset and what the question means there; of several datasets, the only one it fits."""
        names = self._resources.names
        found = [(name, self._read_question(run, name, cancel)) for name in names]
        fitting = [f for f in found if isinstance(f[1], Understanding)]
        if len(found) == 1 or len(fitting) == 1:
            return (fitting or found)[0]
        if not found:
            raise NotUnderstood("No dataset is registered.", hint="Add one: `etude sources add NAME PATH`.")
        meant = ", ".join(f"`{name}`" for name, _ in fitting or found)
        raise NotUnderstood(f"It is not clear which dataset is meant: {meant}.", hint="Name the dataset.")

    def _read_question(self, run: Run, dataset: str, cancel: Cancellation) -> Outcome:
        vocabulary = self.vocabulary(dataset, cancel)
        definitions = self._define(dataset)
        previous: Understanding | None = None
        for earlier in self._earlier(run):
            before = self._read_words(earlier, dataset, vocabulary, previous, definitions, cancel)
            if isinstance(before, Clarification):
                # It was answered, so all choices had the same result; without it, its conditions would be lost.
                before = self._settle_by_result(before, dataset, cancel) or before
            previous = before if isinstance(before, Understanding) else previous
        return self._read_words(run, dataset, vocabulary, previous, definitions, cancel)

    def _read_words(
        self,
        run: Run,
        dataset: str,
        vocabulary: Vocabulary,
        previous: Understanding | None,
        definitions: Sequence[Definition],
        cancel: Cancellation,
    ) -> Outcome:
        """Read a question; if words are not explained, look them up in the data and read it again."""
        values: Values = {}
        for again in (False, True):
            try:
                with self._thinking(READ_S, cancel):
                    meant = _read_run(run, vocabulary, previous, definitions, values)
            except OutOfTime as error:
                raise NotUnderstood(
                    f"The rules did not find out within {error.seconds:g} s what the question means: `{dataset}` has "
                    f"{len(vocabulary.tables):,} tables that it may refer to.",
                    hint="Use the exact name of the table, grant fewer tables, or use a model.",
                ) from None
            if again or not isinstance(meant, Refusal) or not meant.unexplained:
                break
            values = search_values(meant.unexplained, vocabulary, lambda sql: self._rows(dataset, sql, cancel))
            if not values:
                break
        return meant

    def _earlier(self, run: Run) -> list[Run]:
        if run.thread_id is None:
            return []
        before = itertools.takewhile(lambda i: i != run.id, thread_runs(self._store, run.thread_id))
        runs = [self._store.run(run_id) for run_id in list(before)[-4 * EARLIER :]]
        asked = [r for r in runs if r.kind == "ask" and r.model == self.name and r.status == "succeeded"]
        return [r for r in asked if r.source == run.source][-EARLIER:]

    def vocabulary(self, dataset: str, cancel: Cancellation) -> Vocabulary:
        """Return the vocabulary of the dataset. It is built once and cached until the data changes."""
        catalog = self._resources.find_catalog(dataset)
        source = self._resources.fingerprints[dataset]
        facts = _facts_of(catalog)
        name = hashlib.sha256(json.dumps([VERSION, source, facts.fingerprint]).encode()).hexdigest()[:24]
        origin = self._resources.origins.get(dataset, source)
        path, lasting = self._cache / f"{origin[:ORIGIN]}-{name}.json", facts.lasting
        # A question that computes never waits for a vocabulary: the turn for it comes before the slot.
        with _turns_of(path).turn(cancel):
            made = path.stat().st_mtime if path.is_file() else None
            if made is not None and (lasting or time.time() - made < FRESH_S):
                if (kept := _find_kept(source, path, made)) is not None:
                    return kept
                with self._thinking(math.inf, cancel):
                    vocabulary = vocabulary_from_json(path.read_text(encoding="utf-8"))
                    phrase_index_of(vocabulary)
                _keep(source, _Kept(path, made, vocabulary))
                return vocabulary
            known = self._resources.find_known(dataset)
            with self._thinking(math.inf, cancel) as slot:

                def ask(sql: str) -> Iterator[tuple[Any, ...]]:
                    with slot.lent():
                        found = self._resources.query_unrecorded(dataset, sql, cancel)
                    return found.iter_rows()

                vocabulary = build_vocabulary(catalog, ask, known)
                made = self._write(vocabulary, path)
                # Built once for all questions, so it does not count toward the time of any. Only a vocabulary with its
                # index is kept: a question must not wait for the index that another one builds, as it has the slot.
                phrase_index_of(vocabulary)
            if made is not None:
                _keep(source, _Kept(path, made, vocabulary))
            return vocabulary

    @contextlib.contextmanager
    def _thinking(self, seconds: float, cancel: Cancellation) -> Iterator[HeldSlot]:
        """Hold the slot of the rules for at most these seconds, without those in which others have it."""
        with _SLOT.hold(self._tenant, cancel.check) as slot:
            since = time.monotonic()

            def give_way() -> float:
                nonlocal since
                began = time.monotonic()
                if began - since < SLICE_S or not slot.wanted:
                    return 0.0
                with resume_garbage_collection(), slot.lent():
                    pass
                since = time.monotonic()
                return since - began

            with within_deadline(seconds, cancel, give_way):
                yield slot

    def _write(self, vocabulary: Vocabulary, path: Path) -> float | None:
        """Cache a vocabulary in a file, and return when; if the disk is full, the next question builds it again."""
        part = path.with_suffix(f".{self._run_id}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(vocabulary.to_json())
            made = part.stat().st_mtime
            part.replace(path)
            _remove_oldest(path.parent, CACHE_BYTES)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            _log.warning("the vocabulary of a source is not cached: %s", error.strerror)
            return None
        return made

    def _rows(self, dataset: str, sql: str, cancel: Cancellation) -> Iterator[tuple[Any, ...]]:
        return self._resources.query_unrecorded(dataset, sql, cancel).iter_rows()


_SLOT = ThreadFairShare(1, most=1)
"""One question at a time computes: in pure Python, two at once are not faster, and they starve other threads."""


class _Turns:
    """Lets one run at a time build a vocabulary."""

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


_building: WeakValueDictionary[Path, _Turns] = WeakValueDictionary()
_building_lock = threading.Lock()


@dataclass(frozen=True)
class _Kept:
    path: Path
    made: float
    """When the file was written: the vocabulary of a server is rewritten under the same name every hour."""
    vocabulary: Vocabulary


_kept: OrderedDict[str, _Kept] = OrderedDict()
"""The most recently used vocabularies, one for each source."""


def _turns_of(path: Path) -> _Turns:
    """Return the lock of a vocabulary: one run builds it, the others wait."""
    with _building_lock:
        return _building.setdefault(path, _Turns())


def forget_vocabularies(folder: Path, origin: str) -> None:
    """Remove the vocabularies of a source that is deleted, whatever was granted of it: they hold values of its data."""
    with _building_lock:
        for source in [s for s, kept in _kept.items() if kept.path.name.startswith(origin[:ORIGIN])]:
            del _kept[source]
    for path in folder.glob(f"{origin[:ORIGIN]}-*"):
        with contextlib.suppress(OSError):
            path.unlink()


def _find_kept(source: str, path: Path, made: float) -> Vocabulary | None:
    kept = _kept.get(source)
    if kept is None or (kept.path, kept.made) != (path, made):
        return None
    _keep(source, kept)
    return kept.vocabulary


def _keep(source: str, kept: _Kept) -> None:
    with _building_lock:
        _kept[source] = kept
        _kept.move_to_end(source)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)


def _read_run(
    run: Run,
    vocabulary: Vocabulary,
    previous: Understanding | None,
    definitions: Sequence[Definition],
    values: Values,
) -> Outcome:
    """Return what the question of a run means, with the user's answers to clarifying questions.

    Words that playbooks define are columns if their meaning calculates, and else replaced first. If the rules do not
    understand the question then, it is refused: reading it without the definition would answer another question.
    """
    _, used = apply_playbook_definitions(run.text, definitions)
    vocabulary, computed = define_columns(vocabulary, {d.phrase: d.meaning for d in used})
    asked, _ = apply_playbook_definitions(run.text, [d for d in used if d.phrase not in computed])
    # The day it was asked, so that "last month" means the same when the run is resumed later.
    meant = understand(asked, vocabulary, previous=previous, today=run.created_at.date(), values=values)
    for step in run.steps:
        if isinstance(meant, Clarification) and step.code == "ask_user" and step.shown is not None:
            meant = take_choice(meant, step.shown)
    told = " ".join(f"`{d.phrase}` means “{d.meaning}” (playbook `{d.playbook}`)." for d in used)
    match meant:
        case Understanding(reading=reading) if used:
            return replace(meant, reading=f"{reading} {told}")
        case Refusal(reason=reason) if used:
            return replace(meant, reason=f"{reason} {told}")
    return meant


def _call(tool: str, arguments: dict[str, Any], text: str) -> Turn:
    return Turn(text=text, calls=(ToolCall(id="rules", name=tool, arguments=json.dumps(arguments)),), stop="calls")


@dataclass(frozen=True)
class _Facts:
    fingerprint: str
    """Changes with the tables, their data and their keys."""
    lasting: bool
    """The fingerprint changes whenever the data do."""


def _remove_oldest(folder: Path, most: int) -> None:
    """Remove the files of a folder that were written first, until the others have at most this many bytes."""
    files = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # another process removes files, too
            found = path.stat()
            files.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            break
        path.unlink(missing_ok=True)
        total -= size


@once_per_catalog
def _facts_of(catalog: Catalog) -> _Facts:
    # A profile that is made later may add keys to the same data, and with them joins.
    keys = {
        t.name: [t.primary_key, *((k.columns, k.to_table, k.to_columns) for k in t.foreign_keys)]
        for t in catalog.tables
    }
    facts = [(t.name, t.fingerprint, t.row_count, keys[t.name]) for t in catalog.tables]
    fingerprint = hashlib.sha256(json.dumps([catalog.fingerprint, facts]).encode()).hexdigest()
    return _Facts(fingerprint, all(table.fingerprint for table in catalog.tables))
