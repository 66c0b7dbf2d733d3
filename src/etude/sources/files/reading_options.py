"""How a user wants ambiguous values of a file to be read, and the advice that notes give about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etude.errors import Invalid

DATE_ORDERS = {"dmy": "day/month/year", "mdy": "month/day/year"}
AS_TEXT = "text"
"""The value of the option `dates` that keeps dates as text unless the year comes first."""
DECIMALS = (".", ",")
READING = ("dates", "decimal", "encoding")
"""The options of a source that say how to read ambiguous values."""


@dataclass(frozen=True)
class ReadingOptions:
    """How a user wants ambiguous values to be read: the options `dates`, `decimal` and `encoding` of a source."""

    dates: str = ""
    """`dmy`, `mdy`, or `text` to keep such dates as text; empty for the default, which is `dmy`."""
    decimal: str = ""
    """`.` or `,`; empty if the values must decide."""
    uploaded: bool = False
    """True if the file was uploaded: its notes name no options, because an upload takes none."""
    encoding: str = ""
    """That of files that are not UTF-8; empty if their bytes must tell."""

    def describe_doubt(self, encoding: str) -> str:
        """Return the note on a text whose letters do not look like those of the encoding."""
        said = f"The letters do not look like those of {encoding}, so texts and names of columns may be wrong: "
        if self.uploaded:
            return f"{said}save the file as UTF-8."
        return f"{said}the option `encoding` of the source, such as `encoding=cp1250`, says how to read them."

    def date_advice(self, option: str, effect: str) -> str:
        """Return what a reader of a note on dates can do: set an option, or change an uploaded file."""
        if self.uploaded:
            return "write dates such as 2024-12-31 in the file to be sure"
        return f"the option `{option}` of the source {effect}"

    @property
    def decimal_advice(self) -> str:
        """What a reader of a note on thousands or decimals can do."""
        if self.uploaded:
            return "write numbers such as 1234.5 in the file to be sure"
        return "the option `decimal` of the source settles it"


def parse_reading_options(options: Mapping[str, str]) -> ReadingOptions:
    """Return the reading that the options of a source ask for; raise `Invalid` for an unknown value."""
    dates, decimal = options.get("dates", ""), options.get("decimal", "")
    if dates and dates not in (*DATE_ORDERS, AS_TEXT):
        raise Invalid(
            f"The option `dates` cannot be `{dates}`.",
            hint="Use `dmy` (day first), `mdy` (month first) or `text` (kept as text).",
        )
    if decimal and decimal not in DECIMALS:
        raise Invalid(f"The option `decimal` cannot be `{decimal}`.", hint="Use `.` or `,`.")
    encoding = options.get("encoding", "")
    if encoding:
        try:
            b"a".decode(encoding)
        except (LookupError, ValueError) as error:
            raise Invalid(
                f"The option `encoding` cannot be `{encoding}`.", hint="Use a name such as `cp1250` or `shift_jis`."
            ) from error
    return ReadingOptions(dates, decimal, options.get("documents") == "true", encoding)
