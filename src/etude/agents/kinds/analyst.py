"""An agent that works toward a goal, one question at a time, and collects its findings in a document.

Without a model the questions are given, as a list or one per line of the goal. With a model, the model decides what to
ask next, from the goal and the document so far, until it says that it is done. Each step is one run.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Self

from pydantic import Field, model_validator

from etude.agents import step_question
from etude.agents.base import DONE, IDLE, NOW, InboxItem, Kind, StepContext, StepResult
from etude.entities import Entity, Run
from etude.errors import Conflict, SandboxError, is_outage_error
from etude.runtime.answer import Answer, answer_markdown_table
from etude.runtime.run_control import RunControl

DOCUMENT_CHARS = 20_000
"""The number of characters, from the end of the document, that a model is shown."""
ENOUGH = "DONE"
PROPOSE = """Decide what to find out next. Do not find it out now.

The goal: {goal}
{guidance}
The findings so far:
{document}

Reply with one question, on one line, that the data can answer and that helps to reach the goal. Do not repeat a
question that was answered, and do not use numbers that are not given here. Reply {enough} if the goal is reached or if
the data cannot answer more."""
_LIST_MARK = re.compile(r"(?:[-*]|\d{1,9}[.)])\s+")


def _without_list_mark(line: str) -> str:
    mark = _LIST_MARK.match(line)
    return line[mark.end() :] if mark else line


class AnalystConfig(Entity):
    """The goal, the source, and the model."""

    source: str
    goal: str = Field(default="", max_length=20_000)
    """A goal in words for a model; without a model, one question per line."""
    questions: tuple[str, ...] = ()
    """The first questions to ask."""
    model: str = "offline"
    max_steps: int = Field(default=20, ge=1, le=1000)
    """The maximum number of questions that the agent chooses itself."""

    @model_validator(mode="after")
    def _wants_something(self) -> Self:
        if not self.goal.strip() and not any(q.strip() for q in self.questions):
            raise ValueError("give `goal` or `questions`")
        return self


class AnalystAgent(Kind[AnalystConfig]):
    """Works toward a goal. Guidance and messages are questions to ask next or, with a model, hints for the model.

    `{"goal": ...}` sets another goal. If a question is ambiguous, the agent waits for a message that answers it.
    """

    Config = AnalystConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Ask one question, or decide what to ask."""
        memory = state or self._begin()
        replies = [text for item in inbox if (text := self._read_item(memory, item.body))]
        if memory["waiting"]:
            if not replies:
                return StepResult(state=memory, output={"question": memory["waiting"]["needs"]}, next=IDLE)
            return self._reply(ctx, memory, replies)
        self._apply_guidance(memory, replies)
        if memory["ahead"]:
            return self._ask(ctx, memory, memory["ahead"][0])
        if self.config.model != "offline" and memory["asked"] < self.config.max_steps and not memory["enough"]:
            return self._propose(ctx, memory)
        return StepResult(state=memory, output={"findings": memory["found"], "done": True}, next=DONE)

    def _begin(self) -> dict[str, Any]:
        ahead = list(self.config.questions)
        if self.config.model == "offline" and not ahead:
            ahead = [_without_list_mark(line.strip()) for line in self.config.goal.splitlines()]
        title = self.config.goal.strip().partition("\n")[0] or "Findings"
        return {
            "goal": self.config.goal,
            "ahead": [q.strip() for q in ahead if q.strip()][: self.config.max_steps],
            "guidance": [],
            "asked": 0,
            "found": 0,
            "waiting": None,
            "noted": None,
            "enough": False,
            "document": f"# {title}\n",
        }

    def _read_item(self, memory: dict[str, Any], body: Any) -> str | None:
        """Apply a goal or a question given as an object; return plain text."""
        if isinstance(body, dict):
            if isinstance(body.get("goal"), str):
                memory["goal"], memory["enough"] = body["goal"], False
            body = body.get("question")
            if isinstance(body, str) and body.strip():
                memory["ahead"].insert(0, body.strip())
            return None
        return body.strip() or None if isinstance(body, str) else None

    def _apply_guidance(self, memory: dict[str, Any], received: list[str]) -> None:
        """Keep the texts: without a model as the next questions, with one as hints for the model."""
        if received:
            memory["guidance" if self.config.model != "offline" else "ahead"][:0] = received
            memory["enough"] = False

    def _ask(self, ctx: StepContext, memory: dict[str, Any], asked: str) -> StepResult:
        steer, received = self._steering(ctx, memory)
        answer = step_question.ask_step_question(
            ctx, self.config.source, asked, self.config.model, steer, memory.get("noted")
        )
        self._apply_guidance(memory, received)
        return self._note(memory, asked, answer)

    def _reply(self, ctx: StepContext, memory: dict[str, Any], replies: list[str]) -> StepResult:
        waiting = memory["waiting"]
        run: Run = ctx.app.store.run(waiting["run_id"])
        if run.status == "waiting":
            ctx.app.runs.answer(run.id, "\n".join(replies))
        steer, received = self._steering(ctx, memory)
        answer = step_question.work_on_step_question(ctx, run.id, steer)
        self._apply_guidance(memory, received)
        return self._note(memory, waiting["asked"], answer)

    def _note(self, memory: dict[str, Any], asked: str, answer: Answer) -> StepResult:
        """Record the answer, or the question that the run needs answered."""
        usage = answer.run.usage
        memory["noted"] = answer.run_id
        output: dict[str, Any] = {"run_id": answer.run_id, "asked": asked}
        cost: dict[str, Any] = {"tokens": usage.tokens_in + usage.tokens_out, "cost_usd": usage.cost_usd}
        if answer.status == "waiting":
            memory["waiting"] = {"run_id": answer.run_id, "asked": asked, "needs": answer.question}
            output |= {"question": answer.question, "choices": list(answer.choices)}
            return StepResult(state=memory, output=output, next=IDLE, events=(("analyst.waiting", output),), **cost)
        if is_outage_error(answer.error) or isinstance(answer.error, SandboxError):
            # It says nothing about the question: the step fails, and asks again later.
            answer.require()
        text = answer.text if answer.ok else f"Not answered: {answer.error.message if answer.error else answer.status}"
        memory["waiting"] = None
        if asked in memory["ahead"]:
            memory["ahead"].remove(asked)
        memory["asked"] += 1
        memory["found"] += answer.ok
        memory["document"] += f"\n## {' '.join(asked.split())}\n\n{text.strip()}\n{_table_of(answer)}"
        output |= {"answer": text, "ok": answer.ok} | ({"replayed": answer.replayed} if answer.replayed else {})
        return StepResult(state=memory, output=output, next=NOW, events=(("analyst.finding", output),), **cost)

    def _propose(self, ctx: StepContext, memory: dict[str, Any]) -> StepResult:
        guidance = "".join(f"Guidance: {text}\n" for text in memory["guidance"])
        document = memory["document"][-DOCUMENT_CHARS:]
        prompt = PROPOSE.format(goal=memory["goal"], guidance=guidance, document=document, enough=ENOUGH)
        steer, received = self._steering(ctx, memory)
        answer = step_question.require_step_question_answer(
            step_question.ask_step_question_in_new_thread(ctx, self.config.source, prompt, self.config.model, steer)
        )
        # Use the model's raw reply: in an answer, unverified numbers are marked.
        turns = [s.turn.text for s in answer.run.steps if s.kind == "model" and s.turn is not None]
        line = next((line.strip() for line in turns[-1].splitlines() if line.strip()), ENOUGH)
        memory["enough"] = line.strip("`*. ").upper() == ENOUGH
        if not memory["enough"]:
            memory["ahead"] = [line]
        self._apply_guidance(memory, received)
        usage = answer.run.usage
        output = {"run_id": answer.run_id} | ({"done": True} if memory["enough"] else {"next": line})
        tokens, cost = usage.tokens_in + usage.tokens_out, usage.cost_usd
        return StepResult(state=memory, output=output, next=NOW, tokens=tokens, cost_usd=cost)

    def _steering(self, ctx: StepContext, memory: dict[str, Any]) -> tuple[step_question.Steer, list[str]]:
        """Return a callback that passes guidance to the model during a run, and the list that collects it."""
        received: list[str] = []

        def steer(control: RunControl) -> None:
            if self.config.model == "offline":
                return
            for text in filter(None, [self._read_item(memory, body) for body in ctx.guidance()]):
                received.append(text)
                with contextlib.suppress(Conflict):  # the run has its answer: the next run gets the guidance
                    control.steer(text)

        return steer, received


def _table_of(answer: Answer) -> str:
    """Return the first rows of the result as a Markdown table; empty without a result."""
    return "\n" + answer_markdown_table(answer.result) if answer.result is not None and answer.ok else ""
