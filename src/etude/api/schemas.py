"""The bodies of requests and responses that are not entities themselves."""

from __future__ import annotations

import json
import re
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from etude.entities import Entity, ResultInfo, RunStatus, RunSummary
from etude.feedback import Verdict
from etude.limits import MOST_TEXT
from etude.replays.proof import StepProof
from etude.search.index_base import KINDS, Kind, Mode
from etude.store.identity import KeyLimits, Role

T = TypeVar("T")
TEXT = MOST_TEXT
MOST_KEYS = 100
"""More keys than any body has fields."""


def _check_timestamp(text: Any) -> Any:
    if isinstance(text, str) and not re.match(r"\d{4}-", text):
        raise ValueError("a date and time is written 2026-01-31T12:00:00Z")
    return text


Timestamp = Annotated[datetime, BeforeValidator(_check_timestamp)]
"""A date and time in ISO 8601. A bare number, which pydantic would read as seconds, is refused."""


def _plan_as_json(text: Any) -> Any:
    return json.dumps(text) if isinstance(text, dict) else text


RunText = Annotated[
    str,
    BeforeValidator(_plan_as_json),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1, "maxLength": TEXT}, {"type": "object"}]}),
]


class Body(Entity):
    """The body of a request. Its types are strict: nothing is converted."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_keys_beyond_most(cls, value: Any) -> Any:
        """Keep the first `MOST_KEYS` keys: one of them is unknown, and each further one would become an error too."""
        return dict(islice(value.items(), MOST_KEYS)) if isinstance(value, dict) and len(value) > MOST_KEYS else value


class AskedLimits(Body):
    """Limits of a query, within those of the server."""

    timeout_s: float | None = Field(default=None, gt=0, le=1_000_000)
    rows: int | None = Field(default=None, ge=1, description="A query with more rows fails.")
    bytes: int | None = Field(default=None, ge=1, description="A query with more bytes fails.")
    row_bytes: int | None = Field(default=None, ge=1, description="A query with a row of more bytes fails.")
    limit: int | None = Field(default=None, ge=1, description="Keep only the first rows.")
    scan_rows: int | None = Field(default=None, ge=1)
    scan_bytes: int | None = Field(default=None, ge=1)


class AskedBudget(Body):
    """The budget of a run, within that of the server."""

    steps: int | None = Field(default=None, ge=1)
    wall_s: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, ge=1)
    cost_usd: float | None = Field(default=None, gt=0)
    rows: int | None = Field(default=None, ge=1)


def given_limits(asked: AskedLimits | AskedBudget | None) -> dict[str, Any]:
    """The limits that a caller gave, by name."""
    return asked.model_dump(exclude_none=True) if asked is not None else {}


class Listing(Entity, Generic[T]):
    """One page of a list; `next` is the cursor of the next page."""

    items: list[T]
    next: str | None = None


class SqlRequest(Body):
    """A query in the dataset's own dialect."""

    dataset: str | None = Field(default=None, max_length=200, description="May be omitted if there is only one.")
    query: str = Field(min_length=1, max_length=TEXT)
    limit: int = Field(default=1000, ge=1, le=100_000, description="Rows in the answer; the run keeps all of them.")
    limits: AskedLimits | None = Field(default=None, description="Lower limits than those of the server.")
    thread_id: str | None = Field(default=None, max_length=100)
    record: bool = Field(default=True, description="Whether the query is recorded as a run.")


class QuestionRequest(Body):
    """A question in words."""

    dataset: str | None = Field(default=None, max_length=200)
    question: str = Field(min_length=1, max_length=TEXT)
    thread_id: str | None = Field(default=None, max_length=100)
    model: str | None = Field(default=None, max_length=200)
    budget: AskedBudget | None = None
    fresh: bool = Field(default=False, description="Do not replay an earlier run with the same question.")


class SearchFilter(Body):
    """Which documents may be found."""

    tables: list[Annotated[str, Field(max_length=1000)]] | None = Field(default=None, min_length=1, max_length=100)


class SearchRequest(Body):
    """Words to search for, by what they say and by what they mean."""

    query: str = Field(min_length=1, max_length=2_000)
    dataset: str | None = Field(
        default=None,
        max_length=200,
        validation_alias=AliasChoices("dataset", "source"),
        description="All datasets of the tenant by default.",
    )
    kinds: list[Kind] | None = Field(default=None, min_length=1, max_length=len(KINDS))
    filter: SearchFilter | None = None
    k: int = Field(default=10, ge=1, le=100)
    offset: int = Field(default=0, ge=0, le=1_000)
    mode: Mode = "hybrid"


