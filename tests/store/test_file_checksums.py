from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from etude.entities import Artifact, ResultColumn, ResultInfo
from etude.errors import Damaged
from etude.result import Result
from etude.spool import spool_to_parquet
from etude.store.file_checksums import LARGE, CheckedFile, FileChecksums, checksums_path
from etude.store.objects import Objects

RUN = "run_of_the_result"


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "objects")


def keep_table(objects: Objects, rows: int) -> Artifact:
    """A kept result of that many rows; values are random, so that a large one stays large."""
    some = random.Random(rows)
    columns = {"id": list(range(rows)), "name": [f"{some.random():.17f}" for _ in range(rows)]}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    spool_to_parquet(sink, table.schema, table.to_batches())
    return objects.put(bytes(sink.getvalue()), "application/vnd.apache.parquet")


def file_of(objects: Objects, artifact: Artifact) -> Path:
    path = objects.local_path(artifact.hash)
    assert path is not None
    return path


def read(objects: Objects, artifact: Artifact) -> list[Any]:
    columns = (ResultColumn(name="id", type="BIGINT"), ResultColumn(name="name", type="VARCHAR"))
    result = Result(
        ResultInfo(columns=columns, row_count=0), None, open_kept=lambda: objects.open(artifact.hash, RUN), run_id=RUN
    )
    return [batch.to_pydict() for batch in result.batches()]


def flips(size: int, count: int) -> Iterator[Callable[[bytearray], None]]:
    """Changes of one bit, a third of them in the last bytes, where a Parquet file says what is where."""
    some = random.Random(size)
    for number in range(count):
        place = some.randrange(max(size - 2000, 0), size) if number % 3 == 0 else some.randrange(size)
        bit = 1 << some.randrange(8)

        def flip(data: bytearray, place: int = place, bit: int = bit) -> None:
            data[place] ^= bit

        yield flip


def cuts(size: int, count: int) -> Iterator[Callable[[bytearray], None]]:
    """Truncations."""
    some = random.Random(size + 1)
    for _ in range(count):
        length = some.randrange(size)

        def cut(data: bytearray, length: int = length) -> None:
            del data[length:]

        yield cut


@pytest.mark.parametrize(("rows", "count"), [(50, 400), (2000, 200), (150_000, 40)])
def test_every_flipped_bit_and_every_cut_is_reported(objects: Objects, rows: int, count: int) -> None:
    artifact = keep_table(objects, rows)
    path = file_of(objects, artifact)
    whole = path.read_bytes()
    assert sum(len(b["id"]) for b in read(objects, artifact)) == rows
    reported = 0
    for damage in [*flips(len(whole), count), *cuts(len(whole), count // 4)]:
        data = bytearray(whole)
        damage(data)
        path.write_bytes(data)
        with pytest.raises(Damaged, match=rf"{artifact.hash}.*{RUN}.*damaged"):
            read(objects, artifact)
        reported += 1
    assert reported == count + count // 4
    path.write_bytes(whole)
    assert sum(len(b["id"]) for b in read(objects, artifact)) == rows


def test_a_part_that_is_read_is_checked_and_no_more(objects: Objects) -> None:
    artifact = objects.put(os.urandom(4 << 20), "x/y")
    path = file_of(objects, artifact)
    data = bytearray(path.read_bytes())
    data[3 << 20] ^= 1
    path.write_bytes(data)
    with objects.open(artifact.hash) as file:
        assert file.read(1 << 20) == data[: 1 << 20]
        file.seek(3 << 20)
        with pytest.raises(Damaged):
            file.read(1)


def test_a_file_that_is_read_whole_is_read_once(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = objects.put(os.urandom(300_000), "x/y")
    read, sizes = os.pread, []

    def count(fd: int, size: int, place: int) -> bytes:
        sizes.append(size)
        return read(fd, size, place)

    monkeypatch.setattr(os, "pread", count)
    with objects.open(artifact.hash) as file:
        whole = file.read()
        assert sizes == [300_000]
        file.seek(-8, os.SEEK_END)
        assert file.read() == whole[-8:]
        file.seek(-2000, os.SEEK_END)
        assert file.read(1000) == whole[-2000:-1000]
    # The end of a Parquet file is read in two steps: the chunk is kept in between.
    assert len(sizes) == 2


@pytest.mark.parametrize("change", ["gone", "flipped", "cut", "empty", "another's"])
def test_without_good_sums_the_whole_file_is_hashed(objects: Objects, change: str) -> None:
    content = os.urandom(3 << 20)
    artifact = objects.put(content, "x/y")
    path = file_of(objects, artifact)
    sums = bytearray(checksums_path(path).read_bytes())
    if change == "gone":
        checksums_path(path).unlink()
    elif change == "another's":
        other = objects.put(os.urandom(3 << 20), "x/y")
        checksums_path(path).write_bytes(checksums_path(file_of(objects, other)).read_bytes())
    else:
        sums[40] ^= 1 if change == "flipped" else 0
        checksums_path(path).write_bytes({"flipped": sums, "cut": sums[:-4], "empty": b""}[change])
    damaged = bytearray(content)
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(Damaged), objects.open(artifact.hash) as file:
        file.read()
    path.write_bytes(content)
    with objects.open(artifact.hash) as file:
        assert file.read() == content
    assert FileChecksums.read(path, artifact.hash) is not None, "they are made again"


@pytest.mark.parametrize("size", [0, 1, LARGE, LARGE + 1, 3 << 20])
def test_what_is_put_again_replaces_a_damaged_file_of_the_same_size(objects: Objects, size: int) -> None:
    content = os.urandom(size)
    artifact = objects.put(content, "x/y")
    path = file_of(objects, artifact)
    if size:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    objects.put(content, "x/y")
    assert path.read_bytes() == content
    objects.check_artifact(artifact.hash)


def test_a_checked_file_reads_as_a_plain_one(objects: Objects, tmp_path: Path) -> None:
    content = os.urandom((5 << 20) + 17)
    artifact = objects.put(content, "x/y")
    plain = tmp_path / "plain"
    plain.write_bytes(content)
    some = random.Random(0)
    with objects.open(artifact.hash) as checked, plain.open("rb") as file:
        assert isinstance(checked, CheckedFile)
        for _ in range(200):
            place, length = some.randrange(len(content) + 9), some.choice([0, 1, 100, 1 << 18, 2 << 20, -1])
            assert (checked.seek(place), checked.read(length)) == (file.seek(place), file.read(length))
            assert checked.tell() == file.tell()
        assert checked.seek(0, os.SEEK_END) == len(content)
