"""The answer in words holds what the result holds, and nothing else."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from etude.offline.answer_sentence import phrase_answer_value, write_answer_sentence
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import NamePart, Question
from etude.offline.understand import Understanding
from etude.sources.plan import QueryPlan

MEANT = Understanding("?", QueryPlan(source="orders"), "Number of `orders`.", Question())


@pytest.mark.parametrize(
    ("columns", "rows", "said"),
    [
        (["number_of_orders"], [(3704,)], "Number of orders: 3,704."),
        (["sum_amount"], [(None,)], "Total amount: no value."),
        (["name", "price"], [("Moka Pot", 29.0)], "One row: name Moka Pot, price 29."),
        (["city"], [("Paris",), ("Lyon",)], "2 cities: Paris, Lyon."),
        (["name", "year_made"], [("Moka Pot", 1980)], "One row: name Moka Pot, year made 1980."),
        (["status", "n"], [("open", 3), ("paid", 1000)], "N by status: paid 1,000; open 3."),
        (["returned"], [("yes",), ("no",)], "2 rows: yes, no."),
        (
            ["product", "sum_quantity"],
            [("Milk", 75), ("Tea", 120), ("Coffee", 90), ("Jam", 3), ("Honey", 7)],
            "Total quantity by product, the highest: Tea 120, Coffee 90, Milk 75 and 2 more.",
        ),
        (
            ["product"],
            [(name,) for name in "ABCDEFGHIJKL"],
            "12 products: A, B, C, D, E and 7 more.",
        ),
        (["status", "n"], [("open", 3), ("paid", None)], "N by status: open 3, paid no value."),
        (["Class", "sum_Days absent"], [("5b", 126)], "Class 5b: 126 days absent in total."),
        (["product", "avg_price"], [("Moka Pot", 29.5)], "Product Moka Pot: average price 29.5."),
        (["name"], [("Wolf, Tim",), ("Koch, Mia",)], "2 names: Wolf, Tim; Koch, Mia."),
        (
            ["month", "sum_quantity"],
            [(date(2024, 11, 1), 540), (date(2024, 12, 1), 36), (None, 2)],
            "Total quantity over 2 months: highest November 2024: 540; lowest December 2024: 36. "
            "Rows without a date: total quantity 2.",
        ),
        ([], [], "No rows match. Read as: Number of `orders`."),
    ],
)
def test_a_result_in_words(columns: list[str], rows: list[tuple[Any, ...]], said: str) -> None:
    assert write_answer_sentence(MEANT, columns, rows, len(rows)) == said


def test_rows_in_an_order_of_their_own_and_lists_keep_it() -> None:
    rows = [("b", 1), ("a", 2)]
    for reading, said in (
        ("Number of `orders` per `month`, lowest `month` first.", "N by x: b 1, a 2."),
        ("Number of `orders` per `x`, lowest `n` first.", "N by x, lowest first: b 1, a 2."),
        ("List of `products.name`, `products.id`.", "2 products. First: b 1, a 2."),
    ):
        meant = Understanding("?", QueryPlan(source="products"), reading, Question())
        assert write_answer_sentence(meant, ["x", "n"], rows, 2) == said


def test_a_long_result_names_the_first_rows_and_how_many_there_are() -> None:
    rows = [(f"n{n}", n) for n in range(10)]
    assert write_answer_sentence(MEANT, ["name", "n"], rows, 2_500) == "N by name: n0: 0, n1: 1, n2: 2 and 2,497 more."


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (0.00001234, "1.23e-05"),
        (12.345, "12.35"),
        (99999.99999, "99,999.99999"),
        (0.999999, "0.999999"),
        (2.0000000000000004, "2"),
        (Decimal("10.50"), "10.5"),
        (3.0, "3"),
        (float("nan"), "nan"),
        (True, "yes"),
        (date(2025, 1, 31), "2025-01-31"),
        (None, "no value"),
        ("Łódź", "Łódź"),
    ],
)
def test_values_at_a_sensible_precision(value: Any, shown: str) -> None:
    assert phrase_answer_value(value) == shown


@pytest.mark.parametrize(
    ("reading", "table", "said"),
    [
        (
            "Number of `orders`, where `orders.returned` is true.",
            "orders",
            "Number of orders where returned is true: 3.",
        ),
        (
            "Number of `school`, where `school.Grade` is missing.",
            "school",
            "Number of rows in school where Grade is missing: 3.",
        ),
        ("Number of `orders`, where `orders.city` is `A, B`.", "orders", "Number of orders where city is A, B: 3."),
        ("Number of `orders`, where `orders.city` is `A ` B`.", "orders", "Number of orders: 3."),
        ("Number of `Artist`, that have no `Album`.", "Artist", "Number of rows in Artist that have no Album: 3."),
        (
            "Number of `Track`, with at least one `Playlist`, where `Playlist.Name` is `Grunge`.",
            "Track",
            "Number of rows in Track where Playlist Name is Grunge: 3.",
        ),
        (
            "Where `orders.a` is `x`, number of `orders`, where `orders.b` > 2, with total `orders.n` > 10.",
            "orders",
            "Number of orders where a is x and b > 2 with total orders.n > 10: 3.",
        ),
    ],
)
def test_a_single_number_names_its_conditions(reading: str, table: str, said: str) -> None:
    meant = Understanding("?", QueryPlan(source=table), reading, Question())
    assert write_answer_sentence(meant, [f"number_of_{table}"], [(3,)], 1) == said


def test_a_long_text_is_cut_and_says_so() -> None:
    assert phrase_answer_value("x" * 500) == "x" * 500
    assert phrase_answer_value("x" * 9_000).startswith("x" * 500 + "… (cut: it has 9,000 characters")


@pytest.mark.parametrize(
    ("reading", "columns", "rows", "said"),
    [
        (
            "List per `artists.name`, `artists.artist_id`, with number of `albums` > 10.",
            ["name", "artist_id"],
            [("Iron Maiden", 90), ("Deep Purple", 58)],
            "2 artists with number of albums > 10: Iron Maiden, Deep Purple.",
        ),
        (
            "Where `tracks.composer` is missing, list of `tracks.name`, `tracks.TrackId`, `tracks.ms`.",
            ["name", "TrackId", "ms"],
            [("Desafinado", 63, 185), ("Garota", 64, 285)],
            "2 tracks where composer is missing. First: Desafinado 185, Garota 285.",
        ),
        (
            "Number of `orders` per `orders.channel`, where `orders.status` is `paid`.",
            ["channel", "number_of_orders"],
            [("store", 75), ("web", 74)],
            "Number of orders by channel where status is paid: store 75, web 74.",
        ),
        (
            "Number of `albums` per `artists.name`, `artists.artist_id`.",
            ["name", "artist_id", "number_of_albums"],
            [("Accept", 2, 2), ("Iron Maiden", 90, 21)],
            "Number of albums by name: Iron Maiden 21, Accept 2.",
        ),
    ],
)
def test_a_list_names_its_conditions_and_no_keys(
    reading: str, columns: list[str], rows: list[tuple[Any, ...]], said: str
) -> None:
    source = "tracks" if "tracks" in reading else "orders"
    meant = Understanding("?", QueryPlan(source=source), reading, Question())
    assert write_answer_sentence(meant, columns, rows, len(rows)) == said


def test_a_key_that_was_asked_for_is_told_but_is_no_number_of_anything() -> None:
    ids = NamePart("ids", (Meaning("artists", "artist_id"),))
    meant = Understanding("?", QueryPlan(source="artists"), "List of `artists.name`.", Question(requested=(ids,)))
    rows = [("Accept", 2), ("Iron Maiden", 90)]
    assert write_answer_sentence(meant, ["name", "artist_id"], rows, 2) == "2 artists. First: Accept 2, Iron Maiden 90."
