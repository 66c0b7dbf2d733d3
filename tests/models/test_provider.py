from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from etude import plugins
from etude.cancellation import Cancellation
from etude.errors import Cancelled, EtudeError, Invalid, ModelError, Unavailable, problem
from etude.models.base import Model, ModelRequest, SystemMessage, UserMessage
from etude.models.open import open_model
from etude.settings import load_settings
from etude.tools.base import describe_tool
from openai_server import Answer, OpenAIServer, Script, by_turn, call, calls, fail, say

from .conversation import SQL, Heard, after, asked, respond

# The package of Google is not written for a Python that warns of its docstrings.
GOOGLE = pytest.mark.filterwarnings("ignore:invalid escape sequence")


@contextmanager
def serving(script: Script, **settings: Any) -> Iterator[tuple[OpenAIServer, Model]]:
    with OpenAIServer(script) as server:
        model = server.model(**settings)
        try:
            yield server, model
        finally:
            model.close()


def failure(script: Script, **settings: Any) -> tuple[ModelError, int]:
    """The error that a script leads to, and how many requests were made."""
    with serving(script, **settings) as (server, model):
        with pytest.raises(ModelError) as caught:
            respond(model, asked())
        return caught.value, len(server.requests)


def test_text_arrives_word_by_word_with_its_usage() -> None:
    heard = Heard()
    with serving([say("There are 42 orders.")]) as (_, model):
        reply = respond(model, asked(), heard)
    assert reply.turn.text == heard.text == "There are 42 orders."
    assert heard.pieces == ["There ", "are ", "42 ", "orders."]
    assert (reply.turn.stop, reply.usage.tokens_in, reply.usage.tokens_out, reply.usage.model_calls) == ("end", 7, 3, 1)


def test_a_word_is_heard_before_the_next_was_sent() -> None:
    first = threading.Event()
    with serving([say("one two", pace_s=600)]) as (_, model):
        cancel = Cancellation()

        def listen(_: str) -> None:
            first.set()
            cancel.cancel()

        with pytest.raises(Cancelled):
            model.respond(_request(), listen, cancel)
    assert first.is_set()


def test_parallel_calls_keep_their_text_even_where_it_is_no_json() -> None:
    with serving([calls(("execute_sql", '{"sql":  "SELECT 1"}'), ("execute_sql", '{"sql": SELECT'), text="Both.")]) as (
        _,
        model,
    ):
        reply = respond(model, asked())
    assert [c.arguments for c in reply.turn.calls] == ['{"sql":  "SELECT 1"}', '{"sql": SELECT']
    assert len({c.id for c in reply.turn.calls}) == 2
    assert (reply.turn.text, reply.turn.stop) == ("Both.", "calls")


def test_a_conversation_goes_on_with_what_came_of_the_calls() -> None:
    with serving(by_turn(call("execute_sql", sql="SELECT 1"), say("One."))) as (server, model):
        conversation = asked()
        turn = respond(model, conversation).turn
        conversation += after(turn, "1 row: 1")
        assert respond(model, conversation).turn.text == "One."
    sent = server.requests[1]
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][2]["tool_calls"][0]["id"] == sent["messages"][3]["tool_call_id"] == turn.calls[0].id
    assert sent["messages"][3]["content"] == "1 row: 1"
    assert [t["function"]["name"] for t in sent["tools"]] == ["execute_sql"]


def test_another_process_sends_the_same_conversation() -> None:
    """The provider's own form of a turn is remembered; a model that never saw the turn must do without."""
    script = by_turn(calls(("execute_sql", {"sql": "SELECT 1"}), text="Look."), say("One."))
    with serving(script) as (server, model):
        conversation = asked()
        turn = respond(model, conversation).turn
        conversation += after(turn, "1")
        respond(model, conversation)
        other = server.model()
        respond(other, conversation)
        other.close()
    assert server.requests[1] == server.requests[2]


def test_a_turn_that_ends_for_length_or_is_refused_says_so() -> None:
    with serving([say("And then", finish="length"), say("", finish="content_filter")]) as (_, model):
        assert respond(model, asked()).turn.stop == "length"
        assert respond(model, asked()).turn.stop == "refused"


