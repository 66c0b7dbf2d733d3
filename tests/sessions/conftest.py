from __future__ import annotations

from collections.abc import Iterator

import pytest

from etude.sessions import check, local, session
from etude.sessions.local import LocalProvider


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """A server that loads little starts sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "PRELOAD", ("numpy",))
        yield


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that a slow machine keeps from heeding an interrupt at once is not killed for it."""
    monkeypatch.setattr(session, "LOOK_S", 10.0)
    monkeypatch.setattr(session, "GRACE_S", 60.0)


@pytest.fixture
def fairly_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `patient`, where one that is deaf has to be waited for."""
    monkeypatch.setattr(session, "LOOK_S", 2.0)
    monkeypatch.setattr(session, "GRACE_S", 3.0)
    monkeypatch.setattr(check, "LATE_S", 120.0)


@pytest.fixture(scope="module")
def provider(small: None) -> Iterator[LocalProvider]:
    made = LocalProvider()
    yield made
    made.close()
