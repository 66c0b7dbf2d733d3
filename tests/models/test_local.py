from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.cancellation import Cancellation
from etude.errors import Cancelled, Invalid, ModelError, Unavailable
from etude.models.base import Model, ModelRequest, SystemMessage, UserMessage
from etude.models.open import open_model
from etude.settings import load_settings

from .conversation import SQL, Heard, after, respond

pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    opened = open_model("local:smollm2", load_settings({}))
    yield opened
    opened.close()


def test_a_question_is_answered_by_a_tool_and_a_sentence(model: Model) -> None:
    conversation = [
        SystemMessage(text="You answer questions on the table orders(id, total)."),
        UserMessage(text="How many rows are in the table orders? Use the tool."),
    ]
    turn = respond(model, conversation).turn
    assert [c.name for c in turn.calls] == ["execute_sql"]
    assert set(json.loads(turn.calls[0].arguments)) == {"sql"}
    heard = Heard()
    reply = respond(model, [*conversation, *after(turn, "42 rows")], heard)
    assert reply.turn.calls or reply.turn.text == heard.text != ""
    assert reply.usage.tokens_in > 0
    assert reply.usage.tokens_out > 0


def test_text_is_streamed_and_can_be_cancelled(model: Model) -> None:
    cancel, pieces = Cancellation(), []

    def listen(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 3:
            cancel.cancel()

    with pytest.raises(Cancelled):
        model.respond(ModelRequest([UserMessage(text="Count from one to a hundred.")]), listen, cancel)
    assert len(pieces) >= 3


def test_cancel_does_not_wait_for_a_long_text_to_be_read(model: Model) -> None:
    cancel = Cancellation()
    timer = threading.Timer(0.2, cancel.cancel)
    timer.start()
    with pytest.raises(Cancelled):
        model.respond(ModelRequest([UserMessage(text="word " * 1500)]), lambda _: None, cancel)
    timer.join()


def test_a_conversation_that_is_too_long_says_so(model: Model) -> None:
    with pytest.raises(ModelError) as caught:
        respond(model, [UserMessage(text="word " * 6000)], tools=(SQL,))
    assert caught.value.details["reason"] == "context"


def test_weights_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="not a file"):
        open_model(f"local:{tmp_path}/none.gguf", load_settings({}))
    (tmp_path / "bad.gguf").write_bytes(b"GGUF, or not")
    with pytest.raises(Invalid, match="cannot be loaded"):
        open_model(f"local:{tmp_path}/bad.gguf", load_settings({}))
    import sys

    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(Unavailable) as caught:
        open_model(f"local:{tmp_path}/bad.gguf", load_settings({}))
    assert "etude[local]" in caught.value.hint
