"""Responses: ETags, JSON in pieces, and secrets that no log may show."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from fastapi import Response
from fastapi.responses import StreamingResponse

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

PIECE = 1 << 18
"""Characters of JSON that are sent at once."""


def mark_response_secret(scope: MutableMapping[str, Any]) -> None:
    """Mark the response as secret, so that it is not kept for replay."""
    scope["state"]["secret"] = True


def respond_with_etag(body: Any, tag: str, known: str | None, response: Response) -> Any:
    """Return the body with its ETag, or 304 if the caller has it already."""
    if known is not None and tag in [part.strip().removeprefix("W/") for part in known.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    (body if isinstance(body, Response) else response).headers["ETag"] = tag
    return body


async def respond_in_pieces(call: ApiCall, json: Iterator[str]) -> Response:
    """Send JSON that is written in a thread, as the client takes it.

    Megabytes that the event loop writes at once make all other clients wait.
    """
    pieces = _join(json)
    first = await call.access_store(lambda: list(islice(pieces, 2)))
    if len(first) < 2:
        return Response("".join(first), media_type="application/json")
    return StreamingResponse(chain(first, pieces), media_type="application/json")


def _join(parts: Iterator[str]) -> Iterator[str]:
    """Yield the parts joined into pieces of `PIECE` characters or more."""
    joined, size = list[str](), 0
    for part in parts:
        joined.append(part)
        size += len(part)
        if size >= PIECE:
            yield "".join(joined)
            joined, size = [], 0
    if joined:
        yield "".join(joined)
