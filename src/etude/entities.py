"""The entities of etude as immutable models, shared by files, processes and the network."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from etude.defaults import RESULT_BYTES, ROW_BYTES, TIMEOUT_S


class Entity(BaseModel):
    """An immutable model without extra fields: an unknown field is an error, so that typos are found."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(Entity):
    """A column of a table; `type` is the name that the source's engine uses."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


class ForeignKey(Entity):
    """`columns` of this table refer to `to_columns` of `to_table` (a name as in `Table.name`)."""

    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]


class TotalRow(Entity):
    """Rows of a file that add up others, by a column and its value there; null if only there the column is empty."""

    column: str
    value: str | None = None


class Table(Entity):
    """A table or view. `name` is its name in a query, schema-qualified only if necessary."""

    name: str
    kind: Literal["table", "view"] = "table"
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str | None = None
    row_count: int | None = None
    row_count_exact: bool = True
    bytes: int | None = None
    fingerprint: str | None = None
    notes: tuple[str, ...] = ()
    totals: tuple[TotalRow, ...] = ()
    """Rows that the notes call totals: rules leave them out."""


class Catalog(Entity):
    """The tables of a source. `fingerprint` changes when tables, columns or types change."""

    source: str
    kind: str
    dialect: str
    tables: tuple[Table, ...]
    fingerprint: str
    notes: tuple[str, ...] = ()
    """Parts that could not be read, and why."""
    warnings: tuple[str, ...] = ()
    """What the role of a database server may do beyond reading the granted tables."""

    def table(self, name: str) -> Table | None:
        """Return the table of that name, ignoring case, or None."""
        wanted = name.lower()
        return next((t for t in self.tables if t.name.lower() == wanted), None)


class UploadedFile(Entity):
    """A file of an uploaded source."""

    name: str
    """Its own name, from which the name of its table is made."""
    place: str
    """The name of the object that holds it."""
    size: int
    hash: str
    """The SHA-256 of its bytes."""


class SourceSpec(Entity):
    """The address of a source: `url` is a path, a glob or a URL, or a reference to one: `env:NAME` or `file:PATH`."""

    url: str
    kind: str = ""
    tables: tuple[str, ...] | None = None
    """Only these tables are granted; None grants all."""
    options: dict[str, str] = Field(default_factory=dict)
    uploaded: tuple[UploadedFile, ...] = ()
    """The files of a source that was uploaded; the object store keeps them."""
    by: str = ""
    """The caller who added it over HTTP and may remove it there; empty if the operator did."""


class Limits(Entity):
    """The limits of one query. Except for the time, zero means no limit. A result is complete, or an error says why."""

    timeout_s: float = Field(default=TIMEOUT_S, gt=0, le=1_000_000)
    rows: int = Field(default=0, ge=0)
    """A query whose result has more rows than this fails."""
    bytes: int = Field(default=RESULT_BYTES, ge=0)
    """A query whose result has more bytes than this fails."""
    row_bytes: int = Field(default=ROW_BYTES, ge=0)
    """A query whose result has a row of more bytes than this fails."""
    limit: int = Field(default=0, ge=0)
    """Return only the first rows. The one limit that cuts a result, and so a caller asks for it with each query."""
    scan_rows: int = Field(default=0, ge=0)
    """Refuse, before it starts, a query estimated to read more rows than this."""
    scan_bytes: int = Field(default=0, ge=0)
    """Refuse, before it starts, a query estimated to read more bytes than this."""


class SessionLimits(Entity):
    """The limits of a session. `wall_s` and `output` apply to each cell, the others to the session."""

    wall_s: float = Field(default=60.0, gt=0)
    """Seconds until a cell is stopped."""
    cpu_s: int = Field(default=3600, gt=0)
    """Seconds of CPU time for the session and all processes it starts."""
    memory: int = Field(default=2 << 30, ge=64 << 20)
    """Private memory for each process."""
    cpus: float = Field(default=0.0, ge=0)
    """CPUs that a session may use; 0 for all. Needs a control group."""
    processes: int = Field(default=64, ge=1)
    """Processes and threads."""
    open_files: int = Field(default=256, ge=16)
    """Open files for each process."""
    scratch: int = Field(default=256 << 20, ge=1 << 20)
    """Bytes of files that a session may hold."""
    output: int = Field(default=1 << 20, ge=1024)
    """Bytes of printed text that are kept for each cell."""


class Estimate(Entity):
    """The engine's estimate before a query: rows and bytes read, rows returned. None if unknown."""

    scan_rows: int | None = None
    scan_bytes: int | None = None
    result_rows: int | None = None


