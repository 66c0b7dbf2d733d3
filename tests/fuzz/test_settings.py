"""Fuzz tests of settings: any file and any variables give settings or a clear error that shows no secret."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from etude.errors import Invalid
from etude.settings import Settings, load_settings

from .loop import fuzz

pytestmark = pytest.mark.timeout(0)
SECRET = "Xk9-very-secret"
TOML = [
    'model = "openai:gpt-5"\n[limits]\nrows = 100\ntimeout_s = 1.5\n[models.openai]\napi_key = "Xk9-very-secret"\n',
    f'objects = "s3://b"\n[objects_options]\nsecret_access_key = "{SECRET}"\n[server]\nport = 1\nmodels = ["a"]\n',
    f'[sources.shop]\nurl = "postgresql://u:{SECRET}@h/d"\ntables = ["a"]\n[sources.shop.options]\nstrict = "true"\n',
    "[engine]\nmemory = '1GB'\nprocesses = 2\n[agents]\nreach = ['a:1']\n[budget]\nsteps = 3\n[catalog]\nwall_s = 3\n",
]
VARIABLES = [
    f'ETUDE_OBJECTS_OPTIONS={{"secret_access_key": "{SECRET}"}}',
    f'ETUDE_MODELS={{"openai": {{"api_key": "{SECRET}"}}}}\nETUDE_SERVER__MODELS=a, b',
    f"ETUDE_MODELS__OPENAI__API_KEY={SECRET}\nETUDE_LIMITS__ROWS=5\nETUDE_SERVER__PORT=0",
    f'ETUDE_CATALOG__STORE_OPTIONS={{"token": "{SECRET}"}}\nETUDE_AGENTS__REACH=["a"]',
]
PIECES = ['"', "'", "[", "]", "{", "}", "=", ".", "#", "\n", "\0", "\u2028", "\\u0000", "1e999", "nan", "-", "true"]
PIECES += ["[[", '"""', "__", "ETUDE_", "[" * 2000, "{" * 2000, "9" * 5000, "a.b.c = 1\n", "rows = {}\n", "\ud7ff"]
PIECES += ["env:HOME", "file:/etc/hostname", '{"a": ' * 2000, "0x1", "1979-05-27T07:32:00Z", "limits = 1\n"]


def mutate(text: str, rng: random.Random) -> str:
    """Insert, delete, repeat or swap pieces."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randint(0, 12))
        match rng.randrange(4):
            case 0:
                text = text[:start] + rng.choice(PIECES) + text[start:]
            case 1:
                text = text[:start] + text[end:]
            case 2:
                text = text[:end] + text[start:end] + text[end:]
            case _:
                text = text[:start] + rng.choice(PIECES) + text[end:]
    return text


def load(environment: Mapping[str, str], text: str) -> str:
    try:
        assert isinstance(load_settings(environment), Settings)
    except Invalid as error:
        said = f"{error.message} {error.hint} {error.details}"
        assert error.message and error.hint, said
        # A secret that a mutation made part of a name is not known to be one.
        assert SECRET not in said or any(SECRET in line.partition("=")[0] for line in text.splitlines()), said
        return "refused"
    return "accepted"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "etude.toml"

    def check(text: str) -> str:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return load({"ETUDE_CONFIG": str(path), "ETUDE_HOME": str(tmp_path)}, text)

    verdicts = fuzz("settings_toml", TOML, mutate, check)
    assert verdicts["accepted"] and verdicts["refused"]


def test_variables(tmp_path: Path) -> None:
    def check(text: str) -> str:
        pairs = [line.partition("=") for line in text.replace("\0", "").splitlines()]
        given = {name: value for name, _, value in pairs if name not in ("ETUDE_CONFIG", "ETUDE_HOME")}
        return load(given | {"ETUDE_HOME": str(tmp_path)}, text)

    verdicts = fuzz("settings_env", VARIABLES, mutate, check)
    assert verdicts["accepted"] and verdicts["refused"]
