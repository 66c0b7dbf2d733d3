"""Turn a provider's failure into an error for the user: what to do, whether to retry, and no secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from etude.errors import ModelError, ModelUnavailable
from etude.models.base import AssistantMessage, ModelRequest, SystemMessage
from etude.models.provider_client import provider_key_hint
from etude.redaction import redact
from etude.settings import ModelSettings

_QUOTED = 16
"""A provider's message that shares this many characters in a row with the conversation counts as quoting it."""


class BrokenOff(Exception):
    """A stream ended before the turn was complete."""


@dataclass(frozen=True)
class ProviderFailure:
    """A failed attempt. `reason` is one of a fixed set of words; `after` is how many seconds the provider asks to wait.

    `words` is the provider's own message, or empty.
    """

    reason: str
    status: int | None
    retry: bool
    after: float | None
    words: str
    suggestion: str = ""


def read_provider_failure(error: Exception) -> ProviderFailure:
    """Classify an exception from the provider library."""
    from pydantic_ai import exceptions as known

    kinds: tuple[tuple[type[Exception], str, bool], ...] = (
        (BrokenOff, "broken_off", True),
        (known.ModelContextWindowExceededError, "context", False),
        (known.ModelAuthenticationError, "key", False),
        (known.ModelNotFoundError, "unknown_model", False),
        (known.ModelQuotaExceededError, "quota", False),
        (known.ModelRequestRejectedError, "rejected", False),
        (known.ModelRateLimitError, "rate", True),
        (known.ModelUnavailableError, "provider", True),
        (known.ModelServerError, "provider", True),
        (known.ModelTimeoutError, "timeout", True),
        (known.ModelConnectionError, "connection", True),
        (known.ModelHTTPError, "rejected", False),
        (known.ModelAPIError, "provider", True),
        (known.UserError, "rejected", False),
    )
    # Any other exception means that the answer could not be parsed: a proxy sent HTML, or a stream broke mid-event.
    reason, retry = next(((r, again) for cls, r, again in kinds if isinstance(error, cls)), ("unreadable", True))
    status = error.status_code if isinstance(error, known.ModelHTTPError) else None
    if reason == "rejected" and status in (408, 409, 425):
        reason, retry = "provider", True
    if isinstance(error, known.ModelConnectionError) and error.phase == "read" and reason == "connection":
        reason = "broken_off"
    return ProviderFailure(
        reason=reason,
        status=status,
        retry=retry,
        after=error.retry_after if isinstance(error, known.ModelAPIError) else None,
        words=_words(error.body) if isinstance(error, known.ModelAPIError) else "",
        suggestion=(error.suggested_model_id or "") if isinstance(error, known.ModelHTTPError) else "",
    )


def explain_provider_failure(
    failure: ProviderFailure, name: str, settings: ModelSettings, request: ModelRequest, key: str, tries: int
) -> ModelError:
    """Return the error for the user. It includes the provider's message only if that quotes nothing of the request."""
    provider, _, model = name.partition(":")
    setting = f"models.{provider}"
    what, hint = {
        "context": (
            f"The conversation is too long for the model `{name}`",
            "Ask for less at once, or use a model with a larger context.",
        ),
        "key": (f"The provider `{provider}` does not accept the API key for `{model}`", provider_key_hint(provider)),
        "unknown_model": (
            f"The provider `{provider}` has no model `{model}`",
            f"Did you mean `{failure.suggestion}`?"
            if failure.suggestion
            else f"Check the name of the model and `{setting}.base_url`.",
        ),
        "quota": (f"The account at `{provider}` has no quota left for `{model}`", "Check its billing and limits."),
        "rejected": (f"The provider `{provider}` rejected the request to `{model}`", f"Check `{setting}.options`."),
        "rate": (
            f"The provider `{provider}` limits the rate of requests to `{model}`",
            f"Try later, or let etude wait longer with `{setting}.tries` and `{setting}.wait_s`.",
        ),
        "provider": (
            f"The provider `{provider}` failed to answer for `{model}`",
            "Try later; the failure is on the provider's side.",
        ),
        "timeout": (
            f"The provider `{provider}` sent nothing for `{model}` within {settings.timeout_s:g} s",
            f"Try later, or raise `{setting}.timeout_s`.",
        ),
        "connection": (
            f"The provider `{provider}` of `{model}` cannot be reached"
            + (f" at `{redact(settings.base_url)}`" if settings.base_url else ""),
            f"Check the network and `{setting}.base_url`.",
        ),
        "broken_off": (f"The answer of the model `{name}` broke off before it was complete", "Ask again."),
        "unreadable": (
            f"The provider `{provider}` sent a response for `{model}` that cannot be read",
            f"Check `{setting}.base_url`: it must be the address of an API, such as `https://host/v1`.",
        ),
    }[failure.reason]
    status = f" (HTTP {failure.status})" if failure.status else ""
    tried = f", tried {tries} times" if tries > 1 else ""
    words = "" if failure.reason == "key" else _unquoted(failure.words, request, key)
    message = f"{what}{status}{tried}" + (f": {words}" if words else ".")
    kind = ModelUnavailable if failure.retry else ModelError
    return kind(message, hint=hint, provider=provider, model=model, reason=failure.reason, http_status=failure.status)


def _words(body: object) -> str:
    """Return the message in the body of an error, in the format that most providers use."""
    found = body.get("error", body) if isinstance(body, dict) else None
    words = found.get("message") if isinstance(found, dict) else found
    return re.sub(r"\s+", " ", words).strip()[:300] if isinstance(words, str) else ""


def _unquoted(words: str, request: ModelRequest, key: str) -> str:
    """Return the message, or nothing if it quotes the conversation or the API key."""
    if not words or (key and key in words):
        return ""
    shown = [
        u.turn.model_dump_json() if isinstance(u, AssistantMessage) else u.text
        for u in request.conversation
        if not isinstance(u, SystemMessage)
    ]
    parts = [words[n : n + _QUOTED] for n in range(max(1, len(words) - _QUOTED + 1))]
    for text in shown:
        if (text.strip() and text.strip() in words) or any(part in text for part in parts):
            return ""
    return words