class Read(Entity):
    """A table that a step read, and the fingerprint of its data at that time if the source provides one."""

    source: str
    table: str
    fingerprint: str | None = None


class ResultColumn(Entity):
    """A column of a result."""

    name: str
    type: str


class ResultInfo(Entity):
    """The shape of a result; the artifact holds the rows."""

    columns: tuple[ResultColumn, ...]
    row_count: int
    truncated: bool = False
    bytes: int = 0


class Artifact(Entity):
    """An immutable file, named by the SHA-256 of its bytes."""

    hash: str
    media: str
    size: int


class Usage(Entity):
    """Tokens, model calls and cost."""

    tokens_in: int = 0
    tokens_cached: int = 0
    """Tokens that the provider read from its cache; they are among `tokens_in`."""
    tokens_out: int = 0
    model_calls: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(**{f: getattr(self, f) + getattr(other, f) for f in Usage.model_fields})


class ToolCall(Entity):
    """A tool call of a model. `arguments` is the text it wrote, which may not be valid JSON."""

    id: str
    name: str
    arguments: str


class Turn(Entity):
    """A turn of a model: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: Literal["end", "calls", "length", "refused"] = "end"
    confidence: float | None = None
    """How likely the rules think that they understood the question; None if a model wrote the turn."""


class Budget(Entity):
    """The budget of a run, for all its steps together. Except for steps and seconds, zero means no limit."""

    steps: int = Field(default=24, ge=1)
    """Model turns."""
    wall_s: float = Field(default=600.0, gt=0)
    """Seconds, without the time that a person takes to answer."""
    tokens: int = Field(default=400_000, ge=0)
    """Tokens, input and output."""
    cost_usd: float = Field(default=0.0, ge=0)
    """Cost in US dollars, if the price of the model is known."""
    rows: int = Field(default=0, ge=0)
    """Rows of all results together."""


class Figure(Entity):
    """A figure of an answer that etude computed from an expression of the model; `start` and `end` are its place."""

    start: int
    end: int
    text: str
    """The figure as the answer shows it."""
    value: str
    """The exact value."""
    result: str
    """The results that it comes from, such as `r1`."""
    expression: str


class ShownResult(Entity):
    """A result that an answer shows; `id` is its short name in the run, such as `r1`."""

    id: str
    step_id: str
    result: ResultInfo
    artifact: Artifact


RunKind = Literal["sql", "plan", "python", "ask", "catalog"]
RunStatus = Literal["queued", "running", "paused", "waiting", "succeeded", "failed", "cancelled"]
StepKind = Literal["sql", "python", "model", "tool"]
Outcome = Literal["ok", "error", "refused", "limit", "cancelled"]
ENDED: frozenset[RunStatus] = frozenset({"succeeded", "failed", "cancelled"})
STOPPED: frozenset[RunStatus] = ENDED | {"waiting", "paused"}
"""Statuses of a run that is not being worked on; it may still be continued."""


class Step(Entity):
    """One step of a run, as folded from its events."""

    id: str
    kind: StepKind
    code: str
    dialect: str | None = None
    source: str | None = None
    parent: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    plan: dict[str, Any] | None = None
    seed: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    schema_fingerprint: str | None = None
    limits: Limits | None = None
    estimate: Estimate | None = None
    started_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    reads: tuple[Read, ...] = ()
    result: ResultInfo | None = None
    artifact: Artifact | None = None
    error: dict[str, Any] | None = None
    error_key: str | None = None
    elapsed_ms: float | None = None
    usage: Usage = Usage()
    turn: Turn | None = None
    shown: str | None = None


GuidedBy = Annotated[
    Literal["user", "check", "chart", "origins", "budget"],
    BeforeValidator(lambda given: "check" if given == "gate" else given),
]
"""Who guides a model: a person, the check of its answer, that of its chart or of the origins of figures, or a limit.

