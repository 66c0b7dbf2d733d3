"""`etude init`: write an etude.toml for the data in a folder."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

EXAMPLES = ("etude init", "etude init data")
DATABASES = {".duckdb": "duckdb", ".ddb": "duckdb", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite"}
DATA = frozenset({".csv", ".tsv", ".json", ".ndjson", ".jsonl", ".parquet", ".xlsx", ".xls"})
MOST = 10_000
"""The most files that are looked at."""
TEMPLATE = """# Settings of etude for this folder. `etude config` shows all settings and where each comes from.
# Lines that start with # show the defaults, or examples.

# model = "offline"                # rules only; or for example "openai:gpt-5" or "ollama:qwen3"
# record = true                    # whether queries are recorded as runs
# home = "~/.local/share/etude"    # the folder of etude's state

# [limits]
# timeout_s = 60.0                 # seconds after which a query is stopped

{sources}
# A server is a source as well. Keep its password outside of this file:
# [sources.crm]
# url = "env:CRM_URL"              # such as postgresql://reader:...@host/crm
# tables = ["customers", "orders"] # grant only these; all by default
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", nargs="?", default=".", help="where the data is and the file goes (this folder)")


def run(options: argparse.Namespace) -> None:
    """Write etude.toml with the sources that were found; never replace a file."""
    from etude.errors import Conflict, Invalid, NotFound

    folder = Path(options.folder)
    if not folder.is_dir():
        raise NotFound(f"There is no folder `{folder}`.", hint="Create it, or name another one.")
    path = folder / "etude.toml"
    sources = find_init_sources(folder)
    tables = "\n".join(f"[sources.{name}]\nurl = {json.dumps(url)}\n" for name, url in sources.items())
    none = "# No data files were found in this folder. A source is a file, a folder or a glob:\n"
    none += '# [sources.sales]\n# url = "data/*.csv"\n'
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(sources=tables or none))
    except FileExistsError:
        raise Conflict(f"`{path}` exists already.", hint="Edit it, or remove it first.") from None
    except OSError as error:
        raise Invalid(f"Cannot write `{path}`: {error.strerror}.", hint="Check the permissions.") from None
    sys.stdout.write(f"{path}\n")
    for name, url in sources.items():
        sys.stderr.write(f"source `{name}`: {url}\n")
    if sources:
        there = "" if folder.resolve() == Path.cwd() else f"cd {options.folder} && "
        first = next(iter(sources))
        sys.stderr.write(f'Try:  {there}etude sources show {first}\n      {there}etude ask {first} "..."\n')
    else:
        sys.stderr.write("No data files were found; the file shows how to add a source.\n")


def find_init_sources(folder: Path) -> dict[str, str]:
    """Return names and paths of sources: each database file, and each folder that holds data files."""
    found: dict[str, str] = {}
    files = _visible_files(folder)
    for file in files:
        if file.suffix.lower() in DATABASES and _is_database(file):
            _add(found, file.stem, file, folder)
    folders = sorted({f.parent for f in files if f.suffix.lower() in DATA})
    for each in folders:
        if not any(other in each.parents for other in folders):
            _add(found, each.resolve().name, each, folder)
    return found


def _visible_files(folder: Path) -> list[Path]:
    """Return the files in a folder and in its direct subfolders, without hidden ones."""
    files: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or path.is_symlink():
            continue
        if path.is_file():
            files.append(path)
        elif path.is_dir() and not (path / "etude.db").is_file():  # not the state of etude itself
            files += [p for p in sorted(path.iterdir()) if p.is_file() and not p.name.startswith(".")]
        if len(files) > MOST:
            break
    return files


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return head == b"SQLite format 3\0" or head[8:12] == b"DUCK"


def _add(found: dict[str, str], name: str, path: Path, folder: Path) -> None:
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "data"
    plain = plain if plain[0].isalpha() else f"data_{plain}"
    number, chosen = 2, plain
    while chosen in found:
        chosen, number = f"{plain}_{number}", number + 1
    found[chosen] = str(path.relative_to(folder))
