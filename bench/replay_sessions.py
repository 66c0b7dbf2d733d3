"""Generated sessions, as an analyst leaves them behind: detours, failed cells, prints, aliases, closures, queries."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from etude.replays.slice import CellCode, CellSlice, slice_session

ROWS = [(n, ["web", "app", "store"][n % 3], float(10 + n * 7 % 90)) for n in range(1, 61)]


class Database:
    """Answers the queries of a generated session: `db.sql(...)` with rows that depend on the query."""

    def sql(self, query: str) -> list[tuple[int, str, float]]:
        """Return the rows of one channel, or all."""
        return [row for row in ROWS if not query.partition("=")[2] or row[1] == query.partition("=")[2].strip(" '")]


@dataclass
class _Writer:
    """Writes one session. `lists`, `numbers` and `tables` are the names that later cells can use."""

    chance: random.Random
    cells: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def query(self) -> str:
        made = self.name("rows")
        where = self.chance.choice(["", " WHERE channel = 'web'", " WHERE channel = 'app'"])
        self.tables.append(made)
        return f'{made} = db.sql("SELECT * FROM orders{where}")'

    def column(self) -> str:
        made = self.name("values")
        code = f"{made} = [row[2] for row in {self.chance.choice(self.tables)}]"
        self.lists.append(made)
        return code

    def change(self) -> str:
        target = self.chance.choice(self.lists)
        return self.chance.choice(
            [
                f"{target}.append({self.chance.randrange(100)})",
                f"{target}.sort()",
                f"{target}[0] = {self.chance.randrange(50)}",
                f"{target} += [{self.chance.randrange(9)}]",
                f"for item in range(3):\n    {target}.append(item)",
                f"if len({target}) > 3:\n    {target} = {target}[1:]",
                f"{target}.reverse()\nprint({target}[:3])",
                f"del {target}[0]",
            ]
        )

    def alias(self) -> str:
        made, target = self.name("same"), self.chance.choice(self.lists)
        self.lists.append(made)
        return self.chance.choice(
            [
                f"{made} = {target}\n{made}.append({self.chance.randrange(100)})",
                f"box_{made} = {{'inner': {target}}}\nbox_{made}['inner'].append(1)\n{made} = list({target})",
                f"pair_{self.count} = [{target}, 0]\npair_{self.count}[0].insert(0, 5)\n{made} = {target}[:]",
                f"{made} = next(iter([{target}]))\n{made}.append(2)",
            ]
        )

    def number(self) -> str:
        made = self.name("n")
        self.numbers.append(made)
        others = [n for n in self.numbers if n != made]
        plus = f" + {self.chance.choice(others)}" if others and self.chance.random() < 0.4 else ""
        what = self.chance.choice(["sum", "max", "len", "min"])
        return f"{made} = {what}({self.chance.choice(self.lists)}){plus}"

    def step(self) -> str:
        target = self.chance.choice(self.numbers)
        return self.chance.choice([f"{target} += 1", f"{target} = {target} * 2", f"{target} -= 3; print({target})"])

    def closure(self) -> str:
        made, kept = self.name("counter"), self.name("total")
        self.numbers.append(kept)
        target = self.chance.choice(self.lists)
        return self.chance.choice(
            [
                f"def {made}(items):\n    items.append(7)\n    return len(items)\n\n\n{kept} = {made}({target})",
                f"{kept} = 0\n\n\ndef {made}(by):\n    global {kept}\n    {kept} += by\n\n\n{made}(4)",
                f"def make_{made}():\n    seen = []\n    def add(item):\n        seen.append(item)\n"
                f"        return len(seen)\n    return add\n\n\n{made} = make_{made}()\n{made}(1)\n{kept} = {made}(2)",
                f"class Box_{made}:\n    def __init__(self):\n        self.items = []\n\n\n"
                f"{made} = Box_{made}()\n{made}.items.append(3)\n{kept} = len({made}.items)",
            ]
        )

    def fail(self) -> str:
        target = self.chance.choice(self.lists)
        return self.chance.choice(
            [
                "1 / 0",
                "undefined_name",
                f"{target}.append(99)\nraise ValueError('stop')",
                "db.sql()",
                "import module_that_is_not_there",
            ]
        )

    def show(self) -> str:
        return self.chance.choice(
            [
                f"print({self.chance.choice(self.lists)}[:5])",
                f"print('so far', {self.chance.choice(self.numbers)})",
                f"len({self.chance.choice(self.tables)})",
                "plot = {'mark': 'bar'}\nplot['data'] = [1, 2, 3]",
                "import math\nprint(math.pi)",
            ]
        )


def write_session(seed: int) -> list[str]:
    """Return the cells of a session; the last one shows what it was about."""
    writer = _Writer(random.Random(seed))
    cells = [writer.query(), writer.column(), writer.number()]
    for _ in range(writer.chance.randint(6, 16)):
        makes: list[Callable[[], str]] = [
            writer.query, writer.column, writer.change, writer.alias, writer.number, writer.step,
            writer.closure, writer.fail, writer.show, writer.show, writer.show,
        ]  # fmt: skip
        cells.append(writer.chance.choice(makes)())
    wanted = writer.chance.sample(writer.numbers, min(2, len(writer.numbers)))
    shown = writer.chance.choice(writer.lists)
    cells.append(f"print({', '.join(wanted)}, sum({shown}))")
    return cells


@dataclass(frozen=True)
class Ran:
    """A session that ran: its cells without what came after an error, and the output of the last."""

    cells: list[CellCode]
    output: str


def run_session(cells: list[str]) -> Ran:
    """Run the cells one after the other; of one that fails, only the statements before the error count."""
    import ast

    space = {"db": Database(), "__name__": "session"}
    kept, output = [], ""
    for number, code in enumerate(cells):
        done, out = [], io.StringIO()
        with contextlib.redirect_stdout(out):
            for node in ast.parse(code).body:
                part = ast.get_source_segment(code, node) or ""
                try:
                    exec(compile(ast.Module([node], []), "<cell>", "exec"), space)
                except Exception:
                    break
                done.append(part)
            else:
                done = [code]
        output = out.getvalue()
        if done:
            kept.append(CellCode("\n".join(done), shown=number == len(cells) - 1))
    return Ran(kept, output)


def run_kept(cells: list[CellCode], kept: Mapping[int, str]) -> str | None:
    """Return the output of the shown cell after these cells, None if one fails."""
    space = {"db": Database(), "__name__": "session"}
    output = ""
    for number in sorted(kept):
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(kept[number], "<cell>", "exec"), space)
        except Exception:
            return None
        output = out.getvalue() if cells[number].shown else output
    return output


def observe(kept: Mapping[int, str]) -> Mapping[int, frozenset[str]]:
    """Return the names that each cell changes."""
    space: dict[str, object] = {"db": Database(), "__name__": "session"}
    changed = {}

    def marks() -> dict[str, str]:
        return {n: f"{id(v)} {vars(v) if hasattr(v, '__dict__') else v!r}" for n, v in space.items() if n[0] != "_"}

    before = marks()
    for number in sorted(kept):
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(kept[number], "<cell>", "exec"), space)
        after = marks()
        changed[number] = frozenset(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
        before = after
    return changed


@dataclass(frozen=True)
class SlicedSession:
    """A session with its slice."""

    cells: list[str]
    found: CellSlice | None
    equal: bool
    share: float
    """Cells kept, of all that were written."""


def slice_sessions(count: int, seed: int = 0) -> Iterator[SlicedSession]:
    """Yield generated sessions with their slices."""
    for number in range(count):
        written = write_session(seed + number)
        ran = run_session(written)
        found = slice_session(ran.cells, lambda kept, ran=ran: run_kept(ran.cells, kept) == ran.output, observe)
        equal = found is not None and run_kept(ran.cells, found.cells) == ran.output
        yield SlicedSession(written, found, equal, len(found.cells) / len(written) if found else 1.0)
