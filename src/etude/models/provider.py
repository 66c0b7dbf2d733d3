"""Models behind an API, named `provider:name`: turns are streamed, retried on failure, and priced."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from etude.cancellation import Cancellation
from etude.entities import Turn, Usage
from etude.errors import Cancelled
from etude.models.base import Model, ModelReply, ModelRequest, estimate_model_usage
from etude.models.provider_client import find_provider_settings, open_provider_client, read_provider_key
from etude.models.provider_failure import BrokenOff, explain_provider_failure, read_provider_failure
from etude.models.provider_messages import from_provider_response, to_provider_messages, to_provider_tools
from etude.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model as Client
    from pydantic_ai.models import StreamedResponse

T = TypeVar("T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 20.0
_REMEMBERED = 512


def open_provider(name: str, settings: Settings) -> Model:
    """Open the model `provider:name` with the provider's settings."""
    return ProviderModel(name, find_provider_settings(name, settings) or ModelSettings())


class ProviderModel(Model):
    """A model behind an API. Its connections live on their own thread, which `close` ends."""

    def __init__(self, name: str, settings: ModelSettings) -> None:
        self.name = name
        self._settings = settings
        self._key = read_provider_key(name, settings)
        self._client = open_provider_client(name, settings, self._key)
        self._loop = _Loop(self._client)
        # Providers expect their signed reasoning back together with the calls that followed from it. The record of a
        # run does not store it, so it is kept in memory only and left out after a restart.
        self._originals: OrderedDict[Turn, ModelResponse] = OrderedDict()

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Return the next turn, retrying as often as the settings allow if the provider fails."""
        todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        with cancel.stopping(lambda: todo.put(None)):
            task = self._loop.start(self._converse(request, lambda text: todo.put(partial(on_text, text)), todo.put))
            task.add_done_callback(lambda _: todo.put(None))
            try:
                # The caller's callbacks run in the caller's thread, and never after this method returned.
                while (callback := todo.get()) is not None:
                    callback()
                cancel.check()
                return task.result()
            except CancelledError:
                raise Cancelled(f"The model `{self.name}` was closed.") from None
            finally:
                task.cancel()

    def close(self) -> None:
        """Close connections and cancel requests that are still running."""
        self._loop.close()

    async def _converse(
        self, request: ModelRequest, on_text: Callable[[str], None], do: Callable[[Callable[[], None]], None]
    ) -> ModelReply:
        """Try until a turn is complete or the retries are used up."""
        waited, streamed = 0.0, 0
        wanted = {"max_tokens": request.max_tokens, "timeout": self._settings.timeout_s, "max_retries": 0}
        wanted |= {k: _plain(v) for k, v in self._settings.options.items()}
        # Providers that cache by themselves ignore `cache`; the others need to be asked.
        caches = bool(self._client.profile.get("supports_cache"))
        wanted = {"cache": True} | wanted if caches else wanted
        options: Any = {k: v for k, v in wanted.items() if k not in self._client.unsupported_settings}
        messages = to_provider_messages(request.conversation, self._originals.get, caches)
        tools = to_provider_tools(request.tools)

        def count(text: str) -> None:
            nonlocal streamed
            streamed += len(text)
            on_text(text)

        for tried in range(1, self._settings.tries + 1):
            try:
                response = await self._try(self._client.request_stream(messages, options, tools), count)
            except Exception as error:
                failure = read_provider_failure(error)
                wait = failure.after if failure.after is not None else _backoff(tried)
                cannot_restart = streamed and request.on_restart is None
                last = tried == self._settings.tries or waited + wait > self._settings.wait_s
                if last or cannot_restart or not failure.retry:
                    # `from None`: the library's error quotes the request and the answer, and a traceback would show it.
                    raise explain_provider_failure(
                        failure, self.name, self._settings, request, self._key, tried
                    ) from None
            else:
                return self._reply(request, response, tried)
            if streamed and request.on_restart is not None:
                do(request.on_restart)
                streamed = 0
            waited += wait
            await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _try(
        self, opening: AbstractAsyncContextManager[StreamedResponse], on_text: Callable[[str], None]
    ) -> ModelResponse:
        from pydantic_ai import messages

        async with opening as stream:
            async for event in stream:
                match event:
                    case messages.PartStartEvent(part=messages.TextPart(content=text)) if text:
                        on_text(text)
                    case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)) if text:
                        on_text(text)
            response = stream.get()
        if not self._is_whole(response):
            raise BrokenOff
        return response

    def _is_whole(self, response: ModelResponse) -> bool:
        if response.finish_reason == "error" or response.state == "incomplete":
            return False
        finished = (response.provider_details or {}).get("finish_reason") or response.finish_reason
        if any(cls.__name__ == "OpenAIChatModel" for cls in type(self._client).__mro__):
            # For this client the library treats any stream that ends as complete, even if a proxy cut it short.
            details = response.provider_details or {}
            finished = details.get("finish_reason") or response.finish_reason == "content_filter"
        return bool(finished)

    def _reply(self, request: ModelRequest, response: ModelResponse, tried: int) -> ModelReply:
        turn = from_provider_response(response)
        if turn.calls:
            self._originals[turn] = response
            while len(self._originals) > _REMEMBERED:
                self._originals.popitem(last=False)
        spent = response.usage
        usage = Usage(
            tokens_in=spent.input_tokens, tokens_cached=spent.cache_read_tokens, tokens_out=spent.output_tokens
        )
        if not spent.has_values() or spent.unmeasured_requests:
            # Some servers report no usage, but a token budget must hold for them too.
            usage = estimate_model_usage(request, turn)
        cost = _price(response, usage, self._settings)
        usage = usage.model_copy(update={"model_calls": tried, "cost_usd": cost or 0.0})
        return ModelReply(turn, usage, price_known=cost is not None)


class _Loop:
    """An event loop on a daemon thread that holds the client's connections; started at first use."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="etude-model", daemon=True)
                self._thread.start()
                asyncio.run_coroutine_threadsafe(self._client.__aenter__(), self._loop).result()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.__aexit__(None, None, None)


def _backoff(tried: int) -> float:
    # Jitter, so that clients that failed together do not retry together.
    longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (tried - 1))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _plain(value: Any) -> Any:
    # An option set by an environment variable is text, but providers want numbers as numbers.
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _price(response: ModelResponse, usage: Usage, settings: ModelSettings) -> float | None:
    if settings.price_in is not None or settings.price_out is not None:
        return (usage.tokens_in * (settings.price_in or 0.0) + usage.tokens_out * (settings.price_out or 0.0)) / 1e6
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None