Older logs call the check `gate`.
"""


class Guidance(Entity):
    """Guidance for the model that arrived when the run had `after` steps."""

    text: str
    by: GuidedBy = "user"
    interrupts: bool = False
    after: int


ReplayLevel = Literal["replay", "repair", "patch", "example", "scratch", "shadow"]


class Replay(Entity):
    """How the script of an earlier run served this run, or why it did not."""

    level: ReplayLevel
    """`replay` and `repair` answered without a model, `patch` after a model corrected one step. `example`: the script
    was only shown to a model, because the question is another one or the script does not fit the data any more.
    `scratch`: nothing was used. `shadow`: the script ran beside a fresh run, and both were compared."""
    cause: str = ""
    """Why it was not a plain replay, in a word: `no script`, `guard`, `schema`, `parameter`, `day` and others."""
    reason: str = ""
    """The same in a sentence; empty if it was a plain replay."""
    script: str | None = None
    origin: str | None = None
    """The run that the script was compiled from."""
    origin_at: datetime | None = None
    guards: int = 0
    """Guards that passed."""
    parameters: dict[str, str] = {}
    tokens_saved: int = 0
    tokens: int = 0
    """Tokens that a patch took."""
    elapsed_ms: float = 0.0
    reading: str = ""
    """How the rules understood the question when the origin ran."""
    agrees: bool | None = None
    """Of a shadow: whether both gave the same result."""
    similar: str = ""
    """A similar question that was answered before, if no script answers this one."""

    @property
    def sentence(self) -> str:
        """What a person sees of it; empty if the run was answered without a script."""
        if self.level not in ("replay", "repair", "patch") or self.origin is None or self.origin_at is None:
            return ""
        guards = f"{self.guards} guard{'' if self.guards == 1 else 's'} passed"
        repaired = f" {self.reason}" if self.reason else ""
        day = f"{self.origin_at.day} {self.origin_at:%B %Y}"
        used = f"{self.tokens:,} tokens, {self.elapsed_ms:,.0f} ms"
        return f"Answered by replaying {self.origin} from {day}.{repaired} {guards}. {used}."

    @property
    def suggestion(self) -> str:
        """A similar question for a person who may have meant it; empty if there is none."""
        return f"Did you mean “{self.similar}”? It was answered before." if self.similar else ""


class Judgement(Entity):
    """What a person said about an answer."""

    verdict: Literal["right", "wrong"]
    comment: str = ""
    by: str = ""
    """The name of the key; empty on a server without keys."""
    suspended: tuple[str, ...] = ()
    """Scripts that answer nothing from then on."""


class Run(Entity):
    """A durable unit of work: the fold of its events."""

    id: str
    kind: RunKind
    text: str
    source: str | None = None
    thread_id: str | None = None
    parent: str | None = None
    location: str | None = None
    model: str | None = None
    budget: Budget | None = None
    limits: Limits | None = None
    params: dict[str, Any] = {}
    worker: str | None = None
    status: RunStatus = "queued"
    requested: Literal["pause", "cancel"] | None = None
    paused_by: str = ""
    seq: int = 0
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    steps: tuple[Step, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    result: ResultInfo | None = None
    result_artifact: Artifact | None = None
    answer: str | None = None
    code: str | None = None
    chart: dict[str, Any] | None = None
    unverified: tuple[str, ...] = ()
    shown: tuple[ShownResult, ...] = ()
    figures: tuple[Figure, ...] = ()
    guidance: tuple[Guidance, ...] = ()
    question: str | None = None
    """The last question to the person."""
    choices: tuple[str, ...] = ()
    call: str = ""
    reply: str | None = None
    """The person's answer; None while the run waits."""
    error: dict[str, Any] | None = None
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()
    replay: Replay | None = None
    script: str | None = None
    """The script that was compiled from this run."""
    feedback: Judgement | None = None
    """The last verdict of a person."""

    def write_json(self) -> Iterator[str]:
        """Yield its JSON in pieces of one step, because a run can have megabytes."""
        yield self.model_dump_json(exclude={"steps"})[:-1] + ',"steps":['
        for position, step in enumerate(self.steps):
            yield ("," if position else "") + step.model_dump_json()
        yield "]}"


