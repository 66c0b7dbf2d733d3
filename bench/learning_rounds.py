"""Success by round with a simulated model of limited skill: without lessons, with lessons, and with a placebo.

A failure is diagnosed by its checker, which names the fact that was missing; the lesson says it. A lesson is admitted
only if replays of the run with it succeed, and is then shown by its coin. The placebo has the same lessons, each with
the content of another.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from etude.cancellation import Cancellation
from etude.learning.playbooks.admission import reason_against_admission
from etude.learning.playbooks.lesson_state import LessonRecord, LessonTrial, lesson_show_probability
from etude.learning.statistical_tests import CoinEvent
from etude.models.base import ModelRequest, UserMessage
from etude.models.sim import Need, SimModel, SimTask

FAMILIES, VARIANTS, ROUNDS, SEEDS, SKILL = 60, 8, 4, 10, 0.5


@dataclass
class Lesson:
    text: str
    record: LessonRecord = field(default_factory=LessonRecord)


def tasks() -> list[SimTask]:
    made = []
    for n in range(FAMILIES):
        need = Need(name="amount", kind="column", fact=f"amount of family {n}", right=f"net_amount_{n}")
        made.append(SimTask(asked=f"sum of family {n}?", code=f"SELECT sum(${{amount}}) FROM table_{n}", needs=(need,)))
    return made


def answers(model: SimModel, task: SimTask, lesson: str) -> bool:
    """Whether the model writes the right code, with a lesson in the conversation."""
    said = [UserMessage(text=lesson)] if lesson else []
    request = ModelRequest(conversation=[*said, UserMessage(text=f"What is the {task.asked}")])
    turn = model.respond(request, lambda text: None, Cancellation()).turn
    code = json.loads(turn.calls[0].arguments)[task.argument]
    return bool(code == task.code.replace("${amount}", task.needs[0].right))


def success_by_round(arm: str, seed: int) -> list[float]:
    """The share of right answers in each round."""
    chance = random.Random(f"{arm}:{seed}")
    every = tasks()
    model = SimModel(every, SKILL, seed)
    # Admission replays the failed run on the same knowledge; what differs between its seeds is the obedience.
    replays = [SimModel(every, SKILL, seed, obedience=o) for o in (0.25, 0.75)]
    lessons: dict[int, Lesson] = {}
    rates = []
    for _ in range(ROUNDS):
        right = 0
        failed: set[int] = set()
        for number, task in enumerate(every):
            for _ in range(VARIANTS):
                lesson = lessons.get(number)
                q = lesson_show_probability(lesson.record.standing) if lesson else 0.0
                shown = lesson is not None and chance.random() < q
                good = answers(model, task, lesson.text if lesson is not None and shown else "")
                right += good
                if lesson is not None and q:
                    lesson.record.add(CoinEvent(q, shown, good, str(number)))
                if not good:
                    failed.add(number)
        rates.append(right / (FAMILIES * VARIANTS))
        if arm != "none":
            for number in sorted(failed - lessons.keys()):
                _learn(arm, every, number, model, replays, lessons)
    return rates


def _learn(
    arm: str, every: list[SimTask], number: int, model: SimModel, replays: list[SimModel], lessons: dict[int, Lesson]
) -> None:
    told = number if arm == "lessons" else (number + 1) % FAMILIES
    text = f"The {every[number].asked[:-1]} adds up {every[told].needs[0].right}."
    if arm == "lessons":
        origin = [
            LessonTrial(s, answers(m, every[number], ""), answers(m, every[number], text))
            for s, m in enumerate(replays)
        ]
        known = [t for t in every if model.knows(t.needs[0].fact)][:5]
        passing = [LessonTrial(s, answers(model, t, ""), answers(model, t, text)) for s, t in enumerate(known)]
        if reason_against_admission(origin, passing) is not None:
            return
    # The placebo is shown without admission, which would refuse it: it is there for its length alone.
    lessons[number] = Lesson(text)


def measure_rounds() -> dict[str, list[float]]:
    """The mean success of each arm in each round, over all seeds."""
    found = {}
    for arm in ("none", "lessons", "placebo"):
        runs = [success_by_round(arm, seed) for seed in range(SEEDS)]
        found[arm] = [sum(column) / SEEDS for column in zip(*runs)]
    return found
