"""Workbooks for tests, written by hand: no library is needed."""

from __future__ import annotations

import zipfile
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

Sheet = list[list[Any]]


class Padded(int):
    """A whole number that the workbook shows with five digits, by the format 00000."""


def write_workbook(path: Path, sheets: dict[str, Sheet]) -> Path:
    """Write a workbook as small as the format allows; dates are numbers with style 1, moments with style 2.
    Durations have style 3, `[h]:mm:ss`; `Padded` numbers have style 4.

    A text such as #DIV/0! is an error.
    """
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    pack = "http://schemas.openxmlformats.org/package/2006"
    with zipfile.ZipFile(path, "w") as book:
        parts = "".join(
            f'<Override PartName="/xl/worksheets/s{i}.xml" ContentType="application/vnd.openxmlformats-'
            f'officedocument.spreadsheetml.worksheet+xml"/>'
            for i in range(len(sheets))
        )
        book.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{pack}/content-types"><Default Extension="rels" ContentType="application/vnd.'
            'openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType='
            '"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>' + parts + "</Types>",
        )
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{pack}/relationships"><Relationship Id="r" Type="{rel}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        names = "".join(f'<sheet name="{n}" sheetId="{i + 1}" r:id="r{i}"/>' for i, n in enumerate(sheets))
        book.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{rel}"><sheets>{names}</sheets></workbook>'
        )
        links = "".join(
            f'<Relationship Id="r{i}" Type="{rel}/worksheet" Target="worksheets/s{i}.xml"/>' for i in range(len(sheets))
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{pack}/relationships">{links}<Relationship Id="st" Type="{rel}/styles" '
            'Target="styles.xml"/></Relationships>',
        )
        formats = "".join(f'<xf numFmtId="{n}" applyNumberFormat="1"/>' for n in (0, 14, 22, 46, 164))
        book.writestr(
            "xl/styles.xml",
            f'<styleSheet xmlns="{main}"><numFmts count="1"><numFmt numFmtId="164" formatCode="00000"/></numFmts>'
            f'<cellXfs count="5">{formats}</cellXfs></styleSheet>',
        )
        for i, sheet in enumerate(sheets.values()):
            data = "".join(f'<row r="{r + 1}">{_cells(row, r + 1)}</row>' for r, row in enumerate(sheet))
            book.writestr(
                f"xl/worksheets/s{i}.xml", f'<worksheet xmlns="{main}"><sheetData>{data}</sheetData></worksheet>'
            )
    return path


def _cells(row: list[Any], number: int) -> str:
    return "".join(_cell(value, f"{chr(65 + at)}{number}") for at, value in enumerate(row) if value is not None)


def _cell(value: Any, place: str) -> str:
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str) and value.startswith("#"):
        return f'<c r="{place}" t="e"><f>1/0</f><v>{value}</v></c>'
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    if isinstance(value, datetime):
        return f'<c r="{place}" s="2"><v>{(value - datetime(1899, 12, 30)).total_seconds() / 86400}</v></c>'
    if isinstance(value, timedelta):
        return f'<c r="{place}" s="3"><v>{value.total_seconds() / 86400}</v></c>'
    if isinstance(value, date):
        return f'<c r="{place}" s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
    style = ' s="4"' if isinstance(value, Padded) else ""
    return f'<c r="{place}"{style}><v>{int(value) if style else value}</v></c>'
