"""The page at `/`, its icon and its assets: the front end that is built from `ui/` into the package."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from etude.api.api_call import AnyCall
from etude.errors import NotFound

WEB = Path(__file__).parent.parent / "web"
"""Files of the front end. An installed package holds them; in a checkout, `make ui` builds them."""
NOT_BUILT = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>etude</title></head><body>'
    "<h1>etude</h1><p>The server is running, but its page is not built: run <code>make ui</code> in the checkout. "
    '<a href="/openapi.json">openapi.json</a> describes the API.</p></body></html>'
)
router = APIRouter()


@router.get("/", include_in_schema=False)
async def page(call: AnyCall) -> Response:
    """Return the page, which reads everything else through the API."""
    index = WEB / "index.html"
    headers = {"Cache-Control": "no-cache"}
    return FileResponse(index, headers=headers) if index.is_file() else HTMLResponse(NOT_BUILT, headers=headers)


@router.get("/favicon.svg", include_in_schema=False)
async def icon(call: AnyCall) -> Response:
    """Return the icon of the page."""
    return _send("favicon.svg", WEB)


@router.get("/assets/{name}", include_in_schema=False)
async def asset(call: AnyCall, name: str) -> Response:
    """Return a file of the page. Its name holds a hash of its content, so it may be kept for ever."""
    return _send(name, WEB / "assets")


def _send(name: str, folder: Path) -> Response:
    # Only names that the folder lists: a name from a request never becomes a path.
    path = next((p for p in folder.iterdir() if p.name == name), None) if folder.is_dir() else None
    if path is None:
        raise NotFound(f"The page has no file `{name[:100]}`.", hint="Reload the page: the server may be newer.")
    media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return FileResponse(path, media_type=media, headers={"Cache-Control": "public, max-age=31536000, immutable"})
