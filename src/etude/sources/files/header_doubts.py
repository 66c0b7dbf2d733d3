"""Whether the first line of a text file may be a row instead of names, and whether a second table follows below."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from etude.sources.files.csv_dialect import CsvRecord
from etude.sources.files.parquet import read_parquet
from etude.sources.quoting import quote_identifier, quote_literal

SHOWN = 3
FEWEST_ROWS = 6
"""From this many rows on, values that repeat while the name of their column does not tell that it is a name."""
_WORDS = """
    account action active address age alias amount answer area artist author band bank brand category channel
    city class client code color colour column comment company contact content continent country county currency
    customer data date day department dept desc description detail device district division domain email
    employee end error event field file first flag from full gender genre grade group head host id image index
    industry ip item job key kind label language last latitude level line link list lang location login long
    longitude make manager market message method mode model month name nation new nickname no note notes num
    number object occupation old op operator option order origin owner page parent part path person phone place
    plan player position post postcode price product profession project quality question rating ref reference
    region remark result role room school score season section segment service sex shop site size sku source
    species stage start state station status store street style subject surname symbol table tag target team tel
    telephone text time title to topic town type unit url user username value variable vendor version word year
    zip zone artikel bezeichnung datum firma land nachname ort plz strasse telefon vorname wert nom prenom pays
    ville rue adresse libelle nombre apellido ciudad pais calle nome cognome citta via data cidade rua
"""
WORDS = frozenset(_WORDS.split())
NAME = re.compile(r"[^\W\d][\w ,.\-/()#%?]*")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")
SHORT = 2


def describe_doubtful_header(con: Any, table: Path, names: Sequence[str]) -> str:
    """Return a note if nothing tells the names from the values below them; empty if something does.

    A type tells them: the name of a column of numbers is not a number. So do the usual names of columns, and values
    that repeat. A name that is also a value of its column speaks for a row.
    """
    columns = {c[0]: c[1] for c in con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(table))}").fetchall()}
    if not names or any(columns.get(name) != "VARCHAR" for name in names):
        return ""
    counts = ", ".join(
        f"count({column}), count(DISTINCT {column}), count_if(trim({column}) = {quote_literal(name)})"
        for name, column in ((name, quote_identifier(name)) for name in names)
    )
    limited = f"(SELECT * FROM {read_parquet(str(table))} LIMIT 10000)"
    found = [n or 0 for n in con.execute(f"SELECT {counts} FROM {limited}").fetchone()]
    if not any(found):
        return ""
    again = next((name for name, same in zip(names, found[2::3]) if same), "")
    repeats = any(values >= FEWEST_ROWS and 2 * distinct <= values for values, distinct in zip(found[::3], found[1::3]))
    if not again and (repeats or any(map(_is_usual_name, names))):
        return ""
    shown = ", ".join(f"`{name[:40]}`" for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    why = f"`{again[:40]}` is also a value of its column" if again else "nothing tells it from the rows"
    said = f"The first line was read as the names of the columns ({shown}), but {why}"
    return f"{said}; if it is a row, write names above it."


def _is_usual_name(name: str) -> bool:
    if not NAME.fullmatch(name):
        return False
    if "_" in name or (len(name) <= SHORT and name.islower()) or re.search("[a-z][A-Z]", name):
        return True
    words = [part.lower() for part in PARTS.findall(name)]
    return any(word in WORDS or word.removesuffix("s") in WORDS for word in words)


def describe_second_table(records: Sequence[CsvRecord], width: int, is_value: Callable[[str], bool]) -> str:
    """Return a note if a header stands below a blank line among the records, with values below it.

    It has another number of fields than the table, and the rows below have as many; or it has as many, and stands in
    columns of values.
    """
    filled = [record for record in records if not record.blank]
    for at in range(2, len(records) - 1):
        before, line, after = records[at - 1 : at + 2]
        cells = [cell.strip() for cell in line.fields]
        if (
            not before.blank
            or line.blank
            or after.blank
            or len(cells) < 2
            or not all(cells)
            or any(map(is_value, cells))
        ):
            continue
        above = [record.fields for record in filled if record.line < line.line][1:]
        if len(above) < 1 or len({cell.lower() for cell in cells}) < len(cells):
            continue
        first = above[0]
        in_values = len(cells) == width and any(is_value(cell) for cell in first) and any(map(is_value, after.fields))
        other = len(cells) != width or len(cells) != len(first)
        if (other and len(after.fields) == len(cells)) or in_values:
            return (
                f"Line {line.line} comes after a blank line and looks like the header of another table, which was read "
                "as rows of this one. Put it into a file of its own."
            )
    return ""
