"""Revenue of a file that has a quantity and a price but no amount, and what sells best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.offline.understand import Clarification, Outcome, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary, vocabulary_from_json
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)
HEAD = "order_id,order_date,region,product,quantity,unit_price"
ORDERS = [
    "1,2024-01-05,North,Tea,10,4.5",
    "2,2024-01-20,South,Coffee,3,7.0",
    "3,2024-02-11,North,Coffee,5,7.0",
    "4,2024-03-02,South,Milk,12,1.5",
    "5,2024-03-09,North,Tea,1,4.5",
]
Open = Callable[..., "Shop"]


class Shop:
    """A file, and what the rules make of questions about it."""

    def __init__(self, app: App, path: Path) -> None:
        self.app, self.path = app, str(path)
        self.vocabulary: Vocabulary = build_vocabulary(app.catalog(self.path), self.rows)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.app.sql(self.path, sql).rows()

    def ask(self, question: str) -> Outcome:
        return understand(question, self.vocabulary, today=TODAY)

    def answer(self, found: Outcome) -> list[tuple[Any, ...]]:
        assert isinstance(found, Understanding), found
        assert self.vocabulary.catalog is not None
        return sorted(tuple(row) for row in self.rows(compile_plan(found.plan, self.vocabulary.catalog)))


@pytest.fixture
def open_shop(tmp_path: Path) -> Iterator[Open]:
    with App(home=tmp_path / "home", record=False) as app:

        def make(head: str = HEAD, lines: list[str] = ORDERS, name: str = "orders") -> Shop:
            path = tmp_path / f"{name}.csv"
            path.write_text("\n".join((head, *lines)) + "\n")
            return Shop(app, path)

        yield make


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("total revenue", [(123.5,)]),
        ("revenue in March 2024", [(22.5,)]),
        ("turnover by region", [("North", 84.5), ("South", 39.0)]),
        ("revenue per month", [(date(2024, 1, 1), 66.0), (date(2024, 2, 1), 35.0), (date(2024, 3, 1), 22.5)]),
        ("top 2 products by revenue", [("Coffee", 56.0), ("Tea", 49.5)]),
        ("average revenue per order", [(24.7,)]),
        ("which region had the lowest revenue?", [("South", 39.0)]),
        ("which product made the most money?", [("Coffee", 56.0)]),
        ("which month had the highest revenue?", [(date(2024, 1, 1), 66.0)]),
        ("products with revenue over 20", [("Coffee", 56.0), ("Tea", 49.5)]),
    ],
)
def test_revenue_is_quantity_times_price(question: str, rows: list[tuple[Any, ...]], open_shop: Open) -> None:
    shop = open_shop()
    found = shop.ask(question)
    assert shop.answer(found) == rows
    assert isinstance(found, Understanding)
    assert "with `revenue` as `quantity` times `unit_price`" in found.reading
    assert "Revenue is `quantity` times `unit_price`." in found.told


def test_a_discount_is_asked_about(open_shop: Open) -> None:
    shares = ["0.1", "0", "0.5", "", "0.2"]
    shop = open_shop(f"{HEAD},discount", [f"{line},{part}" for line, part in zip(ORDERS, shares, strict=True)])
    asked = shop.ask("total revenue")
    assert isinstance(asked, Clarification)
    before, after = (choice.label for choice in asked.choices)
    assert before == "revenue before discount (`quantity` times `unit_price`)"
    assert after.startswith("revenue after discount (`quantity` times `unit_price`, less the share `discount`")
    assert shop.answer(take_choice(asked, "1")) == [(123.5,)]
    ((left,),) = shop.answer(take_choice(asked, "2"))
    assert left == pytest.approx(40.5 + 21 + 17.5 + 18 + 3.6)


def test_a_percentage_is_known_by_its_name(open_shop: Open) -> None:
    shop = open_shop(f"{HEAD},discount_pct", [f"{line},{10 * at}" for at, line in enumerate(ORDERS)])
    ((net,),) = shop.answer(shop.ask("net revenue"))
    assert net == pytest.approx(45 + 18.9 + 28 + 12.6 + 2.7)


@pytest.mark.parametrize("values", [(0, 5, 10, 5, 0), (0, 1, 0, 1, 1)])
def test_a_discount_that_may_be_an_amount_or_a_flag_is_refused(values: tuple[int, ...], open_shop: Open) -> None:
    shop = open_shop(f"{HEAD},discount", [f"{line},{part}" for line, part in zip(ORDERS, values, strict=True)])
    found = shop.ask("total revenue")
    assert isinstance(found, Refusal) and "how `discount` changes the revenue" in found.reason


@pytest.mark.parametrize(
    ("name", "head", "lines"),
    [
        ("inventory", "product,quantity,price,counted_on", ["Tea,5,4.5,2024-01-01", "Milk,3,1.5,2024-01-02"]),
        ("products", "product,quantity,price", ["Tea,5,4.5", "Milk,3,1.5"]),
        ("orders", "order_id,order_date,quantity,unit_price,list_price", ["1,2024-01-01,5,4.5,5"]),
    ],
)
def test_a_stock_and_two_prices_make_no_revenue(name: str, head: str, lines: list[str], open_shop: Open) -> None:
    shop = open_shop(head, lines, name)
    assert isinstance(shop.ask("total revenue"), Refusal)
    assert isinstance(shop.ask("which product sold the most?"), Refusal)


def test_a_real_amount_goes_first(open_shop: Open) -> None:
    shop = open_shop(f"{HEAD},total", [f"{line},100" for line in ORDERS])
    assert shop.answer(shop.ask("total revenue")) == [(500,)]
    assert shop.answer(shop.ask("which product made the most money?")) == [("Coffee", 200), ("Tea", 200)]


def test_an_order_of_several_rows_has_no_average_of_rows(open_shop: Open) -> None:
    shop = open_shop(lines=[*ORDERS, "5,2024-03-09,North,Milk,2,1.5"])
    found = shop.ask("average revenue per order")
    assert isinstance(found, Refusal) and "Several rows share one `order_id`" in found.reason


def test_sales_may_be_money_or_pieces(open_shop: Open) -> None:
    asked = open_shop().ask("sales by region")
    assert isinstance(asked, Clarification)
    assert [choice.label for choice in asked.choices] == ["revenue (`quantity` times `unit_price`)", "orders.quantity"]


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("which product sold the most?", [("Milk", 12)]),
        ("what sells best?", [("Milk", 12)]),
        ("best-selling region", [("North", 16)]),
        ("which product sold the least?", [("Coffee", 8)]),
        ("which product sold best in January 2024?", [("Tea", 10)]),
    ],
)
def test_what_sold_the_most(question: str, rows: list[tuple[Any, ...]], open_shop: Open) -> None:
    shop = open_shop()
    assert shop.answer(shop.ask(question)) == rows


def test_without_a_quantity_each_row_is_one_sale(open_shop: Open) -> None:
    shop = open_shop("sale_id,sold_on,product", ["1,2024-01-01,Tea", "2,2024-01-02,Tea", "3,2024-01-03,Milk"], "sales")
    assert shop.answer(shop.ask("which product sold the most?")) == [("Tea", 2)]


def test_a_stored_vocabulary_keeps_the_formula(open_shop: Open) -> None:
    vocabulary = open_shop().vocabulary
    assert vocabulary_from_json(vocabulary.to_json()) == vocabulary


def test_an_amount_without_a_quantity_is_asked_about(open_shop: Open) -> None:
    lines = ["1,2024-01-01,Roses,90", "2,2024-01-02,Lilies,5", "3,2024-01-03,Lilies,6"]
    shop = open_shop("sale_id,sold_on,flower,amount", lines, "flower_sales")
    asked = shop.ask("which flower sold the most?")
    assert isinstance(asked, Clarification)
    assert shop.answer(take_choice(asked, "1")) == [("Roses", 90)]
    assert shop.answer(take_choice(asked, "2")) == [("Lilies", 2)]


RENTALS = ["1,2024-01-05,Ann,City,10.5", "2,2024-01-20,Bob,Tandem,30", "3,2024-02-11,Ann,City,5"]


def test_money_is_what_a_row_costs_if_it_has_no_quantity(open_shop: Open) -> None:
    shop = open_shop("booking_no,pickup_date,customer,bike,price_eur", RENTALS, "rentals")
    assert shop.answer(shop.ask("Which bike made the most money?")) == [("Tandem", 30)]
    assert [row[-1] for row in shop.answer(shop.ask("revenue per month"))] == [40.5, 5]
    assert shop.answer(shop.ask("total revenue")) == [(45.5,)]


@pytest.mark.parametrize("pieces", ["cups", "nights", "seats", "bottles", "sold_boxes"])
def test_the_only_whole_number_beside_a_price_is_a_quantity(pieces: str, open_shop: Open) -> None:
    lines = ["2026-01-05,Lisbon,espresso,42,1.2", "2026-01-05,Porto,latte,18,2.8", "2026-02-07,Lisbon,latte,10,3"]
    shop = open_shop(f"sold,shop,product,{pieces},price", lines, "coffee")
    found = shop.ask("what is the revenue per shop")
    assert shop.answer(found) == [("Lisbon", pytest.approx(80.4)), ("Porto", pytest.approx(50.4))]
    assert isinstance(found, Understanding) and f"`{pieces}` times `price`" in found.reading
    assert shop.answer(shop.ask("best selling product")) == [("espresso", 42)]


@pytest.mark.parametrize(
    ("head", "money"),
    [
        ("sold,shop,cups,cakes,price", None),  # the price of which of the two?
        ("sold,shop,minutes,guests,price", 7.0),  # what was paid for the whole
    ],
)
def test_other_whole_numbers_beside_a_price_make_no_quantity(head: str, money: float | None, open_shop: Open) -> None:
    lines = ["2026-01-05,Lisbon,42,3,1.2", "2026-01-05,Porto,18,4,2.8", "2026-02-07,Lisbon,10,5,3"]
    shop = open_shop(head, lines, "visits")
    found = shop.ask("total revenue")
    assert isinstance(found, Refusal) if money is None else shop.answer(found) == [(pytest.approx(money),)]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("product_id,launched,maker,category,price", "products"),  # a list of prices is not what was sold
        ("booking_no,pickup_date,customer,price,deposit_fee", "rentals"),  # which of the two?
        ("booking_no,pickup_date,customer,bike,unit_price", "rentals"),  # the price of one piece
    ],
)
def test_money_is_refused_if_it_is_not_clear_what_was_paid(open_shop: Open, head: str, name: str) -> None:
    lines = [f"{n},2024-01-0{n},Ann,{n * 3},{n * 2}" for n in range(1, 6)]
    shop = open_shop(head, lines, name)
    assert not isinstance(shop.ask("How much money did we make?"), Understanding)
    assert not isinstance(shop.ask("total revenue"), Understanding)


def test_money_that_several_tables_hold_is_asked_back_and_not_averaged_by_part(tmp_path: Path) -> None:
    """Stays have a total price, and charges beside it: revenue may be either, and the value of a stay has parts."""
    import sqlite3

    path = tmp_path / "inn.sqlite"
    writer = sqlite3.connect(path)
    writer.executescript(
        "CREATE TABLE guest (guest_id INTEGER PRIMARY KEY, name TEXT, country TEXT);"
        "CREATE TABLE stay (stay_id INTEGER PRIMARY KEY, guest_id INTEGER REFERENCES guest, total_price REAL);"
        "CREATE TABLE charge (charge_id INTEGER PRIMARY KEY, stay_id INTEGER REFERENCES stay, item TEXT, amount REAL);"
        "INSERT INTO guest VALUES (1, 'Ann', 'Peru'), (2, 'Bo', 'Mali'), (3, 'Cy', 'Peru');"
        "INSERT INTO stay VALUES (1, 1, 200), (2, 1, 100), (3, 2, 50), (4, 3, 70);"
        "INSERT INTO charge VALUES (1, 1, 'Spa', 20), (2, 1, 'Bar', 10), (3, 2, 'Bar', 5);"
    )
    writer.close()
    with App(home=tmp_path / "home", record=False) as app:
        inn = Shop(app, path)
        found = inn.ask("What is the total revenue?")
        assert isinstance(found, Clarification), found
        assert {choice.label for choice in found.choices} == {"stay.total_price", "charge.amount"}
        assert inn.answer(take_choice(found, "charge")) == [(35.0,)]
        refused = inn.ask("average stay amount")
        assert isinstance(refused, Refusal) and "each row of `stay`" in refused.reason
        assert inn.answer(inn.ask("average charge amount")) == [(35 / 3,)]
        assert inn.answer(inn.ask("How many stays by guests from Peru are there?")) == [(3,)]
        assert len(inn.answer(inn.ask("How many stays by guest are there?"))) == 3
