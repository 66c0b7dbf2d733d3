"""Edits of known effect, made by mutating real modules, and the policies that decide about them."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import random
import signal
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import libcst as cst

from etude.learning.edits.edit_decision import MOST_ROUNDS, EditOutcomePair, EditWatch, decide_edit, holdout_allows_edit
from etude.learning.edits.learner import WATCHED

GATE, HIDDEN = 40, 40
WORDS = ("alpha", "be", "gamma-ray", "'quoted text'", "a/b", "x*y", "[a-c]", "..", "&lt;", "#note", "", "tab\there")
Call = Callable[[Any], object]


@dataclass(frozen=True)
class Subject:
    """A real module, and calls whose results the original decides: some for the gate, others hidden from it."""

    name: str
    source: str
    gate: tuple[Call, ...]
    hidden: tuple[Call, ...]


@dataclass(frozen=True)
class KnownEdit:
    """An edit with its true effect: for each call of the gate, whether the base and the edit get it right."""

    kind: str
    before: tuple[bool, ...]
    after: tuple[bool, ...]


def subjects() -> list[Subject]:
    made = []
    for name, make in _CALLS.items():
        chance = random.Random(f"calls:{name}")
        calls = tuple(make(chance) for _ in range(GATE + HIDDEN))
        source = inspect.getsource(import_module(name))
        made.append(Subject(name, source, calls[:GATE], calls[GATE:]))
    return made


def _text(chance: random.Random, least: int = 3, most: int = 12) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(least, most)))


def _wrap(chance: random.Random) -> Call:
    text, width = _text(chance, 5, 30), chance.randint(5, 40)
    kind = chance.choice(["wrap", "fill", "shorten", "indent", "dedent"])
    if kind in ("wrap", "fill"):
        return lambda m: getattr(m, kind)(text, width)
    if kind == "shorten":
        return lambda m: m.shorten(text, width + 5)
    return (
        (lambda m: m.indent(f"{text}\n {text}", "> ")) if kind == "indent" else (lambda m: m.dedent(f"  {text}\n   x"))
    )


def _lex(chance: random.Random) -> Call:
    text = " ".join(chance.choice(("a", "'b c'", '"d e"', r"f\ g", "h=1", "#i", "j;k")) for _ in range(5))
    kind = chance.choice(["split", "split", "quote", "join", "lex"])
    if kind == "lex":
        return lambda m: list(m.shlex(text, posix=bool(len(text) % 2), punctuation_chars=True))
    if kind == "join":
        return lambda m: m.join(text.split())
    return lambda m: getattr(m, kind)(text)


def _colour(chance: random.Random) -> Call:
    a, b, c = (round(chance.random(), 2) for _ in range(3))
    kind = chance.choice(["rgb_to_hsv", "hsv_to_rgb", "rgb_to_hls", "hls_to_rgb", "rgb_to_yiq", "yiq_to_rgb"])
    return lambda m: getattr(m, kind)(a, b, c)


def _path(chance: random.Random) -> Call:
    path = "/".join(chance.choice(("a", "..", ".", "", "b.txt", "c.d.e")) for _ in range(chance.randint(1, 6)))
    other = "/".join(chance.choice(("a", "b", "..")) for _ in range(3))
    kind = chance.choice(["normpath", "split", "splitext", "join", "commonpath", "relpath", "basename", "isabs"])
    if kind == "join":
        return lambda m: m.join(path, other)
    if kind == "commonpath":
        return lambda m: m.commonpath([f"/{path}", f"/{other}", f"/{path}/z"])
    if kind == "relpath":
        return lambda m: m.relpath(f"/{path}", f"/{other}")
    return lambda m: getattr(m, kind)(path)


def _heap(chance: random.Random) -> Call:
    values = [chance.randint(0, 50) for _ in range(chance.randint(3, 20))]
    kind, n = chance.choice(["nsmallest", "nlargest", "merge", "sort", "replace"]), chance.randint(1, 5)

    def sort(m: Any) -> object:
        heap = list(values)
        m.heapify(heap)
        return [m.heappop(heap) for _ in values]

    def replace(m: Any) -> object:
        heap: list[int] = []
        for value in values:
            m.heappush(heap, value)
        return m.heapreplace(heap, 7), m.heappushpop(heap, 3), sorted(heap)

    if kind in ("sort", "replace"):
        return sort if kind == "sort" else replace
    if kind == "merge":
        return lambda m: list(m.merge(sorted(values), sorted(values[::2]), reverse=False))
    return lambda m: getattr(m, kind)(n, values)


def _match(chance: random.Random) -> Call:
    name = "".join(chance.choice("abc-.]") for _ in range(chance.randint(1, 6)))
    pattern = "".join(chance.choice("abc*?[]-!.") for _ in range(chance.randint(1, 6)))
    kind = chance.choice(["fnmatchcase", "translate", "filter"])
    if kind == "translate":
        return lambda m: m.translate(pattern)
    if kind == "filter":
        return lambda m: m.filter([name, "abc", "a.b", "-"], pattern)
    return lambda m: m.fnmatchcase(name, pattern)


_CALLS: dict[str, Callable[[random.Random], Call]] = {
    "textwrap": _wrap,
    "shlex": _lex,
    "colorsys": _colour,
    "posixpath": _path,
    "heapq": _heap,
    "fnmatch": _match,
}


def load(source: str, name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    # The C version of heapq would hide the code that is mutated.
    text = source.replace("from _heapq import *", "raise ImportError")
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def results(source: str, name: str, calls: tuple[Call, ...]) -> list[str]:
    """The result of each call, as text; an error, or more than a tenth of a second, is a result as well."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    found = []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1.0)
                module = load(source, name)
            except BaseException as error:
                return [type(error).__name__] * len(calls)
            for call in calls:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                try:
                    found.append(repr(call(module)))
                except BaseException as error:
                    found.append(type(error).__name__)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return found


