"""The noun for the rows of a source with one table: `passengers` of `titanic.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.phrase_index import SYNONYM, Meaning
from etude.offline.question_parts import NamePart
from etude.offline.revenue import rows_are_sales
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyTable
from etude.offline.words import split_identifier_words, stem_word, word_base_form

_PEOPLE = frozenset(
    """
    agent applicant artist author boss buyer candidate cashier citizen client coach colleague consumer
    contact contractor customer dealer director doctor donor driver employee engineer guest guy host lead
    lecturer manager member merchant nurse operator owner participant partner passenger patient people person player
    professor provider pupil reader resident respondent reviewer salesman salesperson seller shopper speaker student
    subscriber supervisor supplier teacher technician tenant tourist trader traveler traveller user vendor visitor voter
    worker
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words for people and partners: a column may hold them, under a name that the rules do not know."""
_THINGS = frozenset(
    """
    account airline airport area article bank bike branch brand building campaign car carrier category channel city
    class club commodity company continent country county course currency department device district division dish
    event facility factory firm good group hospital hotel industry item language league location machine
    manufacturer market material model movie nation office organisation organization outlet part place plant platform
    port producer product project province region restaurant retailer room route school sector segment series service
    shop site song species sport state station store street subject subsidiary supermarket team territory title town
    type university variety vehicle venue village warehouse website zone
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words for things, places and kinds that a column may hold."""
_AMOUNTS = frozenset(
    """
    acre barrel calorie cent degree dollar euro feet foot gallon gram hectare hour inch kg kilo kilogram kilometer
    kilometre km kwh liter litre meter metre mile minute ounce percent pound second ton tonne watt
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Units that are added up: `how many kilos` never counts rows."""
_SOME_PEOPLE = frozenset(("adult", "boy", "child", "children", "girl", "kid", "man", "men", "winner", "woman", "women"))
"""Words for some of the people: never all rows."""
_DIFFERENT = frozenset(("different", "distinct", "unique", "various"))
_OF_A_PERSON = frozenset(("age", "sex", "gender", "birth", "birthdate", "birthday", "born", "married", "marital"))
_OF_A_THING = frozenset(("name", "title", "model", "label"))


def names_people(word: str) -> bool:
    """Return whether a noun, in the singular or the plural, stands for people."""
    return bool({word, word_base_form(word)} & (_PEOPLE | _SOME_PEOPLE))


def add_row_noun(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the noun that can only mean the rows of the only table read as that table.

    It is a plural that is counted or comes first, and nothing in the data is called like it. A noun for somebody or
    something that a column may hold, such as `customers`, means the rows only if these look like it. `Different` ones
    are values, never rows.
    """
    if len(vocabulary.tables) != 1 or any(item.tag == "T" for item in items):
        return items
    table = vocabulary.tables[0]
    items = [_named(item, table.name) if _names_rows(items, at, table) else item for at, item in enumerate(items)]
    unknown = [item for item in items if item.tag == "u"]
    alone = [item.tag for item in items if item.tag != "."] == ["#"]
    if table_names_row_noun(table.name) and not (alone and not unknown):
        return items
    if not unknown and [item.tag for item in items if item.tag != "."] in (["#"], ["m"]):
        # "How many rows are there", "missing values per column": the word for rows says nothing more.
        return [*items[:1], _named(TaggedItem("u", table.name, plural=True), table.name), *items[1:]]
    if not unknown and [item.tag for item in items[:2]] == ["#", "g"]:
        # "How many records are there for each country".
        return [items[0], _named(TaggedItem("u", table.name, plural=True), table.name), *items[1:]]
    place = next((at for at, item in enumerate(items) if item.tag == "u"), None)
    if place is None or len({item.text.lower() for item in unknown}) != 1:
        return items
    word = items[place].text.lower()
    if word == "sales" and not rows_are_sales(table, dated=True):
        return items  # the rows of a stock are not sales
    if word_base_form(word) == word or not _counted_or_first(items, place) or _is_known(word, vocabulary):
        return items
    said = {part for item in items[:place] for part in item.text.lower().split()}
    if said & _DIFFERENT or not _may_be_rows(word_base_form(word), table):
        return items
    return [_named(item, table.name) if item.tag == "u" else item for item in items]


def _names_rows(items: Sequence[TaggedItem], at: int, table: VocabularyTable) -> bool:
    """`shifts` are the rows of `hospital_shifts`, though its column `Shift` says early or late."""
    item = items[at]
    last = [word_base_form(word) for word in split_identifier_words(table.name)[-1:]]
    different = bool(_DIFFERENT & {part for before in items[:at] for part in before.text.lower().split()})
    return item.tag == "C" and item.plural and not different and last == [word_base_form(item.text.lower())]


def _may_be_rows(noun: str, table: VocabularyTable) -> bool:
    """Return whether each row may be what the noun says: a table with an age and a sex is one of people."""
    if noun in _AMOUNTS:
        return False
    if noun not in _PEOPLE | _SOME_PEOPLE | _THINGS:
        return True
    if noun in _SOME_PEOPLE or rows_are_sales(table):
        return False
    if noun in _PEOPLE and any(_OF_A_PERSON & {*column.words} for column in table.columns):
        return True
    named = [column for column in table.columns if column.kind == "text" and column.words[-1:]]
    return any(
        column.words[-1] in _OF_A_THING and column.distinct + column.nulls >= 0.9 * table.rows for column in named
    )


def table_names_row_noun(table: str) -> bool:
    """Return whether the name of a table is a plural, which its rows are called: `cars`, but not `titanic`."""
    return word_base_form(table.lower()) != table.lower()


def _counted_or_first(items: Sequence[TaggedItem], place: int) -> bool:
    before = [item.tag for item in items[:place] if item.tag not in "UKS"]
    return not before or before[-1] == "#" or (before[-1] == "p" and len(before) > 1 and before[-2] in "CE")


def _is_known(word: str, vocabulary: Vocabulary) -> bool:
    """Return whether a column or one of its few values is called like the word: `survivors` and `survived`."""
    root = stem_word(word)
    for column in vocabulary.tables[0].columns:
        names = (*column.words, *(value.lower() for value in column.values[:200]))
        if any(
            stem_word(name).startswith(root[:5]) or root.startswith(stem_word(name)) for name in names if len(name) > 3
        ):
            return True
    return False


def _named(item: TaggedItem, table: str) -> TaggedItem:
    name = NamePart(item.text, (Meaning(table, cost=0 if item.text == table else SYNONYM),))
    return replace(item, tag="T", data=name, plural=True)
