"""Limits: their owner changes them, a caller can only lower them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.entities import Budget, Limits, SessionLimits
from etude.errors import Invalid
from etude.limits import Bounds, change_limits, lower_limits
from etude.settings import Settings

UNLIMITED = {"rows", "bytes", "row_bytes", "limit", "scan_rows", "scan_bytes", "tokens", "cost_usd", "cpus"}
"""Limits for which zero means none."""


def test_limits_can_be_changed_singly() -> None:
    limits = change_limits(Settings().limits, {"rows": 5, "bytes": "10MB"})
    assert (limits.rows, limits.bytes, limits.timeout_s) == (5, 10_000_000, 60.0)
    assert change_limits(Budget(steps=3), {"steps": 30}).steps == 30


@pytest.mark.parametrize("change", [change_limits, lower_limits])
def test_a_wrong_limit_is_named(change: Any) -> None:
    with pytest.raises(Invalid, match="The limit `row` is not known") as caught:
        change(Limits(), {"row": 5})
    assert caught.value.hint == "Did you mean `rows`?"
    with pytest.raises(Invalid, match="The limit `zebra` is not known") as caught:
        change(Limits(), {"zebra": 5})
    assert caught.value.hint == "Limits: timeout_s, rows, bytes, row_bytes, limit, scan_rows, scan_bytes."
    with pytest.raises(Invalid, match="The limit `rows` cannot be `-1`: it must be 0 or more"):
        change(Limits(), {"rows": -1})
    with pytest.raises(Invalid, match="The limit `timeout_s` cannot be `NaN`"):
        change(Limits(), {"timeout_s": float("nan")})
    with pytest.raises(Invalid, match="The limit `memory` cannot be `5`"):
        change(SessionLimits(), {"memory": 5})


@pytest.mark.parametrize(
    ("ours", "asked", "given"),
    [
        (1000, 10, 10),
        (1000, 1000, 1000),
        (1000, 2000, 1000),
        (1000, 0, 1000),  # zero means no limit, which would be more
        (0, 10, 10),
        (0, 0, 0),
    ],
)
def test_a_caller_gets_less_and_never_more(ours: int, asked: int, given: int) -> None:
    assert lower_limits(Limits(rows=ours), {"rows": asked}).rows == given
    assert lower_limits(Budget(tokens=ours), {"tokens": asked}).tokens == given


def test_what_is_not_asked_for_stays() -> None:
    ours = Limits(rows=7, timeout_s=3)
    assert lower_limits(ours, {}) == ours
    assert lower_limits(ours, {"timeout_s": 1.5}) == Limits(rows=7, timeout_s=1.5)
    assert lower_limits(SessionLimits(), {"wall_s": 1, "cpus": 2.0}) == SessionLimits(wall_s=1, cpus=2.0)


def bounds(kind: type[Bounds]) -> st.SearchStrategy[Bounds]:
    numbers = {
        name: st.sampled_from([0, 0.5, 1, 5.5, 1024]) | st.floats(0, 1e9)
        if field.annotation is float
        else st.integers(0, 1 << 40)
        for name, field in kind.model_fields.items()
    }

    def make(values: dict[str, Any]) -> Bounds | None:
        try:
            return kind.model_validate(values)
        except ValueError:
            return None

    least = {f: kind.model_fields[f].default for f in numbers}
    chosen = st.fixed_dictionaries({f: st.just(least[f]) | numbers[f] for f in numbers})
    return chosen.map(make).filter(lambda made: made is not None)  # type: ignore[return-value]


@given(st.data(), st.sampled_from([Limits, Budget, SessionLimits]))
def test_no_request_raises_a_limit(data: st.DataObject, kind: Any) -> None:
    ours, asked = data.draw(bounds(kind)), data.draw(bounds(kind))
    names = data.draw(st.sets(st.sampled_from(sorted(kind.model_fields))))
    lowered = lower_limits(ours, {name: getattr(asked, name) for name in names})
    for name in kind.model_fields:
        was, now, wanted = getattr(ours, name), getattr(lowered, name), getattr(asked, name)
        size = (lambda value: value or float("inf")) if name in UNLIMITED else (lambda value: value)
        assert size(now) <= size(was)
        assert now == (wanted if name in names and size(wanted) < size(was) else was)
