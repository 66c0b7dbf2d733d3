"""The grammar of questions: a cascade of small rules over the tags of items.

Each rule is a regular expression over tags and a function that replaces the items it matches. A rule never skips an
item, so a word is either part of something or still there at the end, and then the question is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from etude.offline.absence_rules import (
    read_absent,
    read_absent_where,
    read_absent_which,
    read_count_missing,
    read_gaps,
    read_missing,
    read_not_done_by,
    read_not_so,
    read_unknown_value,
)
from etude.offline.comparison_rules import (
    read_above_average,
    read_above_average_of,
    read_adjective,
    read_adjective_average,
    read_amounting,
    read_between,
    read_between_worth,
    read_compare,
    read_compare_again,
    read_compare_column,
    read_compare_in,
    read_compare_not,
    read_numbered,
    read_numbered_row,
    read_worth,
)
from etude.offline.measure_rules import (
    read_aggregate,
    read_at_least,
    read_correlation,
    read_count,
    read_count_rows,
    read_days,
    read_distribute,
    read_distribute_count,
    read_exactly,
    read_outliers,
    read_outlying_rows,
    read_spread,
)
from etude.offline.noun_rules import (
    read_agent,
    read_by_many,
    read_columns_in_brackets,
    read_compound,
    read_each_one,
    read_grain,
    read_groups,
    read_participle,
    read_swap,
)
from etude.offline.question_parts import (
    Fn,
    Measure,
    NamePart,
)
from etude.offline.rank_rules import (
    read_first,
    read_most_common,
    read_number_of,
    read_order,
    read_order_of,
    read_ordered,
    read_rank,
    read_rank_after,
    read_rank_by,
    read_rank_implied,
    read_rank_latest,
    read_rank_noun,
    read_rank_of_noun,
    read_top,
    read_top_by,
)
from etude.offline.rule_items import Action, read_part_of
from etude.offline.tags import TaggedItem
from etude.offline.time_rules import read_dated, read_weekday, read_year_alone, read_years
from etude.offline.value_rules import (
    read_by_value,
    read_either,
    read_full_name,
    read_held_in,
    read_inner,
    read_match,
    read_match_again,
    read_move_value,
    read_named_not,
    read_named_value,
    read_not,
    read_noun_again,
    read_quoted_name,
    read_said,
    read_value,
    read_value_of_table,
    read_values,
)

OnRule = Callable[[str, str, str], None]
"""Called for each rule that changed something, with its pattern, the tags before and the tags after."""

RULES: tuple[tuple[str, Action], ...] = (
    (r"[VTC]\(V\)", read_inner),
    (r"Tx&#(?![a-zA-Z])", read_gaps),
    (r"V(?:\|V)+", lambda items: read_values(items) if items[1].data == "vs" else None),
    (r"VT\|VT|TV\|TV", read_noun_again),
    (r"l(?=[cNM#])", lambda items: [replace(items[0], tag="r")] if items[0].data == "contains" else None),
    (r"xl(?=T)", lambda items: [items[0], replace(items[1], tag="r")] if items[1].data == "contains" else None),
    (r"c(?=V)", lambda items: [TaggedItem("x", items[0].text)] if items[0].data == "!=" else None),
    (r"yC(?:&|p)?C", read_correlation),
    (r"^yp?C(?![TC])", read_outlying_rows),
    (r"yp?C", read_outliers),
    (r"T\(C(?:(?:,?&|,)C)*\)", read_columns_in_brackets),
    (r"VV", read_full_name),
    (r"xC(?=V*T)", read_not_so),
    (r"SCT", read_rank_noun),
    (r"CVT", lambda items: [items[1], items[0], items[2]] if all(m.flag for m in items[0].data.meanings) else None),
    (r"VT", lambda items: read_value_of_table(items) if items[1].joined else None),
    (r"TV|V+T", read_value_of_table),
    (r"V(?=g[TCV])", lambda items: read_participle(items[0])),
    (r"rg(?=cN[TC]|NeT|M)", lambda items: [items[0]] if items[1].text == "by" else None),
    (r"rg(?![^,&])", lambda items: [items[0]] if items[1].text == "by" else None),  # "reported by them"
    (r"rg[TC]", read_agent),
    (r"gV|g[TC]V", read_by_value),
    (r"xTgT", read_not_done_by),
    (r"(?<=T)gT(?=pV)", read_by_many),
    (r"rg(?=[TC]N)", lambda items: [items[0], TaggedItem("p", "by", "by")] if items[1].text == "by" else None),
    (r"NCT", read_numbered),
    (r"[TC][CT]", read_compound),
    (r"l[QVu]pC", lambda items: read_match([items[3], items[0], items[1]])),
    (r"O(?=TV|VT|VC|CV)", read_ordered),
    (r"[CT]l[QVuCTN]", read_match),
    (r"F\|l[QVuCTN]", read_match_again),
    (r"l[QVu]", read_match),
    (r"[QV]pC", read_held_in),
    (r"CpC", read_part_of),
    (r"CxV", read_named_not),
    (r"Vp?C|Cp?V", read_named_value),
    (r"[#AUMSK][VFB]", read_move_value),
    (r"[AM](?:,?&[AM]|,[AM])+#?C", read_distribute_count),
    (r"[AS](?:,?&[AS]|,[AS])+U?C", read_distribute),
    (r"Cp?[co]A(?:C|(?![#UpTC]))", read_above_average),
    (r"oA(?:C|(?![#UpTC]))", read_adjective_average),
    (r"cA#?C(?![CTVn])", read_above_average_of),
    (r"cNpC(?![CTVNcowlx])", read_compare_in),
    (r"A#?twC&C", read_days),
    (r"cN[A#]?U?[TC]", read_at_least),
    (r"NeU?[TC]", read_at_least),
    (r"AG", read_swap),
    (r"(?:^|[rp])T[AS]C(?!n)", read_rank_of_noun),
    (r"A#?U?p?[TC](?!n)", read_aggregate),
    (r"#(?:xC|Cx(?![a-zA-Z]))", read_count_missing),
    (r"#U?[TC]", read_count),
    (r"#pT", read_count_rows),
    (r"vU?C", read_spread),
    (r"A?[TC]n", lambda items: read_count([TaggedItem("#", items[-1].text, ""), items[-2]])),
    (r"P[TC]", read_most_common),
    (r"CpTP", lambda items: [*read_most_common([items[3], items[0]]), items[1], items[2]]),
    (r"[TC]P", lambda items: read_most_common(items[::-1])),
    (r"^EcN", lambda items: read_worth(items, first=True)),
    (r"EcN|TcN", read_worth),
    (r"[EC]p?[co]N", read_compare),
    (r"cCp?N", read_compare_column),
    (r"oN", read_adjective),
    (r"[TE]p?wN&N(?![TC])", read_between_worth),
    (r"Cp?wN&N", read_between),
    (r"wN&NC", lambda items: read_between([items[-1], *items[:-1]])),
    (r"CxN(?![eTC])", read_compare_not),
    (r"Cp?Ne?(?!T)", read_compare),
    (r"F\|[co]?N(?![TC])", read_compare_again),
    (r"N[SM]", read_top),
    (r"TKC(?![a-zA-Z])", read_top_by),
    (r"Op?SCpS", read_order),
    (r"S[EC]", read_rank),
    (r"M#?[TCE]", read_rank),
    (r"T(?:r*|C)S(?![a-zA-Z#])|TS(?=r)", read_rank_latest),
    (r"ST", read_rank_implied),
    (r"^(?:[VF]?T|T(?:F|p?V))S(?![a-zA-Z#])", read_rank_after),
    (r"Od[gp][ECT]", read_order),
    (r"d[gp][ECT]", read_order_of),
    (r"O[gp]?nd?", read_order),
    (r"O[gp]?C&C(?![a-zA-Z])d?", read_order),
    (r"O[gp]?[ECTZ]r*d?", read_order),
    (r"O?d[EC]?", read_order),
    (r"Yu", read_first),
    (r"N[TC](?=.*Z)", read_number_of),
    (r"[TEDFr&]NC(?![TC])", read_amounting),
    (r"NT", read_exactly),
    (r"TN(?![eTC&|])", read_numbered_row),
    (r"O", read_ordered),
    (r"gE(?:&E)?", read_rank_by),
    (r"^g[CTt](?:&[CTt])?(?=,)", read_groups),
    (r"CgT", read_each_one),
    (r"g(?:[CTt])(?:(?:,?&|,)g?(?![CTt]p[TC])[CTt])*(?![a-zA-Z]*\|)", read_groups),
    (r"G", read_grain),
    (r"[TC]Q", read_quoted_name),
    (r"VT|TV", read_value_of_table),
    (r"V(?:(?:,?[&|]|,)V)+", read_values),
    (r"V", read_value),
    (r"xFT", read_absent_which),
    (r"xr?p?F", read_not),
    (r"xr*p?T", read_absent),
    (r"xC", read_missing),
    (r"Cx(?![a-zA-Z])", read_unknown_value),
    (r"BN(?![a-zA-Z])", read_year_alone),
    (r"p?W", read_weekday),
    (r"[ruC]D", read_dated),
    (r"p[FD]", read_said),
    (r"D\|p?[DN]", read_years),
    (r"[FD],?\|[rp]*[FD]", read_either),
    (r"Xr?[FD]", read_absent_where),
)
"""Patterns over tags, with the functions that replace the matched items, in the order in which they run."""


def apply_rules(items: list[TaggedItem], on_rule: OnRule | None = None) -> list[TaggedItem]:
    """Return the items after all rules, each condition attached to its noun."""
    for pattern, action in RULES:
        before, items = items, _reduce(items, pattern, action)
        if on_rule is not None and items != before:
            on_rule(pattern, "".join(i.tag for i in before), "".join(i.tag for i in items))
    return _attach(_extremes(items))


def _reduce(items: list[TaggedItem], pattern: str, action: Action) -> list[TaggedItem]:
    """Apply a rule from left to right, and again after each change, until it finds nothing new."""
    compiled = re.compile(pattern)
    at = 0
    for _ in range(500):
        tags = "".join(item.tag for item in items)
        match = compiled.search(tags, at)
        if match is None or match.start() == match.end():
            break
        made = action(items[match.start() : match.end()])
        if made is None:
            at = match.start() + 1
            continue
        items = items[: match.start()] + made + items[match.end() :]
        at = match.start()
        if [item.tag for item in made] == list(tags[match.start() : match.end()]):
            at = match.start() + 1
    return items


def _extremes(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the highest price of ...` before any other noun asks for the price itself."""
    for at, item in enumerate(items):
        if item.tag in "TCEKt":
            break
        if item.tag == "Z" and isinstance(item.data.by, NamePart):
            fn: Fn = "max" if item.data.direction == "desc" else "min"
            items = [
                *items[:at],
                TaggedItem("E", item.text, Measure(fn, item.data.by, text=item.text)),
                *items[at + 1 :],
            ]
    return items


def _attach(items: list[TaggedItem]) -> list[TaggedItem]:
    """Attach each condition to the noun it follows."""
    noun: NamePart | None = None
    beside = True
    made = []
    for item in items:
        beside = item.tag not in "CEZH" and (beside or item.tag in "TB")
        if item.tag == "T":
            noun = item.data
        elif item.tag == "E" and item.data.name.tables:
            noun = item.data.name
        elif item.tag == "B" and item.data and item.data[-1].name and item.data[-1].name.tables:
            noun = item.data[-1].name
        elif item.tag == "Z" and isinstance(item.data.by, Measure) and item.data.by.name.tables:
            noun = item.data.by.name
        elif item.tag == "H" and item.data.measure.name.tables:
            noun = item.data.measure.name
        bound = item.tag in "FD" and noun is not None
        made.append(replace(item, data=replace(item.data, after=noun, beside=beside)) if bound else item)
    return made
