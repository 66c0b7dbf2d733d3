"""An agent that works at a goal: a question at a time, findings into a document that grows.

Without a model the questions are given, one in each line of the goal or as a list. With one, the model is asked what
to find out next, by the goal and the document so far, until it says that it is done. Each step is one run of the desk.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from typing import Any, Self

from pydantic import Field, model_validator

from etude.agents import question
from etude.agents.base import DONE, IDLE, NOW, InboxItem, Kind, StepContext, StepResult
from etude.entities import Entity, Run
from etude.errors import Conflict
from etude.result import json_value
from etude.runtime.answer import Answer
from etude.runtime.control import Control

REMEMBERED = 20_000
"""So many characters of the document a model is shown; the last ones."""
ROWS = 10
WIDTH = 80
"""What the document has of a result: so many rows, so many characters of each value."""
ENOUGH = "DONE"
PROPOSE = """Decide what to find out next. Do not find it out now.

The goal: {goal}
{heard}
What was found out so far:
{document}

Reply with one question, in one line, that the data can answer and that brings the goal nearer. Do not ask again what
was answered, and use no number that does not stand here. Reply {enough} where the goal is reached, or where the data
cannot tell more."""
_LIST_MARK = re.compile(r"\s*(?:[-*]|\d+[.)])\s+")


class AnalystConfig(Entity):
    """What to find out, where, and who thinks."""

    source: str
    goal: str = ""
    """In words for a model; without one, a question in each line."""
    questions: tuple[str, ...] = ()
    """Questions to begin with."""
    model: str = "offline"
    max_steps: int = Field(default=20, ge=1, le=1000)
    """Questions that it asks by itself."""

    @model_validator(mode="after")
    def _wants_something(self) -> Self:
        if not self.goal.strip() and not any(q.strip() for q in self.questions):
            raise ValueError("give `goal` or `questions`")
        return self


class AnalystAgent(Kind[AnalystConfig]):
    """Guidance and messages are questions to ask next, or, with a model, words to heed; `{"goal": ...}` sets the goal.

    Where a question is not clear, it waits until a message answers.
    """

    Config = AnalystConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Ask one question, or decide what to ask."""
        memory = state or self._begin()
        replies = [text for item in inbox if (text := self._hear(memory, item.body))]
        if memory["waiting"]:
            if not replies:
                return StepResult(state=memory, output={"question": memory["waiting"]["needs"]}, next=IDLE)
            return self._reply(ctx, memory, replies)
        self._heed(memory, replies)
        if memory["ahead"]:
            return self._ask(ctx, memory, memory["ahead"][0])
        if self.config.model != "offline" and memory["asked"] < self.config.max_steps and not memory["enough"]:
            return self._propose(ctx, memory)
        return StepResult(state=memory, output={"findings": memory["found"], "done": True}, next=DONE)

    def _begin(self) -> dict[str, Any]:
        ahead = list(self.config.questions)
        if self.config.model == "offline" and not ahead:
            ahead = [_LIST_MARK.sub("", line, count=1) for line in self.config.goal.splitlines()]
        title = self.config.goal.strip().partition("\n")[0] or "Findings"
        return {
            "goal": self.config.goal,
            "ahead": [q.strip() for q in ahead if q.strip()][: self.config.max_steps],
            "heard": [],
            "asked": 0,
            "found": 0,
            "waiting": None,
            "noted": None,
            "enough": False,
            "document": f"# {title}\n",
        }

    def _hear(self, memory: dict[str, Any], body: Any) -> str | None:
        """Take in a goal; a question or words are given back."""
        if isinstance(body, dict):
            if isinstance(body.get("goal"), str):
                memory["goal"], memory["enough"] = body["goal"], False
            body = body.get("question")
            if isinstance(body, str) and body.strip():
                memory["ahead"].insert(0, body.strip())
            return None
        return body.strip() or None if isinstance(body, str) else None

    def _heed(self, memory: dict[str, Any], said: list[str]) -> None:
        """Without a model, what people say are questions; a model decides what to make of it."""
        if said:
            memory["heard" if self.config.model != "offline" else "ahead"][:0] = said
            memory["enough"] = False

    def _ask(self, ctx: StepContext, memory: dict[str, Any], asked: str) -> StepResult:
        steer, said = self._steering(ctx, memory)
        answer = question.ask(ctx, self.config.source, asked, self.config.model, steer, memory.get("noted"))
        self._heed(memory, said)
        return self._note(memory, asked, answer)

    def _reply(self, ctx: StepContext, memory: dict[str, Any], replies: list[str]) -> StepResult:
        waiting = memory["waiting"]
        run: Run = ctx.app.store.run(waiting["run_id"])
        if run.status == "waiting":
            ctx.app.runs.answer(run.id, "\n".join(replies))
        steer, said = self._steering(ctx, memory)
        answer = question.work(ctx, run.id, steer)
        self._heed(memory, said)
        return self._note(memory, waiting["asked"], answer)

    def _note(self, memory: dict[str, Any], asked: str, answer: Answer) -> StepResult:
        """Write down what was found, or what the run needs to know."""
        usage = answer.run.usage
        memory["noted"] = answer.run_id
        output: dict[str, Any] = {"run_id": answer.run_id, "asked": asked}
        cost: dict[str, Any] = {"tokens": usage.tokens_in + usage.tokens_out, "cost_usd": usage.cost_usd}
        if answer.status == "waiting":
            memory["waiting"] = {"run_id": answer.run_id, "asked": asked, "needs": answer.question}
            output |= {"question": answer.question, "choices": list(answer.choices)}
            return StepResult(state=memory, output=output, next=IDLE, events=(("analyst.waiting", output),), **cost)
        text = answer.text if answer.ok else f"Not answered: {answer.error.message if answer.error else answer.status}"
        memory["waiting"] = None
        if asked in memory["ahead"]:
            memory["ahead"].remove(asked)
        memory["asked"] += 1
        memory["found"] += answer.ok
        memory["document"] += f"\n## {' '.join(asked.split())}\n\n{text.strip()}\n{_table_of(answer)}"
        output |= {"answer": text, "ok": answer.ok}
        return StepResult(state=memory, output=output, next=NOW, events=(("analyst.finding", output),), **cost)

    def _propose(self, ctx: StepContext, memory: dict[str, Any]) -> StepResult:
        heard = "".join(f"You were told: {text}\n" for text in memory["heard"])
        document = memory["document"][-REMEMBERED:]
        prompt = PROPOSE.format(goal=memory["goal"], heard=heard, document=document, enough=ENOUGH)
        steer, said = self._steering(ctx, memory)
        answer = question.require(question.ask_aside(ctx, self.config.source, prompt, self.config.model, steer))
        # The words of the model as they are: in an answer, numbers that no result holds are marked.
        turns = [s.turn.text for s in answer.run.steps if s.kind == "model" and s.turn is not None]
        line = next((line.strip() for line in turns[-1].splitlines() if line.strip()), ENOUGH)
        memory["enough"] = line.strip("`*. ").upper() == ENOUGH
        if not memory["enough"]:
            memory["ahead"] = [line]
        self._heed(memory, said)
        usage = answer.run.usage
        output = {"run_id": answer.run_id} | ({"done": True} if memory["enough"] else {"next": line})
        tokens, cost = usage.tokens_in + usage.tokens_out, usage.cost_usd
        return StepResult(state=memory, output=output, next=NOW, tokens=tokens, cost_usd=cost)

    def _steering(self, ctx: StepContext, memory: dict[str, Any]) -> tuple[question.Steer, list[str]]:
        """A way for what is said during a run to reach its model; and the list of what was said."""
        said: list[str] = []

        def steer(control: Control) -> None:
            if self.config.model == "offline":
                return
            for text in filter(None, [self._hear(memory, body) for body in ctx.guidance()]):
                said.append(text)
                with contextlib.suppress(Conflict):  # the run has its answer: the next one is told
                    control.steer(text)

        return steer, said


def _table_of(answer: Answer) -> str:
    """The first rows of the result in Markdown, where there are columns to see."""
    if answer.result is None or not answer.ok:
        return ""
    rows = [[json_value(value) for value in row] for row in itertools.islice(answer.result.iter_rows(), ROWS)]
    lines = [[column.name for column in answer.result.columns], ["---"] * len(answer.result.columns), *rows]
    more = f"\n{answer.result.row_count:,} rows in all.\n" if answer.result.row_count > ROWS else ""
    return "\n" + "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines) + more


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return " ".join(text.replace("|", "\\|").split())[:WIDTH]
