"""Revenue that no column is named for: the quantity times the price of each row, or the price of the whole row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from etude.offline.vocabulary import Formula, VocabularyColumn, VocabularyTable, copy_with
from etude.offline.words import MEASURES, word_base_form

_QUANTITIES = frozenset(
    tuple(name.split())
    for name in (
        "quantity", "unit", "unit sold", "quantity sold", "sold quantity", "quantity ordered", "order quantity",
        "ordered quantity", "unit ordered", "item sold", "number sold", "piece", "piece sold", "sale quantity",
        "item quantity", "copy sold", "number of unit", "number of item", "number of piece",
    )
)  # fmt: skip
"""Names of columns that say how many pieces a row sells."""
_PRICES = frozenset(
    tuple(name.split())
    for name in (
        "price", "unit price", "price each", "price per unit", "price per item", "price per piece", "item price",
        "product price", "sale price", "selling price", "unit selling price", "unit sale price", "price unit",
    )
)  # fmt: skip
"""Names of columns that say what one piece costs the buyer."""
_COUNTING = frozenset(("quantity", "unit", "piece"))
_AMOUNTS = frozenset(
    """
    amount total revenue sale subtotal turnover earning income proceeds value payment paid spend spent bill charge gross
    net profit gmv extended
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words in the names of columns that may be the amount itself."""
_SALES = frozenset(
    """
    order sale sold invoice receipt transaction customer client buyer basket cart checkout cashier till returned refund
    refunded line
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words in the names of a table and its columns that say that its rows are sales."""
_NO_SALES = frozenset(
    "stock inventory warehouse restock restocked reorder supplier vendor purchase expense quote budget".split()  # noqa: SIM905
)
"""Words that say that its rows are not sales: a stock or a purchase has quantities and prices too."""
_DISCOUNTS = frozenset(("discount", "rebate", "coupon", "voucher", "promotion", "markdown"))


def add_revenue(tables: Sequence[VocabularyTable]) -> list[VocabularyTable]:
    """Return the tables; the only one whose rows are sales without an amount has revenue as a derived column."""
    found = {table.name: made for table in tables if (made := _revenue_of(table))}
    if len(found) != 1 or any(_AMOUNTS & {*column.words} for table in tables for column in table.columns):
        return [*tables]
    return [copy_with(table, derived=found.get(table.name, ())) for table in tables]


def _revenue_of(table: VocabularyTable) -> tuple[VocabularyColumn, ...]:
    columns = [column for column in table.columns if not _DISCOUNTS & {*column.words}]
    prices = [column for column in columns if "price" in column.words]
    if len(prices) == 1 and (pieces := _find_pieces(table, prices[0])):
        return _revenue_of_pieces(table, prices[0], pieces)
    counts = [column for column in columns if _COUNTING & {*column.words} or _plain(column) in _QUANTITIES]
    counts = [column for column in counts if column not in prices and "cost" not in column.words]
    if len(prices) != 1 or len(counts) != 1 or not rows_are_sales(table, dated=True):
        return ()
    quantity, price = counts[0], prices[0]
    fits = _plain(quantity) in _QUANTITIES and _plain(price) in _PRICES
    if not fits or quantity.kind != "number" or price.kind != "number" or quantity.identifies:
        return ()
    made = VocabularyColumn(
        table.name, "revenue", "number", table.rows, quantity.nulls + price.nulls, words=("revenue",),
        formula=Formula((quantity.name, price.name)),
    )  # fmt: skip
    taken = [column for column in table.columns if _DISCOUNTS & {*column.words}]
    return tuple(_discounted(made, taken)) if taken else (made,)


_NO_PIECES = frozenset(
    """
    guest person people passenger adult child kid visitor customer minute hour second day week month year km mile meter
    rating star score age point floor stop transfer rank level page view like click order id number code zip delay
    weight height length width distance duration size capacity room bedroom bathroom
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words for whole numbers beside a price that it is not the price of one of."""


def _find_pieces(table: VocabularyTable, price: VocabularyColumn) -> list[VocabularyColumn]:
    """Return the whole numbers beside a price that may count what was sold, if no column is named a quantity.

    Cups, tickets or nights are counted by a plural; `rating`, `guests` or `minutes` are not what a price is for.
    """
    columns = [c for c in table.columns if c != price and not _DISCOUNTS & {*c.words}]
    if any(
        _COUNTING & {*c.words} or _plain(c) in _QUANTITIES or {*_AMOUNTS, "cost", "fare", "fee"} & {*c.words}
        for c in columns
    ):
        return []
    if _plain(price) not in _PRICES or price.kind != "number" or not rows_are_sales(table, dated=True):
        return []
    return [column for column in columns if _counts_pieces(column)]


def _counts_pieces(column: VocabularyColumn) -> bool:
    last = column.name.lower().replace("_", " ").split()[-1:]
    plural = bool(last) and word_base_form(last[0]) != last[0]
    whole = all(isinstance(end, int) and not isinstance(end, bool) for end in (column.low, column.high))
    if column.kind != "number" or column.identifies or column.flag is not None or not (plural and whole):
        return False
    return column.low >= 0 and not (_NO_PIECES | MEASURES) & {*column.words}  # type: ignore[operator]


def _revenue_of_pieces(
    table: VocabularyTable, price: VocabularyColumn, pieces: Sequence[VocabularyColumn]
) -> tuple[VocabularyColumn, ...]:
    formula = Formula((pieces[0].name, price.name))
    if len(pieces) > 1:
        names = " or ".join(f"`{column.name}`" for column in pieces)
        formula = replace(formula, doubt=f"It is not clear whether `{price.name}` is the price of one of {names}.")
    nulls = pieces[0].nulls + price.nulls
    made = VocabularyColumn(table.name, "revenue", "number", table.rows, nulls, words=("revenue",), formula=formula)
    taken = [column for column in table.columns if _DISCOUNTS & {*column.words}]
    return tuple(_discounted(made, taken)) if taken and not formula.doubt else (made,)


def _plain(column: VocabularyColumn) -> tuple[str, ...]:
    """Return the words of a column without a currency at the end: `unit_price_usd`, `price_in_euro`."""
    words = column.words
    while len(words) > 1 and (words[-1] in MEASURES or words[-1] == "in"):
        words = words[:-1]
    return words


def rows_are_sales(table: VocabularyTable, dated: bool = False) -> bool:
    """Return whether the names say that the rows are sales, and nothing says that they are not.

    With `dated`, a date is enough.
    """
    words = {*table.words, *(word for column in table.columns for word in column.words)}
    timed = dated and any(column.kind in ("date", "timestamp") for column in table.columns)
    return bool(timed or words & _SALES) and not words & _NO_SALES


def _discounted(revenue: VocabularyColumn, discounts: Sequence[VocabularyColumn]) -> Iterator[VocabularyColumn]:
    """Yield the revenue before and after the discount; one that cannot be computed, if the discount is not clear."""
    formula = revenue.formula or Formula()
    whole = _whole_of(discounts[0]) if len(discounts) == 1 else None
    if whole is None:
        names = " and ".join(f"`{column.name}`" for column in discounts)
        doubt = f"It is not clear how {names} changes the revenue: as a share, as a percentage or as an amount."
        yield replace(revenue, formula=replace(formula, doubt=doubt))
        return
    yield replace(revenue, name="revenue_before_discount")
    taken = replace(formula, discount=discounts[0].name, whole=whole, gaps=discounts[0].nulls > 0)
    yield replace(revenue, name="revenue_after_discount", formula=taken)


def _whole_of(discount: VocabularyColumn) -> int | None:
    """Return 1 if the values are shares of the price, 100 if they are percentages; None if they do not say."""
    low, high = discount.low, discount.high
    if discount.kind != "number" or not isinstance(low, int | float) or not isinstance(high, int | float) or low < 0:
        return None
    percent = bool({"percent", "percentage"} & {*discount.words})
    if high <= 1:
        # 0 and 1 alone may only tell whether there was a discount.
        return 1 if high > 0 and not percent and (discount.distinct > 2 or high < 1) else None
    # A discount of 5 may be 5% or 5 dollars.
    return 100 if high <= 100 and (percent or "rate" in discount.words) else None


def revenue_phrases(column: VocabularyColumn) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the words that mean a derived revenue, each with its cost as in the index."""
    yield from _PHRASES
    if column.name != "revenue":
        after = column.formula is not None and bool(column.formula.discount)
        for noun in ("revenue", "sale", "turnover"):
            yield ("net" if after else "gross", noun), 0
            yield (noun, "after" if after else "before", "discount"), 0


