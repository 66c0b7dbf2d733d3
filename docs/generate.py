"""Write the generated parts of the docs: `python docs/generate.py`. A test compares them."""

from __future__ import annotations

import ast
import inspect
import os
import re
import tempfile
import textwrap
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from etude.cli.main import commands_overview, make_main_parser
from etude.entities import Entity
from etude.errors import EtudeError
from etude.settings import Settings

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: ([\w -]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def generate(text: str) -> str:
    """The page with each block between `<!-- generated: NAME -->` and `<!-- end -->` written anew."""
    return BLOCK.sub(lambda found: found[1] + make(found[2]) + found[4], text)


def make(name: str) -> str:
    """One block by its name."""
    kind, _, rest = name.partition(" ")
    makers: dict[str, Callable[[str], str]] = {
        "settings": settings_table,
        "errors": errors_table,
        "help": help_text,
        "tags": tags_table,
        "trace": trace_of,
        "modules": modules_of,
    }
    return makers[kind](rest)


def modules_of(_: str) -> str:
    """Every file of the package by folder, with the first line of its docstring."""
    source = DOCS.parent / "src" / "etude"
    folders: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]
        folder = str(path.parent.relative_to(source.parent))
        if path.name != "__init__.py":
            folders.setdefault(folder, []).append(f"| `{path.name}` | {summary} |")
    parts = [
        f"## {folder}/\n\n| file | job |\n|---|---|\n" + "\n".join(rows) for folder, rows in sorted(folders.items())
    ]
    return "\n\n".join(parts) + "\n"


def settings_table(_: str) -> str:
    """Every setting, its variable, its default and its meaning."""
    lines = ["| key | variable | default | meaning |", "|---|---|---|---|"]
    parts = {name: info.annotation for name, info in Settings.model_fields.items() if is_part(info)}
    for prefix, model in (("", Settings), *((f"{name}.", part) for name, part in parts.items())):
        meanings = describe_fields(model)
        for field, info in model.model_fields.items():
            if prefix + field in parts or info.exclude:
                continue
            key = prefix + field
            variable = f"ETUDE_{key.upper().replace('.', '__')}"
            lines.append(f"| `{key}` | `{variable}` | {show_default(info)} | {meanings[field]} |")
    return "\n".join(lines) + "\n"


def is_part(info: Any) -> bool:
    """Whether a setting is a group of settings."""
    return isinstance(info.annotation, type) and issubclass(info.annotation, Entity)


def show_default(info: Any) -> str:
    """The default as TOML would write it; some depend on the machine."""
    if info.default is PydanticUndefined:
        return "none" if info.default_factory is dict else "depends on the machine"
    if isinstance(info.default, bool):
        return f"`{str(info.default).lower()}`"
    return f"`{info.default!r}`".replace("'", '"')


def describe_fields(model: type[Entity]) -> dict[str, str]:
    """The sentence below each field in the source of a model and of those it extends."""
    found: dict[str, str] = {}
    for base in [b for b in reversed(model.__mro__) if issubclass(b, Entity) and b is not Entity]:
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for statement, after in pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
                found[statement.target.id] = " ".join(after.value.value.split())  # type: ignore[union-attr, attr-defined]
    return found


def tags_table(_: str) -> str:
    """Every tag of the rules, with what it stands for."""
    from etude.offline.tags import TAGS

    half = (len(TAGS) + 1) // 2
    cells = [f"`{tag}`".replace("|", "\\|") + f" | {meaning}" for tag, meaning in TAGS.items()]
    rows = [f"| {left} | {right} |" for left, right in zip(cells[:half], [*cells[half:], " | "])]
    return "\n".join(["| tag | stands for | tag | stands for |", "|---|---|---|---|", *rows]) + "\n"


def trace_of(question: str) -> str:
    """What `python -m etude.offline shop/ QUESTION` prints."""
    from etude.app import App
    from etude.offline.trace import trace_question
    from etude.offline.vocabulary_build import build_vocabulary
    from etude.sample import write_shop

    with tempfile.TemporaryDirectory() as folder:
        shop = Path(folder) / "shop"
        write_shop(shop)
        with App(home=Path(folder) / "home", record=False) as app:
            vocabulary = build_vocabulary(app.catalog(str(shop)), lambda sql: app.sql(str(shop), sql).rows())
    return f"```text\n{trace_question(question, vocabulary, date(2025, 12, 15))}\n```\n"


def errors_table(_: str) -> str:
    """Every error: its code, HTTP status, exit code and meaning."""
    lines = ["| code | class | HTTP | exit | meaning |", "|---|---|---|---|---|"]
    public = [cls for cls in all_errors() if not cls.__name__.startswith("_")]
    for cls in sorted(public, key=lambda c: (c.exit_code, c.code)):
        meaning = " ".join((cls.__doc__ or "").split())
        if cls is EtudeError:
            meaning = "Anything unexpected; a defect in etude."
        again = " Trying again may help." if cls.retryable else ""
        lines.append(f"| `{cls.code}` | `{cls.__name__}` | {cls.status} | {cls.exit_code} | {meaning}{again} |")
    return "\n".join(lines) + "\n"


def all_errors(base: type[EtudeError] = EtudeError) -> list[type[EtudeError]]:
    """The class and all that extend it."""
    return [base, *(c for child in base.__subclasses__() for c in all_errors(child))]


def help_text(command: str) -> str:
    """The help of a command and of its verbs."""
    os.environ["COLUMNS"] = "110"
    if not command:
        return f"```text\n{commands_overview()}```\n"
    parser = make_main_parser(command)
    texts = [parser.format_help()]
    for action in parser._subparsers._group_actions if parser._subparsers else []:
        texts += [p.format_help() for p in action.choices.values()]  # type: ignore[union-attr]
    return "```text\n" + "\n".join(texts) + "```\n"


if __name__ == "__main__":
    for page in sorted(DOCS.glob("*.md")):
        page.write_text(generate(page.read_text(encoding="utf-8")), encoding="utf-8")
