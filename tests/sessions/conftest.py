from __future__ import annotations

from collections.abc import Iterator

import pytest

from etude.sessions import check, local, session
from etude.sessions.local import LocalProvider


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Preload few libraries, so that fork servers start faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "PRELOAD", ("numpy",))
        yield


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for interrupts, so that sessions on a slow machine are not killed."""
    monkeypatch.setattr(session, "LOOK_S", 10.0)
    monkeypatch.setattr(session, "GRACE_S", 60.0)


@pytest.fixture
def fairly_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `patient`, but shorter, for tests of sessions that ignore interrupts."""
    monkeypatch.setattr(session, "LOOK_S", 2.0)
    monkeypatch.setattr(session, "GRACE_S", 3.0)
    monkeypatch.setattr(check, "LATE_S", 120.0)


@pytest.fixture(scope="module")
def provider(small: None) -> Iterator[LocalProvider]:
    made = LocalProvider()
    yield made
    made.close()
