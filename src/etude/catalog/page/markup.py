"""Text into HTML, strictly: everything is escaped unless it was made here. Numbers and moments as people read them."""

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

from etude.catalog.model import Scalar, moment

# Characters that no reader can see and that would break the page or turn its text around: C0 and C1 controls but for
# tab and line feed, lone surrogates, bidirectional overrides, non-characters.
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_SPECIAL = re.compile(f"[<>&\"']|{_HOSTILE.pattern}")
_CODE = re.compile("`([^`]*)`")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Any value as text that is safe between tags and in quoted attributes; markup stays what it is."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return Markup(html.escape(clean(text)) if _SPECIAL.search(text) else text)


def clean(text: str) -> str:
    """The text with characters replaced that must not reach a page."""
    return _HOSTILE.sub("\ufffd", text)


def fill(template: str, **values: object) -> Markup:
    """The template with its `{names}` replaced by the escaped values; None and False leave nothing."""
    return Markup(template.format(**{k: "" if v is None or v is False else escape(v) for k, v in values.items()}))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """The parts, escaped, one after the other."""
    return Markup(between.join(escape(p) for p in parts))


def sentence(text: str) -> Markup:
    """A sentence in which `names` stand in backticks, with these as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", escape(text)))


def script_json(value: Any) -> Markup:
    """A value as JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def asset(name: str) -> str:
    """A stylesheet or script that is packaged beside this file."""
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


def page(title: str, body: Markup) -> str:
    """A whole page that asks for nothing: style and script are inside, and the browser is told to run no others.

    The policy names the style and the script by hash. Should a value ever get past the escaping, it still could neither
    run nor send anything.
    """
    style, script = Markup(asset("report.css").strip()), Markup(asset("report.js").strip())
    return fill(
        _PAGE,
        title=title,
        body=body,
        style=style,
        script=script,
        policy=Markup(_POLICY.format(style=_hash(style), script=_hash(script))),
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def anchors(names: Iterable[str], prefix: str) -> dict[str, str]:
    """A fragment for each name: readable, stable while the names are, and without a repetition."""
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


# Numbers and moments.


def short(count: float | None) -> str:
    """A count in few characters: 950, 12.3k, 4.1M."""
    if count is None:
        return "?"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= 0.9995 * size and abs(count) >= 10_000:
            return f"{count / size:.3g}{unit}"
    return f"{count:,.0f}"


def size(count: int | None) -> str:
    """Bytes in few characters."""
    if count is None:
        return ""
    for unit_size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit_size:
            return f"{count / unit_size:.3g} {unit}"
    return f"{count} B"


def percent(share: float | None) -> str:
    """A share in percent; what is not nothing never shows as 0%, what is not all never as 100%."""
    if share is None or math.isnan(share):
        return "?"
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "<0.1%"
    if share > 0.999:
        return ">99.9%"
    return f"{share:.1%}".replace(".0%", "%") if share < 0.1 or share > 0.9 else f"{share:.0%}"


def show(value: Scalar, limit: int = 80) -> str:
    """A value of the data, shortened to a limit."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _show_float(value)
    when = moment(value) if len(value) <= 40 and value[:4].isdigit() else None
    if when is not None and len(value) > 10:
        value = value.replace("T", " ").removesuffix("+00:00")
        value = value.removesuffix(" 00:00:00")
    return value if len(value) <= limit else value[: limit - 1] + "…"


def _show_float(value: float) -> str:
    if not math.isfinite(value) or value == 0:
        return str(value)
    if 1e-4 <= abs(value) < 1e15:
        digits = max(0, 5 - math.ceil(math.log10(abs(value))))
        text = f"{value:,.{digits}f}" if abs(value) >= 10_000 else f"{value:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.4g}"


def when(value: datetime | None) -> str:
    """A moment in UTC, to the minute."""
    if value is None:
        return ""
    return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M") + " UTC"


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
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
