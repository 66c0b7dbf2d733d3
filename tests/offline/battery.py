"""Small databases with questions about them, generated: nine ways in which rules went wrong, each with right answers.

A question has the SQL that answers it, or none if nothing in the data answers it. Right is: the rows of the SQL, a
question back, or a refusal. An answer to a question without SQL is wrong.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from etude.offline.words import word_plural_form

CAUSES = (
    "superlative with by", "two nouns, one superlative", "a word dropped", "a value matched in part",
    "a value as the noun's own name", "negation across a join", "ties", "numbers misread", "wrong column or grouping",
)  # fmt: skip

_PAIRS = (
    ("country", "city"), ("state", "river"), ("publisher", "book"), ("conductor", "orchestra"), ("owner", "dog"),
    ("team", "player"), ("school", "teacher"), ("company", "product"), ("author", "paper"), ("airline", "flight"),
    ("museum", "painting"), ("farmer", "field"), ("artist", "song"), ("shop", "machine"), ("doctor", "patient"),
    ("hero", "vehicle"), ("director", "movie"), ("region", "festival"), ("hotel", "room"), ("family", "child"),
)  # fmt: skip
_NUMBERS = ("population", "area", "budget", "score", "price", "weight", "income", "distance", "rating", "size")
_TEXTS = {
    "climate": ("tropical", "polar", "desert", "alpine"), "color": ("red", "green", "blue", "black"),
    "language": ("Latin", "Greek", "Welsh", "Basque"), "style": ("modern", "baroque", "gothic", "rustic"),
    "material": ("wooden", "steel", "glass", "paper"),
}  # fmt: skip
_FLAGS = ("official", "certified", "protected", "haunted", "seasonal")
_JUNK = ("capital", "imaginary", "famous", "quarterly", "expired", "magnetic", "suspicious", "orbital", "melancholic")
_FIRST = ("North", "Old", "Saint", "Upper", "Port", "Mount", "Lake", "Fort", "New", "Grand")
_LAST = ("Albion", "Bergen", "Corvo", "Dunmore", "Elmsford", "Farrow", "Gilead", "Hartley", "Inver", "Jorvik", "Kelso",
         "Lorne", "Madrona", "Norfell", "Ostia", "Pemberley", "Quill", "Ravenna", "Selkirk", "Tarn")  # fmt: skip


@dataclass(frozen=True)
class World:
    """A database with two tables: each row of the second refers to one of the first."""

    path: Path
    one: str
    many: str
    size: str
    """A number of the first table."""
    measure: str
    """A number of the second table."""
    text: str
    values: tuple[str, ...]
    flag: str
    names: tuple[str, ...]

    @property
    def ones(self) -> str:
        return word_plural_form(self.one)

    @property
    def manies(self) -> str:
        return word_plural_form(self.many)


@dataclass(frozen=True)
class Asked:
    """A generated question, and the SQL that answers it; without SQL, nothing answers it."""

    world: World
    cause: str
    question: str
    sql: str = ""


def write_world(folder: Path, seed: int) -> World:
    """Write a database whose words and rows depend on the seed."""
    rng = random.Random(seed)
    one, many = _PAIRS[seed % len(_PAIRS)]
    size, measure = rng.sample(_NUMBERS, 2)
    text = rng.choice(sorted(_TEXTS))
    flag = rng.choice(_FLAGS)
    names = tuple(f"{rng.choice(_FIRST)} {last}" for last in rng.sample(_LAST, 12))
    path = folder / f"world{seed}.sqlite"
    with sqlite3.connect(path) as database:
        database.execute(
            f"CREATE TABLE {one} ({one}_id INTEGER PRIMARY KEY, name TEXT, {size} INTEGER, {text} TEXT, Average REAL)"
        )
        database.execute(
            f"CREATE TABLE {many} ({many}_id INTEGER PRIMARY KEY, name TEXT, {one}_id INTEGER "
            f"REFERENCES {one}({one}_id), {measure} INTEGER, wing TEXT, cylinder INTEGER, is_{flag} INTEGER, "
            f"nickname TEXT)"
        )
        sizes = rng.sample(range(100, 999), 12)
        for n, name in enumerate(names):
            value = _TEXTS[text][n % 4]
            database.execute(f"INSERT INTO {one} VALUES (?, ?, ?, ?, ?)", (n + 1, name, sizes[n], value, n / 2))
        # Two of the first share the most, and some have none.
        owners = [1] * 5 + [2] * 5 + [3] * 4 + [4] * 3 + [5] * 2 + [6, 7, 8]
        rng.shuffle(owners)
        measures = rng.sample(range(1_000, 9_999), len(owners))
        for n, owner in enumerate(owners):
            row = (n + 1, f"Item {chr(65 + n)}x", owner, measures[n], names[(n + 5) % 12], rng.choice((4, 6, 8)), n % 2,
                   names[(n + 3) % 12])  # fmt: skip
            database.execute(f"INSERT INTO {many} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.close()
    return World(path, one, many, size, measure, text, _TEXTS[text], flag, names)


def generate(folder: Path, seeds: range) -> Iterator[Asked]:
    """Yield the questions of all causes for some databases."""
    for seed in seeds:
        world = write_world(folder, seed)
        for cause, make in zip(CAUSES, _MAKERS, strict=True):
            for question, sql in make(world):
                yield Asked(world, cause, question, sql)


Made = Iterator[tuple[str, str]]


def _best(table: str, column: str, high: bool, shown: str = "name") -> str:
    return f"SELECT {shown} FROM {table} WHERE {column} = (SELECT {'max' if high else 'min'}({column}) FROM {table})"


def _superlatives(w: World) -> Made:
    for table, column in ((w.one, w.size), (w.many, w.measure)):
        high, low = _best(table, column, True), _best(table, column, False)
        for word in ("biggest", "largest", "highest"):
            yield f"{word} {table} by {column}", high
        yield f"What is the largest {table} by {column}?", high
        yield f"Which {table} is the biggest in terms of {column}?", high
        for word in ("smallest", "lowest"):
            yield f"{word} {table} by {column}", low
        yield f"Which {table} is the smallest by {column}?", low


def _two_nouns(w: World) -> Made:
    join = f"FROM {w.many} m JOIN {w.one} o USING ({w.one}_id)"
    for high, words in ((True, ("largest", "biggest")), (False, ("smallest",))):
        best = f"(SELECT {'max' if high else 'min'}({w.measure}) FROM {w.many})"
        sized = w.measure in ("population", "area", "size")
        sql = f"SELECT o.name {join} WHERE m.{w.measure} = {best}" if sized else ""
        for word in words:
            yield f"Which {w.one} has the {word} {w.many}?", sql
            yield f"{w.one} of the {word} {w.many}", sql
    high = f"SELECT o.name {join} WHERE m.{w.measure} = (SELECT max({w.measure}) FROM {w.many})"
    low = f"SELECT o.name {join} WHERE m.{w.measure} = (SELECT min({w.measure}) FROM {w.many})"
    yield f"Which {w.one} has the {w.many} with the highest {w.measure}?", high
    yield f"Which {w.one} has the {w.many} with the lowest {w.measure}?", low
    inner = f"(SELECT {w.one}_id FROM {w.one} ORDER BY {w.size} LIMIT 1)"
    of_smallest = f"FROM {w.many} WHERE {w.one}_id = {inner}"
    yield (
        f"{w.many} with the highest {w.measure} in the {w.one} with the lowest {w.size}",
        f"SELECT name {of_smallest} AND {w.measure} = (SELECT max({w.measure}) {of_smallest})",
    )
    yield f"biggest {w.many} in the smallest {w.one}", ""
    yield f"the largest {w.many} of the largest {w.one}", ""
    yield f"What is the name of the {w.one} with the highest {w.measure} {w.many}?", high


def _dropped(w: World) -> Made:
    rng = random.Random(w.path.name)
    yield f"How many {w.flag} {w.manies} are there?", f"SELECT count(*) FROM {w.many} WHERE is_{w.flag} = 1"
    yield f"List the names of {w.flag} {w.manies}", f"SELECT name FROM {w.many} WHERE is_{w.flag} = 1"
    for junk in rng.sample(_JUNK, 5):
        yield f"How many {junk} {w.manies} are there?", ""
        yield f"List the {junk} {w.manies} in {w.names[0]}", ""
        yield f"What is the average {w.measure} of {w.manies} during {junk} times?", ""
    for value in w.values[:2]:
        yield f"How many {value} {w.ones} are there?", f"SELECT count(*) FROM {w.one} WHERE {w.text} = '{value}'"


def _in_part(w: World) -> Made:
    for name in w.names[:5]:
        last = name.split()[-1]
        yield f"{last}n {w.ones}", ""
        yield f"How many {last} {w.ones} are there?", f"SELECT count(*) FROM {w.one} WHERE name = '{name}'"
        yield f"What is the {w.size} of {name}?", f"SELECT {w.size} FROM {w.one} WHERE name = '{name}'"
    first = w.names[0].split()[0]
    yield f"How many {first} {w.ones} are there?", f"SELECT count(*) FROM {w.one} WHERE name LIKE '{first} %'"


def _own_name(w: World) -> Made:
    for name in w.names[:6]:
        linked = f"FROM {w.one} JOIN {w.many} m USING ({w.one}_id) WHERE"
        sql = f"SELECT DISTINCT {w.one}.name {linked} m.nickname = '{name}'"
        yield f"Which {w.ones} does the nickname {name} belong to?", sql
        yield f"Which {w.ones} does {name} go through?", ""
        yield f"which {w.ones} have {name}", ""


def _negations(w: World) -> Made:
    none = f"SELECT name FROM {w.one} WHERE {w.one}_id NOT IN (SELECT {w.one}_id FROM {w.many})"
    for words in ("who do not have a", "that have no", "without a", "with no", "that do not have any"):
        yield f"Names of {w.ones} {words} {w.many}", none
        yield f"How many {w.ones} {words.replace('who', 'that')} {w.many}?", none.replace("name", "count(*)", 1)
    plain = f"SELECT name FROM {w.one} WHERE {w.one}_id NOT IN (SELECT {w.one}_id FROM {w.many} WHERE is_{w.flag} = 1)"
    yield f"Names of {w.ones} that do not have a {w.flag} {w.many}", plain
    yield f"Names of {w.ones} without {w.flag} {w.manies}", plain
    for value in w.values[:2]:
        other = f"SELECT count(*) FROM {w.one} WHERE {w.text} <> '{value}'"
        yield f"How many {w.ones} are not {value}?", other
        yield f"Names of {w.ones} whose {w.text} is not {value}", other.replace("count(*)", "name")
        far = f"SELECT count(*) FROM {w.many} JOIN {w.one} USING ({w.one}_id) WHERE {w.text} <> '{value}'"
        yield f"How many {w.manies} belong to {w.ones} that are not {value}?", far


def _ties(w: World) -> Made:
    counted = f"SELECT name, count(*) AS n FROM {w.many} m JOIN {w.one} o USING ({w.one}_id) GROUP BY {w.one}_id"
    counted = counted.replace("SELECT name", "SELECT o.name")
    most = f"SELECT name FROM ({counted}) WHERE n = (SELECT max(n) FROM ({counted}))"
    for question in (
        f"Which {w.one} has the most {w.manies}?", f"Name of the {w.one} with the most {w.manies}",
        f"What is the name of the {w.one} that has the most {w.manies}?", f"{w.one} with the most {w.manies}",
        f"Which {w.one} has the highest number of {w.manies}?", f"Which {w.one} has the largest number of {w.manies}?",
    ):  # fmt: skip
        yield question, most
    for question in (f"Which {w.one} has the fewest {w.manies}?", f"{w.one} with the fewest {w.manies}"):
        yield question, most.replace("max(n)", "min(n)")
    grouped = f"SELECT {w.text}, count(*) AS n FROM {w.one} GROUP BY 1"
    yield f"Which {w.text} has the most {w.ones}?", f"SELECT {w.text} FROM ({grouped})"
    yield f"What is the most common {w.text} of {w.ones}?", f"SELECT {w.text} FROM ({grouped})"
    yield f"Which {w.many} has the highest cylinder?", _best(w.many, "cylinder", True)


def _misread(w: World) -> Made:
    for n in (4, 6, 8):
        count = f"SELECT count(*) FROM {w.many} WHERE cylinder = {n}"
        yield f"How many {n} cylinder {w.manies} are there?", count
        yield f"List the names of {n} cylinder {w.manies}", count.replace("count(*)", "name")
        yield f"How many {w.manies} have {n} cylinders?", count
    for column in (w.measure,):
        yield f"Of all {w.manies}, name the one with the highest {column}", _best(w.many, column, True)
        yield f"Which {w.many} is the one with the lowest {column}?", _best(w.many, column, False)
        yield f"the one {w.many} with the highest {column}", _best(w.many, column, True)
    top = f"SELECT name FROM {w.many} ORDER BY {w.measure} DESC LIMIT 3"
    yield f"The 3 {w.manies} with the highest {w.measure}", top
    yield f"Top 3 {w.manies} by {w.measure}", top


def _columns(w: World) -> Made:
    average = f"SELECT avg({w.size}) FROM {w.one}"
    yield f"What is the average {w.size} of {w.ones}?", average
    yield f"average {w.size} of the {w.ones}", average
    yield f"What is the average of the {w.size} of all {w.ones}?", average
    yield f"Show all the information about {w.ones}", f"SELECT * FROM {w.one}"
    yield f"Give me all information on {w.manies}", f"SELECT * FROM {w.many}"
    yield f"largest {w.text}", ""
    yield f"Which {w.many} has the largest wing?", ""
    yield f"How many {w.manies} are in {w.names[6]}?", ""
    for value in w.values:
        yield f"List the {w.ones} with {w.text} {value}", f"SELECT name FROM {w.one} WHERE {w.text} = '{value}'"
    per = f"SELECT o.name, count(*) FROM {w.many} JOIN {w.one} o USING ({w.one}_id) GROUP BY {w.one}_id"
    yield f"How many {w.manies} does each {w.one} have?", per
    yield f"Number of {w.manies} per {w.one}", per
    yield f"For each {w.text}, how many {w.ones} are there?", f"SELECT {w.text}, count(*) FROM {w.one} GROUP BY 1"


_MAKERS: tuple[Callable[[World], Made], ...] = (
    _superlatives, _two_nouns, _dropped, _in_part, _own_name, _negations, _ties, _misread, _columns,
)  # fmt: skip
