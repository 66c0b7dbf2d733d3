"""Shares of a whole: which rows are the part, and which the whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest
from tests.offline.conftest import Ask, Rows

from etude.app import App
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    folder = tmp_path_factory.mktemp("shares")
    path = folder / "orders.csv"
    path.write_text("order_id,channel,amount\n1,web,10\n2,web,20\n3,shop,30\n4,phone,40\n")
    with App(home=folder / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(str(path)), lambda sql: app.sql(str(path), sql).rows())

        def ask(question: str) -> Rows:
            found = understand(question, vocabulary, today=TODAY)
            assert isinstance(found, Understanding), found
            return app.sql(str(path), compile_plan(found.plan, app.catalog(str(path)))).rows()

        yield vocabulary, ask


@pytest.mark.parametrize(
    ("question", "share"),
    [
        ("percentage of orders by web", 50),
        ("percentage of orders from web", 50),
        ("share of orders by phone", 0.25),
        ("percentage of orders placed by phone", 25),
        ("what percentage of amount is by web?", 30),
        ("percentage of orders by web or phone", 75),
    ],
)
def test_the_share_of_a_value_is_taken_of_all_rows(orders: tuple[Vocabulary, Ask], question: str, share: float) -> None:
    assert orders[1](question) == [(share,)]


def test_the_share_by_a_column_is_that_of_each_group(orders: tuple[Vocabulary, Ask]) -> None:
    assert orders[1]("share of orders by channel") == [("phone", 0.25), ("shop", 0.25), ("web", 0.5)]


@pytest.mark.parametrize("question", ["share of orders by web, phone and shop", "percentage of orders from web, phone"])
def test_a_share_of_several_values_is_not_taken_of_one_of_them(orders: tuple[Vocabulary, Ask], question: str) -> None:
    assert isinstance(understand(question, orders[0], today=TODAY), Refusal)