class MatchRequest(Body):
    """Rows to find: a filter that holds exactly, and what they should be similar to."""

    dataset: str | None = Field(
        default=None,
        max_length=200,
        validation_alias=AliasChoices("dataset", "source"),
        description="May be omitted if there is only one.",
    )
    table: str = Field(min_length=1, max_length=1_000)
    where: (
        Annotated[str, Field(max_length=20_000)]
        | dict[str, Any]
        | Annotated[list[dict[str, Any]], Field(max_length=100)]
        | None
    ) = Field(default=None, description="A condition in the dataset's SQL, or filters of a QueryPlan.")
    like: Annotated[str, Field(min_length=1, max_length=20_000)] | dict[str, Any] = Field(
        description='A text, or the key of a row such as {"id": 17}.'
    )
    columns: list[Annotated[str, Field(max_length=1_000)]] = Field(
        default=[], max_length=20, description="The columns to compare; the catalog chooses them by default."
    )
    facets: list[Annotated[str, Field(max_length=1_000)]] = Field(default=[], max_length=8)
    k: int = Field(default=10, ge=1, le=1_000)
    offset: int = Field(default=0, ge=0, le=100_000)


class ChatMessage(Body):
    """A person's message in a thread; without `thread_id`, a new thread starts."""

    message: str = Field(min_length=1, max_length=TEXT)
    dataset: str | None = Field(default=None, max_length=200)
    thread_id: str | None = Field(default=None, max_length=100)
    model: str | None = Field(default=None, max_length=200)
    cancel_on_disconnect: bool = Field(default=False, description="Cancel the run if the client disconnects.")
    fresh: bool = Field(default=False, description="Do not replay an earlier run with the same question.")


class RunRequest(Body):
    """A run to start. `text` is the query, the code, the question, or the QueryPlan as JSON or as an object.

    `query_type` and `query` are other names for `kind` and `text`.
    """

    kind: Literal["sql", "python", "plan", "ask"] = Field(validation_alias=AliasChoices("kind", "query_type"))
    text: RunText = Field(min_length=1, max_length=TEXT, validation_alias=AliasChoices("text", "query"))
    dataset: str | None = Field(default=None, max_length=200)
    thread_id: str | None = Field(default=None, max_length=100)
    model: str | None = Field(default=None, max_length=200)
    budget: AskedBudget | None = None
    limits: AskedLimits | None = None
    fresh: bool = Field(default=False, description="Do not replay an earlier run with the same question.")


class ListedRun(RunSummary):
    """A run in a list: a long text is cut, and `GET /runs/{id}` has all of it."""

    text_cut: bool = Field(default=False, description="Whether `text` is only the beginning.")


class RunState(Entity):
    """The state of a run."""

    id: str
    status: RunStatus
    seq: int
    requested: Literal["pause", "cancel"] | None = None
    question: str | None = None
    choices: list[str] = []
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    answer: str | None = None
    result: ResultInfo | None = None
    error: dict[str, Any] | None = None


class AnswerRequest(Body):
    """A person's answer to a waiting run."""

    text: str = Field(min_length=1, max_length=TEXT)


class RunGuidance(Body):
    """What a person tells the model of a run while it works."""

    guidance: str = Field(min_length=1, max_length=TEXT)


class ReplayReport(Entity):
    """A recorded run that was executed again."""

    run_id: str
    question: str
    source: str
    steps: tuple[StepProof, ...]
    same: bool
    """Whether every step gave the recorded result."""
    sentence: str


class FeedbackRequest(Body):
    """A person's verdict on the answer of a run."""

    verdict: Verdict
    comment: str = Field(default="", max_length=4000)


class WithdrawRequest(Body):
    """Why a script shall answer nothing from now on."""

    reason: str = Field(default="", max_length=2000)


class ScriptUsage(Entity):
    """A run that a script was used or tried for."""

    run_id: str
    level: str
    """How it was used: `replay`, `repair` and `patch` answered; `example` and `shadow` did not."""
    at: datetime


class ScriptSummary(Entity):
    """A script that was compiled from a run."""

    id: str
    run_id: str
    source: str
    question: str
    state: Literal["active", "example", "superseded", "suspended", "withdrawn"]
    reason: str
    """Why it is not active; empty if it is."""
    created_at: datetime
    uses: list[ScriptUsage]


class QuestionList(Entity):
    """Questions that the rules can answer."""

    questions: list[str]


class EditSummary(Entity):
    """An edit of code: what it changes, why, and what it did to the tests."""

    id: str
    repo: str
    proposer: str
    status: Literal["refused", "dropped", "proposed", "merged", "reverted"]
    created_at: datetime
    rationale: str
    reason: str
    """Why it has this status."""
    hunks: list[dict[str, Any]]
    """Each with `path`, `old` and `new`."""
    score_before: float | None = None
    """The share of tests that passed without it ..."""
    score_after: float | None = None
    """... and with it."""
    wins: int | None = None
    """Tests that passed only with it ..."""
    losses: int | None = None
    """... and only without it."""
    e_value: float | None = None
    """The evidence that it helps: beyond 20, an error is less likely than 5%."""
    facts: dict[str, Any] = {}
    """Everything else that is on record, such as `commit` and `watch`."""


class RevertRequest(Body):
    """Why an edit is taken back."""

    reason: str = Field(default="somebody asked for it", min_length=1, max_length=2000)


