"""What people say of data, in YAML that anybody may have put beside it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.catalog.storage.annotations import BYTES, get_annotations, read_annotations
from etude.errors import Invalid

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
BOMBS = {
    "aliases": LAUGHS,
    "merge keys": MERGES,
    "an alias to itself": "tables: &a {x: *a}",
    "nesting": "tables: " + "[" * 100_000,
    "a number of many digits": "owner: " + "9" * 1_000_000,
    "a number to the base of sixty": "owner: 1" + ":1" * 500_000,
    "tags": "owner: !!python/object/apply:os.system [id]",
    "a date that is none": "owner: 2020-99-99",
    "size": "owner: " + "x" * BYTES,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "shop.etude.yaml"
    path.write_text(BOMBS[name])
    started = time.process_time()
    if name == "a date that is none":
        said = read_annotations(path)
        assert said is not None and said.owner == "2020-99-99", "a text, as everything is"
    else:
        with pytest.raises(Invalid, match=r"owner|alias|nested|tag|larger"):
            read_annotations(path)
    assert time.process_time() - started < 5


def test_plain_annotations_are_read(tmp_path: Path) -> None:
    path = tmp_path / "shop.etude.yaml"
    path.write_text("""
owner: ~
tables:
  2024: {description: 1.50, tags: [yes, 007]}
  orders:
    owner: null
    columns: {id: The number}
""")
    said = read_annotations(path)
    assert said is not None and said.owner is None
    assert said.tables["2024"].description == "1.50", "as it was written"
    assert said.tables["2024"].tags == ("yes", "007")
    assert said.tables["orders"].owner is None and "owner" in said.tables["orders"].model_fields_set
    assert said.tables["orders"].columns["id"].description == "The number"
    assert read_annotations(tmp_path / "absent") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.binary(max_size=200) | st.text(st.sampled_from("{}[]:,-&*!|>'\"\n \tax0?<"), max_size=80).map(str.encode))
def test_whatever_the_file_holds_it_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "shop.etude.yaml"
    path.write_bytes(data)
    with contextlib.suppress(Invalid):
        read_annotations(path)


@pytest.mark.parametrize("place", ["next to the source", "in the folder of the settings"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, place: str) -> None:
    data, notes = tmp_path / "data", tmp_path / "notes"
    data.mkdir()
    notes.mkdir()
    (data / "shop.csv").write_text("id\n1\n")
    (tmp_path / "secret.yaml").write_text("owner: HIDDEN\n")
    link = (data if place == "next to the source" else notes) / "shop.etude.yaml"
    with App(home=tmp_path / "home", catalog={"annotations": str(notes)}) as app:
        source = app.source(str(data / "shop.csv"))
        link.symlink_to(tmp_path / "secret.yaml")
        assert get_annotations(app, source).owner is None
        link.unlink()
        (link.parent / "current.yaml").write_text("owner: ann\n")
        link.symlink_to("current.yaml")
        assert get_annotations(app, source).owner == "ann"