@pytest.mark.parametrize(
    "trouble",
    [
        fail(429, retry_after="0.01"),
        fail(500),
        fail(503, "overloaded"),
        Answer(body=b"<html>Bad gateway</html>", content_type="text/html"),
        Answer(body=b"data: {nonsense\n\n", content_type="text/event-stream"),
        Answer(choices=False),
        say("half an", finish=None),
        Answer(calls=(("execute_sql", '{"sql": "SELECT 1"}'),), cut=2),
    ],
    ids=["429", "500", "503", "page", "garbage", "no choices", "no end", "cut in a call"],
)
def test_trouble_that_passes_is_tried_again(trouble: Answer) -> None:
    heard = Heard()
    with serving([trouble, trouble, say("Fine.")]) as (server, model):
        reply = respond(model, asked(), heard, can_restart=True)
    assert (reply.turn.text, reply.turn.calls, heard.text) == ("Fine.", (), "Fine.")
    assert len(server.requests) == reply.usage.model_calls == 3


def test_text_of_a_stream_that_broke_is_taken_back_before_it_is_tried_again() -> None:
    heard = Heard()
    with serving([say("There are 41", cut=3), call("execute_sql", sql="SELECT 1")]) as (_, model):
        reply = respond(model, asked(), heard, can_restart=True)
    assert heard.restarts == ["There are "]
    assert (heard.text, reply.turn.text, len(reply.turn.calls)) == ("", "", 1)


def test_text_that_cannot_be_taken_back_is_not_said_twice() -> None:
    heard = Heard()
    with serving([say("There are 41", cut=3), say("There are 42")]) as (server, model):
        with pytest.raises(ModelError) as caught:
            respond(model, asked(), heard)
        assert len(server.requests) == 1
    assert heard.text == "There are "
    assert caught.value.details["reason"] == "broken_off"


def test_tries_are_counted_and_the_last_error_told() -> None:
    error, requests = failure([fail(500)], tries=3)
    assert requests == 3
    assert error.details["reason"] == "provider"
    assert "`openai`" in error.message
    assert "`test-model`" in error.message
    assert "HTTP 500" in error.message
    assert "tried 3 times" in error.message


def test_a_provider_that_asks_for_more_patience_than_allowed_ends_it_at_once() -> None:
    error, requests = failure([fail(429, retry_after="3600")], wait_s=1)
    assert requests == 1
    assert error.details["reason"] == "rate"
    assert "models.openai.wait_s" in error.hint


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (fail(401, "Incorrect API key provided: sk-tes...key"), "key", "models.openai.api_key"),
        (fail(404, "The model does not exist", code="model_not_found"), "unknown_model", "name of the model"),
        (fail(400, "too long", code="context_length_exceeded"), "context", "larger context"),
        (fail(400, "This model's maximum context length is 8192 tokens."), "context", "larger context"),
        (fail(429, "quota", code="insufficient_quota"), "quota", "billing"),
        (fail(400, "temperature must be below 2"), "rejected", "models.openai.options"),
    ],
)
def test_what_waiting_does_not_cure_is_told_at_once(answer: Answer, reason: str, said: str) -> None:
    error, requests = failure([answer])
    assert requests == 1
    assert error.details["reason"] == reason
    assert error.details["http_status"] == answer.status
    assert said in error.hint


def test_no_error_quotes_the_key_or_the_conversation() -> None:
    secret = "patients whose name is Jane Q. Public"
    for words in (f"cannot parse: {secret!r}", f"...{secret[4:30]}...", "bad key sk-test-key"):
        for status in (400, 401, 500):
            with serving([fail(status, words)], tries=1) as (_, model), pytest.raises(ModelError) as caught:
                respond(model, asked(secret))
            told = json.dumps(problem(caught.value))
            assert "Jane" not in told
            assert "name is" not in told
            assert "sk-test-key" not in told
            assert caught.value.__suppress_context__


def test_words_of_the_provider_that_quote_nothing_are_told() -> None:
    error, _ = failure([fail(400, "temperature must be below 2")])
    assert error.message.endswith("(HTTP 400): temperature must be below 2")


def test_a_provider_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        model = open_model("openai:x", load_settings({}, models={"openai": {"base_url": url, "tries": 2}}))
        with pytest.raises(ModelError) as caught:
            respond(model, asked())
        model.close()
    assert caught.value.details["reason"] == "connection"
    assert url in caught.value.message


def test_a_provider_that_sends_nothing_in_time() -> None:
    # The server may hear of a request later than the client gives it up: what counts is what the client says.
    error, _ = failure([say("late", first_s=600)], timeout_s=0.1, tries=2)
    assert "tried 2 times" in error.message
    assert error.details["reason"] == "timeout"
    assert "models.openai.timeout_s" in error.hint


