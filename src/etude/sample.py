"""A small sample shop: two years of orders in four files, with the kind of bad data that real files have."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

END = date(2025, 12, 31)
DAYS = 730
CUSTOMERS = 600
SPOILED = 300

CITIES = {
    "DE": ("Berlin", "München", "Köln", "Hamburg"),
    "FR": ("Paris", "Lyon", "Saint-Étienne"),
    "ES": ("Madrid", "Málaga", "A Coruña"),
    "PL": ("Kraków", "Łódź", "Warszawa"),
    "SE": ("Malmö", "Göteborg"),
    "US": ("New York", "San José", "Austin"),
    "JP": ("東京", "大阪"),
}
COUNTRY_WEIGHTS = (28, 18, 14, 11, 8, 16, 5)
FIRST_NAMES = (
    "Anna", "Björn", "Chloé", "Dmitri", "Eva", "François", "Günter", "Hélène", "Inés", "Jürgen", "Kasia", "Łukasz",
    "María", "Noël", "Olga", "Per", "Renée", "Søren", "Tomás", "Ulla", "Wei", "Yuki", "Zoë", "Aarav",
)  # fmt: skip
LAST_NAMES = (
    "Müller", "Nowak", "García", "Dubois", "Svensson", "O'Brien", "Smith", "Tanaka", "Kowalczyk", "Núñez", "Schäfer",
    "Lefèvre", "Åkesson", "Brown", "de la Cruz", "Weiß", "Żak", "Peña", "Johnson", "Ito",
)  # fmt: skip
SEGMENTS = ("consumer", "small business", "enterprise")
CATEGORIES: dict[str, tuple[tuple[str, float], ...]] = {
    "Coffee": (("Espresso Blend 1 kg", 18.9), ("Café Crème ☕", 15.5), ("Decaf 500 g", 9.9), ("Cold Brew Can", 2.8)),
    "Tea": (("Sencha 緑茶", 12.0), ("Earl Grey", 8.5), ("Rooibos Vanille", 7.2), ("Matcha Kit 🍵", 34.0)),
    "Machines": (("Moka Pot", 29.0), ("Hand Grinder", 64.0), ("Espresso Machine S", 389.0), ("Kettle 1.7 l", 49.0)),
    "Cups": (('Mug "Mañana"', 11.0), ("Espresso Cup, set of 4", 26.0), ("Travel Cup", 19.5), ("Glass Cup", 8.0)),
    "Sweets": (("Chocolate 70 %", 3.9), ("Crêpe Mix", 4.5), ("Shortbread", 5.2), ("Gift Box 🎁", 24.0)),
}
NEVER_SOLD = "Samovar, brass"

Row = list[Any]


def write_shop(folder: Path, seed: int = 7) -> None:
    """Write customers.csv, products.json, orders.csv and order_lines.parquet; the same bytes for the same seed."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)  # noqa: S311 - a made-up shop, no secret
    customers = _customers(chance)
    products = _products()
    orders = _orders(chance, len(customers))
    lines = _order_lines(chance, orders, products)
    _write_customers(folder / "customers.csv", customers)
    (folder / "products.json").write_text(json.dumps(products, ensure_ascii=False, indent=1) + "\n", "utf-8")
    _write_orders(folder / "orders.csv", orders)
    _write_lines(folder / "order_lines.parquet", lines)


def spoil_sample_orders(folder: Path) -> None:
    """Simulate a bad import: add orders without a channel, with amounts in cents instead of euros."""
    path = folder / "orders.csv"
    rows = list(csv.reader(io.StringIO(path.read_bytes().decode())))
    whole = [row for row in rows[1:] if len(row) == len(rows[0]) and row[6] != "n/a"]
    last = int(rows[-1][0])
    late = [
        [str(last + n), customer, END.isoformat(), status, "", discount, f"{float(amount) * 100:g}"]
        for n, (_, customer, _, status, _, discount, amount) in enumerate(whole[-SPOILED:], 1)
    ]
    path.write_bytes(_csv([*rows, *late]).encode())


