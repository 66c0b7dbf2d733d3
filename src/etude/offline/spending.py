"""Verbs of money and of sales: `how much did customers spend`, `how many helmets did we sell`, `never sold`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from etude.offline.acts import verb_present_form
from etude.offline.column_traits import is_numeric_column
from etude.offline.joins import find_join_paths, join_hops, join_path_leads_to_one
from etude.offline.phrase_index import SUFFIX, Meaning, phrase_index_of
from etude.offline.question_parts import Condition, NamePart
from etude.offline.revenue import rows_are_sales
from etude.offline.row_noun import names_people
from etude.offline.selling import sold_units
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyColumn
from etude.offline.words import Token

_SPEND = frozenset(("spend", "spends", "spent", "spending", "pay", "pays", "paid", "paying"))
_EARN = frozenset(("earn", "earned", "make", "made"))
_WORTH = frozenset(("worth",))
_MONEY_VERBS = _SPEND | _EARN | _WORTH | {"cost", "earns", "makes", "brings", "bring", "brought"}
_BUYERS = frozenset(
    "customer client buyer shopper user member guest visitor subscriber account company passenger".split()  # noqa: SIM905
)
"""Nouns for those who pay for what is sold."""
_TRADE_FORMS = frozenset(
    "sell sells sold buy buys bought purchase purchased order ordered".split()  # noqa: SIM905
)
_AMOUNT = "revenue"
_UNITS_SOLD = "units sold"


def read_money_and_sales(
    items: Sequence[TaggedItem], tokens: Sequence[Token], vocabulary: Vocabulary
) -> list[TaggedItem]:
    """Return the items with the sums that verbs of money and of sales ask for."""
    ours = any(token.low in ("we", "i") for token in tokens)  # what we buy, others sell
    return read_sold_units(read_spending(items, vocabulary, ours), vocabulary, ours)


def read_spending(items: Sequence[TaggedItem], vocabulary: Vocabulary, ours: bool = False) -> list[TaggedItem]:
    """Return the items with the amount that a verb of money asks for; if it is not clear, nothing explains the verb."""
    made = _read_most_spent(_read_total_spent(list(items), vocabulary), vocabulary)
    at = next((n for n, item in enumerate(made) if item.tag == "A" and item.text == "how much"), None)
    if at is not None and [item.tag for item in made[at + 1 : at + 4]] == ["C", "p", "C"] and _is_paid_in(made[at + 1]):
        return [*made[: at + 1], *made[at + 3 :]]  # "how much do we pay in salaries"
    if at is None or (at + 1 < len(made) and made[at + 1].tag == "C"):
        return made
    end = next((n for n in range(at, len(made)) if made[n].tag == "."), len(made))
    verb = next((n for n in range(at + 1, end) if _is_money_verb(made[n])), None)
    if verb is None:
        return made
    amount = _amount_item(vocabulary)
    said = made[verb].text.lower()
    if amount is None or (ours and said in _SPEND) or not _pays(made[at + 1 : end], said, amount, vocabulary):
        made[verb] = replace(made[verb], tag="u", data=made[verb].text.lower())
        return made
    rest = [item for n, item in enumerate(made[at + 1 : end], at + 1) if n != verb]
    joins = [TaggedItem("p", "of", "of")] if rest and rest[0].tag in "VT" else []
    return [*made[:at], TaggedItem("A", "total", "sum"), amount, *joins, *rest, *made[end:]]


def _is_money_verb(item: TaggedItem) -> bool:
    """Return whether an item says that money changes hands; `pay` is also a name for a salary."""
    said = item.text.lower()
    return (item.tag in "ru" and said in _MONEY_VERBS) or (item.tag == "C" and said in _SPEND)


def _read_total_spent(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """`total spent by customers from USA`: the total of what they paid."""
    for at in range(len(items) - 1):
        word, verb = items[at : at + 2]
        if word.text.lower() != "total" or verb.tag != "r" or verb.text.lower() not in ("spent", "paid"):
            continue
        nouns = [item for item in items if item.tag == "T"]
        amount = _amount_item(vocabulary)
        if amount is None or len(nouns) != 1 or not _is_buyer(nouns[0], amount, vocabulary):
            return items
        if not _restrict_whole_amounts(items, amount, vocabulary):
            return items
        after = items[at + 2 :]
        if after and after[0].tag == "g" and after[0].text == "by":
            after = [TaggedItem("p", "of", "of"), *after[1:]]
        return [*items[:at], TaggedItem("A", "total", "sum", joined=word.joined), amount, *after]
    return items


def _is_paid_in(item: TaggedItem) -> bool:
    return item.text.lower() in ("pay", "spend", "paid")


def _read_most_spent(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """`which customer spent the most`: the one with the highest revenue."""
    for at in range(1, len(items) - 1):
        noun, verb, most = items[at - 1 : at + 2]
        end = items[at + 2].tag if at + 2 < len(items) else "."
        said = noun.tag == "T" and verb.tag in "ru" and verb.text.lower() in _SPEND and most.text == "most"
        amount = _amount_item(vocabulary) if said and end in ".Dp" else None
        if amount is None or not _restrict_whole_amounts(items, amount, vocabulary):
            continue
        if _is_buyer(noun, amount, vocabulary):
            best = TaggedItem("S", "highest", ("desc", ""))
            return [*items[:at], best, amount, *items[at + 2 :]]
    return items


def _amount_item(vocabulary: Vocabulary) -> TaggedItem | None:
    """Return the column of what was paid, as a noun of the question; None if the source has none, or several."""
    names = phrase_index_of(vocabulary).names
    found = [m for m in names.get((_AMOUNT,), ()) if m.column is not None]
    found = found or [m for m in names.get(("amount",), ()) if m.column is not None]
    places = {(m.table, m.column) for m in found}
    if len(places) != 1:
        return None
    ((table, column),) = places
    known = vocabulary.table(table).column(str(column))
    if known.formula is None and (not is_numeric_column(known) or not rows_are_sales(vocabulary.table(table), True)):
        return None
    # The verb names the rows as well: what was spent is that of the orders.
    return TaggedItem("C", _AMOUNT, NamePart(_AMOUNT, (Meaning(table, column), Meaning(table, None, SUFFIX))))


def _pays(items: Sequence[TaggedItem], verb: str, amount: TaggedItem, vocabulary: Vocabulary) -> bool:
    """Return whether the rest of the question says whose money it is, and the amounts are that money."""
    nouns = [item for item in items if item.tag == "T"]
    if len(nouns) > 1 or any(item.tag not in "TVpDWgGtrux,&C" for item in items):
        return False
    if not _restrict_whole_amounts(items, amount, vocabulary):
        return False
    if verb in _SPEND:
        return bool(nouns) and _is_buyer(nouns[0], amount, vocabulary)
    if verb in _WORTH:
        return bool(nouns) and _is_sale(nouns[0], amount, vocabulary)
    return verb in _EARN and not nouns and not any(item.tag == "V" for item in items)


def _restrict_whole_amounts(items: Sequence[TaggedItem], amount: TaggedItem, vocabulary: Vocabulary) -> bool:
    """Return whether each value is that of a whole amount: `spent on rock` is only a part of an invoice."""
    (paid, *_) = amount.data.meanings
    for item in items:
        hits = item.data.hits if item.tag == "V" else ()
        ways = [find_join_paths(vocabulary, paid.table, hit.table)[1] for hit in hits]
        if hits and not any(paths and all(map(join_path_leads_to_one, paths)) for paths in ways):
            return False
    return True


def _is_buyer(noun: TaggedItem, amount: TaggedItem, vocabulary: Vocabulary) -> bool:
    (paid, *_) = amount.data.meanings
    for meaning in noun.data.tables[:1]:
        words = vocabulary.table(meaning.table).words
        cost, paths = find_join_paths(vocabulary, paid.table, meaning.table)
        if words[-1:] and words[-1] in _BUYERS and 0 < cost <= 2 and len(paths) == 1:
            return join_path_leads_to_one(paths[0])
    return False


def _is_sale(noun: TaggedItem, amount: TaggedItem, vocabulary: Vocabulary) -> bool:
    (paid, *_) = amount.data.meanings
    for meaning in noun.data.tables[:1]:
        hops = join_hops(vocabulary).get(paid.table, ())
        near = meaning.table == paid.table or any(hop.to_one and hop.to_table == meaning.table for hop in hops)
        return near and rows_are_sales(vocabulary.table(meaning.table))
    return False


# --- how many were sold


def read_sold_units(items: Sequence[TaggedItem], vocabulary: Vocabulary, ours: bool = False) -> list[TaggedItem]:
    """Return `how many helmets were sold` as the total quantity of their lines, and `never sold` as no line."""
    made = list(items)
    never = next((n for n, i in enumerate(made[:-1]) if i.tag == "x" and _trades(made[n + 1])), None)
    if never is not None:
        return _read_never_sold(made, never, vocabulary)
    count = next((n for n, item in enumerate(made) if item.tag == "#" and item.data != "distinct"), None)
    return _read_units(made, count, vocabulary, ours) if count is not None else made


def tell_units_sold(items: Sequence[TaggedItem]) -> tuple[str, ...]:
    """Return what the answer says about the number that was sold: each piece counts, not each different thing."""
    said = (following.text for item, following in pairwise(items) if item.text == _UNITS_SOLD)
    return tuple(f"Units are counted, not different things: `{name}` is added up." for name in said)


def _trades(item: TaggedItem) -> bool:
    return item.tag in "rO" and item.text.lower() in _TRADE_FORMS


def _read_never_sold(items: list[TaggedItem], at: int, vocabulary: Vocabulary) -> list[TaggedItem]:
    nouns = [item for item in items[:at] if item.tag == "T"]
    following = items[at + 2].tag if at + 2 < len(items) else "."
    owners = {m.table for m in nouns[-1].data.tables if m.cost <= 1} if nouns else set()
    if len(owners) != 1 or following not in ".DpW":
        return items
    (owner,) = owners
    back = {hop.to_table for hop in join_hops(vocabulary).get(owner, ()) if hop.back and not hop.to_one}
    lines = [name for name in back if rows_are_sales(vocabulary.table(name))]
    sells = verb_present_form(items[at + 1].text) == "sell"
    if len(lines) != 1 or (sells and _names_buyers(nouns[-1], vocabulary)):
        return items
    text = items[at + 1].text
    rows = TaggedItem("T", text, NamePart(text, (Meaning(lines[0]),)), plural=True)
    return [*items[: at + 1], rows, *items[at + 2 :]]


def _read_units(items: list[TaggedItem], at: int, vocabulary: Vocabulary, ours: bool) -> list[TaggedItem]:
    end = next((n for n in range(at, len(items)) if items[n].tag == "."), len(items))
    verb = next((n for n in range(at + 1, end) if _trades(items[n])), None)
    if verb is None or verb == at + 1:
        return items
    last = at + 1
    while last < verb and items[last].tag == "V":
        last += 1
    if last < verb and items[last].tag == "T":
        last += 1
    if last - at > 2 and items[last - 1].tag == "T" and _names_buyers(items[last - 1], vocabulary):
        last = at + 2  # "how many bikes did German customers buy"
    goods = items[at + 1 : last]
    rest = [item for n, item in enumerate(items[last:end], last) if n != verb]
    if not goods or any(item.tag not in "TVpDWgGtC" for item in rest):
        return items
    others = [item for item in rest if item.tag == "T" and not _after_group(rest, item)]
    units = _units_of(goods[-1], vocabulary)
    if units is None or len(others) > 1 or not all(_names_buyers(item, vocabulary) for item in others):
        return items
    selling = verb_present_form(items[verb].text) == "sell"
    sold_by_others = ours and not selling  # "how many bikes did we buy"
    object_after = verb + 1 < end and items[verb + 1].tag in "VTCN"  # "how many employees sold bikes"
    if sold_by_others or object_after or _names_doers(goods[-1], vocabulary) or (selling and others):
        return items
    meanings = (Meaning(units.table, units.name), Meaning(units.table, None, SUFFIX))
    total = [TaggedItem("A", _UNITS_SOLD, "sum"), TaggedItem("C", units.name, NamePart(units.name, meanings))]
    of = TaggedItem("p", "of", "of")
    # Each line sells one of them: the quantity of all lines is that of all products.
    of_goods = [of, *goods] if any(item.tag == "V" for item in goods) else []
    apart = [of] if rest and rest[0].tag in "VT" else []
    return [*items[:at], *total, *of_goods, *apart, *rest, *items[end:]]


def _names_doers(noun: TaggedItem, vocabulary: Vocabulary) -> bool:
    """Return whether a noun stands for people, who sell and buy but are not sold."""
    if noun.tag != "T":
        return False
    return names_people(noun.text.lower().split()[-1]) or _names_buyers(noun, vocabulary)


def _names_buyers(noun: TaggedItem, vocabulary: Vocabulary) -> bool:
    return all({*vocabulary.table(m.table).words[-1:]} & _BUYERS for m in noun.data.tables[:1])


def _after_group(items: Sequence[TaggedItem], noun: TaggedItem) -> bool:
    return any(first.tag == "g" and second is noun for first, second in pairwise(items))


def _units_of(noun: TaggedItem, vocabulary: Vocabulary) -> VocabularyColumn | None:
    """Return the column that says how many of such things were sold, if the lines of sales refer to them."""
    if noun.tag == "T":
        tables = {m.table for m in noun.data.tables if m.cost == noun.data.tables[0].cost}
    else:
        tables = {hit.table for hit in noun.data.hits} if isinstance(noun.data, Condition) else set()
    if len(tables) != 1:
        return None
    (goods,) = tables
    hops = [hop for hop in join_hops(vocabulary).get(goods, ()) if hop.back and not hop.to_one]
    lines = {h.to_table for h in hops if not any(vocabulary.table(h.to_table).column(n).nulls for n in h.to_columns)}
    lines |= {goods} if noun.tag == "V" else set()
    found = [column for name in sorted(lines) for column in sold_units(vocabulary.table(name))]
    return found[0] if len(found) == 1 else None
