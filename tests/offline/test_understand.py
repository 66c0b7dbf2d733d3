"""Questions in words become the plans a person would write, or a question back, or a refusal; never a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.offline.operator_words import OPERATORS, STOP
from etude.offline.understand import Clarification, Outcome, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan import parse_plan
from etude.sources.plan.compile import compile_plan
from offline.questions import QUESTIONS, TODAY

Rows = list[tuple[Any, ...]]
Ask = Callable[[str], Rows]


def plain(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int() | float() | Decimal():
            return float(f"{float(value):.9g}")
        case datetime():
            return value.date().isoformat()
        case date():
            return value.isoformat()
    return value


def same(left: Rows, right: Rows) -> bool:
    """The same rows, whatever the order of rows and columns."""
    ours, theirs = ([tuple(map(plain, row)) for row in rows] for rows in (left, right))
    if not ours or not theirs or len(ours[0]) != len(theirs[0]):
        return ours == theirs
    turned = (
        Counter(tuple(row[place] for place in places) for row in ours) for places in permutations(range(len(ours[0])))
    )
    return any(rows == Counter(theirs) for rows in turned)


def read(question: str, shop: Vocabulary, previous: Understanding | None = None) -> Understanding:
    found = understand(question, shop, previous=previous, today=TODAY)
    assert isinstance(found, Understanding), found
    return found


def run(found: Understanding, shop: Vocabulary, ask: Ask) -> Rows:
    assert shop.catalog is not None
    return ask(compile_plan(found.plan, shop.catalog))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_gives_what_its_sql_gives(question: str, shop: Vocabulary, ask: Ask) -> None:
    found = read(question, shop)
    assert same(run(found, shop, ask), ask(QUESTIONS[question])), found.reading


def test_the_plan_survives_json(shop: Vocabulary) -> None:
    for question in (
        "Which customers have no orders?",
        "Share of orders by status",
        "Top 10 customers by total amount",
    ):
        plan = read(question, shop).plan
        assert parse_plan(plan.model_dump(mode="json", exclude_none=True, by_alias=True)) == plan


def test_the_reading_says_what_was_understood(shop: Vocabulary) -> None:
    found = read("What is the total amount per month for customers in Germany in 2025?", shop)
    assert found.reading == (
        "Total `orders.amount` per `month` of `orders.ordered`, where `customers.country` is `DE`, "
        "where `orders.ordered` is in 2025, lowest `month` first."
    )
    assert 0.5 < found.confidence < 1


def test_a_slip_of_the_keyboard_is_corrected_and_told(shop: Vocabulary, ask: Ask) -> None:
    found = read("How many customers are in Hambrug?", shop)
    assert same(run(found, shop, ask), ask("SELECT count(*) FROM customers WHERE trim(city) = 'Hamburg'"))
    assert found.reasons[0] == "`Hambrug` is read as `Hamburg`."
    assert found.confidence < 1


CHAINS: dict[tuple[str, ...], str] = {
    ("What is the total amount of orders?", "the same by country"): (
        "SELECT country, sum(amount) FROM orders JOIN customers USING (customer_id) GROUP BY 1"
    ),
    ("Number of orders by channel", "only 2025"): (
        "SELECT channel, count(*) FROM orders WHERE year(ordered) = 2025 GROUP BY 1"
    ),
    ("How many orders were there in 2024?", "and in 2025?"): "SELECT count(*) FROM orders WHERE year(ordered) = 2025",
    ("How many orders were there in 2024?", "what about orders in 2025?"): (
        "SELECT count(*) FROM orders WHERE year(ordered) = 2025"
    ),
    ("How many customers are in France?", "and for Germany?"): "SELECT count(*) FROM customers WHERE country = 'DE'",
    ("Number of orders by channel", "per month instead"): (
        "SELECT date_trunc('month', ordered), count(*) FROM orders GROUP BY 1"
    ),
    ("Number of orders by channel", "and by status instead"): "SELECT status, count(*) FROM orders GROUP BY 1",
    ("Number of orders by channel", "what about status instead"): "SELECT status, count(*) FROM orders GROUP BY 1",
    ("Number of orders by status", "as a percentage"): (
        "SELECT status, 100 * count(*) / sum(count(*)) OVER () FROM orders GROUP BY 1"
    ),
    ("Top 10 customers by total amount", "top 3"): (
        "SELECT name, c.customer_id, sum(amount) FROM orders JOIN customers c USING (customer_id) GROUP BY ALL "
        "ORDER BY 3 DESC LIMIT 3"
    ),
    ("Which products have a price above 30?", "those again with category"): (
        "SELECT name, product_id, category FROM products WHERE price > 30"
    ),
    ("Number of orders by channel", "only completed ones", "only 2025", "the same by segment"): (
        "SELECT segment, count(*) FROM orders JOIN customers USING (customer_id) "
        "WHERE status = 'completed' AND year(ordered) = 2025 GROUP BY 1"
    ),
}


@pytest.mark.parametrize("chain", CHAINS, ids=" → ".join)
def test_a_follow_up_changes_the_question_before(chain: tuple[str, ...], shop: Vocabulary, ask: Ask) -> None:
    found: Understanding | None = None
    for question in chain:
        found = read(question, shop, found)
    assert found is not None
    assert same(run(found, shop, ask), ask(CHAINS[chain])), found.reading


def test_a_share_of_the_first_groups_is_a_share_of_all(shop: Vocabulary, ask: Ask) -> None:
    top = read("Top 2 channels by number of orders", shop)
    found = read("as a share", shop, top)
    whole = "SELECT channel, count(*) / sum(count(*)) OVER () FROM orders WHERE channel IS NOT NULL GROUP BY 1"
    assert same(run(found, shop, ask), ask(f"{whole} ORDER BY 2 DESC LIMIT 2")), found.reading
    assert "the first 2" in found.reading


def test_names_that_differ_only_in_blanks_are_counted_together(shop: Vocabulary, ask: Ask) -> None:
    ((differ,),) = ask("SELECT count(DISTINCT city) - count(DISTINCT lower(trim(city))) FROM customers")
    assert differ > 0
    for question, sql in (
        ("How many distinct cities do customers live in?", "SELECT count(DISTINCT trim(city)) FROM customers"),
        ("Number of customers per city", "SELECT trim(city), count(*) FROM customers GROUP BY 1"),
    ):
        found = read(question, shop)
        assert same(run(found, shop, ask), ask(sql))
        assert any(
            "`city` that differ only in case, blanks, hyphens or accents are counted" in note for note in found.told
        )
    assert not read("Number of customers per country", shop).reasons


def test_the_highest_of_many_is_asked_back(shop: Vocabulary, ask: Ask) -> None:
    found = understand("Which product has the highest quantity?", shop, today=TODAY)
    assert isinstance(found, Clarification)
    assert [c.label for c in found.choices] == [
        "the total `quantity` of each",
        "the highest single `quantity` of each",
    ]
    for choice, fold in (("1", "sum"), ("the highest", "max")):
        taken = take_choice(found, choice)
        assert isinstance(taken, Understanding)
        expected = (
            f"FROM (SELECT p.name, p.product_id, {fold}(quantity) AS n FROM order_lines JOIN products p "
            "USING (product_id) GROUP BY ALL) QUALIFY rank() OVER (ORDER BY n DESC) = 1"
        )
        assert same(run(taken, shop, ask), ask(expected)), taken.reading


@pytest.mark.parametrize(
    "question",
    [
        "How many customers are there?",
        "For customers in Germany, how many orders were there?",
        "Top 5 products by price",
        "In 2025, what is the total amount by channel?",
    ],
)
def test_a_whole_question_does_not_lean_on_the_one_before(question: str, shop: Vocabulary) -> None:
    first = read("How many returned orders were there in 2024?", shop)
    assert read(question, shop, first).plan == read(question, shop).plan


def test_the_choice_leads_to_an_answer(chosen: tuple[Clarification, Ask, Vocabulary]) -> None:
    clarification, ask, vocabulary = chosen
    assert [choice.label for choice in clarification.choices] == ["visits.started", "visits.ended"]
    for text, column in (("1", "started"), ("visits.ended", "ended"), ("ended", "ended")):
        found = take_choice(clarification, text)
        assert isinstance(found, Understanding)
        assert column in found.reading
        assert run(found, vocabulary, ask) == ask(f"SELECT count(*) FROM visits WHERE year({column}) = 2024")
    assert isinstance(take_choice(clarification, "neither"), Refusal)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("How many purple elephants are there?", "purple"),
        ("Which customers are happy?", "happy"),
        ("What is the average price of green products?", "green"),
        ("Total amount of orders by zodiac sign", "zodiac"),
        ("How many orders are in the same month as they joined?", "same"),
        ("Forecast the amount for next year", "Forecast"),
        ("SELECT * FROM customers; DROP TABLE customers", "DROP"),
        ("How many orders have a margin over 10?", "margin"),
    ],
)
def test_a_word_that_nothing_explains_is_never_passed_over(question: str, word: str, shop: Vocabulary) -> None:
    found = understand(question, shop, today=TODAY)
    assert isinstance(found, Refusal)
    assert f"`{word}`" in found.reason


@pytest.mark.parametrize(
    "question", ["", "   ", "🎉🎉", "???", "1 2 3", "x" * 10_000, "\0", "How many purple elephants?"]
)
def test_a_refusal_names_three_questions_that_it_answers(question: str, shop: Vocabulary) -> None:
    found = understand(question, shop, today=TODAY)
    assert isinstance(found, Refusal)
    assert found.reason
    assert len(found.nearest) == 3
    assert all(isinstance(understand(near, shop, today=TODAY), Understanding) for near in found.nearest)


def test_suggestions_are_about_the_words_that_were_understood(shop: Vocabulary) -> None:
    found = understand("Which happy products have a price?", shop, today=TODAY)
    assert isinstance(found, Refusal)
    assert found.nearest == (
        "What is the average price for each category?",
        "What is the average price of products?",
        "What are the top 5 products by price?",
    )


def test_suggestions_without_a_table_are_about_several(shop: Vocabulary) -> None:
    found = understand("purple elephants", shop, today=TODAY)
    assert isinstance(found, Refusal)
    tables = ("customers", "orders", "products", "order lines")
    assert len({next(t for t in tables if t in near) for near in found.nearest}) > 1
    assert len({near.split()[2] for near in found.nearest}) > 1


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("How many customers are currently in Berlin?", "`currently`"),
        ("How many products are available?", "`available`"),
        ("How many customers were sold?", "which of them are `sold`"),
        ("Which customers have ordered all products?", "`all`"),
        ("How many orders over 500 kg were cancelled?", "`over 500 kg`"),
        ("What is the average amount of completed and returned orders?", "together or each"),
        ("How many customers per country have more than 5 orders?", "to each one or to the whole group"),
        ("Which customers have fewer than 3 orders?", "no `orders` at all"),
        ("Number of completed products", "`completed`"),
        ("How many products have no category?", "Every row has a `category`"),
        ("Average amount per quantity", "divided by it"),
    ],
)
def test_what_may_mean_two_things_is_not_guessed(question: str, reason: str, shop: Vocabulary) -> None:
    found = understand(question, shop, today=TODAY)
    assert isinstance(found, Refusal)
    assert reason in found.reason


def test_a_value_of_two_tables_is_asked_back(tmp_path: Path) -> None:
    import duckdb

    path = str(tmp_path / "freight.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute("CREATE TABLE clients (client_id INTEGER PRIMARY KEY, name VARCHAR, country VARCHAR)")
        writer.execute(
            "CREATE TABLE shipments (shipment_id INTEGER PRIMARY KEY, "
            "client_id INTEGER REFERENCES clients (client_id), destination_country VARCHAR)"
        )
        writer.execute("INSERT INTO clients VALUES (1, 'Acme', 'Italy'), (2, 'Bolt', 'France')")
        writer.execute("INSERT INTO shipments VALUES (1, 1, 'France'), (2, 1, 'Italy'), (3, 2, 'Italy')")
    with App(home=tmp_path / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(path), lambda sql: app.sql(path, sql).rows())
        found = understand("How many shipments are from Italy?", vocabulary, today=TODAY)
        assert isinstance(found, Clarification)
        assert {choice.label for choice in found.choices} == {"shipments.destination_country", "clients.country"}
        assert read("How many shipments are from clients in Italy?", vocabulary).reading.count("clients.country") == 1


def test_what_would_count_rows_twice_is_refused(shop: Vocabulary) -> None:
    found = understand("What is the total amount of orders by product category?", shop, today=TODAY)
    assert isinstance(found, Refusal)
    assert "more than once" in found.reason


WORDS = st.one_of(
    st.sampled_from(sorted(" ".join(phrase) for phrase in OPERATORS)),
    st.sampled_from(sorted(STOP)),
    st.sampled_from(["customers", "orders", "products", "order lines", "amount", "price", "category", "Berlin", "web"]),
    st.sampled_from(["5", "2025", "1,000", "4.5%", "(", ")", ".", ",", '"Tea"', "'", "in March 2024", "last quarter"]),
    st.text(max_size=8),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, max_size=14), more=st.lists(WORDS, max_size=4))
def test_any_text_gets_an_outcome(words: list[str], more: list[str], shop: Vocabulary) -> None:
    assert shop.catalog is not None
    found: Outcome = understand(" ".join(words), shop, today=TODAY)
    if isinstance(found, Understanding):
        assert compile_plan(found.plan, shop.catalog).startswith("SELECT")
        found = understand(" ".join(["and", *more]), shop, previous=found, today=TODAY)
    if isinstance(found, Clarification):
        assert all(take_choice(found, choice.label) for choice in found.choices)
