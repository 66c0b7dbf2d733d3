"""Garbage collection pauses while a vocabulary is made, and goes on after it."""

from __future__ import annotations

import gc
import weakref

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


def test_what_a_block_makes_counts_as_old() -> None:
    with pause_garbage_collection():
        made = [[number] for number in range(5_000)]
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert not any(id(each) in young for each in made)


def test_cycles_that_a_block_leaves_are_still_collected() -> None:
    class Node:
        pass

    with pause_garbage_collection():
        node = Node()
        node.self = node  # type: ignore[attr-defined]
        known = weakref.ref(node)
        del node
    gc.collect()
    assert known() is None


def test_objects_that_a_program_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with pause_garbage_collection():
            pass
        assert gc.get_freeze_count() > frozen / 2  # some of them may have ended meanwhile
    finally:
        gc.unfreeze()


def test_a_program_without_collection_stays_without() -> None:
    gc.disable()
    try:
        with pause_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
