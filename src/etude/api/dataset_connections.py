"""Routes that add data which is not uploaded: a database by its URL, and the sample shop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from etude.api.api_call import AdminCall, AnalystCall
from etude.api.json_route import JsonRoute
from etude.api.schemas import Body
from etude.entities import SourceSpec
from etude.errors import Forbidden
from etude.sample import write_shop
from etude.sources.source_url import source_name_from_url
from etude.uploads import LOCAL, ReceivedFile, UploadReport, make_upload_report

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

SHOP = "shop"
router = APIRouter(tags=["datasets"], route_class=JsonRoute)


class ConnectRequest(Body):
    """A database, or files of this machine, by their URL or path."""

    url: str = Field(min_length=1, max_length=4000)
    name: str | None = Field(default=None, min_length=1, max_length=200, description="Made from the URL by default.")
    tables: Annotated[list[str], Field(min_length=1, max_length=5000)] | None = Field(
        default=None, description="Grant only these tables; all by default."
    )


@router.post("/datasets/connect", status_code=201, response_model=UploadReport)
async def connect_dataset(call: AdminCall, body: ConnectRequest, response: Response) -> UploadReport:
    """Add a source by its URL, after checking that it opens.

    The owner of a server without keys may add any. On a server for others, only the databases that its operator has
    listed in `server.databases` can be added.
    """
    # A URL reaches every host and file that the server reaches: on a shared server, that is for its operator to decide.
    if not call.server.access_control.local and not call.app.settings.server.databases:
        raise Forbidden(
            "On a server for others, only its operator connects databases.",
            hint="Run `etude sources add NAME URL` there.",
        )
    report = await call.run_in_thread(_connect, call, body)
    response.headers["Location"] = f"/api/datasets/{report.name}/schema"
    return report


def _connect(call: ApiCall, body: ConnectRequest) -> UploadReport:
    url = body.url.strip()
    name = body.name or _free_name(call, source_name_from_url(url))
    by = call.caller.key.name if call.caller.key else LOCAL
    if not call.server.access_control.local:
        return make_upload_report(name, call.app.add_database(name, url, body.tables, by))
    tables = tuple(body.tables) if body.tables is not None else None
    return make_upload_report(name, call.app.add_source(name, SourceSpec(url=url, tables=tables, by=by)))


def _free_name(call: ApiCall, wanted: str) -> str:
    taken, number = call.app.sources(), 1
    name = wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


@router.post("/datasets/shop", status_code=201, response_model=UploadReport)
async def connect_sample_shop(call: AnalystCall, response: Response) -> UploadReport:
    """Add the sample shop: two years of orders, with the kind of bad data that real files have."""
    report = await call.run_in_thread(_open_shop, call)
    response.headers["Location"] = f"/api/datasets/{report.name}/schema"
    return report


def _open_shop(call: ApiCall) -> UploadReport:
    by = call.caller.key.name if call.caller.key else ""
    with call.app.uploads.scratch() as folder:
        write_shop(folder)
        files = [ReceivedFile(path.name, path) for path in sorted(folder.iterdir()) if path.is_file()]
        return call.app.uploads.add(files, SHOP, by)
