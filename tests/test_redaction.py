"""Secrets in URLs, connection strings and values are masked; places and harmless options stay readable."""

from __future__ import annotations

import json
import string
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.cli.main import run_command
from etude.errors import Invalid
from etude.redaction import redact, redact_url_path, redact_value
from etude.store.postgres import PostgresStore


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/x.csv?X-Amz-Signature=SEC&X-Amz-Date=1", "https://h/x.csv?X-Amz-Signature=***&X-Amz-Date=***"),
        ("https://h/x.csv?sv=2022&sig=S%2BEC%3D", "https://h/x.csv?sv=***&sig=***"),
        ("https://h/x.csv?auth=SEC;pwd=SEC#SEC", "https://h/x.csv?auth=***;pwd=***#***"),
        ("https://h/x.csv?SEC", "https://h/x.csv?***"),
        ("https://h/x.csv?SEC==", "https://h/x.csv?***"),
        ("https://h:8080/x.csv?mail=ann@SEC", "https://***"),
        ("https://SEC@h/x.csv", "https://***@h/x.csv"),
        ("https://SEC:x-oauth-basic@h/x.csv", "https://***@h/x.csv"),
        ("s3://bucket/a?session=SEC&region=eu-west-1", "s3://bucket/a?session=***&region=eu-west-1"),
        ("postgresql://u:HOST/SEC@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u:a@SEC@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u:a?SEC@h/x", "postgresql://***"),
        ("postgresql://u:a#SEC@h/x", "postgresql://***"),
        ("postgresql://u:S'E C@h/x", "postgresql://u:***@h/x"),
        (
            "postgresql://ann@h/x?sslmode=require&sslpassword=SEC",
            "postgresql://ann@h/x?sslmode=require&sslpassword=***",
        ),
        ("redis://:SEC@h:6379/0", "redis://:***@h:6379/0"),
        ("host=h password=SEC user=ann", "host=h password=*** user=ann"),
        ("password = 'S E\\'SEC' host=h", "password = *** host=h"),
        ("password=S\\ EC host=h", "password=*** host=h"),
        ("Server=h;Pwd={S;EC}", "Server=h;Pwd=***"),
    ],
)
def test_secrets_are_masked(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    ["data/a?b=c.csv", "file:///data/a?b=1.csv", "sqlite:////data/ann@home/x.db", "https://h/x.csv", "a key = 5", ""],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_a_url_within_a_sentence_is_masked_up_to_its_end() -> None:
    told = "`https://h/x.csv?sig=SEC` and 'postgresql://u:S/EC@h/x', or (https://h/y?a=SEC)."
    assert redact(told) == "`https://h/x.csv?sig=***` and 'postgresql://u:***@h/x', or (https://h/y?a=***)."


@settings(max_examples=100)
@given(st.text(string.punctuation + string.whitespace + "Zé0", min_size=1, max_size=20))
def test_no_character_of_a_password_ends_it(middle: str) -> None:
    for url in (f"postgresql://ann:SEC{middle}SEC@h/x", f"https://SEC{middle}SEC@h/x", f"mysql://h/x?a=SEC{middle}"):
        assert "SEC" not in redact(url)
        assert "SEC" not in str(redact_value({"places": [url]}))


def test_no_command_shows_the_secrets_of_a_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path))
    urls = (
        "https://h/x.csv?X-Amz-Signature=SEC",
        "postgresql://u:HOST/SEC@h/x",
        "postgresql://u:a@SEC@h/x",
        "password=SEC host=h",
    )
    monkeypatch.setenv("ETUDE_SOURCES", json.dumps({f"s{at}": {"url": url} for at, url in enumerate(urls)}))
    monkeypatch.setenv("ETUDE_REMOTE__ALLOW", json.dumps(["https://h/?sig=SEC"]))
    for command in (["config"], ["config", "--json"], ["sources", "list"], ["sources", "list", "--json"]):
        assert run_command(command) == 0
    for url in urls:
        assert run_command(["sql", url, "SELECT 1"]) != 0
    told = capsys.readouterr()
    assert "X-Amz-Signature=***" in told.out
    assert "SEC" not in told.out + told.err


def test_limits_of_tokens_are_not_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path))
    monkeypatch.setenv("ETUDE_SERVER__DAILY_TOKENS", "1234")
    assert run_command(["config", "--json"]) == 0
    shown = {item["key"]: item["value"] for item in json.loads(capsys.readouterr().out)}
    assert shown["server.daily_tokens"] == "1234"
    assert shown["budget.tokens"].isdecimal()


@pytest.mark.parametrize("url", ["postgresql://u:a@SEC@h/x", "postgresql://u:HOST/SEC@h/x"])
def test_the_store_shows_no_part_of_a_password(url: str) -> None:
    with pytest.raises(Invalid, match="not a valid Postgres URL") as caught:
        PostgresStore(url)
    assert "SEC" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "select '" + "a" * 1_000_000 + "'",
        "_secret" * 100_000,
        "file://x?" + "?secret" * 100_000,
        "a://" * 200_000,
        "password" + " " * 500_000,
    ],
    ids=["one word", "names", "parameters", "marks", "blanks"],
)
def test_a_long_text_takes_time_in_proportion(text: str) -> None:
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 20  # quadratic time would be hours


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at a" + "b" * 100 + "postgresql://ann:pw@db/x", "at a" + "b" * 100 + "postgresql://ann:***@db/x"),
        ("x ://u:pw@h and 9+http://u:pw@h/x", "x ://u:pw@h and 9+http://***@h/x"),
    ],
)
def test_the_scheme_of_a_url_ends_where_its_letters_do(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/", "https://example.com/"),
        ("https://example.com:8443", "https://example.com:8443"),
        ("https://example.com/services/T0KEN", "https://example.com/***"),
        ("https://example.com/?key=T0KEN", "https://example.com/***"),
        ("https://user:T0KEN@example.com/x", "https://example.com/***"),
        ("redis://redis.internal:6379", "redis://redis.internal:6379"),
    ],
)
def test_only_the_host_of_a_receiver_is_shown(url: str, shown: str) -> None:
    assert redact_url_path(url) == shown
