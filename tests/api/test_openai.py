"""The shape of OpenAI's API: the official SDK talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from tests.patience import wait_until

from api.conftest import listening
from etude.app import App
from etude.runtime.prompt import CALLER, OPENING, Opening
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


def test_an_answer_in_plain_words_shows_its_table_as_one_of_the_tool_does(sdk: openai.OpenAI) -> None:
    def ask(question: str) -> str:
        messages: Any = [{"role": "user", "content": question}]
        return sdk.chat.completions.create(model="etude/shop", messages=messages).choices[0].message.content or ""

    plain = ask("which channels in words?")
    assert plain.startswith("Most orders come from the web.\n\n| channel | first |\n| --- | --- |\n|")
    assert "-01 |" in plain and "00:00" not in plain, "months are dates"
    assert ask("which channels with answer?") == plain
    assert "".join(texts(stream(sdk, "which channels in words?"))) == plain


def stream(sdk: openai.OpenAI, text: str, **more: Any) -> list[ChatCompletionChunk]:
    chunks = sdk.chat.completions.create(
        model="etude", messages=[{"role": "user", "content": [{"type": "text", "text": text}]}], stream=True, **more
    )
    return list(chunks)


def texts(chunks: list[ChatCompletionChunk]) -> list[str]:
    return [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]


def test_chat_completions_as_a_stream(sdk: openai.OpenAI) -> None:
    chunks = stream(sdk, QUESTION)
    assert "".join(texts(chunks)) == f"Counting.\n\n{ANSWER}"
    assert [c.choices[0].finish_reason for c in chunks] == [*[None] * (len(chunks) - 1), "stop"]
    assert {c.usage for c in chunks} == {None}
    assert chunks[0].choices[0].delta.role == "assistant"


def test_words_come_as_the_model_writes_them(sdk: openai.OpenAI, app: App) -> None:
    with sdk.chat.completions.create(
        model="etude", messages=[{"role": "user", "content": "be slow"}], stream=True
    ) as chunks:
        words = [next(chunks) for _ in range(4)]
        assert app.store.run(words[0].id).status == "running"
        assert "".join(texts(words)).startswith("word word")
    # Nobody else can have its answer: it ends with its client.
    wait_until(lambda: app.store.run(words[0].id).status == "cancelled")


def test_a_client_that_does_not_wait_for_the_answer_ends_its_run(sdk: openai.OpenAI, app: App) -> None:
    for ask in (
        lambda: sdk.with_options(timeout=1).chat.completions.create(
            model="etude", messages=[{"role": "user", "content": "be slow"}]
        ),
        lambda: sdk.with_options(timeout=1).responses.create(model="etude", input="be slow"),
    ):
        before = {run.id for run in app.store.runs(limit=100).items}
        with pytest.raises(openai.APITimeoutError):
            ask()
        wait_until(lambda: app.store.runs(limit=1).items[0].id not in before)  # noqa: B023
        run = app.store.runs(limit=1).items[0]
        wait_until(lambda: app.store.run(run.id).status == "cancelled")  # noqa: B023


def test_the_last_chunk_has_the_usage_where_it_is_asked_for(sdk: openai.OpenAI, app: App) -> None:
    *others, last = stream(sdk, QUESTION, stream_options={"include_usage": True})
    assert {c.usage for c in others} == {None}
    assert last.choices == [] and last.usage is not None
    used = app.store.run(last.id).usage
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (used.tokens_in, used.tokens_out)


def test_what_is_mended_and_what_cannot_be_is_said(sdk: openai.OpenAI) -> None:
    assert "".join(texts(stream(sdk, "mend it"))) == "There are 77 orders.\n\nCorrection: There are some orders."
    told = "There are 77 orders.\n\nCorrection: I say 77 of them.\n\nIn no computed result: 77."
    assert "".join(texts(stream(sdk, "insist"))) == told
    assert "".join(texts(stream(sdk, "which year?"))) == "Which year?"


def test_an_answer_that_was_cut_off_says_so(sdk: openai.OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": "be endless"}]
    assert sdk.chat.completions.create(model="etude", messages=asked).choices[0].finish_reason == "length"
    assert stream(sdk, "be endless")[-1].choices[0].finish_reason == "length"
    whole = sdk.responses.create(model="etude", input="be endless")
    assert whole.status == "incomplete" and whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    with sdk.responses.stream(model="etude", input="be endless") as events:
        assert [event.type for event in events][-1] == "response.incomplete"


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
    assert messages == ["You are a pirate.", "hello", "good day", QUESTION, ANSWER]


def test_a_system_message_reaches_the_model_below_the_rules(sdk: openai.OpenAI, app: App) -> None:
    pirate = "You are a pirate."
    answer = sdk.chat.completions.create(
        model="etude", messages=[{"role": "system", "content": pirate}, {"role": "user", "content": QUESTION}]
    )
    first = sdk.responses.create(model="etude", input=QUESTION, instructions=pirate)
    second = sdk.responses.create(model="etude", input=QUESTION, instructions=pirate, previous_response_id=first.id)
    for run_id in (answer.id, first.id, second.id):
        kept = next(a for a in app.store.run(run_id).artifacts if a.media == OPENING)
        said = Opening.model_validate_json(app.objects.get(kept.hash)).said
        assert [m.role for m in said[:3]] == ["system", "user", "user"]
        assert pirate not in said[0].text and said[2].text == f"{CALLER}\n{pirate}"
        assert sum(pirate in str(m) for m in said) == 1
    assert app.store.thread(str(app.store.run(answer.id).thread_id)).title == QUESTION


def test_responses_go_on_with_their_thread(sdk: openai.OpenAI, app: App) -> None:
    first = sdk.responses.create(model="etude", input=QUESTION)
    assert first.output_text == ANSWER
    second = sdk.responses.create(model="etude", input=QUESTION, previous_response_id=first.id)
    assert app.store.run(second.id).thread_id == app.store.run(first.id).thread_id


def test_responses_as_a_stream(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="etude", input=QUESTION) as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert events.get_final_response().output_text == ANSWER
    assert "".join(deltas) == f"Counting.\n\n{ANSWER}"
    with sdk.responses.stream(model="etude", input="say much") as events:
        assert len([event for event in events if event.type == "response.output_text.delta"]) > 3


def test_errors_in_a_stream_come_after_what_was_said(sdk: openai.OpenAI) -> None:
    seen: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError, match="provider is down") as caught:
        for chunk in sdk.chat.completions.create(
            model="etude", messages=[{"role": "user", "content": "break off"}], stream=True
        ):
            seen.append(chunk)
    assert "".join(texts(seen)) == "Well,"
    assert (caught.value.code, caught.value.type) == ("model_error", "server_error")
    with sdk.responses.create(model="etude", input="break off", stream=True) as events:
        *_, last = events
    assert last.type == "response.failed" and last.response.error is not None
    assert last.response.error.message.startswith("the provider is down")


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


COUNTED = "The result has 1 row.\n\n| n |\n| --- |\n| 3704 |"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("SQL: SELECT count(*) AS n FROM orders", COUNTED),
        ("PYTHON: print('one')\n2", "one\n2"),
        ("PYTHON: x = 1", "The code ran and returned nothing."),
    ],
)
def test_code_is_answered_with_a_text(sdk: openai.OpenAI, asked: str, text: str) -> None:
    answer = sdk.chat.completions.create(model="etude/shop", messages=[{"role": "user", "content": asked}])
    assert answer.choices[0].message.content == text
    assert "".join(texts(stream(sdk, asked))) == text
    assert sdk.responses.create(model="etude/shop", input=asked).output_text == text


def test_one_model_is_found_by_its_name(sdk: openai.OpenAI) -> None:
    assert [sdk.models.retrieve(name).id for name in ("etude", "etude/shop")] == ["etude", "etude/shop"]
    with pytest.raises(openai.NotFoundError, match="There is no model `etude/none`"):
        sdk.models.retrieve("etude/none")
