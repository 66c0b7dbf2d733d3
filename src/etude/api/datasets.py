"""Routes for datasets: the list, their schemas and profiles, and single rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Response

from etude.api.call import ReaderCall
from etude.api.result_formats import RowSelection, as_json
from etude.api.runs import SAME, IfNoneMatch, respond_with_etag
from etude.api.schemas import Dataset, Listing
from etude.catalog.model import SourceProfile
from etude.entities import Catalog, RowPage, Table
from etude.errors import Invalid, NotFound
from etude.limits import lower_limits

if TYPE_CHECKING:
    from etude.api.call import ApiCall

_WHOLE = ("INT", "HUGEINT", "SERIAL")
_PARTS = ("DECIMAL", "NUMERIC", "DOUBLE", "FLOAT", "REAL")
router = APIRouter(tags=["datasets"])


@router.get("/datasets", response_model=Listing[Dataset])
async def list_datasets(call: ReaderCall) -> Listing[Dataset]:
    """List the datasets of the tenant."""
    return Listing(items=await call.access_store(datasets_of, call))


def datasets_of(call: ApiCall) -> list[Dataset]:
    """Return the datasets of the tenant, without their URLs."""
    return [
        Dataset(id=name, kind=call.app.source(name).kind, tables=list(spec.tables) if spec.tables is not None else None)
        for name, spec in call.app.sources().items()
    ]


@router.get("/datasets/{dataset}/schema", response_model=Catalog, responses=SAME)
async def dataset_schema(call: ReaderCall, dataset: str, response: Response, if_none_match: IfNoneMatch = None) -> Any:
    """Return the tables, columns, types, keys and row counts."""
    catalog = await call.run_in_thread(catalog_of, call, dataset)
    return respond_with_etag(catalog, f'"{catalog.fingerprint[:32]}"', if_none_match, response)


@router.get("/datasets/{dataset}/profile", response_model=SourceProfile)
@router.get("/profile/{dataset}", response_model=SourceProfile)
async def dataset_profile(call: ReaderCall, dataset: str) -> Response:
    """Return the profile of a dataset: statistics, keys and patterns; measured now if there is none yet."""
    return Response(await call.run_in_thread(profile_of, call, dataset), media_type="application/json")


def catalog_of(call: ApiCall, dataset: str) -> Catalog:
    """Return the tables and columns of a dataset."""
    return call.app.catalog(call.dataset(dataset))


def profile_of(call: ApiCall, dataset: str) -> bytes:
    """Return the profile of a dataset as JSON."""
    return call.app.profile(call.dataset(dataset)).model_dump_json().encode()


@router.get(
    "/rows/{dataset}/{table}/{key:path}",
    response_model=RowPage,
)
async def row_by_key(
    call: ReaderCall,
    dataset: str,
    table: str,
    key: str,
    by: Annotated[
        list[str], Query(max_length=8, description="The columns of the key; the primary key by default.")
    ] = [],  # noqa: B006
) -> Response:
    """Return the rows of a table that have this key; separate the parts of a composite key by commas."""
    return Response(await call.run_in_thread(rows_by_key, call, dataset, table, key, by), media_type="application/json")


def rows_by_key(call: ApiCall, dataset: str, table: str, key: str, by: list[str]) -> bytes:
    """Return the rows that have this key, as JSON."""
    name = call.dataset(dataset)
    found = call.app.catalog(name).table(table)
    if found is None:
        raise NotFound(f"There is no table `{table[:200]}` in `{name}`.", hint=f"GET /api/datasets/{name}/schema.")
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
        raise NotFound(f"There is no row `{key[:200]}` in `{found.name}`.", hint="Check the key.")
    return as_json(result, RowSelection(), None)


def _value(table: Table, column: str, text: str) -> Any:
    kind = next((c.type.upper() for c in table.columns if c.name == column), None)
    if kind is None:
        raise Invalid(f"There is no column `{column[:200]}` in `{table.name}`.", hint="Look at its schema.")
    try:
        if any(name in kind for name in _WHOLE):
            return int(text)
        if kind.startswith(_PARTS):
            return float(text)
    except ValueError:
        raise Invalid(f"`{text[:200]}` is not a value of `{column}` ({kind}).", hint="Give a number.") from None
    return {"true": True, "false": False}.get(text.lower(), text) if kind.startswith("BOOL") else text
