"""A script as a Python file that an engineer would sign, and that runs alone.

The file checks the schema and the data before it computes anything; each check that fails ends it with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from etude import __version__
from etude.errors import Refused
from etude.replays.script import Parameter, Script, ScriptStep
from etude.replays.script_parameters import MOST_ROWS
from etude.sources.quoting import quote_table
from etude.sources.sql_parsing import parse_one_sql

_TYPES = {"integer": "int", "limit": "int", "year": "int", "number": "float", "text": "str", "date": "str"}
_FORMS = {
    "number": "{0}",
    "year": "{0}",
    "year_start": '"\'" + str({0}) + "-01-01\'"',
    "year_end": '"\'" + str({0}) + "-12-31\'"',
    "next_year_start": '"\'" + str({0} + 1) + "-01-01\'"',
    "text": "quote({0})",
    "date": "quote({0})",
}


def write_script_file(script: Script) -> str:
    """Return the script as a Python file."""
    parts = [_docstring(script), _imports(script), _require(script)]
    parts += [_check_schema(script), _check(script), *_guards(script)]
    cells = [step for step in script.steps if step.kind == "python"]
    if cells:
        parts += [_main_of_cells(script, cells)]
    else:
        parts += [*_queries(script), _main(script)]
    return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _docstring(script: Script) -> str:
    question = script.question.replace("\\", "\\\\").replace('"""', "'''").strip()
    versions = ", ".join(f"{name} {value}" for name, value in sorted(script.versions.items()))
    asked = f"{script.asked_at.day} {script.asked_at:%B %Y}"
    lines = [
        f'"""{question}',
        "",
        f"Source:    {script.source}" + (f" ({script.location})" if script.location else ""),
        f"Lineage:   {script.run_id} of {asked}, answered by {script.model}; {script.id}",
        f"Compiled:  {len(script.steps)} of {script.of_steps} steps, {len(script.shapes) + len(script.guards)} guards, "
        f"by etude {__version__}" + (f" on {versions}" if versions else ""),
        *([f"Guards:    {script.mutants.sentence}"] if script.mutants.of or script.mutants.reason else []),
        '"""',
    ]
    return "\n".join(lines)


def _imports(script: Script) -> str:
    return "from __future__ import annotations\n\nimport argparse\nimport os\nimport sys\n\nimport etude"


def _require(script: Script) -> str:
    lines = [
        "def require(holds, otherwise):",
        '    """End with a sentence if an assumption does not hold."""',
        "    if not holds:",
        "        sys.exit(otherwise)",
    ]
    if any(slot.form in ("text", "date") for step in script.steps for slot in step.slots):
        lines += [
            "",
            "",
            "def quote(text):",
            '    """Return a text as a literal of SQL."""',
            '    return "\'" + text.replace("\'", "\'\'") + "\'"',
        ]
    return "\n".join(lines)


def _check_schema(script: Script) -> str:
    lines = [
        "def check_schema(db):",
        '    """The columns that are read exist and have the same types."""',
        "    known = {t.name: {c.name: c.type for c in t.columns} for t in db.catalog().tables}",
    ]
    for shape in script.shapes:
        lines.append(f"    columns = known.get({shape.table!r}, {{}})")
        lines.append(f"    require(columns, {f'The table `{shape.table}` is gone.'!r})")
        for name, kind in shape.columns.items():
            said = f"The column `{shape.table}.{name}` is gone or is not {kind} any more."
            lines.append(f"    require(columns.get({name!r}) == {kind!r}, {said!r})")
    return "\n".join(lines)


def _guards(script: Script) -> Iterator[str]:
    """Yield the guards of each table as a list: what is measured, its bounds, and what to say beyond them."""
    for table, own in groupby(sorted(script.guards, key=lambda g: g.table), key=lambda g: g.table):
        lines = [f"{_identifier(table).upper()} = ["]
        for guard in own:
            bounds = ", ".join(_bound(end) for end in (guard.low, guard.high))
            lines += [f"    # {guard.holds}"]
            lines += [f"    # It notices if {guard.mutant}."] if guard.mutant else []
            lines += [f"    ({guard.measure!r}, {bounds},", f"     {guard.fails!r}),"]
        yield "\n".join([*lines, "]"])


def _bound(end: float | None) -> str:
    return "None" if end is None else f"{int(end)}" if end == int(end) else repr(end)


def _check(script: Script) -> str:
    if not script.guards:
        return ""
    return '''def check(db, table, guards):
    """Measure all guards of a table in one query; stop at the first that does not hold."""
    measures = ", ".join(f"{measure} AS g{n}" for n, (measure, _, _, _) in enumerate(guards))
    values = db.sql(f"SELECT {measures} FROM {table}").rows()[0]
    for value, (_, low, high, otherwise) in zip(values, guards):
        holds = value is not None and (low is None or value >= low) and (high is None or value <= high)
        require(holds, otherwise.replace("{value}", f"{value}"))'''


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text).lower()


def _queries(script: Script) -> Iterator[str]:
    for number, step in enumerate(script.steps, 1):
        template, markers = _template(step, script.dialect)
        names = ", ".join(dict.fromkeys(slot.parameter for slot in step.slots))
        call = f".format({', '.join(markers)})" if markers else ""
        body = template.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        yield f'def query_{number}({names}):\n    """The query of step {number}."""\n    return """\n{body}\n"""{call}'


