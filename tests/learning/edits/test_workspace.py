from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.errors import NotFound, Refused
from etude.learning.edits.edit_policy import check_edit_policy
from etude.learning.edits.suite_diagnosis import make_diagnosis_hunks
from etude.learning.edits.workspace import Hunk, Workspace, is_protected_workspace_path, open_workspace


@pytest.fixture
def code(tmp_path: Path) -> Workspace:
    (tmp_path / "tests").mkdir()
    (tmp_path / "shop.py").write_text("A = 1\nB = 1\n\n\ndef price(row):\n    return row['price']\n")
    (tmp_path / "conformance.py").write_text("assert True\n")
    (tmp_path / "tests" / "test_shop.py").write_text("def test_it():\n    pass\n")
    return open_workspace(tmp_path, ["python", "conformance.py", "{junit}"])


def test_an_edit_replaces_text_that_is_there_once(code: Workspace) -> None:
    edited = code.apply([Hunk(path="shop.py", old="row['price']", new="row.get('price')")])
    assert "row.get('price')" in edited.read("shop.py")
    assert "row['price']" in code.read("shop.py")
    assert "row['price']" in (code.folder / "shop.py").read_text()


@pytest.mark.parametrize(
    ("path", "old", "says"),
    [
        ("shop.py", "= 1", "2 times"),
        ("shop.py", "nowhere", "0 times"),
        ("shop.py", "", "0 times"),
        ("tests/test_shop.py", "pass", "out of reach"),
        ("conformance.py", "True", "out of reach"),
        ("../outside.py", "a", "not a path within"),
        ("/etc/passwd", "root", "not a path within"),
        ("new.py", "a", "not a file of"),
    ],
)
def test_an_edit_that_does_not_fit_or_reaches_too_far_is_refused(
    code: Workspace, path: str, old: str, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        code.apply([Hunk(path=path, old=old, new="x")])


@pytest.mark.parametrize(
    "path",
    [
        *("tests/a.py", "src/pkg/tests/data.json", "test_a.py", "pkg/a_test.py", "conftest.py", "pyproject.toml"),
        *(
            "x.pth",
            "sitecustomize.py",
            "src/etude/learning/statistical_tests.py",
            "web/a.spec.ts",
            ".github/workflows/ci.yml",
        ),
    ],
)
def test_tests_and_the_evaluator_are_out_of_reach(path: str) -> None:
    assert is_protected_workspace_path(path)


@pytest.mark.parametrize("path", ["shop.py", "src/contest.py", "src/latest/a.py", "prompts/ask.md"])
def test_code_is_within_reach(path: str) -> None:
    assert not is_protected_workspace_path(path)


def test_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"A = 1\r\nB = 2\r\n")
    edited = open_workspace(tmp_path).apply([Hunk(path="a.py", old="A = 1", new="A = 3")])
    copy = edited.copy_to(tmp_path / "copy")
    assert (copy / "a.py").read_bytes() == b"A = 3\r\nB = 2\r\n"


def test_a_copy_keeps_modes_and_times(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("true\n")
    (tmp_path / "run.sh").chmod(0o755)
    os.utime(tmp_path / "run.sh", (1_000_000, 1_000_000))
    found = (open_workspace(tmp_path).copy_to(tmp_path / "copy") / "run.sh").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o755, 1_000_000)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is not a folder"):
        open_workspace(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("x\nx\nx\n", "x\ny\nx\n"),
        ("import a\n\nf()\nf()\n", "import a\nimport b\n\nf()\ng()\n"),
        ("a\n" * 10, "a\n" * 9 + "b\n"),
    ],
)
def test_hunks_turn_the_old_text_into_the_new(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "a.py").write_text(old)
    assert open_workspace(tmp_path).apply(make_diagnosis_hunks("a.py", old, new)).read("a.py") == new


BASE = "import os\nimport time\n\n\ndef f(x):\n    return x['a']\n"


