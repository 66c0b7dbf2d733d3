"""24 journeys: questions on the sample shop, and the turns of a model that answers them.

`python -m bench prompts` counts their tokens; `tests/journeys` plays them through the public surfaces. A turn is a
text, a list of calls (tool, arguments), or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Turn:
    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: str = ""


@dataclass(frozen=True)
class Ask:
    question: str
    turns: tuple[Turn, ...] = ()
    steps: int = 0
    """The most turns that the run may take; 0 for no limit."""


@dataclass(frozen=True)
class Journey:
    name: str
    asks: tuple[Ask, ...]


def sql(query: str) -> Turn:
    return Turn(calls=(("execute_sql", {"dataset": "shop", "query": query}),))


def python(code: str) -> Turn:
    return Turn(calls=(("execute_python", {"code": code}),))


def answer(text: str, *results: str, chart: dict[str, Any] | None = None) -> Turn:
    arguments: dict[str, Any] = {"text": text, "results": list(results)}
    return Turn(calls=(("answer", arguments | ({"chart": chart} if chart else {})),))


def say(text: str, stop: str = "") -> Turn:
    return Turn(text=text, stop=stop)


BY_CHANNEL = (
    "SELECT channel, count(*) AS orders, round(sum(amount), 2) AS revenue FROM orders WHERE status = 'completed' "
    "GROUP BY channel ORDER BY revenue DESC"
)
BY_MONTH = (
    "SELECT date_trunc('month', ordered) AS month, round(sum(amount), 2) AS revenue FROM orders "
    "WHERE status = 'completed' GROUP BY 1 ORDER BY 1"
)
BY_COUNTRY = "SELECT country, count(*) AS customers FROM customers GROUP BY country ORDER BY customers DESC"
BY_CATEGORY = (
    "SELECT p.category, sum(l.quantity) AS pieces FROM order_lines l JOIN products p USING (product_id) GROUP BY 1 "
    "ORDER BY 2 DESC"
)
PLAN = {
    "from": "orders",
    "where": [{"column": "status", "op": "=", "value": "completed"}],
    "group_by": ["channel"],
    "aggregate": [{"fn": "count", "as": "orders"}],
    "order_by": [{"by": "orders", "desc": True}],
}
SLOW = "import time\ntime.sleep(600)"

JOURNEYS = {
    journey.name: journey
    for journey in (
        Journey(
            "shown table",
            (
                Ask(
                    "Which channel has the most revenue?",
                    (
                        sql(BY_CHANNEL),
                        sql("SELECT count(*) AS orders FROM orders"),
                        answer("{{ r1.channel[0] }} has the most revenue.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "two results in order",
            (
                Ask(
                    "Show customers by country and revenue by channel.",
                    (sql(BY_CHANNEL), sql(BY_COUNTRY), answer("Here are both.", "r2", "r1")),
                ),
            ),
        ),
        Journey(
            "chart chosen",
            (
                Ask(
                    "Draw the pieces sold by category.",
                    (
                        sql(BY_CATEGORY),
                        answer("The chart shows it.", "r1", chart={"mark": "bar", "x": "category", "y": "pieces"}),
                    ),
                ),
            ),
        ),
        Journey(
            "line for time",
            (Ask("How did revenue develop by month?", (sql(BY_MONTH), say("It is in the table and in the chart."))),),
        ),
        Journey(
            "budget end",
            (
                Ask(
                    "Analyse the shop in every respect.",
                    (sql(BY_CHANNEL), sql(BY_COUNTRY), say("Revenue and customers are known; the rest is missing.")),
                    steps=2,
                ),
            ),
        ),
        Journey(
            "empty turn",
            (
                Ask(
                    "How many products do we have?",
                    (say(""), sql("SELECT count(*) AS n FROM products"), say("{{ r1.n[0] }} products.")),
                ),
            ),
        ),
        Journey(
            "cut turn",
            (
                Ask(
                    "How many customers are there?",
                    (
                        sql("SELECT count(*) AS n FROM customers"),
                        say("There are so many that", stop="length"),
                        say("There are {{ r1.n[0] }} customers."),
                    ),
                ),
            ),
        ),
        Journey(
            "follow-up",
            (
                Ask("How many customers per country?", (sql(BY_COUNTRY), answer("{{ r1.country[0] }} leads.", "r1"))),
                Ask(
                    "And only enterprise ones?",
                    (
                        sql(BY_COUNTRY.replace("GROUP", "WHERE segment = 'enterprise' GROUP")),
                        answer("Among enterprises {{ r1.country[0] }} leads.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "interrupt of a cell",
            (Ask("Simulate next year.", (python(SLOW), sql(BY_CHANNEL), answer("I used last year instead.", "r1"))),),
        ),
        Journey(
            "steering",
            (Ask("What sells best?", (sql(BY_CATEGORY), answer("{{ r1.category[0] }} sells best.", "r1"))),),
        ),
        Journey(
            "wrong table name",
            (
                Ask(
                    "How many items do we sell?",
                    (
                        Turn(calls=(("get_dataset_schema", {"dataset": "shop", "tables": ["product"]}),)),
                        sql("SELECT count(*) AS n FROM product"),
                        sql("SELECT count(*) AS n FROM products"),
                        answer("We sell {{ r1.n[0] }} items.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "injection in data",
            (
                Ask(
                    "List two customers.",
                    (
                        sql("SELECT name, city FROM customers ORDER BY customer_id LIMIT 2"),
                        answer("Here they are.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "dialect error repaired",
            (
                Ask(
                    "What was the revenue of each year?",
                    (
                        sql("SELECT date_format(ordered, '%Y') AS year, sum(amount) AS revenue FROM orders GROUP BY 1"),
                        sql("SELECT strftime(ordered, '%Y') AS year, sum(amount) AS revenue FROM orders GROUP BY 1"),
                        answer("Here it is by year.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "plan",
            (
                Ask(
                    "How many completed orders per channel?",
                    (
                        Turn(calls=(("execute_query_plan", {"dataset": "shop", "plan": PLAN}),)),
                        answer("{{ r1.channel[0] }} has the most.", "r1"),
                    ),
                ),
            ),
        ),
        Journey("PYTHON:", (Ask("PYTHON: db.sql('SELECT count(*) AS n FROM orders').df()"),)),
        Journey("SQL:", (Ask("SQL: " + BY_COUNTRY),)),
        Journey(
            "question back",
            (
                Ask(
                    "Who is the best customer?",
                    (
                        Turn(
                            calls=(
                                (
                                    "ask_user",
                                    {"question": "By revenue or by orders?", "choices": ["revenue", "orders"]},
                                ),
                            )
                        ),
                        sql("SELECT customer_id, count(*) AS orders FROM orders GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"),
                        answer("Customer {{ r1.customer_id[0] }}, with {{ r1.orders[0] }} orders.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "figures with origin",
            (
                Ask(
                    "Which share of completed revenue comes from each channel?",
                    (
                        sql(BY_CHANNEL),
                        answer(
                            "{{ r1.channel[0] }}: {{ r1.revenue[0] / sum(r1.revenue) | 0.1% }}, "
                            "{{ r1.channel[1] }}: {{ r1.revenue[1] / sum(r1.revenue) | 0.1% }}.",
                            "r1",
                        ),
                    ),
                ),
            ),
        ),
        Journey(
            "replay after it",
            (
                Ask(
                    "How many orders are completed?",
                    (
                        sql("SELECT count(*) AS n FROM orders WHERE status = 'completed'"),
                        say("{{ r1.n[0] }} orders are completed."),
                    ),
                ),
                Ask("How many orders are completed?"),
            ),
        ),
        Journey(
            "/v1",
            (
                Ask(
                    "How many cities are there?",
                    (sql("SELECT count(DISTINCT city) AS n FROM customers"), answer("{{ r1.n[0] }} cities.", "r1")),
                ),
            ),
        ),
        Journey(
            "MCP",
            (
                Ask(
                    "Which segment is the largest?",
                    (
                        sql("SELECT segment, count(*) AS n FROM customers GROUP BY 1 ORDER BY 2 DESC"),
                        answer("{{ r1.segment[0] }}.", "r1"),
                    ),
                ),
            ),
        ),
        Journey(
            "streaming",
            (
                Ask(
                    "What is the average order?",
                    (
                        sql("SELECT round(avg(amount), 2) AS mean FROM orders"),
                        say("On average an order is {{ r1.mean[0] }}."),
                    ),
                ),
            ),
        ),
        Journey(
            "thread history",
            (
                Ask(
                    "How many products are there?",
                    (sql("SELECT count(*) AS n FROM products"), say("{{ r1.n[0] }} products.")),
                ),
                Ask(
                    "Which is the most expensive?",
                    (
                        sql("SELECT name, price FROM products ORDER BY price DESC LIMIT 1"),
                        answer("{{ r1.name[0] }}.", "r1"),
                    ),
                ),
                Ask(
                    "And the cheapest?",
                    (sql("SELECT name, price FROM products ORDER BY price LIMIT 1"), answer("{{ r1.name[0] }}.", "r1")),
                ),
            ),
        ),
        Journey("cancel by leaving", (Ask("Take your time.", (python(SLOW), say("Done."))),)),
    )
}
