from __future__ import annotations

import errno

import pytest

from etude import errors
from etude.errors import EtudeError, Interrupted, InvalidQuery, LimitExceeded, NotFound, from_problem, problem


def all_classes() -> list[type[EtudeError]]:
    found = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, EtudeError)]
    assert len(found) > 10
    return found


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in all_classes()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", all_classes())
def test_a_problem_gives_back_the_same_error(cls: type[EtudeError]) -> None:
    error = cls("It happened at 3.", hint="Do this.", line=3)
    body = problem(error)
    assert body["type"] == f"urn:etude:error:{cls.code}"
    assert (body["detail"], body["hint"], body["status"]) == ("It happened at 3.", "Do this.", cls.status)
    again = from_problem(body)
    assert type(again) is cls
    assert (again.message, again.hint, again.details) == (error.message, error.hint, error.details)


def test_every_error_has_a_status_and_an_exit_code_that_say_failure() -> None:
    for cls in all_classes():
        assert 400 <= cls.status < 600
        assert 0 < cls.exit_code < 256


def test_an_unexpected_error_hides_its_text() -> None:
    body = problem(ValueError("postgresql://me:secret@host"))
    assert body["code"] == "internal"
    assert "secret" not in str(body)
    assert "ValueError" in body["detail"]


def test_details_without_a_value_are_left_out() -> None:
    body = problem(LimitExceeded("Too long.", limit="timeout_s", value=None))
    assert body["limit"] == "timeout_s"
    assert "value" not in body
    assert "hint" not in body


def test_an_unknown_code_becomes_the_base_error() -> None:
    error = from_problem({"code": "from_the_future", "detail": "x"})
    assert type(error) is EtudeError
    assert from_problem({}).message == ""


def test_only_what_may_pass_by_itself_is_retryable() -> None:
    assert Interrupted("gone").retryable
    assert not NotFound("absent").retryable


def test_a_full_disk_is_not_a_defect() -> None:
    """Uploads and the store report it in the same form."""
    body = problem(OSError(errno.ENOSPC, "No space left on device", "/secret/place"))
    assert (body["code"], body["status"], body["reason"]) == ("unavailable", 503, "disk_full")
    assert "the disk is full" in body["detail"]
    assert "/secret" not in str(body)
    assert problem(OSError(errno.EIO, "Input/output error"))["code"] == "internal"


def test_a_very_long_message_is_cut() -> None:
    told = problem(InvalidQuery("x" * 60_000_000, hint="y" * 60_000_000, excerpt="z" * 60_000_000))
    assert sum(map(len, map(str, told.values()))) < 40_000
    assert "59,990,000 more characters" in told["detail"]
    assert len(from_problem({**told, "detail": "x" * 60_000_000}).message) < 11_000