@pytest.mark.parametrize(
    "new",
    [
        "import os\nimport time\n\n\ndef f(x):\n    return x.get('a', 0)\n",
        BASE + "\n\ndef g():\n    try:\n        return f({})\n    except KeyError:\n        time.sleep(1)\n",
        "import functools\n" + BASE.replace("def f", "@functools.lru_cache\ndef f"),
        BASE + "\n\nclass Rows:\n    def __init__(self, rows):\n        self.rows = rows\n\n"
        "    def __len__(self):\n        return len(self.rows)\n",
        "import contextlib\n" + BASE + "\n\ndef g():\n    with contextlib.suppress(KeyError):\n        f({})\n",
        BASE + "\n\ndef g(rows):\n    try:\n        yield from rows\n    finally:\n        time.sleep(0)\n",
    ],
)
def test_computation_waits_retries_and_caches_are_allowed(new: str) -> None:
    check_edit_policy("a.py", BASE, new)


@pytest.mark.parametrize(
    "added",
    [
        *("os._exit(0)", "import sys", "import pytest", "f.__code__ = None", "open('x', 'w')", "getattr(f, 'x')"),
        *("raise SystemExit", "exec('1')", "__import__('os')", "print(f.__globals__)", "TEXT = 'PYTEST_CURRENT_TEST'"),
        *("from os import *", "time.sleep = None", "globals()", "os.environ['A'] = 'b'", "f = eval"),
        *("try:\n    f({})\nexcept BaseException:\n    pass", "try:\n    f({})\nexcept:\n    pass"),
    ],
)
def test_whatever_could_reach_the_tests_is_refused(added: str) -> None:
    with pytest.raises(Refused):
        check_edit_policy("a.py", BASE, f"{BASE}\n{added}\n")


EQUAL = "class E:\n    {}\n\n\nf = E()"


@pytest.mark.parametrize(
    "added",
    [
        *(EQUAL.format(f"def {name}(self, *o):\n        return True") for name in ("__eq__", "__ne__", "__bool__")),
        *(EQUAL.format(f"def {name}(self, *o):\n        return self") for name in ("__lt__", "__getattr__", "__sub__")),
        EQUAL.format("__eq__ = lambda self, other: True"),
        EQUAL.format("__eq__: object = lambda self, other: True"),
        EQUAL.format("from operator import is_not as __eq__"),
        EQUAL.format("class __eq__:\n        pass"),
        EQUAL.format("for __eq__ in [lambda self, other: True]:\n        pass"),
        EQUAL.format("(__eq__ := lambda self, other: True)"),
        EQUAL.format("def __exit__(self, *error):\n        return True"),
        EQUAL.format("@property\n    def __class__(self):\n        return int"),
        "class E(str):\n    def __eq__(self, other):\n        return True\n",
        "import dataclasses\nE = dataclasses.make_dataclass('E', [], namespace=dict(__eq__=f))",
        "import dataclasses as d\n@d.dataclass\nclass E:\n    a: int = d.field(default=0, compare=False)",
        "import json as self\nself.loads = f",
        "import json\n\n\ndef g(self):\n    self.loads = f\n\n\ng(json)",
        "import contextlib\n\n\ndef g():\n    return contextlib.suppress(Exception)",
        "from contextlib import suppress as quietly",
        "import contextlib\nclass E(contextlib.suppress):\n    pass",
        "import contextlib\n\n\n@contextlib.contextmanager\ndef g():\n    try:\n        yield\n"
        "    except Exception:\n        time.sleep(0)",
        "import contextlib as c\n\n\n@c.contextmanager\ndef g():\n    with c.suppress(Exception):\n        yield",
    ],
)  # fmt: skip
def test_values_that_pass_every_assertion_are_refused(added: str) -> None:
    with pytest.raises(Refused):
        check_edit_policy("a.py", BASE, f"{BASE}\n{added}\n")


def test_code_that_compared_its_values_before_may_still_do_so() -> None:
    old = f"{BASE}\n\nclass E:\n    def __eq__(self, other):\n        return self.x == other.x\n"
    check_edit_policy("a.py", old, old.replace("x['a']", "x.get('a')"))
    with pytest.raises(Refused, match="changes `__eq__`"):
        check_edit_policy("a.py", old, old.replace("self.x == other.x", "True"))


def test_what_is_not_python_after_the_edit_is_refused() -> None:
    with pytest.raises(Refused, match="not valid Python"):
        check_edit_policy("a.py", BASE, BASE + "def")
    with pytest.raises(Refused, match="not a file that edits may change"):
        check_edit_policy("a.so", "", "x")
    check_edit_policy("prompt.md", "a", "b")
