"""Playbooks: front matter in YAML, then the lesson; a file that is not a playbook is named in the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import Invalid
from etude.playbook import LARGEST, parse_playbook, read_playbooks


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("short", "short"),
        ('"quoted: with a colon"', "quoted: with a colon"),
        ("'it''s quoted'", "it's quoted"),
        (">\n  folded over\n  two lines", "folded over two lines"),
        ("|\n  kept on\n  two lines", "kept on\ntwo lines"),
        ("plain over\n  two lines", "plain over two lines"),
        ("|\n  a line\n  --- of dashes", "a line\n--- of dashes"),
        ("short  # a comment", "short"),
        ("on", "on"),
        ("2024", "2024"),
        ("", ""),
    ],
)
def test_a_description_is_read_as_yaml(written: str, read: str) -> None:
    found = parse_playbook(f"---\nname: sums\ndescription: {written}\n---\n\nDo this.\n")
    assert (found.name, found.description, found.text) == ("sums", read, "Do this.")


def test_other_fields_line_ends_and_later_dashes_do_no_harm() -> None:
    text = "\ufeff---\r\nlicense: MIT\r\nmetadata:\r\n  tags: [a, b]\r\nname: 2024\r\n---\r\nFirst\r\n---\r\nSecond"
    found = parse_playbook(text)
    assert (found.name, found.description, found.text) == ("2024", "", "First\n---\nSecond")


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nname: c"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (BOMB, "has the alias `"),
        ("name: a: b", "not valid YAML: mapping values are not allowed"),
        ("name: [a", "not valid YAML"),
        ("[" * 500, "nested more than 20 levels"),
        ("name: [a]", "`name` is ['a'], not a text"),
        ("name: n\ndescription: {a: b}", "`description` is {'a': 'b'}, not a text"),
        ('name: "\\ud800"', "not valid YAML"),
        ("name: ''", "has no `name`"),
        ("description: d", "has no `name`"),
        ("- name", "not a list of `key: value`"),
        (f"name: {'n' * LARGEST}", "larger than 1,048,576 bytes"),
    ],
)
def test_a_head_that_is_refused_says_why(head: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_playbook(f"---\n{head}\n---\nDo this.\n")
    assert why in caught.value.message and caught.value.hint


def test_a_tag_constructs_nothing() -> None:
    with pytest.raises(Invalid, match="has the tag"):
        parse_playbook("---\nname: !!python/object/apply:os.getcwd here\n---\n")


@given(st.text())
def test_any_text_is_a_playbook_or_invalid(head: str) -> None:
    try:
        found = parse_playbook(f"---\n{head}\n---\nDo this.\n")
    except Invalid:
        return
    assert found.name and found.model_dump_json()


def test_a_file_that_is_not_a_playbook_is_left_out_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {
        "good": "---\nname: good\ndescription: >\n  when\n---\ndo\n",
        "headless": "no head",
        "large": "---\nname: large\n---\n" + "x" * LARGEST,
    }
    for name, text in files.items():
        (tmp_path / "playbooks" / "main" / name).mkdir(parents=True)
        (tmp_path / "playbooks" / "main" / name / "SKILL.md").write_text(text)
    with caplog.at_level(logging.WARNING, "etude"):
        found = read_playbooks(tmp_path, "main")
    assert [(p.name, p.description, p.text) for p in found] == [("good", "when", "do")]
    assert "headless/SKILL.md is not a playbook: It has no front matter" in caplog.messages[0]
    assert "large/SKILL.md is not a playbook: The file is larger than 1,048,576 bytes" in caplog.messages[1]
    assert read_playbooks(tmp_path, "other") == []
