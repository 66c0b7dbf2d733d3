"""Counts, sizes, shares, values and times formatted for pages."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from etude.catalog.model import Scalar, profile_datetime


def format_page_count(count: float | None) -> str:
    """Format a count in a few characters: 950, 12.3k, 4.1M."""
    if count is None:
        return "?"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= 0.9995 * size and abs(count) >= 10_000:
            return f"{count / size:.3g}{unit}"
    return f"{count:,.0f}"


def format_page_bytes(count: int | None) -> str:
    """Format a number of bytes in a few characters."""
    if count is None:
        return ""
    for unit_size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit_size:
            return f"{count / unit_size:.3g} {unit}"
    return f"{count} B"


def format_page_share(share: float | None) -> str:
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


def format_page_value(value: Scalar, limit: int = 80) -> str:
    """Format a value of the data, shortened to a limit."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _show_float(value)
    when = profile_datetime(value) if len(value) <= 40 and value[:4].isdigit() else None
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


def format_page_time(value: datetime | None) -> str:
    """Format a time in UTC, to the minute."""
    if value is None:
        return ""
    return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M") + " UTC"


def format_page_duration(seconds: float) -> str:
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
