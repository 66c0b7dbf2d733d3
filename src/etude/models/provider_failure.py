"""What went wrong with a provider, told to a user: what to do, whether to try again, and no secret in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from etude.errors import ModelError
from etude.models.base import AssistantMessage, ModelRequest, SystemMessage
from etude.models.client import key_hint
from etude.redaction import redact
from etude.settings import ModelSettings

_QUOTED = 16
"""So many characters in a row that also stand in the conversation count as a quotation of it."""


class BrokenOff(Exception):
    """A stream ended before its end."""


@dataclass(frozen=True)
class ProviderFailure:
    """A failed try. `reason` is one of a fixed set of words; `after` is how long the provider asks to wait."""

    reason: str
    status: int | None
    retry: bool
    after: float | None
    words: str
    """The provider's own message, where there is one."""
    suggestion: str = ""


def read_trouble(error: Exception) -> ProviderFailure:
    """What kind of failure this is."""
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
    # What no class is made for is an answer that could not be read: proxies send pages, and streams break in places.
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


def explain(
    trouble: ProviderFailure, name: str, settings: ModelSettings, request: ModelRequest, key: str, tries: int
) -> ModelError:
    """The error for the user. The provider's words are given only where they hold nothing of what it was sent."""
    provider, _, model = name.partition(":")
    setting = f"models.{provider}"
    what, hint = {
        "context": (
            f"The conversation is too long for the model `{name}`",
            "Ask for less at once, or take a model with a larger context.",
        ),
        "key": (f"The provider `{provider}` does not accept the key for `{model}`", key_hint(provider)),
        "unknown_model": (
            f"The provider `{provider}` has no model `{model}`",
            f"Did you mean `{trouble.suggestion}`?"
            if trouble.suggestion
            else f"Check the name of the model and `{setting}.base_url`.",
        ),
        "quota": (f"The account at `{provider}` has nothing left for `{model}`", "Check its billing and limits."),
        "rejected": (f"The provider `{provider}` rejected the request to `{model}`", f"Check `{setting}.options`."),
        "rate": (
            f"The provider `{provider}` limits the requests to `{model}`",
            f"Try later, or let etude wait longer with `{setting}.tries` and `{setting}.wait_s`.",
        ),
        "provider": (f"The provider `{provider}` failed to answer for `{model}`", "Try later; the fault is theirs."),
        "timeout": (
            f"The provider `{provider}` sent nothing for `{model}` within {settings.timeout_s:g} s",
            f"Try later, or raise `{setting}.timeout_s`.",
        ),
        "connection": (
            f"The provider `{provider}` of `{model}` cannot be reached"
            + (f" at `{redact(settings.base_url)}`" if settings.base_url else ""),
            f"Check the network and `{setting}.base_url`.",
        ),
        "broken_off": (f"The answer of the model `{name}` broke off before its end", "Ask again."),
        "unreadable": (
            f"The provider `{provider}` sent for `{model}` what is no answer of a model",
            f"Check `{setting}.base_url`: it must be the address of an API, such as `https://host/v1`.",
        ),
    }[trouble.reason]
    status = f" (HTTP {trouble.status})" if trouble.status else ""
    tried = f", tried {tries} times" if tries > 1 else ""
    words = "" if trouble.reason == "key" else _unquoted(trouble.words, request, key)
    message = f"{what}{status}{tried}" + (f": {words}" if words else ".")
    return ModelError(
        message, hint=hint, provider=provider, model=model, reason=trouble.reason, http_status=trouble.status
    )


def _words(body: object) -> str:
    """The message in the body of an error, as the usual providers write it."""
    found = body.get("error", body) if isinstance(body, dict) else None
    words = found.get("message") if isinstance(found, dict) else found
    return re.sub(r"\s+", " ", words).strip()[:300] if isinstance(words, str) else ""


def _unquoted(words: str, request: ModelRequest, key: str) -> str:
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