def _template(step: ScriptStep, dialect: str) -> tuple[str, list[str]]:
    """Return the query with a marker for each slot, and what each marker stands for."""
    if not step.slots:
        return format_script_sql(step.code, dialect), []
    parts, at, markers = [], 0, []
    stand_ins: dict[str, str] = {}
    for number, slot in enumerate(step.slots):
        name = slot.parameter if slot.form in ("number", "text", "date", "year") else slot.form
        # Literals that the query cannot contain otherwise stand for the slots while the query is formatted.
        stand_in = str(990_000_000_017 + number) if slot.form in ("number", "year") else f"'slot {number} of the query'"
        stand_ins[stand_in] = f"{{{name}}}"
        markers.append(f"{name}={_FORMS[slot.form].format(slot.parameter)}")
        parts += [step.code[at : slot.start], stand_in]
        at = slot.end
    text = format_script_sql("".join([*parts, step.code[at:]]), dialect).replace("{", "{{").replace("}", "}}")
    for stand_in, marker in stand_ins.items():
        text = text.replace(stand_in, marker)
    return text, list(dict.fromkeys(markers))


def format_script_sql(sql: str, dialect: str) -> str:
    """Return a query over several lines if that is the same query, otherwise as it is."""
    from sqlglot.errors import SqlglotError

    try:
        before = parse_one_sql(sql, dialect)
        text = before.sql(dialect=dialect, pretty=True)
        return text if parse_one_sql(text, dialect) == before else sql
    except (SqlglotError, RecursionError, Refused):
        return sql


def _main(script: Script) -> str:
    names = [p.name for p in script.parameters]
    lines = [f"def main({', '.join(['source', *names])}):", '    """Check the assumptions, then return the results."""']
    lines += [line for p in script.parameters for line in _validate(p, p.name)]
    lines += [f"    with etude.connect(source) as db:\n{_checks(script, 8)}"]
    calls = []
    for number, step in enumerate(script.steps, 1):
        given = ", ".join(dict.fromkeys(slot.parameter for slot in step.slots))
        calls.append(f"db.sql(query_{number}({given}))")
    lines.append(f"        return [{', '.join(calls)}]")
    return "\n".join(lines) + "\n\n\n" + _entry(script)


def _checks(script: Script, indent: int) -> str:
    tables = dict.fromkeys(guard.table for guard in script.guards)
    calls = [f"check(db, {quote_table(t, script.dialect)!r}, {_identifier(t).upper()})" for t in tables]
    return "\n".join(f"{' ' * indent}{call}" for call in ["check_schema(db)", *calls])


def _validate(parameter: Parameter, name: str) -> Iterator[str]:
    """Yield the lines that check a parameter, which the file knows by this name."""
    if parameter.kind == "limit":
        yield f"    require(1 <= {name} <= {MOST_ROWS}, f'{{{name}}} is not a number of rows.')"
    elif parameter.kind == "year" and parameter.low and parameter.high:
        low, high = int(parameter.low[:4]), int(parameter.high[:4])
        said = f"'`{parameter.table}.{parameter.column}` is from {low} to {high}.'"
        yield f"    require({low} <= {name} <= {high}, {said})"
    elif parameter.kind in ("integer", "number") and parameter.low and parameter.high:
        said = f"'`{parameter.table}.{parameter.column}` is from {parameter.low} to {parameter.high}.'"
        yield f"    require({float(parameter.low)!r} <= {name} <= {float(parameter.high)!r}, {said})"


def _arguments(script: Script) -> list[str]:
    default = script.location or script.source
    lines = [
        "    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])",
        f"    parser.add_argument('--source', default=os.environ.get('ETUDE_SOURCE', {default!r}))",
    ]
    for p in script.parameters:
        kind = _TYPES[p.kind]
        value = p.default.replace(",", "") if kind in ("int", "float") else repr(p.default)
        lines.append(f"    parser.add_argument('--{p.name.replace('_', '-')}', type={kind}, default={value})")
    return lines


def _entry(script: Script) -> str:
    lines = ["if __name__ == '__main__':", *_arguments(script)]
    lines += [
        "    for result in main(**vars(parser.parse_args())):",
        "        print(*(column.name for column in result.columns), sep='\\t')",
        "        for row in result.rows():",
        "            print(*row, sep='\\t')",
    ]
    return "\n".join(lines)


def _main_of_cells(script: Script, cells: Sequence[ScriptStep]) -> str:
    """Return the cells at the top level of the file: in a function, some names would mean something else."""
    given = "given"
    while any(re.search(rf"\b{given}\b", cell.code) for cell in cells):
        given += "_"
    lines = ["def read_arguments():", '    """Return the source and the parameters, checked."""', *_arguments(script)]
    lines += ["    given = parser.parse_args()"]
    lines += [line for p in script.parameters for line in _validate(p, f"given.{p.name}")]
    lines += ["    return given", "", ""]
    lines += ["def connect(source):", '    """Connect to the source and check the assumptions."""']
    lines += ["    db = etude.connect(source)", _checks(script, 4), "    return db", ""]
    lines += ["", f"{given} = read_arguments()", f"db = connect({given}.source)", ""]
    for step in script.steps:
        if step.kind == "sql":
            lines += [f"print(db.sql({step.code!r}).rows())", ""]
        else:
            lines += [_cell_with_arguments(step, given).strip("\n"), ""]
    return "\n".join(lines)


def _cell_with_arguments(step: ScriptStep, given: str) -> str:
    """Return a cell whose literals are the arguments of the file."""
    parts, at = [], 0
    for slot in step.slots:
        value = f"{given}.{slot.parameter}"
        if slot.quotes:
            text = _FORMS[slot.form].format(value)
            text = f"str({text})" if slot.form in ("number", "year") else text
            closing = slot.quotes.lstrip("rRuU")
            # The query is a text in the cell: it ends here, the value is added, and it begins again.
            value = f"{closing} + {text} + {slot.quotes}"
        parts += [step.code[at : slot.start], value]
        at = slot.end
    return "".join([*parts, step.code[at:]])