@pytest.mark.parametrize(
    "answer",
    [say("late", first_s=600), say("slow words", pace_s=600), fail(429, retry_after="90")],
    ids=["before the first byte", "between words", "while waiting to try again"],
)
def test_cancel_breaks_off_at_once_and_closes_the_connection(answer: Answer) -> None:
    cancel = Cancellation()
    with serving([answer], wait_s=100) as (server, model):

        def stop() -> None:
            server.arrived.acquire()
            cancel.cancel()

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(Cancelled):
            respond(model, asked(), cancel=cancel, can_restart=True)
        stopper.join()
        assert answer.status == 429 or server.left.wait(120)
        with pytest.raises(Cancelled):
            respond(model, asked(), cancel=cancel)
        assert len(server.requests) == 1


def test_one_model_serves_many_threads() -> None:
    with serving(lambda body: say(body["messages"][-1]["content"], pace_s=0.01)) as (_, model):
        said: dict[int, str] = {}

        def ask(n: int) -> None:
            said[n] = respond(model, asked(f"question {n}")).turn.text

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == {n: f"question {n}" for n in range(8)}


def test_close_breaks_off_what_runs_and_the_model_can_be_used_again() -> None:
    with serving([say("late", first_s=600), say("Again.")]) as (server, model):
        closer = threading.Thread(target=lambda: (server.arrived.acquire(), model.close()))
        closer.start()
        with pytest.raises(Cancelled):
            respond(model, asked())
        closer.join()
        assert respond(model, asked()).turn.text == "Again."


def test_an_error_of_the_listener_reaches_the_caller() -> None:
    def refuse(_: str) -> None:
        raise KeyError("listener")

    with serving([say("one two", pace_s=600)]) as (server, model):
        with pytest.raises(KeyError):
            model.respond(_request(), refuse, Cancellation())
        assert server.left.wait(120)


def test_price_of_the_settings() -> None:
    with serving([say("x", usage=(1_000_000, 500_000))], price_in=2.0, price_out=8.0) as (_, model):
        reply = respond(model, asked())
    assert reply.price_known
    assert reply.usage.cost_usd == pytest.approx(6.0)


def test_price_that_is_known_and_price_that_is_not() -> None:
    with OpenAIServer([say("x", usage=(1_000_000, 0))]) as server:
        for name, known in (("openai:gpt-4o", True), ("openai:no-such-model", False)):
            model = open_model(name, server.settings())
            reply = respond(model, asked())
            model.close()
            assert reply.price_known is known
            assert (reply.usage.cost_usd > 0) is known


def test_a_server_that_does_not_count_is_counted_by_length() -> None:
    with serving([say("x" * 40, usage=None)]) as (_, model):
        usage = respond(model, asked("y" * 400)).usage
    assert usage.tokens_in > 100
    assert usage.tokens_out == 10


def test_tools_are_not_changed_by_being_sent() -> None:
    before = json.dumps(SQL.parameters)
    with serving([say("x")]) as (_, model):
        respond(model, asked())
    assert json.dumps(SQL.parameters) == before


def test_options_and_key_reach_the_provider() -> None:
    settings = {"options": {"temperature": "0.5", "extra_body": {"top_k": 3}}}
    with serving([say("x")], **settings) as (server, model):
        respond(model, asked())
    assert server.requests[0]["temperature"] == 0.5
    assert server.requests[0]["top_k"] == 3
    assert server.headers[0]["authorization"] == "Bearer sk-test-key"


def test_the_key_may_be_kept_elsewhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("sk-from-file\n")
    monkeypatch.setenv("KEY_OF_TEST", "sk-from-variable")
    for reference, key in ((f"file:{tmp_path}/key", "sk-from-file"), ("env:KEY_OF_TEST", "sk-from-variable")):
        with serving([say("x")], api_key=reference) as (server, model):
            respond(model, asked())
        assert server.headers[0]["authorization"] == f"Bearer {key}"
    for reference in (f"file:{tmp_path}/none", "env:NO_SUCH_VARIABLE"):
        with pytest.raises(Invalid, match=r"models\.openai\.api_key"):
            open_model("openai:x", load_settings({}, models={"openai": {"api_key": reference}}))


def test_a_key_of_openai_is_not_sent_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    with OpenAIServer([say("x")]) as server:
        settings = load_settings({}, models={"openai": {"base_url": server.base_url}})
        model = open_model("openai:x", settings)
        respond(model, asked())
        model.close()
    assert "sk-of-the-user" not in str(server.headers)


