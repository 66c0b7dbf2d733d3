"""Every error that a user can see: each class has a fixed code, an HTTP status, an exit code and a form as JSON."""

from __future__ import annotations

import errno
from typing import Any, ClassVar


class EtudeError(Exception):
    """The base of all errors. The message says what happened, with values; the hint says what to do."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        if hint:
            self.add_note(f"hint: {hint}")  # tracebacks end with it


class Invalid(EtudeError):
    """The input has the wrong shape or value."""

    code, title, status, exit_code = "invalid", "Invalid input", 422, 2


class InvalidQuery(Invalid):
    """The query cannot be parsed or bound; the message is the engine's own."""

    code, title = "invalid_query", "Invalid query"


class NotUnderstood(Invalid):
    """The rules do not understand the question. `details` hold `suggestions`: questions that they can answer."""

    code, title = "not_understood", "Not understood"


class Refused(EtudeError):
    """The guard refused the statement. `details` hold `reason`, and `line` and `column` if known."""

    code, title, status, exit_code = "refused", "Refused by the guard", 403, 3


class UnknownTable(Refused):
    """A name in the query is not a table that the source grants."""

    code, title, status, exit_code = "unknown_table", "Unknown table", 404, 4


class Unauthorized(EtudeError):
    """The request has no valid key."""

    code, title, status, exit_code = "unauthorized", "Unauthorized", 401, 77


class Forbidden(EtudeError):
    """The key's role does not allow the request, or the request comes from another site."""

    code, title, status, exit_code = "forbidden", "Forbidden", 403, 77


class NotFound(EtudeError):
    """The run, source, thread, artifact or file does not exist."""

    code, title, status, exit_code = "not_found", "Not found", 404, 4


class SourceMissing(NotFound):
    """The file or folder of a source does not exist, or not now: it may be on a drive that is not mounted."""

    code, title = "source_missing", "Source missing"
    retryable = True


class Conflict(EtudeError):
    """The state has changed or does not allow the request."""

    code, title, status, exit_code = "conflict", "Conflict", 409, 5


class Stale(EtudeError):
    """The object has changed since the caller read it (`If-Match`)."""

    code, title, status, exit_code = "stale", "Changed meanwhile", 412, 5


class LimitExceeded(EtudeError):
    """A limit of time, memory, rows, bytes or budget stopped the work. `details` hold `limit` and `value`."""

    code, title, status, exit_code = "limit_exceeded", "Limit exceeded", 429, 6


class SourceError(EtudeError):
    """The source's engine failed or could not be reached."""

    code, title, status, exit_code = "source_error", "Source error", 502, 7


class SourceUnavailable(SourceError):
    """The source cannot be reached now: its server is down, starts, stops or is full, or its file is gone."""

    code, title, status, exit_code = "source_unavailable", "Source unavailable", 503, 69
    retryable = True


class SourceLocked(SourceError):
    """Another program has locked the source or a table of it."""

    code, title, status, exit_code = "source_locked", "Source locked", 503, 69
    retryable = True


class SandboxError(EtudeError):
    """The sandbox could not be started as requested, or failed; never an error of the program inside."""

    code, title, status, exit_code = "sandbox_error", "Sandbox error", 502, 7


class ModelError(EtudeError):
    """The model's provider failed, or its response cannot be read."""

    code, title, status, exit_code = "model_error", "Model error", 502, 7


class ModelUnavailable(ModelError):
    """The model's provider cannot be reached, is overloaded or broke off, and did so on every attempt."""

    code, title, status, exit_code = "model_unavailable", "Model unavailable", 503, 69
    retryable = True


class Unavailable(EtudeError):
    """A part that etude needs (store, object store, an optional package) is not available now."""

    code, title, status, exit_code = "unavailable", "Unavailable", 503, 69
    retryable = True


class Damaged(Unavailable):
    """A stored file has changed since it was written. `details` hold `run_id`, `artifact` and `file` if known."""

    code, title, status, exit_code = "damaged", "Damaged file", 500, 65
    retryable = False


class Interrupted(EtudeError):
    """The process ended before its work was finished."""

    code, title, status = "interrupted", "Interrupted", 503
    retryable = True


class Cancelled(EtudeError):
    """The caller cancelled the work."""

    code, title, status, exit_code = "cancelled", "Cancelled", 499, 130


STOPS = (Cancelled, Interrupted, Unavailable, SourceUnavailable, SourceMissing)
"""Errors that say nothing about the data that was read: work that tolerates a failed table or query ends with them."""


def is_outage_error(error: BaseException | None) -> bool:
    """Return whether the same work may succeed later, without a change of the work."""
    return isinstance(error, EtudeError) and error.retryable


def is_storage_quota_error(error: BaseException | None) -> bool:
    """Return whether the storage quota of a tenant refused the work."""
    return isinstance(error, LimitExceeded) and error.details.get("limit") == "storage"


def is_disk_full(error: BaseException) -> bool:
    """True if the error says that a disk or a quota is full."""
    no_space = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    text = str(error).lower()
    return no_space or "disk is full" in text or "no space left" in text or "disk quota exceeded" in text


def disk_full_error(what: str) -> Unavailable:
    """Return the error of a write to a full disk; `what` is the start of its message."""
    return Unavailable(f"{what}: the disk is full.", hint="Free some space on it, then try again.", reason="disk_full")


def as_etude_error(error: BaseException) -> EtudeError:
    """Return the error itself, or the one to show for an error of Python: a full disk, or else a defect."""
    if isinstance(error, EtudeError):
        return error
    if isinstance(error, OSError) and is_disk_full(error):
        return disk_full_error("A file cannot be written")
    # The text of an unexpected error may contain credentials: it goes to the log, not to the user.
    return EtudeError(f"Unexpected {type(error).__name__}.", hint="This is a defect in etude; please report it.")


def problem(error: BaseException) -> dict[str, Any]:
    """Return an error in the form of RFC 9457, which HTTP, CLI, MCP and events share."""
    error = as_etude_error(error)
    body: dict[str, Any] = {
        "type": f"urn:etude:error:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": cut_message(error.message),
        "code": error.code,
        "retryable": error.retryable,
    }
    if error.hint:
        body["hint"] = cut_message(error.hint)
    more = {k: cut_message(v) if isinstance(v, str) else v for k, v in error.details.items() if v is not None}
    return body | more


MESSAGE = 10_000
"""The most characters of a message: an engine may quote a value of many megabytes, and errors are kept and sent on."""


def cut_message(text: str) -> str:
    """Return the text, cut if it is too long for a message."""
    return text if len(text) <= MESSAGE else f"{text[:MESSAGE]}... ({len(text) - MESSAGE:,} more characters)"


def _classes(base: type[EtudeError] = EtudeError) -> dict[str, type[EtudeError]]:
    found = {base.code: base}
    for child in base.__subclasses__():
        # A class without its own code must not replace its parent.
        found = _classes(child) | found
    return found


def from_problem(body: dict[str, Any]) -> EtudeError:
    """Return the error that `problem` described, after it has crossed a process boundary."""
    cls = _classes().get(body.get("code", ""), EtudeError)
    known = {"type", "title", "status", "detail", "code", "retryable", "hint"}
    details = {k: v for k, v in body.items() if k not in known}
    return cls(cut_message(body.get("detail", "")), hint=cut_message(body.get("hint", "")), **details)
