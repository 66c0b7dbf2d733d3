"""Operations of another server, read over its HTTP API."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

from etude.errors import Invalid, Unauthorized, Unavailable
from etude.learning.observer.operations import SHORT, Operation, Outcome

TIMEOUT_S = 30.0
MOST = 500
DETAILED = 50
"""Failed runs whose steps are read as well."""


def read_remote_operations(url: str, key: str, since: timedelta = timedelta(days=1)) -> list[Operation]:
    """Return the newest runs of a server as operations, and the failed steps of the newest failed runs."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise Invalid(f"`{url}` is not a URL of a server.", hint="Write `https://host` or `http://host:port`.")
    query = urllib.parse.urlencode({"limit": MOST, "since": (datetime.now(UTC) - since).isoformat()})
    listed = _get(url, f"/api/runs?{query}", key)["items"]
    failed = [run for run in listed if run["status"] == "failed"][:DETAILED]
    details = {run["id"]: _get(url, f"/api/runs/{run['id']}", key) for run in failed}
    operations = []
    for run in reversed(listed):
        outcome: Outcome = {"succeeded": "ok", "failed": "failed"}.get(run["status"], "cancelled")  # type: ignore[assignment]
        if run["status"] not in ("succeeded", "failed", "cancelled"):
            continue
        at = datetime.fromisoformat(run["ended_at"])
        body = details.get(run["id"], {})
        steps = [s for s in body.get("steps", ()) if s.get("error_key")]
        key_of = steps[-1]["error_key"] if steps else run["error_code"] or ""
        error = str((body.get("error") or {}).get("detail", ""))[:SHORT]
        operations.append(
            Operation(run["id"], at, run["kind"], outcome, run["text"][:SHORT], error,
                      key_of if outcome == "failed" else "", run["source"] or "", run["id"], run["elapsed_ms"] or 0.0)
        )  # fmt: skip
    return operations


def _get(url: str, path: str, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url.rstrip("/") + path, headers=headers)  # noqa: S310 - the scheme is checked
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise Unauthorized(f"`{url}` refused the key.", hint="Give a key with `--key env:NAME`.") from None
        raise Unavailable(f"`{url}` answered with status {error.code}.", hint="Check the URL.") from None
    except (OSError, ValueError) as error:
        raise Unavailable(f"`{url}` cannot be read: {error}.", hint="Check that the server runs.") from None