class CurvePoint(Entity):
    """One run of a suite of tests."""

    at: datetime
    repo: str
    suite: str
    stage: str
    edit_id: str | None
    passed: int
    total: int
    interval: tuple[float, float]
    """The 95% interval of the share of tests that pass."""


class DraftSummary(Entity):
    """A draft of a playbook, which the observer wrote; it is shown to no model yet."""

    name: str
    description: str
    text: str
    """The whole SKILL.md."""
    state: Literal["draft", "refused"]


class RefuseRequest(Body):
    """Why a draft is refused."""

    reason: str = Field(default="", max_length=2000)


class FindingSummary(Entity):
    """Failures that have a common cause."""

    kind: str
    error_key: str
    count: int
    of: int
    first_at: datetime
    last_at: datetime
    diagnosis: str
    suggestion: str
    evidence: list[str]


class Dataset(Entity):
    """A dataset in a list, without its URL."""

    id: str
    kind: str
    tables: list[str] | None = None
    """The granted tables; None for all."""
    removable: bool = False
    """Whether it was added over HTTP, and can be removed there."""


class ForkRequest(Body):
    """A copy of a thread."""

    until: int | None = Field(default=None, ge=1, le=1 << 31, description="Copy the messages up to this one.")


class ThreadRequest(Body):
    """A new thread."""

    title: str = Field(default="New thread", min_length=1, max_length=500)
    dataset: str | None = Field(default=None, max_length=200)


_WORKED = re.compile(r"\s*(ok|success|succeeded|worked|passed|pass|true|done)", re.IGNORECASE)
_FAILED = re.compile(r"\s*(fail|error|broke|false|wrong|timeout)", re.IGNORECASE)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read_outcome(result: Any) -> str:
    """Return the outcome of a report from its result: a truth value, or a text that begins with the outcome."""
    if isinstance(result, bool):
        return "worked" if result else "failed"
    text = result if isinstance(result, str) else ""
    return "worked" if _WORKED.match(text) else "failed" if _FAILED.match(text) else "note"


class ReportRequest(Body):
    """An agent's report of its work: what it was asked, what it did, whether that worked.

    It may also have the shape `{operation, approach, result, context}`, of which only `operation` is needed.
    """

    text: str = Field(min_length=1, max_length=TEXT)
    dataset: str | None = Field(default=None, max_length=200)
    code: str | None = Field(default=None, max_length=TEXT)
    outcome: Literal["worked", "failed", "note"] = "note"
    run_id: str | None = Field(default=None, max_length=100)

    @model_validator(mode="before")
    @classmethod
    def _read_operation(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "operation" not in value or "text" in value:
            return value
        left = dict(value)
        operation, approach, result = (left.pop(key, None) for key in ("operation", "approach", "result"))
        context = left.pop("context", None)
        if isinstance(context, dict):
            left = {key: context[key] for key in ("dataset", "run_id") if context.get(key)} | left
        named = (("result", result), ("context", context))
        text = "\n".join([_as_text(operation), *(f"{name}: {_as_text(part)}" for name, part in named if part)])
        code = None if approach is None else _as_text(approach)
        return {"text": text, "code": code, "outcome": _read_outcome(result)} | left


class KeyRequest(Body):
    """A new key."""

    name: str = Field(min_length=1, max_length=200)
    role: Role
    limits: KeyLimits = KeyLimits()
    days: int | None = Field(default=None, ge=1, le=3650, description="Days until it expires.")


class NewKey(Entity):
    """A new key with its secret, which is shown only once."""

    id: str
    tenant: str
    name: str
    role: Role
    key: str


class LoginRequest(Body):
    """A key to open a session with."""

    key: str = Field(min_length=1, max_length=300)


class Login(Entity):
    """The session of a browser. Requests that change something must send `csrf` in the header X-CSRF-Token."""

    tenant: str
    role: Role | None
    key: str | None = None
    csrf: str | None = None
    keys: bool
    """Whether this server requires keys."""


class PartStatus(Entity):
    """The state of a part of the server."""

    ok: bool
    detail: str = ""


class Health(Entity):
    """The state of the server."""

    ok: bool
    version: str
    parts: dict[str, PartStatus] = {}


class Gpu(Entity):
    """A GPU."""

    name: str
    memory_bytes: int
    used_bytes: int


class LocalModelStatus(Entity):
    """A model that the local model server holds in memory."""

    name: str
    bytes: int
    vram_bytes: int


class Vram(Entity):
    """The memory that local models use; `detail` says if there is nothing to report."""

    gpus: list[Gpu] = []
    models: list[LocalModelStatus] = []
    detail: str = ""


class PlaybookChange(Entity):
    """A change of a playbook."""

    version: str
    change: Literal["added", "edited", "admitted", "promoted", "pinned", "retired", "quarantined"]
    reason: str
    at: datetime
    text: str = ""
    """The whole SKILL.md, if the change made a new version."""


class PlaybookRequest(Body):
    """A playbook to add, as the text of a SKILL.md."""

    text: str = Field(min_length=1, max_length=TEXT)
    pin: bool = False
