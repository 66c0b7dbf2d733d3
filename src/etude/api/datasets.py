"""Routes for datasets: list, upload and remove them; their schemas, profiles, first questions, and rows by key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.responses import respond_with_etag
from etude.api.result_formats import ResultSelection, format_result_as_json
from etude.api.runs import SAME, IfNoneMatch
from etude.api.schemas import Dataset, Listing, QuestionList
from etude.api.upload_body import receive_upload_body
from etude.catalog.model import SourceProfile
from etude.entities import Catalog, RowPage, Table
from etude.errors import Conflict, Invalid, NotFound
from etude.limits import lower_limits
from etude.sources.source_url import NAME
from etude.uploads import UploadReport

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall
    from etude.cancellation import Cancellation

_WHOLE = ("INT", "HUGEINT", "SERIAL")
_PARTS = ("DECIMAL", "NUMERIC", "DOUBLE", "FLOAT", "REAL")
router = APIRouter(tags=["datasets"], route_class=JsonRoute)


@router.get("/datasets", response_model=Listing[Dataset])
async def list_datasets(call: ReaderCall) -> Listing[Dataset]:
    """List the datasets of the tenant."""
    return Listing(items=await call.access_store(load_datasets, call))


def load_datasets(call: ApiCall) -> list[Dataset]:
    """Return the datasets of the tenant, without their URLs."""
    return [
        Dataset(
            id=name,
            kind=spec.kind or call.app.source(name).kind,
            tables=list(spec.tables) if spec.tables is not None else None,
            removable=bool(spec.by),
        )
        for name, spec in call.app.sources().items()
    ]


UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "name": {"type": "string", "maxLength": 200, "description": "The name of the dataset."},
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post("/datasets", status_code=201, response_model=UploadReport, openapi_extra=UPLOAD)
@router.post("/ingest/file", status_code=201, response_model=UploadReport, openapi_extra=UPLOAD)
async def upload_dataset(
    call: AnalystCall,
    request: Request,
    name: Annotated[
        str | None,
        Query(max_length=200, description="The name of the dataset; also that of the file, if the body is the file."),
    ] = None,
) -> Response:
    """Upload files as a dataset of the tenant: a form with one or more fields `file`, or one file as the body.

    Each file becomes one table or several. Its content decides how it is read, not its name. The body may be CSV, TSV,
    JSON, Parquet, Excel, a SQLite or DuckDB database, a document (Markdown, HTML, text, PDF) as a table of its text,
    or a folder of files as a zip archive.
    """
    with call.server.uploads.receiving(call.app.store) as count, call.app.uploads.scratch() as folder:
        received = await receive_upload_body(call, request, folder, name, count)
        # Without a form, the name is that of the file: a dataset's name is made from it unless it is one.
        chosen = received.name or (name if name and NAME.fullmatch(name) else None)
        by = call.caller.key.name if call.caller.key else ""

        def add() -> tuple[str, bytes]:
            report = call.app.uploads.add(received.files, chosen, by)
            return report.name, report.model_dump_json().encode()  # it may name many columns

        added, body = await call.run_in_thread(add)
    headers = {"Location": f"/api/datasets/{added}/schema"}
    return Response(body, 201, headers, media_type="application/json")


@router.delete("/datasets/{dataset}", status_code=204, response_class=Response)
async def remove_dataset(call: AnalystCall, dataset: str) -> Response:
    """Remove a dataset that was added over HTTP, with its files; runs on it stay."""

    def remove() -> None:
        name = call.dataset(dataset)
        if not call.app.sources()[name].by:
            raise Conflict(
                f"`{name}` was not added over HTTP.", hint="The operator of the server can remove it: `etude sources`."
            )
        call.app.remove_source(name)

    await call.run_in_thread(remove)
    return Response(status_code=204)


@router.get("/datasets/{dataset}/schema", response_model=Catalog, responses=SAME)
async def dataset_schema(call: ReaderCall, dataset: str, response: Response, if_none_match: IfNoneMatch = None) -> Any:
    """Return the tables, columns, types, keys and row counts."""
    catalog = await call.run_in_thread(load_dataset_schema, call, dataset)
    return respond_with_etag(catalog, f'"{catalog.fingerprint[:32]}"', if_none_match, response)


@router.get("/datasets/{dataset}/profile", response_model=SourceProfile)
@router.get("/profile/{dataset}", response_model=SourceProfile)
async def dataset_profile(call: ReaderCall, dataset: str) -> Response:
    """Return the profile of a dataset: statistics, keys and patterns; measured now if there is none yet."""
    profile = await call.run_large_while_connected(partial(load_dataset_profile, call, dataset))
    return Response(profile, media_type="application/json")


@router.get("/datasets/{dataset}/questions", response_model=QuestionList)
async def suggested_dataset_questions(
    call: ReaderCall, dataset: str, limit: Annotated[int, Query(ge=1, le=10)] = 3
) -> QuestionList:
    """Return questions about a dataset, made from its profile; each was tried, and the rules can answer it."""
    found = await call.run_large_while_connected(
        lambda cancel: call.app.suggest_questions(call.dataset(dataset), limit, cancel)
    )
    return QuestionList(questions=found)


def load_dataset_schema(call: ApiCall, dataset: str) -> Catalog:
    """Return the tables and columns of a dataset."""
    return call.app.catalog(call.dataset(dataset))


def load_dataset_profile(call: ApiCall, dataset: str, cancel: Cancellation) -> bytes:
    """Return the profile of a dataset as JSON."""
    return call.app.profile(call.dataset(dataset), cancel).model_dump_json().encode()


@router.get(
    "/rows/{dataset}/{table}/{key:path}",
    response_model=RowPage,
)
async def dataset_row_by_key(
    call: ReaderCall,
    dataset: str,
    table: str,
    key: str,
    by: Annotated[
        list[str], Query(max_length=8, description="The columns of the key; the primary key by default.")
    ] = [],  # noqa: B006
) -> Response:
    """Return the rows of a table that have this key; separate the parts of a composite key by commas."""
    return Response(
        await call.run_in_thread(dataset_rows_by_key, call, dataset, table, key, by), media_type="application/json"
    )


def dataset_rows_by_key(call: ApiCall, dataset: str, table: str, key: str, by: list[str]) -> bytes:
    """Return the rows that have this key, as JSON."""
    name = call.dataset(dataset)
    found = call.app.catalog(name).table(table)
    if found is None:
        raise NotFound(f"`{name}` has no table `{table[:200]}`.", hint=f"GET /api/datasets/{name}/schema.")
    columns = by or list(found.primary_key) or [c for unique in found.unique[:1] for c in unique]
    if not columns:
        raise Invalid(f"`{found.name}` has no primary key.", hint="Name the columns: ?by=column.")
    parts = key.split(",", len(columns) - 1) if len(columns) > 1 else [key]
    if len(parts) != len(columns):
        raise Invalid(f"The key of `{found.name}` has {len(columns)} parts.", hint=f"Give {', '.join(columns)}.")
    where = [{"column": {"column": c}, "op": "=", "value": _value(found, c, p)} for c, p in zip(columns, parts)]
    limits = lower_limits(call.app.settings.limits, {"rows": 1000})
    result = call.app.plan(name, {"from": found.name, "where": where}, limits=limits, record=False)
    if not result.row_count:
        raise NotFound(f"`{found.name}` has no row `{key[:200]}`.", hint="Check the key.")
    return format_result_as_json(result, ResultSelection(), None)


def _value(table: Table, column: str, text: str) -> Any:
    kind = next((c.type.upper() for c in table.columns if c.name == column), None)
    if kind is None:
        raise Invalid(f"`{table.name}` has no column `{column[:200]}`.", hint="Look at its schema.")
    try:
        if any(name in kind for name in _WHOLE):
            return int(text)
        if kind.startswith(_PARTS):
            return float(text)
    except ValueError:
        raise Invalid(f"`{text[:200]}` is not a value of `{column}` ({kind}).", hint="Give a number.") from None
    return {"true": True, "false": False}.get(text.lower(), text) if kind.startswith("BOOL") else text