@GOOGLE
@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"), ("google:g", "GOOGLE")],
)
def test_a_missing_key_names_its_setting_and_its_variable(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(Invalid) as caught:
        open_model(name, load_settings({}))
    assert f"models.{name.partition(':')[0]}.api_key" in caught.value.hint
    assert variable in caught.value.hint


def test_ollama_and_unnamed_servers_speak_the_protocol_of_openai() -> None:
    with OpenAIServer([say("Hello.")]) as server:
        for provider in ("ollama", "vllm", "my-gateway", "deepseek", "xai"):
            settings = load_settings({}, models={provider: {"base_url": server.base_url, "api_key": "k"}})
            model = open_model(f"{provider}:some-model", settings)
            assert respond(model, asked()).turn.text == "Hello."
            model.close()
    assert [r["model"] for r in server.requests] == ["some-model"] * 5


def test_an_unknown_provider_names_the_nearest() -> None:
    with pytest.raises(Invalid) as caught:
        open_model("antropic:claude", load_settings({}))
    assert "`anthropic`" in caught.value.hint
    with pytest.raises(Invalid) as caught:
        open_model("gpt-5", load_settings({}))
    assert "`openai:gpt-5`" in caught.value.hint


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(Unavailable) as caught:
        open_model("openai:gpt-5", load_settings({}, models={"openai": {"api_key": "k"}}))
    assert "etude[models]" in caught.value.hint


def test_a_provider_whose_own_package_is_missing_names_it() -> None:
    with pytest.raises(EtudeError) as caught:
        open_model("groq:llama", load_settings({}, models={"groq": {"api_key": "k"}}))
    assert isinstance(caught.value, Unavailable)
    assert "pydantic-ai-slim[groq]" in caught.value.hint


def test_a_setting_that_is_not_known_names_the_nearest() -> None:
    with pytest.raises(Invalid, match=r"models\.openai\.api_kye") as caught:
        load_settings({}, models={"openai": {"api_kye": "k"}})
    assert "`models.openai.api_key`" in caught.value.hint


def test_a_variable_sets_a_provider_whose_name_has_a_dash() -> None:
    with OpenAIServer([say("Hello.")]) as server:
        model = open_model("my-lab:m", load_settings({"ETUDE_MODELS__MY_LAB__BASE_URL": server.base_url}))
        assert respond(model, asked()).turn.text == "Hello."
        model.close()


def test_an_address_that_is_none_is_told() -> None:
    model = open_model("openai:m", load_settings({}, models={"openai": {"base_url": "localhost:1", "tries": 1}}))
    with pytest.raises(ModelError) as caught:
        respond(model, asked())
    model.close()
    assert "models.openai.base_url" in caught.value.hint


def test_the_key_is_in_no_representation_of_the_settings() -> None:
    settings = load_settings({}, models={"openai": {"api_key": "sk-secret"}})
    assert "sk-secret" not in repr(settings)


def _request() -> Any:
    from etude.models.base import ModelRequest

    return ModelRequest([SystemMessage(text="s"), UserMessage(text="q")])


def test_xai_needs_no_package_of_its_own() -> None:
    model = open_model("xai:grok-4", load_settings({}, models={"xai": {"api_key": "k"}}))
    model.close()
    with pytest.raises(Invalid) as caught:
        open_model("xai:grok-4", load_settings({}))
    assert "XAI_API_KEY" in caught.value.hint


def test_tokens_read_from_a_cache_are_counted() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    usage |= {"prompt_tokens_details": {"cached_tokens": 80}}
    message = {"role": "assistant", "content": "Hello."}
    choice = {"index": 0, "delta": message, "finish_reason": "stop"}
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [frame | {"choices": [choice]}, frame | {"choices": [], "usage": usage}]
    body = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
    with OpenAIServer([Answer(body=body.encode(), content_type="text/event-stream")]) as server:
        reply = respond(server.model(), asked())
    assert (reply.usage.tokens_in, reply.usage.tokens_cached, reply.usage.tokens_out) == (100, 80, 5)


def test_an_open_object_stays_open_when_it_is_sent() -> None:
    """A server that decodes by the schema must be able to write a plan and a chart."""
    tools = [describe_tool(plugins.load_plugin("tool", name)) for name in ("execute_query_plan", "answer")]
    with serving([say("x")]) as (server, model):
        model.respond(ModelRequest(asked(), tools), lambda _: None, Cancellation())
    sent = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in server.requests[0]["tools"]}
    assert sent["execute_query_plan"]["plan"]["additionalProperties"] is True
    assert sent["answer"]["chart"]["additionalProperties"] is True
