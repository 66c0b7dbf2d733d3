"""Routes whose large responses are written as JSON in a thread, one of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from etude.api.api_call import ApiCall

SMALL = 2_000
"""Values, and blocks of 64 characters, up to which the event loop writes a response itself: about a millisecond."""


class JsonRoute(APIRoute):
    """Writes a large response in a thread: other clients wait while the event loop validates and writes one."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, self._write_large(endpoint), **options)

    def _write_large(self, endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        @wraps(endpoint)
        async def respond(**arguments: Any) -> Any:
            content = await endpoint(**arguments)
            field, call = self.response_field, arguments.get("call")
            if field is None or isinstance(content, Response) or not isinstance(call, ApiCall) or is_small(content):
                return content
            body = await call.compute(partial(self._write, field, content))
            prepared = next((a for a in arguments.values() if isinstance(a, Response)), None)
            status = (prepared.status_code if prepared is not None else None) or self.status_code or 200
            response = Response(body, status, media_type="application/json")
            if prepared is not None:
                response.headers.raw.extend(prepared.headers.raw)
            return response

        return respond

    def _write(self, field: Any, content: Any) -> bytes:
        """Return the content as JSON, as FastAPI would write it."""
        value, errors = field.validate(content, {}, loc=("response",))
        if errors:
            raise TypeError(f"The response of {self.path} does not have the form that it promises: {errors}")
        return bytes(field.serialize_json(value, exclude_none=self.response_model_exclude_none))


def is_small(content: Any) -> bool:
    """Return whether a response has few values and short texts; looks at no more of it than that needs."""
    left, waiting = SMALL, [content]
    while waiting and left > 0:
        value = waiting.pop()
        left -= 1
        if isinstance(value, BaseModel):
            waiting.extend(vars(value).values())
        elif isinstance(value, str | bytes):
            left -= len(value) >> 6
        elif isinstance(value, dict):
            left -= len(value)
            waiting.extend(value.values() if left > 0 else ())
        elif isinstance(value, list | tuple | set | frozenset):
            waiting.extend(value if len(value) < left else ())
            left -= len(value) if len(value) >= left else 0
    return left > 0
