"""The files in deploy/ are read by what will read them, and name only what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from tests.patience import wait_until

from etude.app import App
from etude.cli.main import COMMANDS, make_main_parser
from etude.operations.status import status_measures
from etude.settings import Settings, load_settings
from etude.store.processes import Processes, ProcessState, Role
from etude.telemetry import MEASURED, TelemetryMetrics

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SIZES = ("laptop", "team", "company")
HOSTS_NAMESPACES = ("etude-server.service", "etude-worker@.service")
"""Units that let sessions use namespaces, unless `etude-level2.conf` forbids it."""


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("size", SIZES)
def test_the_settings_of_each_size_are_valid(size: str) -> None:
    found = load_settings({"ETUDE_CONFIG": str(DEPLOY / f"{size}.toml")})
    assert found.retention.results > 0
    keys = set(tomllib.loads((DEPLOY / f"{size}.toml").read_text(encoding="utf-8")))
    assert keys <= set(Settings.model_fields)


def commands() -> list[list[str]]:
    """Every etude command that a unit, the image or the compose file starts."""
    found = [str(each["command"]) and each["command"] for each in compose()["services"].values() if _is_etude(each)]
    for unit in UNITS:
        (start,) = re.findall(r"^ExecStart=/opt/etude/bin/etude (.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        found.append(start.split())
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    found.append(json.loads(re.findall(r"^CMD (\[.*\])$", image, re.MULTILINE)[0]))
    return found


def _is_etude(service: dict[str, Any]) -> bool:
    return service.get("image") == "etude"


@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join(command[:2]))
def test_every_command_exists_with_its_options(command: list[str]) -> None:
    assert command[0] in COMMANDS
    make_main_parser(command[0]).parse_args(command[1:])


def test_the_settings_in_the_compose_file_are_settings() -> None:
    for service in filter(_is_etude, compose()["services"].values()):
        environment = {key: re.sub(r"\$\{[^}]*\}", "x", value) for key, value in service["environment"].items()}
        found = load_settings(environment | {"ETUDE_CONFIG": str(DEPLOY / "company.toml")})
        assert found.store_url.startswith("postgresql://") and found.objects_url.startswith("s3://")
        assert service["cap_drop"] == ["ALL"]
    assert {"server", "worker", "observer", "learner", "postgres", "s3"} == set(compose()["services"])


def test_the_image_has_what_the_learner_starts() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"apt-get install .* git\b", text) and re.search(r"pip install .* pytest\b", text)


def test_the_image_does_not_run_as_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001", last, re.MULTILINE) and text.count("\nFROM ") == 2
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in copied.split():
            assert (DEPLOY.parent / name).exists(), name


def test_the_services_of_the_compose_file_start(postgres_url: str, s3_server: Any, tmp_path: Path) -> None:
    """Server, worker and observer as processes, with the settings of the file, on a real Postgres and S3."""
    base = {"PATH": str(Path(sys.executable).parent), "HOME": str(tmp_path), "ETUDE_HOME": str(tmp_path / "home")}
    base |= {"ETUDE_CONFIG": str(DEPLOY / "company.toml"), "ETUDE_STORE": postgres_url}
    base |= {"ETUDE_OBJECTS": f"{s3_server.url}/compose"}
    base |= {f"ETUDE_OBJECTS_OPTIONS__{key.upper()}": value for key, value in s3_server.options.items()}
    etude = [sys.executable, "-m", "etude"]
    subprocess.run([*etude, "keys", "create", "admin", "--role", "admin"], env=base, check=True, capture_output=True)
    log = tmp_path / "log"
    started = []
    try:
        for name in ("server", "worker", "observer"):
            command = list(compose()["services"][name]["command"])
            command += ["--port", "0"] if name == "server" else []
            with log.open("ab") as out:
                started.append(subprocess.Popen([*etude, *command], env=base, stdout=out, stderr=out))

        def ready() -> bool:
            assert all(process.poll() is None for process in started), log.read_text()
            done = subprocess.run([*etude, "status", "--json"], env=base, capture_output=True, text=True)
            found = json.loads(done.stdout)
            alive = {p["role"] for p in found["processes"] if p["alive"]}
            return alive == {"server", "worker", "observer"} and found["ok"]

        wait_until(ready, 300)
    finally:
        for process in started:
            process.terminate()
        codes = {process.args[3]: process.wait(120) for process in started}  # type: ignore[index]
    assert (codes["serve"], codes["worker"]) == (0, 0), log.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_valid_and_confined(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8").replace("/opt/etude/bin/etude", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(text, encoding="utf-8")
    shutil.copy(DEPLOY / "systemd" / "etude-backup.timer", tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
    assert done.returncode == 0 and str(copy) not in done.stderr, done.stderr
    assert _exposure(copy) < (2.4 if unit.name in HOSTS_NAMESPACES else 2.0)
    if unit.name in HOSTS_NAMESPACES:
        tighter = (DEPLOY / "systemd" / "etude-level2.conf").read_text(encoding="utf-8").replace("[Service]\n", "")
        copy.write_text(text.replace("[Install]", f"{tighter}\n[Install]"), encoding="utf-8")
        assert _exposure(copy) < 2.0


def _exposure(unit: Path) -> float:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    assert found, text
    return float(found[1])


def names_of_metrics() -> set[str]:
    metrics = TelemetryMetrics()
    families = {line.split()[2] for line in metrics.text().decode().splitlines() if line.startswith("# TYPE")}
    return families | {f"{name}_{part}" for name in families for part in ("count", "bucket", "sum")}


def expressions() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    used = {name for text in expressions() for name in re.findall(r"\betude_\w+", text)}
    assert len(used) > 15
    assert used - names_of_metrics() == set()


def test_numbers_of_the_whole_store_are_not_added_up() -> None:
    """Every server that is scraped shows them, so a sum over servers would count them twice."""
    of_store = {"actions", "agents", "claims", "retries", "reclaimed", "ended", "processes", "storage", "store"}
    of_store |= {"clock_skew", "deliveries_failing", "deliveries_lost"}
    names = {name for key, name, *_ in MEASURED if key in of_store}
    for text in filter(lambda text: text.startswith("sum"), expressions()):
        assert not names & {name.removesuffix("_total") for name in re.findall(r"etude_\w+", text)}, text


def test_alerts_compare_labels_that_exist() -> None:
    labels = {name: names for _, name, _, _, names in MEASURED}
    roles, states = set(get_args(Role)), set(get_args(ProcessState))
    for text in expressions():
        for name, chosen in re.findall(r"\b(etude_\w+?)(?:_total)?\{([^}]*)\}", text):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', chosen):
                assert name not in labels or label in labels[name], text
                if name == "etude_processes":
                    assert value in (roles if label == "role" else states), text


def test_a_lost_worker_fires_alerts_of_the_installation(tmp_path: Path) -> None:
    """The numbers come from the store: the server that is scraped is not the process that was lost."""
    code = f"""
