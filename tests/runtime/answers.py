# ruff: noqa: E501 - sentences read best on one line
"""Answers made up over made-up results: true ones, and the same with one or two numbers made false."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal

from etude.runtime.number_check.check import Evidence

REGIONS = [
    "North",
    "South",
    "East",
    "West",
    "Central",
    "Northeast",
    "Southwest",
    "Coast",
    "Highlands",
    "Lakes",
    "Valley",
    "Islands",
]
COUNTRIES = [
    "Germany",
    "France",
    "Italy",
    "Spain",
    "Poland",
    "Austria",
    "Sweden",
    "Norway",
    "Denmark",
    "Finland",
    "Ireland",
    "Portugal",
    "Belgium",
    "Greece",
    "Hungary",
    "Japan",
    "Brazil",
    "Canada",
    "Mexico",
    "Chile",
    "Peru",
    "India",
    "Kenya",
    "Ghana",
    "Egypt",
    "Turkey",
    "Vietnam",
    "Thailand",
]
PRODUCTS = [
    "Desk Lamp",
    "Office Chair",
    "Standing Desk",
    "Monitor 27",
    "USB Hub",
    "Keyboard K2",
    "Webcam",
    "Notebook A5",
    "Mouse",
]
SYLLABLES = [
    "ba",
    "ker",
    "lin",
    "mor",
    "tan",
    "vel",
    "son",
    "ri",
    "do",
    "fa",
    "gus",
    "hel",
    "ja",
    "kim",
    "lo",
    "nor",
    "pet",
    "qua",
    "ros",
    "sel",
    "tor",
    "ul",
    "ven",
    "wil",
    "xan",
    "yor",
    "zim",
]
THINGS = {"region": REGIONS, "country": COUNTRIES, "product": PRODUCTS}
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
PLURALS = {
    "region": "regions",
    "country": "countries",
    "product": "products",
    "customer": "customers",
    "store": "stores",
}
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@dataclass(frozen=True)
class Slot:
    """A number of a sentence: its true value, how it is written, and whether a small change of it would be a lie."""

    value: Decimal
    write: Callable[[Decimal], str]
    kind: str = "amount"


@dataclass(frozen=True)
class Answer:
    results: tuple[Evidence, ...]
    question: str
    text: str
    false: tuple[tuple[int, int], ...] = ()
    planted: tuple[str, ...] = ()


Sentence = list[str | Slot]


def quantize(value: Decimal, places: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def plain(places: int = 0, before: str = "", after: str = "") -> Callable[[Decimal], str]:
    return lambda value: f"{before}{quantize(value, places):,}{after}"


def percent(places: int = 1, after: str = "%") -> Callable[[Decimal], str]:
    return lambda value: f"{quantize(value, places)}{after}"


def short(value: Decimal) -> str:
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if abs(value) >= size:
            return f"{quantize(value / size, 1)}{letter}"
    return f"{quantize(value, 0)}"


def long(value: Decimal) -> str:
    for size, word in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if abs(value) >= size:
            return f"{quantize(value / size, 2)} {word}"
    return f"{quantize(value, 1)}"


def european(value: Decimal) -> str:
    return f"{quantize(value, 2):,}".translate(str.maketrans(",.", ".,"))


def word(value: Decimal) -> str:
    return WORDS[int(value)] if 0 <= value <= 12 else f"{int(value)}"


def money_formats(rng: random.Random, value: Decimal) -> Callable[[Decimal], str]:
    options: list[Callable[[Decimal], str]] = [
        plain(2, "$"),
        plain(0, "$"),
        plain(2),
        plain(0),
        plain(2, "€"),
        plain(1, "", " USD"),
    ]
    if abs(value) >= 1000:
        options += [lambda v: "$" + short(v), short, lambda v: "$" + long(v), long]
    if abs(value) >= 10000 and rng.random() < 0.3:
        options = [lambda v: european(v) + " €"]
    return rng.choice(options)


def count_formats(rng: random.Random, value: Decimal) -> Callable[[Decimal], str]:
    options: list[Callable[[Decimal], str]] = [plain(0), plain(0), lambda v: f"{int(quantize(v, 0))}"]
    if value >= 5000:
        options += [short, long]
    return rng.choice(options)


def to_decimal(value: object) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(str(value))


# --- results ---------------------------------------------------------------------------------------------------------


def labels(rng: random.Random, thing: str, count: int) -> list[str]:
    known = THINGS.get(thing, [])
    if count <= len(known):
        return rng.sample(known, count)
    made: dict[str, None] = {}
    while len(made) < count:
        made[
            "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))).capitalize()
            + rng.choice(["", "", " Ltd", " Inc"])
        ] = None
    return list(made)


def group_by(rng: random.Random) -> tuple[Evidence, str]:
    count = rng.choice([2, 3, 4, 5, 6, 8, 10, 12, 20, 28, 50, 100, 200])
    thing = rng.choice(["region", "country", "product"] if count <= 9 else ["country", "customer", "store"])
    size = 10 ** rng.uniform(2.5, 6.5)
    cents = rng.random() < 0.6
    rows = []
    for label in labels(rng, thing, count):
        orders = int(rng.lognormvariate(0, 0.8) * rng.choice([60, 400, 3000])) + 1
        revenue = round(size * rng.lognormvariate(0, 0.7), 2) if cents else int(size * rng.lognormvariate(0, 0.7)) + 1
        rate = round(rng.uniform(0.005, 0.4), 4)
        rows.append((label, orders, Decimal(str(revenue)) if cents and rng.random() < 0.5 else revenue, rate))
    if rng.random() < 0.7:
        rows.sort(key=lambda row: float(row[2]), reverse=True)
    if rng.random() < 0.4:
        rows = [row[:3] for row in rows]
        return Evidence(f"sales_by_{thing}", (thing, "orders", "revenue"), rows), thing
    return Evidence(f"sales_by_{thing}", (thing, "orders", "revenue", "return_rate"), rows), thing


def series(rng: random.Random) -> tuple[Evidence, list[str]]:
    count, year, start = rng.choice([6, 12, 12, 18, 24]), rng.randint(2015, 2025), rng.randint(1, 12)
    level, users = 10 ** rng.uniform(3, 6), rng.randint(200, 20000)
    rows, names = [], []
    styles = ["date", "text"]
    style = rng.choice(styles)
    for i in range(count):
        month, y = (start - 1 + i) % 12 + 1, year + (start - 1 + i) // 12
        level *= rng.uniform(0.82, 1.25)
        users = max(20, int(users * rng.uniform(0.85, 1.2)))
        rows.append((date(y, month, 1) if style == "date" else f"{y}-{month:02}", round(level, 2), users))
        names.append(f"{MONTHS[month - 1]} {y}")
    return Evidence("monthly", ("month", "revenue", "active_users"), rows), names


def two_years(rng: random.Random) -> tuple[Evidence, Evidence, str]:
    thing = rng.choice(["region", "product"])
    names = labels(rng, thing, rng.randint(3, 8))
    before = [(name, rng.randint(50, 9000), round(rng.uniform(2e3, 9e5), 2)) for name in names]
    after = [(n, max(1, int(o * rng.uniform(0.6, 1.6))), round(r * rng.uniform(0.6, 1.7), 2)) for n, o, r in before]
    columns = (thing, "orders", "revenue")
    return Evidence("previous_year", columns, before), Evidence("this_year", columns, after), thing


# --- true statements --------------------------------------------------------------------------------------------------


def about_groups(rng: random.Random, result: Evidence, thing: str) -> Iterator[Sentence]:
    rows, many = result.rows, PLURALS[thing]
    revenue = [to_decimal(row[2]) for row in rows]
    orders = [Decimal(str(row[1])) for row in rows]
    total, all_orders = sum(revenue), sum(orders)
    ranked = sorted(range(len(rows)), key=lambda i: revenue[i], reverse=True)
    top, second, last = ranked[0], ranked[1], ranked[-1]
    some = rng.randrange(len(rows))
    name = [str(row[0]) for row in rows]
    money = money_formats(rng, revenue[top])

    def cash(value: Decimal) -> Slot:
        return Slot(value, money_formats(rng, value))

    def share(value: Decimal) -> Slot:
        return Slot(100 * value, percent(rng.choice([1, 1, 2, 0 if value > Decimal("0.1") else 1])), "percent")

    def orders_of(i: int) -> Slot:
        return Slot(orders[i], count_formats(rng, orders[i]), "count")

    options: list[Sentence] = [
        [f"{name[top]} leads with ", Slot(revenue[top], money), " in revenue, ahead of ", f"{name[second]} at ", cash(revenue[second]), "."],
        [f"The highest revenue comes from {name[top]} (", cash(revenue[top]), "), the lowest from ", f"{name[last]} (", cash(revenue[last]), ")."],
        [f"{name[some]} placed ", orders_of(some), " orders worth ", cash(revenue[some]), "."],
        ["Total revenue is ", cash(total), " across ", Slot(Decimal(len(rows)), rng.choice([word, plain(0)]), "rows"), f" {many}."],
        ["Overall there were ", Slot(all_orders, count_formats(rng, all_orders), "count"), " orders."],
        [f"{name[top]} alone accounts for ", share(revenue[top] / total), " of revenue."],
        [f"{name[some]} makes up ", share(revenue[some] / total), " of total revenue and ", share(orders[some] / all_orders), " of orders."],
        ["On average, each ", thing, " generated ", cash(total / len(rows)), "."],
        [f"{name[top]}'s revenue is ", Slot(revenue[top] / revenue[last], plain(1, "", rng.choice(["x", " times"])), "ratio"),
         f" that of {name[last]}."],
        [f"The gap between {name[top]} and {name[second]} is ", cash(revenue[top] - revenue[second]), "."],
        [f"{name[top]} earned ", Slot(100 * (revenue[top] / revenue[second] - 1), percent(1), "percent"), f" more than {name[second]}."],
        [f"{name[last]} is ", Slot(100 * (1 - revenue[last] / revenue[top]), percent(1), "change"), f" below {name[top]} in revenue."],
        [f"The average order in {name[some]} is worth ", Slot(revenue[some] / orders[some], plain(2, "$")), "."],
        [f"| {name[some]} | ", orders_of(some), " | ", Slot(revenue[some], plain(2)), " |"],
    ]  # fmt: skip
    if len(rows) > 4:
        three = sum(revenue[i] for i in ranked[:3])
        options.append(
            [f"The top three {many} together bring in ", cash(three), ", or ", share(three / total), " of the total."]
        )
    if len(result.columns) > 3:
        rate = to_decimal(rows[some][3])
        options.append(
            [f"The return rate of {name[some]} is ", Slot(100 * rate, percent(rng.choice([1, 2])), "percent"), "."]
        )
        highest = max(rows, key=lambda row: row[3])
        options.append(
            [
                f"{highest[0]} has the highest return rate at ",
                Slot(100 * to_decimal(highest[3]), percent(1), "percent"),
                ".",
            ]
        )
    yield from rng.sample(options, rng.randint(2, 4))


def about_series(rng: random.Random, result: Evidence, names: list[str]) -> Iterator[Sentence]:
    revenue = [to_decimal(row[1]) for row in result.rows]
    users = [Decimal(str(row[2])) for row in result.rows]
    best, worst = revenue.index(max(revenue)), revenue.index(min(revenue))
    some = rng.randrange(1, len(names))

    def cash(value: Decimal) -> Slot:
        return Slot(value, money_formats(rng, value))

    def move(before: Decimal, after: Decimal, style: str) -> list[str | Slot]:
        up, down = {
            "verb": ("grew by ", "fell by "),
            "adverb": ("was up ", "was down "),
            "noun": ("saw an increase of ", "saw a decline of "),
        }[style]
        return [
            Slot(
                100 * (after / before - 1),
                lambda change: f"{up if change >= 0 else down}{quantize(abs(change), 1)}%",
                "move",
            )
        ]

    style = rng.choice(["verb", "adverb", "noun"])
    options: list[Sentence] = [
        [f"Revenue peaked in {names[best]} at ", cash(revenue[best]), "."],
        [f"The weakest month was {names[worst]} with ", cash(revenue[worst]), " in revenue."],
        [f"From {names[0]} to {names[-1]} revenue ", *move(revenue[0], revenue[-1], "verb"), "."],
        [f"In {names[some]} revenue ", *move(revenue[some - 1], revenue[some], style), " compared with the previous month."],
        ["Active users went from ", Slot(users[0], count_formats(rng, users[0]), "count"), f" in {names[0]} to ",
         Slot(users[-1], count_formats(rng, users[-1]), "count"), f" in {names[-1]}."],
        ["Total revenue over the period was ", cash(sum(revenue, Decimal(0))), "."],
        ["The monthly average was ", cash(sum(revenue, Decimal(0)) / len(revenue)), " over ", Slot(Decimal(len(names)), plain(0), "rows"), " months."],
        [f"{names[some]} had ", Slot(users[some], plain(0), "count"), " active users, ", f"{names[some - 1]} had ",
         Slot(users[some - 1], plain(0), "count"), "."],
        [f"Between {names[some - 1]} and {names[some]} revenue changed by ", cash(abs(revenue[some] - revenue[some - 1])), "."],
        [f"Revenue in {names[best]} was ", Slot(revenue[best] / revenue[worst], plain(2, "", " times"), "ratio"), f" that of {names[worst]}."],
    ]  # fmt: skip
    yield from rng.sample(options, rng.randint(2, 4))


def about_years(rng: random.Random, before: Evidence, after: Evidence) -> Iterator[Sentence]:
    i = rng.randrange(len(before.rows))
    name = str(before.rows[i][0])
    old, new = to_decimal(before.rows[i][2]), to_decimal(after.rows[i][2])
    all_old = sum((to_decimal(row[2]) for row in before.rows), Decimal(0))
    all_new = sum((to_decimal(row[2]) for row in after.rows), Decimal(0))

    def cash(value: Decimal) -> Slot:
        return Slot(value, money_formats(rng, value))

    up, down = rng.choice(["rose", "increased", "grew"]), rng.choice(["fell", "declined", "dropped"])

    def verb(change: Decimal) -> str:
        return up if change >= 0 else down

    change, all_change = 100 * (new / old - 1), 100 * (all_new / all_old - 1)
    options: list[Sentence] = [
        [
            f"{name} {verb(change)} from ",
            cash(old),
            " to ",
            cash(new),
            ", a change of ",
            Slot(abs(change), percent(1), "change"),
            ".",
        ],
        [
            "Total revenue ",
            Slot(all_change, lambda v: f"{verb(v)} by {quantize(abs(v), 1)}%", "move"),
            " to ",
            cash(all_new),
            ".",
        ],
        [f"Revenue of {name} {verb(change)} by ", cash(abs(new - old)), "."],
        [f"{name}'s share of revenue is now ", Slot(100 * new / all_new, percent(1), "percent"), "."],
        [f"This year {name} had ", Slot(Decimal(str(after.rows[i][1])), plain(0), "count"), " orders."],
    ]
    yield from rng.sample(options, rng.randint(2, 3))


def about_values(rng: random.Random) -> tuple[tuple[Evidence, ...], list[Sentence]]:
    whole = rng.randint(200, 900_000)
    part = rng.randint(1, whole - 1)
    mean = round(rng.uniform(1, 5000), 4)
    printed = f"mean order value: {mean}\nstd: {round(mean / 3, 4)}\n"
    results = (
        Evidence("q1", ("total_orders",), [(whole,)]),
        Evidence("q2", ("late_orders",), [(part,)]),
        Evidence("cell", text=printed),
    )
    options: list[Sentence] = [
        [
            "Of ",
            Slot(Decimal(whole), plain(0), "count"),
            " orders, ",
            Slot(Decimal(part), plain(0), "count"),
            " were late.",
        ],
        ["That is a late rate of ", Slot(Decimal(100 * part) / whole, percent(1), "percent"), " of all orders."],
        ["The remaining ", Slot(Decimal(whole - part), plain(0), "count"), " arrived on time."],
        ["The mean order value is ", Slot(to_decimal(mean), plain(2, "$")), "."],
    ]
    return results, rng.sample(options, rng.randint(2, 4))


# --- lies ---------------------------------------------------------------------------------------------------------------


def falsify(rng: random.Random, slot: Slot) -> tuple[str, str]:
    """The slot written with a false value, and the kind of lie."""
    value = slot.value
    kinds = ["digit", "swap", "tenfold", "off a little", "invented"]
    if slot.kind == "percent":
        kinds = ["points", "points", "digit", "swap", "invented", "sign"]
    elif slot.kind == "change":  # Whether "a decline of -5%" is a lie is a matter of taste.
        kinds = ["points", "points", "digit", "swap", "invented"]
    elif slot.kind == "move":
        kinds = ["points", "digit", "swap", "sign", "sign", "invented"]
    elif slot.kind == "rows":
        kinds = ["off by one"]
    elif slot.kind == "ratio":
        kinds = ["off a little", "digit", "invented"]
    elif slot.kind == "amount":
        kinds += ["unit", "year"]
    kind = rng.choice(kinds)
    if kind == "off by one":
        return slot.write(max(Decimal(0), value + rng.choice([-2, -1, 1, 2, 3]))), kind
    if kind == "tenfold":
        return slot.write(value * rng.choice([Decimal(10), Decimal("0.1")])), kind
    if kind == "off a little":
        return slot.write(value * Decimal(str(rng.choice([0.9, 0.93, 0.97, 1.04, 1.08, 1.15])))), kind
    if kind == "points":
        moved = abs(value) + Decimal(str(rng.choice([-7, -5, -3, -2.4, 2.2, 3, 4, 6, 8])))
        return slot.write(moved.copy_sign(value) if slot.kind == "move" else abs(moved)), kind
    if kind == "sign":
        return slot.write(-value) if slot.kind == "move" else "-" + slot.write(value), kind
    if kind == "invented":
        if slot.kind in ("percent", "change", "move"):
            return slot.write(Decimal(str(rng.uniform(3, 95))).copy_sign(value)), kind
        return slot.write(value * Decimal(str(rng.uniform(0.3, 3)))), kind
    if kind == "unit":
        return slot.write(value * rng.choice([Decimal(1000), Decimal("0.001")])), kind
    if kind == "year":
        return f"{rng.randint(1900, 2100):,}" if rng.random() < 0.5 else f"${rng.randint(1900, 2100)}", kind
    text = slot.write(value)
    places = [i for i, c in enumerate(text) if c.isdigit()]
    if kind == "swap" and len(places) > 1:
        at = rng.randrange(len(places) - 1)
        i, j = places[at], places[at + 1]
        return text[:i] + text[j] + text[i + 1 : j] + text[i] + text[j + 1 :], kind
    at = rng.choice(places)
    return text[:at] + rng.choice([d for d in "123456789" if d != text[at]]) + text[at + 1 :], "digit"


def stands_in(results: tuple[Evidence, ...], written: str) -> bool:
    """Whether a lie happens to be a value of the results after all, in the form it is written in."""
    bare = "".join(c for c in written if c.isdigit())
    forms = (plain(0), plain(1), plain(2), short, long, percent(0, ""), percent(1, ""), percent(2, ""), european)
    for result in results:
        values = [to_decimal(v) for row in result.rows for v in row if isinstance(v, int | float | Decimal)]
        values += [100 * v for v in values if abs(v) < 1] + [Decimal(len(result.rows)), Decimal(len(result.columns))]
        for value in values:
            if any("".join(c for c in form(value) if c.isdigit()) == bare for form in forms):
                return True
    return False


def make_answer(rng: random.Random, lies: int) -> Answer:
    """An answer of a few sentences over fresh results, with `lies` false numbers in it."""
    shape = rng.choice(["groups", "groups", "series", "years", "values"])
    question = rng.choice(
        ["Give me an overview.", "What stands out?", "How are sales doing?", "Show revenue and orders."]
    )
    if shape == "groups":
        result, thing = group_by(rng)
        results: tuple[Evidence, ...] = (result,)
        sentences = list(about_groups(rng, result, thing))
    elif shape == "series":
        result, names = series(rng)
        results, sentences = (result,), list(about_series(rng, result, names))
    elif shape == "years":
        before, after, _ = two_years(rng)
        results, sentences = (before, after), list(about_years(rng, before, after))
    else:
        results, sentences = about_values(rng)
    slots = [
        (s, i) for s, sentence in enumerate(sentences) for i, piece in enumerate(sentence) if isinstance(piece, Slot)
    ]
    chosen = set(rng.sample(slots, min(lies, len(slots))))
    bullets = rng.random() < 0.25
    text, false, planted = "", [], []
    for s, sentence in enumerate(sentences):
        table = isinstance(sentence[0], str) and sentence[0].startswith("|")
        text += "\n" if table and text else ""
        text += "- " if bullets and not table else ""
        for i, piece in enumerate(sentence):
            if isinstance(piece, str):
                text += piece
                continue
            written = piece.write(piece.value)
            if (s, i) in chosen:
                lie, kind = falsify(rng, piece)
                for _ in range(50):
                    if lie != written and not stands_in(results, lie):
                        break
                    lie, kind = falsify(rng, piece)
                else:
                    lie = written
                if lie != written:
                    false.append((len(text), len(text) + len(lie)))
                    planted.append(kind)
                written = lie
            text += written
        text += "\n" if bullets or table else " "
    return Answer(results, question, text.rstrip(), tuple(false), tuple(planted))


def make_answers(seed: int, count: int, lies: bool) -> list[Answer]:
    rng = random.Random(seed)
    made: list[Answer] = []
    while len(made) < count:
        answer = make_answer(rng, rng.choice([1, 1, 2]) if lies else 0)
        if bool(answer.false) == lies:
            made.append(answer)
    return made
