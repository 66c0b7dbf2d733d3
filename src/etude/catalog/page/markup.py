"""Text as HTML: templates in which all but `Markup` is escaped, anchors; counts, shares, times formatted for pages."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from etude.catalog.model import Scalar, scalar_to_datetime

# Invisible characters that would break the page or reverse its text: C0 and C1 controls except tab and line feed, lone
# surrogates, bidirectional overrides, noncharacters.
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_SPECIAL = re.compile(f"[<>&\"']|{_HOSTILE.pattern}")
_CODE = re.compile("`([^`]*)`")


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def escape_html(value: object) -> Markup:
    """Escape a value for use between tags and in quoted attributes; markup stays unchanged."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return Markup(html.escape(clean_for_page(text)) if _SPECIAL.search(text) else text)


def clean_for_page(text: str) -> str:
    """Replace the characters that must not reach a page."""
    return _HOSTILE.sub("\ufffd", text)


def fill_template(template: str, **values: object) -> Markup:
    """Replace the `{names}` of a template by the escaped values; None and False become empty text."""
    return Markup(template.format(**{k: "" if v is None or v is False else escape_html(v) for k, v in values.items()}))


def join_markup(parts: Iterable[object], between: str = "") -> Markup:
    """Escape the parts and join them."""
    return Markup(between.join(escape_html(p) for p in parts))


def sentence_to_html(text: str) -> Markup:
    """Escape a sentence and turn names in backticks into code."""
    return Markup(_CODE.sub(r"<code>\1</code>", escape_html(text)))


def json_for_script(value: Any) -> Markup:
    """Encode a value as JSON for a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def read_page_asset(name: str) -> str:
    """Read a stylesheet or script from the package."""
    return files("etude.catalog").joinpath(name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="etude">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


_POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; form-action 'none'"
)


def html_page(title: str, body: Markup) -> str:
    """Render a self-contained page: style and script are inline, and its security policy forbids all others.

    The policy allows the style and the script by hash. Even if a value got past the escaping, it could neither run
    nor send anything.
    """
    style, script = Markup(read_page_asset("report.css").strip()), Markup(read_page_asset("report.js").strip())
    return fill_template(
        _PAGE,
        title=title,
        body=body,
        style=style,
        script=script,
        policy=Markup(_POLICY.format(style=_hash(style), script=_hash(script))),
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def make_anchors(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return an anchor for each name: readable, unique, and stable as long as the names are."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = prefix + (re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60] or "-")
        anchor, number = base, 2
        while anchor in taken:
            anchor, number = f"{base}~{number}", number + 1
        taken.add(anchor)
        found[name] = anchor
    return found


# Numbers and times.


def format_count(count: float | None) -> str:
    """Format a count in a few characters: 950, 12.3k, 4.1M."""
    if count is None:
        return "?"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= 0.9995 * size and abs(count) >= 10_000:
            return f"{count / size:.3g}{unit}"
    return f"{count:,.0f}"


def format_bytes(count: int | None) -> str:
    """Format a number of bytes in a few characters."""
    if count is None:
        return ""
    for unit_size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit_size:
            return f"{count / unit_size:.3g} {unit}"
    return f"{count} B"


def format_percent(share: float | None) -> str:
    """Format a share in percent; only exactly 0 shows as 0%, and only exactly 1 as 100%."""
    if share is None or math.isnan(share):
        return "?"
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "<0.1%"
    if share > 0.999:
        return ">99.9%"
    return f"{share:.1%}".replace(".0%", "%") if share < 0.1 or share > 0.9 else f"{share:.0%}"


def format_value(value: Scalar, limit: int = 80) -> str:
    """Format a value of the data, shortened to a limit."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _show_float(value)
    when = scalar_to_datetime(value) if len(value) <= 40 and value[:4].isdigit() else None
    if when is not None and len(value) > 10:
        value = value.replace("T", " ").removesuffix("+00:00")
        value = value.removesuffix(" 00:00:00")
    return value if len(value) <= limit else value[: limit - 1] + "…"


def _show_float(value: float) -> str:
    if not math.isfinite(value) or value == 0:
        return str(value)
    if 1e-4 <= abs(value) < 1e15:
        digits = max(0, 5 - math.ceil(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.4g}"


def format_time(value: datetime | None) -> str:
    """Format a time in UTC, to the minute."""
    if value is None:
        return ""
    return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M") + " UTC"


def format_duration(seconds: float) -> str:
    """Format a duration in its largest unit."""
    seconds = abs(seconds)
    for length, unit in (
        (365.25 * 86400, "year"),
        (30.44 * 86400, "month"),
        (86400, "day"),
        (3600, "hour"),
        (60, "minute"),
    ):
        if seconds >= length * (2 if unit == "month" else 1):
            count = round(seconds / length)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return "less than a minute"
