"""Routes for the results of runs: rows in several formats, and artifacts."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from etude.api import result_formats as formats
from etude.api.api_call import ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.problems import HttpError
from etude.api.runs import SAME, IfNoneMatch
from etude.entities import Artifact, ResultInfo, RowPage, Run
from etude.errors import NotFound

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

VARY = "Accept, Cookie, Sec-Fetch-Site"
PAGE = 200
"""Rows of a page of JSON, if the caller names no limit."""
NAME_CHARS = 60
"""Characters of a question in the name of a file."""
PIECE = 1 << 20
"""Bytes of an artifact that are read at once."""
router = APIRouter(tags=["runs"], route_class=JsonRoute)


@router.get(
    "/runs/{run_id}/result",
    response_model=RowPage,
    responses=SAME
    | {
        200: {
            "description": "The rows, in the media type of the Accept header.",
            "content": {
                formats.CSV: {"schema": {"type": "string"}},
                formats.PARQUET: {"schema": {"type": "string", "format": "binary"}},
                formats.ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def run_result(
    call: ReaderCall,
    request: Request,
    run_id: str,
    result: Annotated[
        str | None, Query(max_length=100, description="One that the answer shows, such as `r2`; else the run's result.")
    ] = None,
    format: Annotated[
        Literal["json", "csv", "parquet", "arrow"] | None, Query(description="Instead of the Accept header, for links.")
    ] = None,
    offset: Annotated[int, Query(ge=0, le=1 << 40)] = 0,
    limit: Annotated[int | None, Query(ge=1, le=100_000, description="By default 200 for JSON, else all rows.")] = None,
    sort: Annotated[list[str], Query(max_length=8, description="A column; `-` before it means descending.")] = [],  # noqa: B006
    filter: Annotated[list[str], Query(max_length=16, description="column:operator:value")] = [],  # noqa: B006
    escape_formulas: Annotated[
        bool | None,
        Query(description="CSV: put `'` before texts that a spreadsheet would run. By default only for browsers."),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the rows of a run's result, sorted, filtered and paged by the server."""
    media = formats.FORMATS[format] if format else formats.choose_result_format(request.headers.get("accept", ""))
    if media is None:
        raise HttpError(406, "The result has no such media type.", f"Accept one of {', '.join(formats.MEDIA)}.")
    if limit is None and media == formats.JSON:
        limit = PAGE
    if escape_formulas is None:
        # Only browsers send the header, though not over plain HTTP; a session by cookie is a browser's too.
        escape_formulas = "sec-fetch-site" in request.headers or call.caller.cookie is not None
    view = formats.ResultSelection(tuple(sort), tuple(filter), offset, limit, escape_formulas)
    run = await call.access_store(call.app.store.run, run_id)
    info, artifact = find_run_result(run, result)
    tag = f'"{artifact.hash[:32]}-{media.rpartition("/")[2]}{"-escaped" if escape_formulas else ""}"'
    if if_none_match is not None and tag in if_none_match:
        return Response(status_code=304, headers={"ETag": tag, "Vary": VARY})
    response = await call.run_in_thread(make_result_response, call, run, info, artifact, view, media)
    response.headers.update({"ETag": tag, "Vary": VARY, "Cache-Control": "private, no-cache"})
    return response


def find_run_result(run: Run, name: str | None) -> tuple[ResultInfo, Artifact]:
    """Return the result of a run, or the one of that name among those that its answer shows."""
    if name is not None:
        shown = next((shown for shown in run.shown if shown.id == name), None)
        if shown is None:
            known = ", ".join(f"`{shown.id}`" for shown in run.shown)
            hint = f"It shows {known}." if known else "Leave `result` out for the result of the run."
            raise NotFound(f"The answer of run `{run.id}` shows no result `{name}`.", hint=hint)
        return shown.result, shown.artifact
    if run.result is None or run.result_artifact is None:
        raise NotFound(f"Run `{run.id}` is {run.status} and has no result.", hint="See its status.")
    return run.result, run.result_artifact


def make_result_response(
    call: ApiCall, run: Run, info: ResultInfo, artifact: Artifact, view: formats.ResultSelection, media: str
) -> Response:
    """Return the response with the rows in a media type. All of them come, or the response breaks off."""
    if media != formats.JSON:
        # Check before the first byte: a stream that breaks cannot report why.
        call.app.objects.check_artifact(artifact.hash, run.id)
    headers = {}
    if media in (formats.CSV, formats.PARQUET):
        cut = f".first-{info.row_count}-rows" if info.truncated else ""
        kind = "csv" if media == formats.CSV else "parquet"
        headers["Content-Disposition"] = name_result_download(f"{name_result_file(run)}{cut}.{kind}")
    if info.truncated:
        headers["X-Result-Truncated"] = "true"  # a limit of the query cut it, and these formats cannot say so
    if media == formats.PARQUET and view.plain:
        return send_result_artifact(call, run, artifact, headers, media)
    pieces = call.server.result_reader.read(call.caller.tenant, info, artifact, run.id, view, media)
    if media == formats.JSON:
        return Response(b"".join(pieces), headers=headers, media_type=media)
    return StreamingResponse(pieces, headers=headers, media_type=media)


def name_result_file(run: Run) -> str:
    """Return a name for the file of a result: the words of the question, or of other runs the source and the id."""
    words = re.findall(r"\w+", run.text.lower()) if run.kind == "ask" else []
    name = ""
    for word in words:
        if len(name) + len(word) >= NAME_CHARS:
            break
        name += f"-{word}" if name else word
    return name or "-".join(re.findall(r"[\w.]+", f"{run.source or run.kind} {run.id[-6:]}"))


def name_result_download(name: str) -> str:
    """Return the header that names a download (RFC 6266): in ASCII, and exactly if that differs."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().strip("-.") or "result"
    exact = f"; filename*=UTF-8''{quote(name)}" if plain != name else ""
    return f'attachment; filename="{plain}"{exact}'


def send_result_artifact(call: ApiCall, run: Run, artifact: Artifact, headers: dict[str, str], media: str) -> Response:
    """Return the response with the bytes of an artifact that was checked."""
    path = call.app.objects.local_path(artifact.hash)
    if path is not None:
        return FileResponse(path, headers=headers, media_type=media)
    lent = call.app.objects.lend(artifact.hash, run.id, call.app.scratch)
    headers |= {"Content-Length": str(os.fstat(lent.fd).st_size)}
    return StreamingResponse(read_result_pieces(lent.fd), headers=headers, media_type=media)


def read_result_pieces(fd: int) -> Iterator[bytes]:
    """Yield the bytes of an open file, and close it."""
    with open(fd, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


@router.get(
    "/runs/{run_id}/artifacts/{hash}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def run_artifact(call: ReaderCall, run_id: str, hash: str) -> Response:
    """Return an artifact of the run. Browsers save it and never show it as a page."""
    run = await call.access_store(call.app.store.run, run_id)
    artifact = next((a for a in run.artifacts if a.hash == hash), None)
    if artifact is None:
        raise NotFound(f"Run `{run_id}` has no artifact `{hash[:80]}`.", hint="The run lists its artifacts.")
    headers = {"ETag": f'"{artifact.hash[:32]}"', "X-Artifact-Media": artifact.media}
    headers |= {"Content-Disposition": f'attachment; filename="{artifact.hash[:16]}"', "Cache-Control": "private"}

    def send() -> Response:
        call.app.objects.check_artifact(artifact.hash, run.id)
        return send_result_artifact(call, run, artifact, headers, "application/octet-stream")

    return await call.run_in_thread(send)
