"""Near misses: questions that differ from a known one in one meaningful word, number, date, negation, unit or group."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etude.errors import EtudeError
from etude.replays.fingerprint import result_fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from etude.app import App
    from etude.result import Result

KNOWN = (
    "How many customers are there?",
    "How many customers are there per country?",
    "How many customers are in DE?",
    "How many customers are in each city?",
    "How many customers joined per segment?",
    "How many orders are there per channel?",
    "How many orders were placed in 2025?",
    "How many orders were placed in 2024 per channel?",
    "How many completed orders over 100 in 2025?",
    "How many orders with amount over 50?",
    "How many orders have a discount percent of 10?",
    "How many orders were placed after 2025-06-01?",
    "What is the total amount per month in 2025?",
    "What is the total amount per channel?",
    "What is the total amount in 2024?",
    "What is the total amount of completed orders in 2025?",
    "What is the average amount per status?",
    "What is the average amount of orders in 2025?",
    "What is the highest amount?",
    "What is the lowest amount in 2024?",
    "total amount of orders with channel web in 2024",
    "total amount per status in 2025",
    "average price per category",
    "How many products are there per category?",
    "What is the average price of products?",
    "How many order lines are there?",
    "What is the total quantity per product?",
    "Top 5 channels by amount",
    "Top 3 categories by price",
    "Number of orders per month in 2024",
)
"""Questions on the sample shop."""

SWAPS: dict[str, Sequence[str]] = {
    "total": ("average", "highest", "lowest", "median", "maximum", "minimum", "net", "gross"),
    "average": ("total", "highest", "lowest", "median", "maximum"),
    "highest": ("lowest", "average", "total", "second highest"),
    "lowest": ("highest", "average", "total"),
    "top": ("bottom", "worst", "last", "first"),
    "over": ("under", "below", "at least", "exactly", "at most", "above"),
    "after": ("before", "since", "until", "on"),
    "in": ("before", "after", "since", "until", "outside", "not in", "except in"),
    "per": ("for each year and", "without", "by week and", "excluding each"),
    "customers": ("orders", "products", "cities", "countries", "segments", "customer ids", "emails"),
    "orders": ("customers", "order lines", "products", "returns", "items", "order ids"),
    "products": ("categories", "orders", "customers", "tags"),
    "country": ("city", "segment", "customer", "channel", "month", "status", "name"),
    "city": ("country", "segment", "name"),
    "channel": ("status", "month", "customer", "discount percent", "year", "week", "quarter", "day"),
    "status": ("channel", "month", "customer", "year"),
    "month": ("year", "week", "quarter", "day", "channel", "weekday"),
    "category": ("name", "tag", "product", "price"),
    "amount": ("discount percent", "quantity", "price", "customer id", "tax", "amount in cents", "amount in dollars"),
    "price": ("quantity", "amount", "price in cents", "product id"),
    "quantity": ("price", "amount", "unit price"),
    "completed": ("returned", "cancelled", "shipped", "not completed", "uncompleted", "incomplete"),
    "web": ("app", "store", "not web", "website"),
    "placed": ("returned", "cancelled", "not placed", "shipped", "delivered"),
    "many": ("few", "much", "many distinct", "many more", "many fewer"),
    "joined": ("left", "never joined", "did not join"),
    "product": ("category", "order", "customer"),
    "each": ("any", "every other", "no"),
    "de": ("fr", "not DE"),
}
INSERTED = (
    "not", "only", "distinct", "new", "active", "returning", "returned", "cancelled", "first", "last", "excluding web",
    "without", "never", "unique", "duplicate", "repeat", "today", "monthly", "weekly", "per customer", "or more",
    "twice",
)  # fmt: skip
APPENDED = (
    "in euros", "in dollars", "in thousands", "in percent", "without returns", "excluding DE", "by year", "per week",
    "last year", "this month", "compared to 2023", "and their names", "on weekends", "for enterprise", "except in 2025",
    "rounded", "as a share of all", "with tax", "for the app", "in March", "ignoring nulls", "since June", "per person",
)  # fmt: skip


@dataclass(frozen=True)
class NearMiss:
    """A question that looks like a known one, and what was changed."""

    known: str
    text: str
    kind: str


def near_misses(known: Sequence[str] = KNOWN, seed: int = 0) -> list[NearMiss]:
    """Return near misses of the known questions, in a random order."""
    made: dict[str, NearMiss] = {}
    for question in known:
        for kind, text in itertools.chain(_swaps(question), _numbers(question), _names(question), _more(question)):
            clean = re.sub(r"\s+", " ", text).strip()
            if clean.lower().rstrip("?. ") not in {k.lower().rstrip("?. ") for k in known}:
                made.setdefault(clean, NearMiss(question, clean, kind))
    listed = list(made.values())
    random.Random(seed).shuffle(listed)
    return listed


def _words(question: str) -> list[str]:
    return question.rstrip("?").split(" ")


def _swaps(question: str) -> Iterator[tuple[str, str]]:
    words = _words(question)
    for n, word in enumerate(words):
        for other in SWAPS.get(word.lower(), ()):
            new = other.capitalize() if word[0].isupper() and n == 0 else other
            yield "word", " ".join([*words[:n], new, *words[n + 1 :]]) + "?"
    for n in range(len(words)):
        if len(words) > 3:
            yield "dropped", " ".join(words[:n] + words[n + 1 :]) + "?"
    for n in range(len(words) - 1):
        if words[n].lower() != words[n + 1].lower():
            yield "order", " ".join([*words[:n], words[n + 1], words[n], *words[n + 2 :]]) + "?"


def _numbers(question: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"\d{4}-\d{2}-\d{2}|\d+", question):
        old = found.group()
        if "-" in old:
            news = [
                "2025-06-02",
                "2025-01-06",
                "2024-06-01",
                "2019-06-01",
                "June 2025",
                "2025-06-01 12:00",
                "01.06.2025",
            ]
        elif re.fullmatch(r"20\d\d", old):
            news = ["2023", "2024", "2025", "2026", "1999", "2024/25", "'24", f"{old[:3]}", f"Q1 {old}", f"{old}-03"]
        else:
            value = int(old)
            news = [
                str(value + 1),
                str(value * 10),
                str(value - 1),
                f"{value}%",
                f"-{value}",
                f"{value}.5",
                f"{value}k",
            ]
            news += [f"{value} cents", "ten", f"{value},000", f"{value} to {value * 2}", f"{value} percent"]
        for new in news:
            if new != old:
                yield "number", question[: found.start()] + new + question[found.end() :]


def _names(question: str) -> Iterator[tuple[str, str]]:
    for old, news in (("DE", ("FR", "ES", "PL", "UK", "D", "Berlin", "de", "Germany", "DE and FR", "DE or US")),):
        if re.search(rf"\b{old}\b", question):
            for new in news:
                yield "name", re.sub(rf"\b{old}\b", new, question)


def _more(question: str) -> Iterator[tuple[str, str]]:
    words = _words(question)
    for n in range(1, len(words)):
        for word in INSERTED:
            yield "inserted", " ".join([*words[:n], word, *words[n:]]) + "?"
    for more in APPENDED:
        yield "appended", f"{question.rstrip('?')} {more}?"


@dataclass(frozen=True)
class Judged:
    """How the near misses were treated."""

    asked: int
    replayed: int
    """With other values of parameters."""
    wrong: list[NearMiss]
    unjudged: list[NearMiss]
    """Replayed, but the rules do not understand the question, so that there is nothing to compare with."""


def judge_near_misses(app: App, source: Path, misses: Sequence[NearMiss], known: Sequence[str] = KNOWN) -> Judged:
    """Ask the known questions, then look up every near miss; compare each one that a script would answer."""
    learned = [q for q in known if app.ask(str(source), q).ok]
    app.scripts.settle()
    opened = app.source(str(source))
    wrong, unjudged, replayed = [], [], 0
    for miss in misses:
        if miss.known not in learned or not app.scripts.would_answer(miss.text, opened):
            continue
        answer = app.ask(str(source), miss.text)
        if not answer.replayed:
            continue
        replayed += 1
        fresh = app.ask(str(source), miss.text, fresh=True)
        try:
            fresh.require()
        except EtudeError:
            unjudged.append(miss)
            continue
        one, other = answer.result, fresh.result
        equal = one is not None and other is not None and _mark(one) == _mark(other)
        if not equal or (answer.text != fresh.text and one is not None and one.row_count <= 1):
            wrong.append(miss)
    return Judged(len(misses), replayed, wrong, unjudged)


def _mark(result: Result) -> str:
    return result_fingerprint(result, ordered=False)