import os, signal
from etude.app import App
from etude.store.processes import Processes
app = App(home={str(tmp_path)!r})
Processes(app.store).enter("worker")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    with App(home=str(tmp_path)) as app:
        Processes(app.store).enter("server", "http://localhost:1")
        wait_until(lambda: status_measures(app)["processes"][("worker", "gone")])
        found = status_measures(app)
    assert found["processes"][("worker", "gone")] == 1
    assert found["processes"][("worker", "alive")] == 0
    assert found["processes"][("server", "alive")] == 1
    assert found["store_up"] == {(): 1}


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx")
def test_nginx_loads_its_file(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8").replace("/etc/ssl/etude", str(tmp_path))
    for port in ("443", "80"):
        text = text.replace(f"listen {port}", f"listen 127.0.0.1:2{port:0>4}")
    (tmp_path / "etude.conf").write_text(text, encoding="utf-8")
    head = f"pid {tmp_path}/pid; error_log stderr; events {{}}"
    (tmp_path / "nginx.conf").write_text(f"{head} http {{ include {tmp_path}/etude.conf; }}", encoding="utf-8")
    subject = ["-subj", "/CN=etude.example.com", "-days", "1"]
    files = ["-keyout", str(tmp_path / "privkey.pem"), "-out", str(tmp_path / "fullchain.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject], check=True)
    ran = subprocess.run(["nginx", "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_nginx_passes_on_what_the_server_takes() -> None:
    found = re.search(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    assert found and int(found[1]) << 20 > Settings().server.upload


def test_proxies_lead_to_the_server_and_hide_metrics() -> None:
    for name in ("Caddyfile", "nginx.conf"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        assert "127.0.0.1:8520" in text and "/metrics" in text
        assert text.count("{") == text.count("}")
