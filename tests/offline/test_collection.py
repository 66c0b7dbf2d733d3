"""Garbage collection pauses while a vocabulary is made, and goes on after it."""

from __future__ import annotations

import gc

import pytest

from etude.offline.collection import pause_garbage_collection


def test_collection_goes_on_after_the_last_block() -> None:
    with pause_garbage_collection():
        with pause_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), pause_garbage_collection():
        raise ValueError("no")
    assert gc.isenabled()


def test_a_program_without_collection_stays_without() -> None:
    gc.disable()
    try:
        with pause_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
