"""Settings: which value wins, how sizes are written, and what a wrong key or value is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from etude.app import App
from etude.cli.main import run_command
from etude.entities import Entity, Limits, SourceSpec
from etude.errors import Invalid
from etude.redaction import redact
from etude.settings import Settings, load_settings, load_settings_with_origins, parse_size_setting


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder without an `etude.toml`, and no variables of etude."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(environment: dict[str, str] | None = None, **keywords: object) -> Invalid:
    with pytest.raises(Invalid) as caught:
        load_settings(environment, **keywords)
    return caught.value


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings({})
    assert (settings.limits.rows, settings.limits.bytes) == (0, 4 << 30)
    assert settings.record is True
    assert settings.store_url == f"sqlite:///{settings.home / 'etude.db'}"
    assert settings.objects_url == str(settings.home / "objects")


def test_a_keyword_wins_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    write(tmp_path / "etude.toml", "[limits]\nrows = 1\nscan_rows = 2\ntimeout_s = 3\n")
    variables = {"ETUDE_LIMITS__ROWS": "10", "ETUDE_LIMITS__SCAN_ROWS": "20"}
    limits = load_settings(variables, limits={"rows": 100}).limits
    assert (limits.rows, limits.scan_rows, limits.timeout_s, limits.bytes) == (100, 20, 3.0, 4 << 30)


def test_limits_given_as_a_model_change_only_what_was_set_on_it(tmp_path: Path) -> None:
    write(tmp_path / "etude.toml", "[limits]\ntimeout_s = 3\n")
    limits = load_settings({}, limits=Limits(rows=5)).limits
    assert (limits.rows, limits.timeout_s) == (5, 3.0)


def test_each_value_knows_where_it_was_set(tmp_path: Path) -> None:
    file = write(tmp_path / "my.toml", "record = false\n")
    variables = {"ETUDE_CONFIG": str(file), "ETUDE_ENGINE__THREADS": "1"}
    _, origins = load_settings_with_origins(variables, home="elsewhere")
    assert origins == {"record": str(file), "engine.threads": "environment", "home": "keyword"}


def test_the_file_of_the_working_folder_wins_over_that_of_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home / "etude.toml", "record = false\n")
    assert load_settings({"ETUDE_HOME": str(home)}).record is False
    write(tmp_path / "etude.toml", "record = true\n")
    assert load_settings({"ETUDE_HOME": str(home)}).record is True


def test_etude_config_names_the_file(tmp_path: Path) -> None:
    error = refusal({"ETUDE_CONFIG": "nowhere.toml"})
    assert "`nowhere.toml`, which is not a file" in error.message
    broken = write(tmp_path / "broken.toml", "record = \n")
    error = refusal({"ETUDE_CONFIG": str(broken)})
    assert str(broken) in error.message and "line 1" in error.message


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings({"ETUDE_RECORD": "", "ETUDE_HOME": ""}).record is True


def test_home_means_the_same_in_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings({}, home="~/state").home == tmp_path / "state"
    assert load_settings({}, home="state").home == Path.cwd() / "state"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512_000_000), ("4GiB", 4 << 30), ("1.5 kb", 1500), ("0.1GB", 100_000_000), ("77", 77), (5, 5)],
)
def test_sizes_may_have_a_unit(text: str, size: int) -> None:
    assert parse_size_setting(text) == size
    assert load_settings({}, limits={"bytes": text}).limits.bytes == size
    assert load_settings({"ETUDE_ENGINE__MEMORY": str(text)}).engine.memory == size


@pytest.mark.parametrize("text", ["5 parsecs", "-1MB", "", "MB", "1e400", "9" * 400 + "GB", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    assert "The setting `limits.bytes` (from keyword) cannot be" in refusal({}, limits={"bytes": text}).message


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "etude.toml", "recrod = false\n")
    error = refusal({})
    assert error.message == f"The setting `recrod` (from {file.name}) is not known."
    assert error.hint == "Did you mean `record`?"
    file.write_text("[limits]\nrow = 5\n")
    assert refusal({}).hint == "Did you mean `limits.rows`?"
    file.write_text("[limit]\nrows = 5\n")
    assert refusal({}).message == f"The setting `limit` (from {file.name}) is not known."
    file.write_text('[sources.sales]\nurrl = "data/"\n')
    assert refusal({}).hint == "Did you mean `sources.sales.url`?"
    file.unlink()
    error = refusal({"ETUDE_RECROD": "no"})
    assert error.message == "The variable `ETUDE_RECROD` is not a setting of etude."
    assert error.hint == "Did you mean `ETUDE_RECORD`?"
    assert refusal({"ETUDE_LIMITS__ROW": "5"}).hint == "Did you mean `limits.rows`?"
    assert refusal({"ETUDE_ZZZ": "5"}).hint.startswith("Unset it")
    assert refusal({}, hoem="x").hint == "Did you mean `home`?"


def groups() -> Iterator[tuple[str, str]]:
    """Every group of settings with one of its keys; those by name, such as `models`, under a name."""
    for name, info in Settings.model_fields.items():
        by_name = get_origin(info.annotation) is dict
        group = get_args(info.annotation)[1] if by_name else info.annotation
        if isinstance(group, type) and issubclass(group, Entity):
            yield f"{name}.mine" if by_name else name, max(group.model_fields, key=len)


@pytest.mark.parametrize(("group", "key"), list(groups()))
def test_an_unknown_key_of_any_group_is_refused_with_the_nearest(group: str, key: str) -> None:
    wrong: dict[str, Any] = {f"{key}x": "1"}
    for part in reversed(group.split(".")):
        wrong = {part: wrong}
    error = refusal({}, **wrong)
    assert error.message == f"The setting `{group}.{key}x` (from keyword) is not known."
    assert error.hint == f"Did you mean `{group}.{key}`?"


def test_the_store_of_catalogs_gets_a_hint_as_others_do() -> None:
    assert refusal({"ETUDE_CATALOG__STROE": "here"}).hint == "Did you mean `catalog.store`?"


def test_a_wrong_value_is_told_with_its_key_and_origin() -> None:
    error = refusal({"ETUDE_LIMITS__ROWS": "many"})
    assert error.message.startswith('The setting `limits.rows` (from environment) cannot be `"many"`: it must be')
    assert "cannot be `-1`" in refusal({}, limits={"rows": -1}).message
    assert "`limits.timeout_s`" in refusal({}, limits={"timeout_s": float("inf")}).message
    assert "`limits` (from environment)" in refusal({"ETUDE_LIMITS": "5"}).message
    assert "`engine.processes`" in refusal({}, engine={"processes": 0}).message
    assert refusal({}, sources={"a": {}}).message == "The setting `sources.a.url` (from keyword) is missing."
    both = {"ETUDE_LIMITS": "5", "ETUDE_LIMITS__ROWS": "6"}
    assert load_settings(both).limits.rows == 6


def test_tables_and_lists_can_be_written_as_json() -> None:
    variables = {
        "ETUDE_OBJECTS_OPTIONS": '{"region": "eu", "secret_access_key": "hunter2"}',
        "ETUDE_OBJECTS_OPTIONS__ENDPOINT": "http://s3",
        "ETUDE_CATALOG__STORE_OPTIONS": '{"region": "us"}',
        "ETUDE_MODELS": '{"openai": {"api_key": "env:KEY", "tries": 2}}',
        "ETUDE_SERVER__MODELS": '["offline", "openai:gpt-5"]',
        "ETUDE_SOURCES": '{"shop": {"url": "shop.duckdb", "tables": ["orders"]}}',
        "ETUDE_LIMITS": '{"rows": 5}',
    }
    found = load_settings(variables)
    assert found.objects_options == {"region": "eu", "secret_access_key": "hunter2", "endpoint": "http://s3"}
    assert found.catalog.store_options == {"region": "us"}
    assert (found.models["openai"].api_key, found.models["openai"].tries) == ("env:KEY", 2)
    assert found.server.models == ("offline", "openai:gpt-5")
    assert (found.sources["shop"].tables, found.limits.rows) == (("orders",), 5)
    assert load_settings({"ETUDE_SERVER__MODELS": "offline, openai:gpt-5"}).server.models == found.server.models
    assert load_settings({"ETUDE_SERVER__MODELS": "offline"}).server.models == ("offline",)
    assert load_settings({"ETUDE_SOURCES__SHOP__URL": "x", "ETUDE_SOURCES__SHOP__TABLES": "a,b"}).sources[
        "shop"
    ].tables == ("a", "b")


@pytest.mark.parametrize(
    "name", ["OBJECTS_OPTIONS", "MODELS", "CATALOG__STORE_OPTIONS", "SOURCES", "TELEMETRY__HEADERS"]
)
@pytest.mark.parametrize(
    "text",
    [
        '{"secret_access_key":"hunter2"',
        '{"secret_access_key":"hunter2",}',
        "{'secret_access_key':'hunter2'}",
        "secret_access_key=hunter2",
        '["hunter2"]',
        '{"a": ["hunter2"]}',
        '{"a": {"b": ["hunter2"]}}',
        '{"openai": {"api_key": ["hunter2"], "options": "hunter2"}}',
        '"hunter2"',
        "hunter2",
    ],
)
def test_no_error_about_a_table_shows_what_is_in_it(name: str, text: str) -> None:
    error = refusal({f"ETUDE_{name}": text})
    assert "hunter2" not in error.message + error.hint
    assert name.partition("__")[0].lower() in error.message.lower()


def test_no_error_shows_a_secret() -> None:
    url = "postgresql://ann:hunter2@db/sales"
    told = [
        refusal({}, store=[url]),
        refusal({}, sources={"a": {"urll": url}}),
        refusal({}, sources={"a": [url]}),
        refusal({}, objects_options={"secret_access_key": ["hunter2"]}),
    ]
    assert not [e.message for e in told if "hunter2" in e.message + e.hint]


def test_redact_hides_passwords_and_keys_in_urls() -> None:
    assert (
        redact("postgresql://ann:hunter2@db/sales?sslmode=require") == "postgresql://ann:***@db/sales?sslmode=require"
    )
    assert redact("s3://bucket?secret_key=abc&region=x") == "s3://bucket?secret_key=***&region=x"
    assert redact("plain/path") == "plain/path"


def test_config_and_sources_list_print_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ETUDE_SOURCES__SALES__URL", "postgresql://ann:hunter2@db/sales?password=hunter2")
    monkeypatch.setenv("ETUDE_OBJECTS_OPTIONS__SECRET_ACCESS_KEY", "hunter2")
    for command in (["config"], ["config", "--json"], ["sources", "list"], ["sources", "list", "--json"]):
        assert run_command(command) == 0
    out, err = capsys.readouterr()
    assert "ann:***@db" in out and "hunter2" not in out + err
    assert not (tmp_path / "etude.toml").exists()


def test_config_prints_every_setting_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_LIMITS__ROWS", "7")
    assert run_command(["config", "--json"]) == 0
    rows = {item["key"]: item for item in json.loads(capsys.readouterr().out)}
    assert rows["limits.rows"] == {"key": "limits.rows", "value": "7", "origin": "environment"}
    assert rows["record"]["origin"] == "default"
    assert {key.split(".")[0] for key in rows} == set(Settings.model_fields)


def test_a_url_may_be_kept_in_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(tmp_path / "crm.duckdb") as db:
        db.execute("CREATE TABLE t AS SELECT 42 AS n")
    monkeypatch.setenv("CRM_URL", str(tmp_path / "crm.duckdb"))
    secret = write(tmp_path / "secrets" / "crm", f"{tmp_path / 'crm.duckdb'}\n")
    sources = {"a": SourceSpec(url="env:CRM_URL"), "b": SourceSpec(url=f"file:{secret}")}
    sources |= {"c": SourceSpec(url="env:NOT_SET"), "d": SourceSpec(url="file:not/there")}
    with App(sources=sources) as app:
        assert [app.sql(name, "SELECT n FROM t").rows() for name in "ab"] == [[(42,)], [(42,)]]
        with pytest.raises(Invalid, match="the variable `NOT_SET`, which is not set"):
            app.catalog("c")
        with pytest.raises(Invalid, match="the file `not/there`, which cannot be read"):
            app.catalog("d")


def test_settings_and_keywords_do_not_mix() -> None:
    with pytest.raises(Invalid, match="together"):
        App(Settings(), record=False)
