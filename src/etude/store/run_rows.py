"""Runs and their events as rows of a database."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from etude.errors import Invalid, Unavailable
from etude.store.search_words import split_store_search_words
from etude.store.stored_time import store_time

# The models load slowly, so the functions that use them import them: `etude sql` records a query without them.
if TYPE_CHECKING:
    from etude.entities import Run, RunFilter, RunSummary
    from etude.events import Entry, Event


@dataclass(frozen=True)
class RunRow:
    """A run as lists and searches see it, in the order of the columns of `PUT_RUN`."""

    id: str
    kind: str
    text: str
    source: str | None
    thread_id: str | None
    parent: str | None
    worker: str | None
    status: str
    seq: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    row_count: int | None = None
    truncated: bool = False
    error_code: str | None = None
    elapsed_ms: float | None = None
    usage: str = "{}"

    def values(self) -> list[object]:
        """Return the values for `PUT_RUN`, except the tenant."""
        # The log keeps the exact text; this row holds what databases can store and search.
        text = self.text.replace("\0", "\ufffd")
        id, kind, _, *rest = (getattr(self, field.name) for field in fields(self))
        return [id, kind, text, " ".join(split_store_search_words(text)), *rest]


def make_run_row(run: Run, at: datetime) -> RunRow:
    """Return the run as lists and searches see it."""
    from etude.events import summarise_run

    s = summarise_run(run)
    return RunRow(
        s.id,
        s.kind,
        s.text,
        s.source,
        s.thread_id,
        s.parent,
        run.worker,
        s.status,
        s.seq,
        s.created_at,
        at,
        s.ended_at,
        s.row_count,
        s.truncated,
        s.error_code,
        s.elapsed_ms,
        s.usage.model_dump_json(),
    )


def find_event_artifacts(event: Event) -> list[str]:
    """Return the hashes of the artifacts that an event refers to."""
    from etude.events import RunFinished

    artifact = getattr(event, "artifact", None)
    shown = [each.artifact.hash for each in event.shown] if isinstance(event, RunFinished) else []
    return shown if artifact is None else [artifact.hash, *shown]


def event_to_json(event: Event) -> str:
    """Return the body of an event as the log keeps it."""
    from pydantic_core import PydanticSerializationError

    try:
        return event.model_dump_json()
    except PydanticSerializationError as error:
        raise Invalid(f"The {event.type} event cannot be written as JSON: {error}.") from error


def event_from_json(body: str, run_id: str) -> Event:
    """Return the event of a body."""
    from pydantic import ValidationError

    from etude.events import EVENT, Event

    try:
        return EVENT.validate_json(body)
    except ValidationError as error:
        from etude.validation import explain_validation

        raise explain_validation(error, f"an event of run `{run_id}`", model=Event) from error


def read_log_entry(row: tuple[Any, ...]) -> Entry:
    """Return the entry of a row of `ENTRIES`."""
    from pydantic import ValidationError

    from etude.events import EVENT, Entry

    run_id, seq, at, body = row
    try:
        return Entry(run_id=run_id, seq=seq, at=store_time(at), event=EVENT.validate_json(body))
    except ValidationError as error:
        raise Unavailable(
            f"Entry {seq} of run `{run_id}` cannot be read by this etude.",
            hint="Upgrade etude: a newer one may have written it.",
        ) from error


def read_run_summary(row: tuple[Any, ...]) -> RunSummary:
    """Return the summary of a row of `RUNS`."""
    from etude.entities import RunSummary

    fields = dict(zip(RunSummary.model_fields, row))
    fields["created_at"] = store_time(fields["created_at"])
    fields["ended_at"] = store_time(fields["ended_at"]) if fields["ended_at"] else None
    fields["usage"] = json.loads(fields["usage"])
    return RunSummary(**fields)


def run_filter_conditions(filter: RunFilter) -> tuple[list[str], list[object]]:
    """Return the conditions of a filter, except its text, and their values."""
    wanted: list[tuple[str, object]] = [
        ("status = ?", filter.status),
        ("kind = ?", filter.kind),
        ("source = ?", filter.source),
        ("thread_id = ?", filter.thread_id),
        ("created_at >= ?", store_time(filter.since) if filter.since else None),
        ("created_at < ?", store_time(filter.until) if filter.until else None),
    ]
    given = [(condition, value) for condition, value in wanted if value is not None]
    return [condition for condition, _ in given], [value for _, value in given]


def cut_run_texts(select: str, chars: int | None) -> str:
    """Return `RUNS`, or a query made of it, so that it reads only the beginning of each text."""
    return select if chars is None else select.replace(" text,", f" substr(text, 1, {chars:d}),", 1)
