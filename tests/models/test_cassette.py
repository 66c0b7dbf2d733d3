from __future__ import annotations

from pathlib import Path

import pytest

from etude.cancellation import Cancellation
from etude.errors import Cancelled, Invalid, ModelError
from etude.models.base import ConversationMessage, Model
from etude.models.cassette import Cassette
from etude.models.open import open_model
from etude.models.scripted import Line, Scripted
from etude.settings import load_settings
from openai_server import OpenAIServer, by_turn, call, say

from .conversation import SQL, Heard, after, asked, respond


def converse(model: Model) -> list[ConversationMessage]:
    conversation = asked("How many orders of Jane?")
    turn = respond(model, conversation, can_restart=True).turn
    conversation += after(turn, "42")
    conversation += after(respond(model, conversation, can_restart=True).turn)
    return conversation


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The traffic of a server, one stream of which broke off."""
    path = tmp_path / "orders.jsonl"
    turns = by_turn(call("execute_sql", sql="SELECT count(*) FROM orders"), say("There are 42."))
    broken = [say("Let me", cut=2)]
    with OpenAIServer(lambda body: broken.pop() if broken else turns(body)) as server:
        model = open_model(f"cassette:{path}?model=openai:test-model", server.settings())
        converse(model)
        model.close()
    return path


def test_a_conversation_is_played_again_without_its_provider(recorded: Path) -> None:
    model = open_model(f"cassette:{recorded}", load_settings({}))
    heard = Heard()
    conversation = converse(model)
    assert conversation[-1].turn.text == "There are 42."  # type: ignore[union-attr]
    reply = respond(model, conversation[:-1], heard)
    assert heard.pieces == ["There ", "are ", "42."]
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (7, 3)


def test_text_that_was_taken_back_is_not_recorded(recorded: Path) -> None:
    assert "Let" not in recorded.read_text()


def test_a_cassette_holds_no_key_no_question_and_no_data(recorded: Path) -> None:
    text = recorded.read_text()
    for secret in ("sk-test-key", "Jane", "You answer questions"):
        assert secret not in text
    assert len(text.splitlines()) == 2


def test_what_was_not_recorded_is_an_error(recorded: Path) -> None:
    model = open_model(f"cassette:{recorded}", load_settings({}))
    for conversation, tools in ((asked("Another question?"), (SQL,)), (asked("How many orders of Jane?"), ())):
        with pytest.raises(ModelError) as caught:
            respond(model, conversation, tools=tools)
        assert caught.value.details["reason"] == "not_recorded"


def test_recording_on_plays_what_is_there_and_asks_for_the_rest(recorded: Path) -> None:
    with OpenAIServer([say("New.")]) as server:
        model = open_model(f"cassette:{recorded}?model=openai:test-model", server.settings())
        converse(model)
        assert server.requests == []
        respond(model, asked("Another question?"))
        respond(model, asked("Another question?"))
        assert len(server.requests) == 1
        model.close()
    again = open_model(f"cassette:{recorded}", load_settings({}))
    assert respond(again, asked("Another question?")).turn.text == "New."


def test_any_text_comes_back_as_it_was(tmp_path: Path) -> None:
    text = "a\u2028b\r\n\x85 \ud7ff é"
    respond(Cassette(tmp_path / "tape", Scripted([Line(text=text)])), asked())
    assert respond(Cassette(tmp_path / "tape"), asked()).turn.text == text


def test_cancel_holds_for_what_is_played(recorded: Path) -> None:
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(Cancelled):
        respond(open_model(f"cassette:{recorded}", load_settings({})), asked(), cancel=cancel)


def test_a_cassette_that_is_missing_or_broken_says_so(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="does not exist"):
        open_model(f"cassette:{tmp_path}/none", load_settings({}))
    with pytest.raises(Invalid, match="cannot be used"):
        Cassette(tmp_path / "no" / "folder", Scripted([Line(text="x")]))
    (tmp_path / "bad").write_text("{}\n")
    with pytest.raises(Invalid, match="Line 1"):
        open_model(f"cassette:{tmp_path}/bad", load_settings({}))
