"""Routes for health: liveness, readiness, metrics, status, and the memory that local models use (`/vram`)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.request import urlopen

import anyio
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from etude import __version__
from etude.api.api_call import AdminCall, AnyCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Gpu, Health, LocalModelStatus, PartStatus, Vram
from etude.errors import EtudeError, Forbidden, Unavailable
from etude.operations.status import Status, installation_status, status_measures, status_measures_without_store
from etude.store.base import MAIN

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall
    from etude.api.server_state import ServerState

OLLAMA = "http://localhost:11434"
router = APIRouter(tags=["health"], route_class=JsonRoute)
probes = APIRouter(tags=["health"], route_class=JsonRoute)


@probes.get("/health", response_model=Health)
@probes.get("/healthz", response_model=Health)
async def healthz(call: AnyCall) -> Health:
    """Report that the process is alive."""
    return Health(ok=True, version=__version__)


@probes.get("/readyz", response_model=Health, responses={503: {"model": Health, "description": "Not ready."}})
async def readyz(call: AnyCall, response: Response) -> Health:
    """Report whether the server is ready: store, object store, sandbox and model can be used."""
    parts = await check_readiness(call.server)
    ok = all(part.ok for part in parts.values()) and not call.server.draining
    if not ok:
        call.noted["error"] = ", ".join(f"{name}: {part.detail}" for name, part in parts.items() if not part.ok)
    response.status_code = 200 if ok else 503
    return Health(ok=ok, version=__version__, parts=parts)


async def check_readiness(server: ServerState) -> dict[str, PartStatus]:
    """Check all parts at once. Errors are shown by title only, because their messages may hold addresses."""
    app = server.app
    checks: dict[str, Callable[[], str]] = {
        "store": lambda: str(app.store.check()["kind"]),
        "objects": lambda: "writes" if app.objects.check()["create"] else "no conditional writes",
        "sandbox": server.sandbox_probe.check,
        "model": lambda: app.settings.model,
    }
    found: dict[str, PartStatus] = {}

    async def check_part(name: str, check: Callable[[], str]) -> None:
        try:
            found[name] = await server.run_briefly(_check_part, check)
        except Unavailable as error:
            found[name] = PartStatus(ok=False, detail=error.message)

    async with anyio.create_task_group() as group:
        for name, check in checks.items():
            found[name] = PartStatus(ok=False)  # they are shown in this order
            group.start_soon(check_part, name, check)
    if server.draining:
        found["server"] = PartStatus(ok=False, detail="shutting down")
    return found


def _check_part(check: Callable[[], str]) -> PartStatus:
    try:
        return PartStatus(ok=True, detail=check())
    except EtudeError as error:
        full = error.details.get("reason") == "disk_full"
        return PartStatus(ok=False, detail=f"{error.title}: the disk is full" if full else error.title)
    except Exception as error:
        return PartStatus(ok=False, detail=type(error).__name__)


@probes.get("/metrics", response_class=PlainTextResponse)
async def metrics(call: AdminCall) -> PlainTextResponse:
    """Return the metrics of this process for Prometheus; only admins of the first tenant may read them."""
    if call.caller.tenant != MAIN:
        raise Forbidden("The metrics cover all tenants.", hint=f"Use an admin key of the tenant `{MAIN}`.")
    text = await render_metrics(call.server)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def render_metrics(server: ServerState) -> bytes:
    """Return the current metrics in Prometheus format; without those of the store if it is down or does not answer."""
    runs: dict[str, int] = {}
    try:
        measures = await server.run_briefly(status_measures, server.app)
        if measures["store_up"][()]:
            runs = await server.run_briefly(server.app.store.count_open)
    except EtudeError:
        measures = status_measures_without_store(server.app)
    server.metrics.measure(server.run_watcher.count, runs, measures)
    return server.metrics.text()


@router.get("/status", response_model=Status)
async def status(call: AdminCall) -> Status:
    """Return the health of the installation: store, objects, disk, queue, workers, last errors, and what is wrong."""
    if call.caller.tenant != MAIN:
        raise Forbidden("The status covers all tenants.", hint=f"Use an admin key of the tenant `{MAIN}`.")
    return await call.run_in_thread(installation_status, call.server.app, ask_servers=False)


@router.get("/vram", response_model=Vram)
async def vram(call: ReaderCall) -> Vram:
    """Report the memory that the local model server and the GPUs use."""
    return await call.run_in_thread(read_vram, call)


def read_vram(call: ApiCall) -> Vram:
    """Return the GPUs and the loaded local models, or say that there are none."""
    gpus, models = _gpus(), _models(call)
    missing = ([] if gpus else ["no graphics card"]) + ([] if models else ["no local model in memory"])
    return Vram(gpus=gpus, models=models, detail=f"There is {' and '.join(missing)}." if missing else "")


def _gpus() -> list[Gpu]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout
        rows = [line.split(", ") for line in text.splitlines()]
        return [Gpu(name=n, memory_bytes=int(t) << 20, used_bytes=int(u) << 20) for n, t, u in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def _models(call: ApiCall) -> list[LocalModelStatus]:
    provider = call.app.settings.models.get("ollama")
    base = (provider.base_url if provider and provider.base_url else OLLAMA).rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        return []
    try:
        with urlopen(f"{base}/api/ps", timeout=2) as answer:  # noqa: S310 - the address is a setting of the server
            found = json.load(answer)["models"]
        return [LocalModelStatus(name=m["name"], bytes=m["size"], vram_bytes=m.get("size_vram", 0)) for m in found]
    except (OSError, ValueError, KeyError, TypeError):
        return []
