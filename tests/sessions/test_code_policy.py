from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import Refused
from etude.sessions.code_policy import Policy, check_code_policy


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("import subprocess", "`import subprocess`"),
        ("import os, socket as s", "`import socket`"),
        ("from urllib.request import urlopen", "`from urllib.request import ...`"),
        ("from urllib import request", "`from urllib import ...`"),
        ("import os\nos.system('ls')", "`os.system()`"),
        ("().__class__.__bases__[0].__subclasses__()", "`.__subclasses__`"),
        ("open('/usr/x', 'w')", "outside the scratch folder"),
        ("open(file='/usr/x', mode='ab')", "outside the scratch folder"),
    ],
)
def test_what_cannot_work_is_refused_with_its_line(code: str, named: str) -> None:
    with pytest.raises(Refused) as caught:
        check_code_policy(code, Policy())
    assert named in caught.value.message
    assert caught.value.details["line"] == code.count("\n") + 1
    assert caught.value.hint


@pytest.mark.parametrize(
    "code",
    [
        "import pandas as pd\npd.DataFrame({'a': [1]})",
        "import os\nos.listdir('.')",
        "open('notes.txt', 'w').write('x')",
        "open('/scratch/x', 'w')",
        "open('/data/x.csv')",
        "class A:\n    def __init__(self): self.x = 1",
        "subprocess = 1",
        "def broken(:",
    ],
)
def test_ordinary_code_passes(code: str) -> None:
    check_code_policy(code, Policy())


def test_a_policy_is_data() -> None:
    check_code_policy("import subprocess", Policy(imports=frozenset()))
    with pytest.raises(Refused, match="sklearn"):
        check_code_policy("import sklearn.linear_model", Policy(imports=frozenset({"sklearn"})))


@given(st.text())
def test_any_text_passes_or_is_refused(code: str) -> None:
    try:
        check_code_policy(code, Policy())
    except Refused as refusal:
        assert refusal.details["line"] >= 1


def test_a_chain_of_attributes_of_any_length_is_read() -> None:
    check_code_policy("a" + ".b" * 1500 + "()", Policy())
    with pytest.raises(Refused):
        check_code_policy("a" + ".b" * 1500 + ".f_back", Policy())
