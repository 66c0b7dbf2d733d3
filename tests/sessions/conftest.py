from __future__ import annotations

from collections.abc import Iterator

import pytest

from etude.sessions import local
from etude.sessions.local import LocalProvider


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """A server that loads little starts sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "PRELOAD", ("numpy",))
        yield


@pytest.fixture(scope="module")
def provider(small: None) -> Iterator[LocalProvider]:
    made = LocalProvider()
    yield made
    made.close()