def _customers(chance: random.Random) -> list[Row]:
    rows: list[Row] = []
    countries = list(CITIES)
    for number in range(1, CUSTOMERS + 1):
        first, last = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES)
        country = chance.choices(countries, COUNTRY_WEIGHTS)[0]
        joined = END - timedelta(days=chance.randrange(DAYS + 365))
        email = f"{first}.{last}{number}@example.com".lower().replace(" ", "").replace("'", "")
        rows.append([
            number,
            f"{first} {last}" + (" 🎉" if number % 211 == 0 else ""),
            "" if number % 17 == 0 else email,
            country,
            chance.choice(CITIES[country]) + (" " if number % 23 == 0 else ""),
            chance.choices(SEGMENTS, (70, 22, 8))[0],
            joined.isoformat(),
        ])  # fmt: skip
    # A duplicate: the same person again, in capitals.
    twin = rows[40].copy()
    twin[0], twin[1], twin[2] = CUSTOMERS + 1, twin[1].upper(), twin[2].upper()
    # Dates that do not exist.
    rows[123][6], rows[456][6] = "2025-02-30", "2024-06-31"
    return [*rows, twin]


def _products() -> list[dict[str, Any]]:
    products: list[dict[str, Any]] = []
    for category, items in CATEGORIES.items():
        for name, price in items:
            number = len(products) + 1
            tags = [category.lower(), *(["new"] if number % 5 == 0 else [])]
            products.append({"product_id": number, "name": name, "category": category, "price": price, "tags": tags})
    unsold = {"product_id": len(products) + 1, "name": NEVER_SOLD, "category": "Machines", "price": 520.0, "tags": []}
    return [*products, unsold]


def _orders(chance: random.Random, customers: int) -> list[Row]:
    """Return a few orders per day: growing over time, most before Christmas, few in summer, more on weekends."""
    rows: list[Row] = []
    for back in range(DAYS - 1, -1, -1):
        day = END - timedelta(days=back)
        season = 1 + 0.45 * math.cos((day.timetuple().tm_yday - 350) / 365 * 2 * math.pi)
        mean = 3.2 * (1 + 0.9 * (DAYS - back) / DAYS) * season * (1.3 if day.weekday() >= 5 else 1.0)
        for _ in range(int(mean + chance.random())):
            # Squared, so that a tenth of the customers place a third of the orders.
            customer = 1 + int(chance.random() ** 2 * customers)
            status = chance.choices(("completed", "shipped", "returned", "cancelled"), (82, 8, 7, 3))[0]
            if back > 10 and status == "shipped":
                status = "completed"
            discount = chance.choices((0, 5, 10, 20), (70, 15, 10, 5))[0]
            channel = chance.choices(("web", "app", "store"), (5, 3, 2))[0]
            rows.append([len(rows) + 1, customer, day.isoformat(), status, channel, discount, 0.0])
    return rows


def _order_lines(chance: random.Random, orders: list[Row], products: list[dict[str, Any]]) -> list[Row]:
    """Return one to five lines per order, and set each order's amount to their sum less the discount."""
    lines: list[Row] = []
    sold = products[:-1]
    weights = [1 / (1 + p["price"] / 12) for p in sold]
    for order in orders:
        total = 0.0
        for product in chance.choices(sold, weights, k=chance.choices((1, 2, 3, 4, 5), (40, 28, 17, 10, 5))[0]):
            quantity = chance.choices((1, 2, 3, 6, 12), (60, 22, 10, 6, 2))[0]
            total += quantity * product["price"]
            lines.append([len(lines) + 1, order[0], product["product_id"], quantity, product["price"]])
        order[6] = round(total * (1 - order[5] / 100), 2)
    # A line whose order does not exist.
    lines.append([len(lines) + 1, len(orders) + 1000, 1, 1, products[0]["price"]])
    return lines


def _write_customers(path: Path, rows: list[Row]) -> None:
    """Write the customers with a byte order mark, as spreadsheets do."""
    header = ["customer_id", "name", "email", "country", "city", "segment", "joined"]
    path.write_bytes(_csv([header, *rows]).encode("utf-8-sig"))


def _write_orders(path: Path, rows: list[Row]) -> None:
    """Write the orders with some unknown amounts and one truncated row."""
    header = ["order_id", "customer_id", "ordered", "status", "channel", "discount_percent", "amount"]
    dirty = [row.copy() for row in rows]
    for at in (120, 777, 1500, 2222):
        dirty[at][6] = "n/a"
    dirty[1999] = dirty[1999][:4]
    path.write_bytes(_csv([header, *dirty]).encode())


def _write_lines(path: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "line_id": pa.int64(),
        "order_id": pa.int64(),
        "product_id": pa.int64(),
        "quantity": pa.int32(),
        "unit_price": pa.float64(),
    }
    columns = [pa.array(values, type=kind) for values, kind in zip(zip(*rows, strict=True), types.values())]
    pq.write_table(pa.table(columns, names=list(types)), path, compression="zstd")


def _csv(rows: list[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