class _Mutation(cst.CSTTransformer):
    """Changes the n-th place that can be mutated."""

    def __init__(self, target: int) -> None:
        self.target, self.count = target, -1

    def _here(self) -> bool:
        self.count += 1
        return self.count == self.target

    def leave_Integer(self, original_node: cst.Integer, updated_node: cst.Integer) -> cst.BaseExpression:
        return updated_node.with_changes(value=str(int(updated_node.value, 0) + 1)) if self._here() else updated_node

    def leave_LessThan(self, original_node: cst.LessThan, updated_node: cst.LessThan) -> cst.BaseCompOp:
        return cst.GreaterThanEqual() if self._here() else updated_node

    def leave_Equal(self, original_node: cst.Equal, updated_node: cst.Equal) -> cst.BaseCompOp:
        return cst.NotEqual() if self._here() else updated_node

    def leave_Add(self, original_node: cst.Add, updated_node: cst.Add) -> cst.BaseBinaryOp:
        return cst.Subtract() if self._here() else updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        if updated_node.value in ("True", "False") and self._here():
            return updated_node.with_changes(value="False" if updated_node.value == "True" else "True")
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.BaseStatement:
        if not self._here():
            return updated_node
        inner = updated_node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return updated_node.with_changes(test=cst.UnaryOperation(cst.Not(), inner))

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.BaseSmallStatement:
        if updated_node.value is not None and self._here():
            return updated_node.with_changes(value=cst.Name("None"))
        return updated_node


def mutate(source: str, chance: random.Random) -> str:
    tree = cst.parse_module(source)
    counter = _Mutation(-2)
    tree.visit(counter)
    return tree.visit(_Mutation(chance.randrange(counter.count + 1))).code


def change_nothing(source: str, chance: random.Random) -> str:
    """A null edit: a comment, an unused constant, or blank lines."""
    kind = chance.randrange(3)
    if kind == 0:
        return f"{source}\n# looked at {chance.randrange(1000)} times\n"
    if kind == 1:
        return f"{source}\n_UNUSED_{chance.randrange(1000)} = {chance.randrange(1000)}\n"
    return source.replace("\n\n\n", "\n\n\n\n")