_PHRASES = (
    (("revenue",), 0), (("sale", "revenue"), 0), (("sale", "amount"), 0), (("sale", "value"), 0), (("turnover",), 0),
    (("money",), 2), (("earnings",), 2), (("earning",), 2),
)  # fmt: skip


MONEY_WORDS = frozenset(("money", "revenue", "turnover"))
"""Words for what was paid in all, if no column is named so."""
_PAID = frozenset(
    tuple(name.split())
    for name in (
        "price", "amount", "total", "total price", "total amount", "fare", "fee", "amount paid", "price paid", "paid",
        "sale", "bill",
    )
)  # fmt: skip
"""Names of columns that say what a buyer paid for the whole row, if it has no quantity."""


def money_of(tables: Sequence[VocabularyTable]) -> VocabularyColumn | None:
    """Return the only column of the source that says what a buyer paid for a row; None if that is not clear."""
    if len(tables) != 1 or not rows_are_sales(tables[0]) or tables[0].derived:
        return None
    columns = tables[0].columns
    money = [c for c in columns if c.kind == "number" and {*_AMOUNTS, "price", "cost", "fare", "fee"} & {*c.words}]
    pieces = any(_COUNTING & {*c.words} or _DISCOUNTS & {*c.words} or _plain(c) in _QUANTITIES for c in columns)
    return money[0] if len(money) == 1 and not pieces and _plain(money[0]) in _PAID else None


_IN_ALL = frozenset(
    tuple(name.split())
    for name in ("total price", "total amount", "amount", "total", "amount paid", "price paid", "bill")
)
"""Names of columns that say what was paid in all, not for one piece."""


def money_beside(column: VocabularyColumn, text: str, tables: Sequence[VocabularyTable]) -> list[VocabularyColumn]:
    """Return the columns of other tables that `revenue` may mean as well, if it is not the name of this one."""
    if text.lower() not in MONEY_WORDS or MONEY_WORDS & {*column.words} or column.formula is not None:
        return []
    others = [c for table in tables if table.name != column.table for c in table.columns]
    return [c for c in others if c.kind == "number" and not c.identifies and _plain(c) in _IN_ALL]


def sales_meanings(table: VocabularyTable) -> Iterator[str]:
    """Yield the columns that `sales` may mean: what was sold for how much, and how many; none if one is not clear."""
    formulas = [column.formula for column in table.derived if column.formula]
    if not any(formula.doubt for formula in formulas):
        yield from (column.name for column in table.derived)
        yield from dict.fromkeys(formula.factors[0] for formula in formulas)