class RowPage(Entity):
    """Rows of a result as JSON: dates as ISO text, bytes as hex, numbers that JSON cannot represent as text."""

    run_id: str | None
    columns: list[ResultColumn]
    rows: list[list[Any]]
    row_count: int
    """Rows on all pages, after filters."""
    offset: int = 0
    next: int | None = None
    """The offset of the next page."""
    truncated: bool
    """Whether the result was cut when it was computed, because the caller asked for its first rows."""
    elapsed_ms: float
    notes: list[str] = []


class ShownRows(Entity):
    """A result that the answer shows, with its first rows."""

    id: str
    """Its short name in the run, such as `r1`."""
    rows: RowPage


class AnswerBody(Entity):
    """An answer as JSON, the same on every surface."""

    run_id: str
    thread_id: str | None
    status: RunStatus
    text: str
    """The answer; if the run waits, the question that it asks."""
    question: str | None = None
    """The question to answer before the run can continue: POST /api/runs/{run_id}/answer."""
    choices: list[str] = []
    result: RowPage | None = None
    """The first rows of the result behind the answer: the first of `results`."""
    results: list[ShownRows] = []
    """The results that the answer shows, in order."""
    code: str | None = None
    chart: dict[str, Any] | None = None
    reading: str | None = None
    """How the rules understood the question; None if a model answered."""
    confidence: float | None = None
    """How likely the rules think that they understood the question; null if a model answered."""
    unverified: list[str] = []
    """Numbers of the answer that no result holds."""
    figures: list[Figure] = []
    """Numbers of the answer that etude computed, each with its expression and its result."""
    usage: Usage = Usage()
    replayed: str | None = None
    """How the answer came about without a model, if an earlier run was replayed."""
    replay: Replay | None = None
    error: dict[str, Any] | None = None
    """Why the run failed, in the shape of a problem (RFC 9457)."""


class RunSummary(Entity):
    """A run in a list, without steps."""

    id: str
    kind: RunKind
    text: str
    source: str | None
    thread_id: str | None
    parent: str | None
    status: RunStatus
    seq: int
    created_at: datetime
    ended_at: datetime | None
    row_count: int | None
    truncated: bool
    error_code: str | None
    elapsed_ms: float | None
    usage: Usage


class RunFilter(Entity):
    """Which runs to list; None means any."""

    status: RunStatus | None = None
    kind: RunKind | None = None
    source: str | None = None
    thread_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """Words of the run's text or their beginnings, ignoring case; all must occur."""


class Thread(Entity):
    """A conversation."""

    id: str
    title: str
    source: str | None = None
    created_at: datetime
    updated_at: datetime


class Message(Entity):
    """One message of a thread. `seq` counts from 1 within the thread."""

    id: str
    thread_id: str
    seq: int
    role: Literal["user", "assistant", "system"]
    text: str
    run_id: str | None = None
    created_at: datetime
