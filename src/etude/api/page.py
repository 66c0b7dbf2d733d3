"""The page at `/`: a plain overview, until there is a front end."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from etude import __version__
from etude.api.call import AnyCall

router = APIRouter()
ROUTES = (
    ("POST /api/chat", "ask in words"),
    ("POST /api/sql", "run a query"),
    ("GET /api/datasets", "list the datasets"),
    ("GET /api/runs", "list the runs"),
    ("/v1", "OpenAI-compatible"),
    ("/mcp", "for MCP clients"),
)


@router.get("/", include_in_schema=False)
async def page(call: AnyCall) -> HTMLResponse:
    """Describe this server and its main routes."""
    rows = "".join(f"<tr><td><code>{escape(path)}</code></td><td>{escape(what)}</td></tr>" for path, what in ROUTES)
    way_in = (
        "Requests need a key." if call.server.access_control.keys else "Keys are off: only this machine can reach it."
    )
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>etude</title></head><body>'
        f"<h1>etude {escape(__version__)}</h1><p>The server is running. {way_in}</p>"
        f"<table>{rows}</table>"
        f'<p><a href="/openapi.json">openapi.json</a> describes every route; <a href="/readyz">readyz</a> shows '
        f"the state of each part.</p></body></html>"
    )
