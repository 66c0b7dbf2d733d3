"""Headers of responses: ETags, and secrets that no log may show."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from fastapi import Response


def mark_response_secret(scope: MutableMapping[str, Any]) -> None:
    """Mark the response as secret, so that it is not kept for replay."""
    scope["state"]["secret"] = True


def respond_with_etag(body: Any, tag: str, known: str | None, response: Response) -> Any:
    """Return the body with its ETag, or 304 if the caller has it already."""
    if known is not None and tag in [part.strip().removeprefix("W/") for part in known.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return body
