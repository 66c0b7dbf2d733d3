"""The shape of OpenAI's API: the official SDK talks to it."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from api.conftest import listening
from etude.app import App
from etude.store.identity import Identity

QUESTION = "how many orders are there?"
ANSWER = "There are 3,704 orders."


@pytest.fixture(scope="module")
def sdk(app: App) -> Iterator[openai.OpenAI]:
    _, secret = Identity(app.store).create_key("sdk", "analyst")
    with listening(app, keys_required=True) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=secret, max_retries=0)
        yield client
        client.close()


def test_models_are_etude_and_its_datasets(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["etude", "etude/shop"]


def test_chat_completions(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model="etude/shop", messages=[{"role": "user", "content": QUESTION}])
    assert answer.choices[0].message.content == ANSWER
    assert answer.usage is not None and answer.usage.total_tokens > 0


def test_chat_completions_as_a_stream(sdk: openai.OpenAI) -> None:
    chunks = sdk.chat.completions.create(
        model="etude", messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}], stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER


def test_what_was_said_before_is_remembered(sdk: openai.OpenAI, app: App) -> None:
    answer = sdk.chat.completions.create(
        model="etude",
        messages=[
            {"role": "system", "content": "You are a pirate."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "good day"},
            {"role": "user", "content": QUESTION},
        ],
    )
    thread = app.store.run(answer.id).thread_id
    messages = [m.text for m in app.store.messages(str(thread))]
    assert messages == ["hello", "good day", QUESTION, ANSWER]


def test_responses_go_on_with_their_thread(sdk: openai.OpenAI, app: App) -> None:
    first = sdk.responses.create(model="etude", input=QUESTION)
    assert first.output_text == ANSWER
    second = sdk.responses.create(model="etude", input=QUESTION, previous_response_id=first.id)
    assert app.store.run(second.id).thread_id == app.store.run(first.id).thread_id


def test_responses_as_a_stream(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="etude", input=QUESTION) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == ANSWER


def test_errors_reach_the_sdk(sdk: openai.OpenAI, app: App) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="no model"):
        sdk.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.NotFoundError):
        sdk.chat.completions.create(model="etude/none", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.UnprocessableEntityError):
        sdk.chat.completions.create(model="etude", messages=[{"role": "assistant", "content": "x"}])
    with pytest.raises(openai.APIError, match="provider is down"):
        list(sdk.chat.completions.create(model="etude", messages=[{"role": "user", "content": "fail"}], stream=True))
    with pytest.raises(openai.AuthenticationError):
        sdk.with_options(api_key="wrong").models.list()
