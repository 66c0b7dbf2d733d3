from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from etude.cancellation import Cancellation
from etude.entities import Usage
from etude.errors import Cancelled, Invalid, ModelError
from etude.models.base import AssistantMessage, ModelRequest, Turn, UserMessage
from etude.models.open import open_model
from etude.models.scripted import Line, Scene, Scripted, ScriptedCall
from etude.settings import load_settings

from .conversation import Heard, after, asked, respond


def test_turns_are_played_in_order() -> None:
    model = Scripted(
        [Line(calls=(ScriptedCall(name="execute_sql", arguments={"sql": "SELECT 1"}),)), Line(text="One row.")]
    )
    conversation, heard = asked(), Heard()
    turn = respond(model, conversation).turn
    assert (turn.stop, turn.calls[0].arguments) == ("calls", '{"sql": "SELECT 1"}')
    conversation += after(turn, "1")
    assert respond(model, conversation, heard).turn == Turn(text="One row.")
    assert heard.pieces == ["One ", "row."]
    assert len(model.seen) == 2


def test_the_same_turn_is_played_again_for_the_same_conversation() -> None:
    model = Scripted([Line(text="first"), Line(text="second")])
    assert respond(model, asked()) == respond(model, asked())


def test_another_process_goes_on_where_one_ended(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"calls": [{"name": "execute_sql", "arguments": "{broken"}]}, {"text": "Done."}]))
    code = (
        "import sys; from etude.cancellation import Cancellation; from etude.models.base import *;"
        "from etude.models.open import open_model; from etude.settings import load_settings;"
        "from pydantic import TypeAdapter;"
        "said = TypeAdapter(list[ConversationMessage]).validate_json(sys.argv[2]);"
        "model = open_model(sys.argv[1], load_settings({}));"
        "print(model.respond(ModelRequest(said), lambda text: None, Cancellation()).turn.model_dump_json())"
    )
    conversation = asked()
    for expected in ("{broken", "Done."):
        said = json.dumps([u.model_dump() for u in conversation])
        ran = subprocess.run(
            [sys.executable, "-c", code, f"scripted:{script}", said], capture_output=True, text=True, check=True
        )
        turn = Turn.model_validate_json(ran.stdout)
        assert (turn.calls[0].arguments if turn.calls else turn.text) == expected
        conversation += after(turn, *["failed"] * len(turn.calls))


def test_scenes_are_found_by_their_question_whatever_was_said_before() -> None:
    model = Scripted(
        [
            Scene(asked="how many", turns=(Line(text="41?"), Line(text="42."))),
            Scene(asked="by region", turns=(Line(text="North 20, South 22."),)),
        ]
    )
    earlier = [*asked("How many orders?"), AssistantMessage(turn=Turn(text="42."))]
    assert respond(model, [*earlier, UserMessage(text="And BY REGION?")]).turn.text == "North 20, South 22."
    corrected = [
        *asked("How many?"),
        AssistantMessage(turn=Turn(text="41?")),
        UserMessage(text="41 was found in no result."),
    ]
    assert respond(model, corrected).turn.text == "42."
    with pytest.raises(ModelError, match="No scene"):
        respond(model, asked("something else"))


def test_a_turn_can_be_made_of_what_is_shown() -> None:
    model = Scripted([lambda request: Line(text=request.conversation[-1].text.upper())])
    assert respond(model, asked("echo this")).turn.text == "ECHO THIS"


def test_an_error_comes_after_its_text() -> None:
    heard = Heard()
    with pytest.raises(ModelError, match="the provider is gone"):
        respond(Scripted([Line(text="I will", error="the provider is gone")]), asked(), heard)
    assert heard.text == "I will"


def test_what_is_expected_and_not_shown_is_named() -> None:
    model = Scripted([Line(text="ok", expect=("How many", "orders"))])
    assert respond(model, asked("How many orders?")).turn.text == "ok"
    with pytest.raises(ModelError, match=r"Turn 1 .* `orders`"):
        respond(model, asked("How many customers?"))


def test_a_script_that_is_over_says_so() -> None:
    model = Scripted([Line(text="only one")])
    with pytest.raises(ModelError, match="has only 1 turn, but turn 2"):
        respond(model, [*asked(), AssistantMessage(turn=Turn(text="only one")), UserMessage(text="more")])


@pytest.mark.parametrize("line", [Line(text="x", delay_s=60), Line(text="x y", pace_s=60)])
def test_cancel_ends_a_wait(line: Line) -> None:
    cancel = Cancellation()
    timer = threading.Timer(0.05, cancel.cancel)
    timer.start()
    with pytest.raises(Cancelled):
        respond(Scripted([line]), asked(), cancel=cancel)
    timer.join()


def test_usage_is_the_length_unless_the_script_says_otherwise() -> None:
    short = respond(Scripted([Line(text="x")]), asked("short")).usage
    longer = respond(Scripted([Line(text="x")]), asked("short" + " and longer" * 100)).usage
    assert longer.tokens_in - short.tokens_in == pytest.approx(275, abs=1)
    given = Usage(tokens_in=5, tokens_out=6, model_calls=1, cost_usd=0.5)
    reply = respond(Scripted([Line(text="x", usage=given)]), asked())
    assert (reply.usage, reply.price_known) == (given, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"txt": "typo"}]', "txt"),
        ("[{}", "not valid JSON"),
        (None, "cannot be read"),
        ('{"text": "x"}', "must be a list"),
    ],
)
def test_a_script_that_cannot_be_read_says_why(content: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Invalid, match=said):
        open_model(f"scripted:{path}", load_settings({}))


def test_turns_and_scenes_do_not_mix() -> None:
    with pytest.raises(Invalid, match="not both"):
        Scripted([Line(text="x"), Scene(asked="y", turns=())])  # type: ignore[list-item]


def test_requests_differ_by_what_is_said_and_not_by_who_listens() -> None:
    assert ModelRequest(asked(), on_restart=print) == ModelRequest(asked())
