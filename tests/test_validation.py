"""Validation errors in words: field, value, reason and near name; secrets stay out."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError, field_validator

from etude.entities import Entity
from etude.errors import Invalid
from etude.validation import explain_validation, find_field_validation_error


class Inner(Entity):
    rows: int = Field(default=1, ge=1, le=100)
    pin: str = Field(default="", min_length=4, repr=False)


class Cat(Entity):
    type: Literal["cat"]
    lives: int = 9


class Dog(Entity):
    type: Literal["dog"]
    tricks: tuple[str, ...] = ()


class Form(Entity):
    name: str = Field(default="x", min_length=1, max_length=5)
    share: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)
    mode: Literal["fast", "slow"] = "fast"
    at: datetime | None = None
    on: bool = False
    tags: tuple[str, ...] = Field(default=(), max_length=2)
    inner: Inner = Inner()
    named: dict[str, Inner] = {}
    pets: tuple[Annotated[Cat | Dog, Field(discriminator="type")], ...] = ()
    either: int | Inner = 0
    source_from: str = Field(default="", alias="from")
    token: str = Field(default="", min_length=8)
    url: str = ""
    headers: dict[str, str] = {}

    @field_validator("url")
    @classmethod
    def _is_web(cls, url: str) -> str:
        if url and not url.startswith("https://"):
            raise ValueError("give an https URL")
        return url


def refusal(body: Any, model: Any = Form, **more: Any) -> Invalid:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python(body)
    return explain_validation(caught.value, "the form", model=model, **more)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inner": {"rows": 0}}, "`inner.rows` of the form cannot be `0`: it must be 1 or more."),
        ({"inner": {"rows": 101}}, "`inner.rows` of the form cannot be `101`: it must be 100 or less."),
        ({"inner": {"rows": "many"}}, '`inner.rows` of the form cannot be `"many"`: it must be a whole number.'),
        ({"inner": {"rows": 1.5}}, "`inner.rows` of the form cannot be `1.5`: it must be a whole number."),
        ({"inner": 5}, "`inner` of the form cannot be `5`: it must be an object with named fields."),
        ({"share": 0}, "`share` of the form cannot be `0`: it must be more than 0."),
        ({"share": 1}, "`share` of the form cannot be `1`: it must be less than 1."),
        ({"share": float("nan")}, "`share` of the form cannot be `NaN`: it must be finite: neither NaN nor infinity."),
        ({"name": ""}, '`name` of the form cannot be `""`: it must not be empty.'),
        ({"name": "longer"}, '`name` of the form cannot be `"longer"`: it must have at most 5 characters.'),
        ({"name": 3}, "`name` of the form cannot be `3`: it must be text."),
        ({"name": None}, "`name` of the form cannot be `null`: it must be text."),
        ({"mode": "swift"}, '`mode` of the form cannot be `"swift"`: it must be `fast` or `slow`.'),
        (
            {"at": "noon"},
            '`at` of the form cannot be `"noon"`: it must be a date and time such as `2026-01-31T12:00:00Z`.',
        ),
        ({"on": "maybe"}, '`on` of the form cannot be `"maybe"`: it must be true or false.'),
        ({"tags": "a"}, '`tags` of the form cannot be `"a"`: it must be a list.'),
        ({"tags": ["a", 2]}, "`tags[1]` of the form cannot be `2`: it must be text."),
        ({"tags": list("abc")}, '`tags` of the form cannot be `["a", "b", "c"]`: it must have at most 2 items.'),
        ({"named": {"a": {"rows": 0}}}, "`named.a.rows` of the form cannot be `0`: it must be 1 or more."),
        (
            {"pets": [{"type": "cat", "lives": "x"}]},
            '`pets[0].lives` of the form cannot be `"x"`: it must be a whole number.',
        ),
        (
            {"pets": [{"type": "cow"}]},
            '`pets[0]` of the form cannot be `{"type": "cow"}`: its `type` must be one of `cat`, `dog`.',
        ),
        ({"pets": [{}]}, "`pets[0]` of the form cannot be `{}`: it needs `type`."),
        ({"either": "x"}, '`either` of the form cannot be `"x"`: it must be a whole number.'),
        ({"from": 3}, "`from` of the form cannot be `3`: it must be text."),
        ({"url": "ftp://x"}, '`url` of the form cannot be `"ftp://x"`: give an https URL.'),
        (5, "The form cannot be `5`: it must be an object with named fields."),
    ],
)
def test_a_wrong_value_is_named_with_its_field_and_the_reason(body: Any, message: str) -> None:
    assert str(refusal(body)) == message


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ({"nmae": "x"}, "`nmae` of the form is not known.", "Did you mean `name`?"),
        ({"form": "x"}, "`form` of the form is not known.", "Did you mean `from`?"),
        ({"inner": {"row": 1}}, "`inner.row` of the form is not known.", "Did you mean `inner.rows`?"),
        ({"named": {"a": {"row": 1}}}, "`named.a.row` of the form is not known.", "Did you mean `named.a.rows`?"),
        ({"inner": {"zebra": 1}}, "`inner.zebra` of the form is not known.", "Known here: `rows`, `pin`."),
        (
            {"pets": [{"type": "dog", "trick": []}]},
            "`pets[0].trick` of the form is not known.",
            "Did you mean `pets[0].tricks`?",
        ),
        ({"either": {"row": 1}}, "`either.row` of the form is not known.", "Did you mean `either.rows`?"),
        ({"share": 7, "nmae": "x"}, "`nmae` of the form is not known.", "Did you mean `name`?"),  # a typo comes first
    ],
)
def test_an_unknown_field_gets_a_near_one(body: Any, message: str, hint: str) -> None:
    error = refusal(body)
    assert (str(error), error.hint) == (message, hint)


def test_a_missing_field_is_named() -> None:
    error = refusal([{}], list[Annotated[Cat, Field()]])
    assert (str(error), error.hint) == ("`[0].type` of the form is missing.", "Add it.")


def test_the_caller_names_fields_and_hints() -> None:
    error = refusal({"share": 7}, name=lambda field: f"The setting `{field}`", hint="Read the page.", place="x")
    assert str(error) == "The setting `share` cannot be `7`: it must be less than 1."
    assert (error.hint, error.details) == ("Read the page.", {"place": "x"})
    assert refusal({"zebra": 1}, hint="Read the page.").hint == "Read the page."
    assert refusal({"nmae": 1}, hint="Read the page.").hint == "Did you mean `name`?"


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "body",
    [
        {"token": [SECRET]},
        {"inner": {"pin": [SECRET]}},
        {"inner": [{"pin": SECRET}]},
        {"named": {"a": [SECRET, {"pin": SECRET}]}} | {"named": [{"deep": {"api_key": SECRET}}]},
        {"url": f"http://ann:{SECRET}@host/x"},
        {"url": f"http://host/x?token={SECRET}"},
        {"headers": {"Authorization": [SECRET]}},
        {"headers": {"X-Mine": [SECRET]}},
        {"headers": f"X-Mine: {SECRET}"},
        {"inner": f"{{'pin': '{SECRET}'}}"},
        {"inner": [{"store_options": {"x": SECRET}}]},
        {"inner": [{"token": SECRET}]},
        [{"password": SECRET, "pin": SECRET}],
    ],
)
def test_secrets_are_not_shown(body: Any) -> None:
    error = refusal(body)
    assert SECRET not in str(error) + error.hint


def test_containers_can_be_left_out() -> None:
    assert "X" in str(refusal({"name": ["X"]}))
    assert str(refusal({"name": ["X"]}, containers=False)) == "`name` of the form: it must be text."


def test_a_secret_that_is_too_short_is_told_without_it() -> None:
    assert str(refusal({"token": "abc"})) == "`token` of the form: it must have at least 8 characters."
    assert str(refusal({"inner": {"pin": "abc"}})) == "`inner.pin` of the form: it must have at least 4 characters."


def test_text_that_is_not_json_is_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate_json(f'{{"token": "{SECRET}"')
    text = str(explain_validation(caught.value, "the form", model=Form))
    assert text.startswith("The form: it is not valid JSON: EOF") and SECRET not in text


def test_a_deep_value_is_cut() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert len(str(refusal({"name": deep}))) < 200


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://?" + "&" * 4_000_000, "a text of 4,000,008 characters"),
        ([""] * 19_000, "a list of 19,000 items"),
        ({f"k{n}": 1 for n in range(3_000)}, "an object of 3,000 fields"),
        ([["x" * 3_000]], "a list of 1 items"),
    ],
)
def test_a_large_value_is_described_at_once(value: Any, shown: str) -> None:
    with pytest.raises(ValidationError) as failed:
        TypeAdapter(int).validate_python(value)
    started = time.process_time()
    assert shown in explain_validation(failed.value, "it").message
    assert time.process_time() - started < 0.2


def test_a_long_value_is_cut() -> None:
    assert len(str(refusal({"name": "x" * 10_000}))) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*Form.model_fields, "from", "other"]), JSON, min_size=1))
def test_any_error_has_words(body: dict[str, Any]) -> None:
    try:
        Form.model_validate(body)
    except ValidationError as error:
        problem = find_field_validation_error(error, Form)
        text = str(explain_validation(error, "the form", model=Form))
        assert problem.field.split(".")[0].split("[")[0] in body
        assert text.endswith(".") and "Input should" not in text and "pydantic" not in text