def make_edits(harmful: int, null: int, good: int, seed: int) -> Iterator[KnownEdit]:
    """Harmful edits fail hidden calls; good ones undo a mutation that costs at least 5 points of the gate."""
    chance = random.Random(seed)
    found = subjects()
    right = {s.name: results(s.source, s.name, s.gate + s.hidden) for s in found}
    for s in found:
        again = results(s.source, s.name, s.gate + s.hidden)
        assert again == right[s.name], s.name
    always = tuple(True for _ in range(GATE))
    left = {"harmful": harmful, "good": good}
    while left["harmful"] or left["good"]:
        subject = chance.choice(found)
        try:
            changed = mutate(subject.source, chance)
        except (cst.CSTValidationError, ValueError):
            continue
        outcome = results(changed, subject.name, subject.gate + subject.hidden)
        fits = tuple(a == b for a, b in zip(outcome, right[subject.name]))
        gate, hidden = fits[:GATE], fits[GATE:]
        if left["good"] and gate.count(False) >= 0.05 * GATE:
            left["good"] -= 1
            yield KnownEdit("good", gate, always)
        elif left["harmful"] and not all(hidden):
            left["harmful"] -= 1
            yield KnownEdit("harmful", always, gate)
    for _ in range(null):
        subject = chance.choice(found)
        outcome = results(change_nothing(subject.source, chance), subject.name, subject.gate)
        assert outcome == right[subject.name][:GATE]
        yield KnownEdit("null", always, always)


def _fault(plan: str, task: int, seed: object) -> bool:
    """Whether a transient fault hits a task: tasks differ, with a mean of 32%."""
    rate = 0.05 + 0.54 * _draw(plan, "rate", task)
    return _draw(plan, task, seed) < rate


def _draw(*of: object) -> float:
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:6], "big") / 2**48


class Trial:
    """Runs of one edit: with shared seeds a fault hits both arms or none."""

    def __init__(self, edit: KnownEdit, number: int, shared: bool) -> None:
        self.edit, self.plan, self.shared = edit, f"plan:{number}", shared

    def run(self, seed: object) -> list[EditOutcomePair]:
        pairs = []
        for task, (before, after) in enumerate(zip(self.edit.before, self.edit.after)):
            one = _fault(self.plan, task, seed)
            two = one if self.shared else _fault(self.plan, task, (seed, "other"))
            pairs.append(EditOutcomePair(str(task), hash(seed) & 0xFFFF, before and not one, after and not two))
        return pairs


def ours(trial: Trial) -> bool:
    seen: list[EditOutcomePair] = []
    noisy = () if trial.shared else tuple(str(t) for t in range(GATE))
    for number in range(1, MOST_ROUNDS + 1):
        seen += trial.run(number)
        decision = decide_edit(seen, noisy=noisy, rounds=number)
        if decision.verdict != "continue":
            break
    if decision.verdict != "accept":
        return False
    return holdout_allows_edit([pair for seed in range(4) for pair in trial.run(("holdout", seed))])[0]


def runs_until_reverted(trial: Trial) -> int | None:
    """The run of the watch after a merge at which an edit is reverted, counting both arms; None if it is not."""
    watch, runs = EditWatch(WATCHED), 0
    while runs < WATCHED:
        pairs = trial.run(("watch", runs))
        runs += 2
        lost = {p.test for p in pairs if p.sign < 0}
        for again in range(2):  # as the learner does: a loss in three runs of both arms is sure
            if lost:
                seed = ("watch", runs - 2) if trial.shared else ("watch", runs - 2, again)
                lost &= {p.test for p in trial.run(seed) if p.sign < 0}
        if watch.add(pairs) == "revert" or lost:
            return runs
    return None


def keep_if_better(trial: Trial) -> bool:
    pairs = trial.run(1)
    return sum(p.after for p in pairs) > sum(p.before for p in pairs)


def minibatch(trial: Trial) -> bool:
    pairs = random.Random(trial.plan).sample(trial.run(1), 3)
    return sum(p.after for p in pairs) > sum(p.before for p in pairs)


def leeway(trial: Trial) -> bool:
    pairs = trial.run(1)
    return sum(p.after for p in pairs) >= sum(p.before for p in pairs) - 0.1 * GATE


POLICIES: dict[str, Callable[[Trial], bool]] = {
    "ours": ours,
    "keep if better": keep_if_better,
    "minibatch of 3": minibatch,
    "leeway 0.1": leeway,
}
