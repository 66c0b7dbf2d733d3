"""What the words around a number say about how it was computed."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UP = (
    r"(?:up|grew|grown|grow(?:s|ing)?|growth|rose|risen|ris(?:e|es|ing)|increas\w*|gain\w*|climb\w*|"
    r"jump\w*|surg\w*|soar\w*|"
    r"higher|more|larger|bigger|greater|above|ahead|uplift|added|adding|expand\w*|longer|faster|beat\w*|exceed\w*|over)"
)
_DOWN = (
    r"(?:down|fell|fallen|fall(?:s|ing)?|drop\w*|declin\w*|decreas\w*|los[st]\w*|los(?:es|ing)|slip\w*|"
    r"dip\w*|shr[aiu]nk\w*|"
    r"lower|less|fewer|smaller|below|behind|reduc\w*|shorter|cut|miss\w*|short|outflow\w*|negative|minus|deficit)"
)
CHANGE = re.compile(
    rf"\b(?:{_UP}|{_DOWN}|chang\w*|compar\w*|vs|versus|differ\w*|improv\w*|outpac\w*|lead\w*|cagr|swing|gap|"
    r"per year|under the|short of|off (?:its|the)|(?:quick|fast|slow|cheap|dear|tall|old|young|heavi|light|warm|cold|"
    r"hott|earli|lat|bett|strong|weak|wid|narrow|rich|poor|steep|deep)er|worse|junior|senior|sav(?:e|es|ed|ing|ings)|"
    r"gestiegen|gewachsen|mehr|weniger|plus|moins|más|menos|aument\w*)\b|[+\u2212-]\s*$",
    re.I,
)
SHARE = re.compile(
    r"\b(?:share\w*|account\w*|represent\w*|contribut\w*|mak\w+ up|made up|compris\w*|portion|proportion|percentage|"
    r"rate|concentrat\w*|total|remaining|rest|others?|together|combined|overall|all|only|convert\w*|"
    r"reach\w*|got|get)\b",
    re.I,
)
_PART_OF = re.compile(r"[\s)*_]*(?:share\s+)?(?:of|der|des|de|del|du)\b", re.I)
OF_TOTAL = re.compile(
    r"[\s)*_]*of\s+(?:the\s+|our\s+|its\s+)?(?:total|all|overall|everything|whole|year|company)\b", re.I
)
TOTAL = re.compile(
    r"\b(?:total\w*|overall|altogether|combined|together|all|entire|sum\w*|in aggregate|full[- ]year|"
    r"between them|each of|"
    r"amount\w* to|add\w* up|insgesamt|gesamt\w*|zusammen|au total|en total|ensemble|across|net)\b",
    re.I,
)
_WHOLE = re.compile(
    r"\d[\d.,]{0,30}[\s)*_]{0,9}(?:\w{1,40}\s{1,9})?(?:of|out of|von|de|sur|/)\s+(?:the\s+|all\s+|our\s+|a total of\s+|"
    r"un total de\s+|den\s+|les\s+)*[*_]*$",
    re.I,
)
_DIFFERENCE = re.compile(
    r"\b(?:difference|gap|spread|swing|lead|margin)\s+(?:of|is|was|between .{3,40} (?:is|was|"
    r"of))\s+(?:about\s+|roughly\s+|only\s+|just\s+)?[$€£*_~]*$",
    re.I,
)
_STATISTIC = re.compile(r"\b(?:average[sd]?|mean|median|avg|total\w*)[^\w,;.]+(?:\w+[^\w,;.]+){0,4}$", re.I)
AVERAGE = re.compile(
    r"\b(?:average\w*|averag\w+|mean|avg|typical\w*|per|each|a year|annual\w*|cagr|compound\w*|weighted|apiece|every|"
    r"schnitt|durchschnitt\w*|moyenne|promedio|media|pro|par|por|a head|implies)\b|[ø/]",
    re.I,
)
MEDIAN = re.compile(r"\b(?:median\w*|middle|typical\w*|half)\b", re.I)
REST = re.compile(
    r"\b(?:remain\w*|rest|others?|excluding|except|without|leaves?|left|balance|not|filled|complete\w*|"
    r"lose[sn]?|losing|loss|lost|un\w+)\b",
    re.I,
)
TOGETHER = re.compile(
    r"\b(?:together|combined|these|those|both|between them|mak\w+ up|made up|account\w*|sum|total\w*|they|"
    r"add\w* up|plus|contribut\w*|jointly|collectively|in all|zusammen|ensemble|juntos|samen|insieme)\b",
    re.I,
)
_LARGEST = re.compile(
    r"\b(?:top|largest|biggest|highest|leading|leads?|leader\w*|best|first|main|most|max\w*|peak\w*|"
    r"strongest|longest|oldest|wins?|ahead)\b",
    re.I,
)
_SMALLEST = re.compile(
    r"\b(?:bottom|smallest|lowest|worst|last|weakest|least|fewest|min\w*|shortest|youngest|cheapest|trail\w*|only)\b",
    re.I,
)
_RANGE = re.compile(r"\b(?:between|rang\w*|spread|band|varies|vary|spans?)\b", re.I)
_APPOSED_NUMBER = re.compile(
    r"\d[\d.,]*[\s)*_]*(?:,|\bor\b|\(|\bi\.e\.|\babout\b|\broughly\b|=)[\s,(]*(?:(?:or|about|i\.e\.|roughly|some|~)[\s,]*)*$",
    re.I,
)
THAN = re.compile(
    r"[\s)*_]*(?:[a-z°]{1,7}\s+)?(?:higher|lower|more|less|fewer|larger|smaller|greater|bigger|longer|shorter)\b[^.;,]{0,40}?\bthan\b",
    re.I,
)
UNWEIGHTED = re.compile(r"\b(?:simple|unweighted|plain|ungewichtet\w*|einfach\w*|semplice)\b", re.I)
WEIGHTED = re.compile(r"\bweight\w*[^;]*$", re.I)
TEMPORAL = re.compile(
    r"\b(?:rose|risen|fell|fallen|grew|grown|increased|decreased|declined|dropped|climbed|jumped|slipped|shrank)"
    r"(?:\s+(?:by|about|around|roughly|nearly|almost|just|only|some|an?|another|\w+ly))*[\s~*_$€£]*$",
    re.I,
)
_COMPARED = re.compile(
    r"[\s)*_]*(?:more|less|fewer|higher|lower|above|below|mehr|weniger|de plus|de moins|más|menos)\b", re.I
)
_THAT_IS = re.compile(r"\s*(?:that|this|das|cela|eso)\b", re.I)
_PRODUCT = re.compile(
    r"[\u00d7*]|\b(?:times|worth|valued?|costs?|revenue|income|takings|sales|spend\w*|spent|stock|turnover|price\w*|payroll|"
    r"multipl\w*|would|weight\w*|sold out|capacity)\b",
    re.I,
)
QUARTILES = re.compile(r"\b(?:interquartile|iqr|quartiles?)\b", re.I)
_SIGMA = re.compile(r"\b(?:standard deviations?|sd|sigma|z-score)\b", re.I)
_RATIO = re.compile(r"\b(?:times|for every|ratio|one in|1 in|per|each|fold|twice|as many|as much)\b", re.I)


_MEAN = re.compile(
    r"\b(?:average\w*|averag\w+|mean|avg|typical\w*|median|schnitt\w*|durchschnitt\w*|moyen\w*|promedio\w*|media)\b",
    re.I,
)
_APART = re.compile(
    r"\b(?:than|by|apart|separat\w*|after|before|later|earlier|older|younger|wide\w*|swing|surplus|shortfall|net|"
    r"gained?|lost|margin|spare|extra|further|minus|delta|beyond|within|écart|devance\w*|dépass\w*|moins|"
    r"diferencia|supera\w*|menos|más|abstand|unterschied|vorsprung|mehr|weniger|höher|niedriger|über|unter|abweichung)\b",
    re.I,
)


@dataclass
class Wording:
    """What the words around a number say about how it was computed."""

    sentence: str
    local: str
    after: str
    before: str

    def __post_init__(self) -> None:
        words = re.sub(r"\bm(?:ak|ad)\w+ up\b", "share", self.local)
        self.part = bool(_PART_OF.match(self.after))
        self.sharing = self.part or bool(SHARE.search(words))
        self.changing = bool(CHANGE.search(words)) and not self.part
        self.statistic = bool(_STATISTIC.search(self.before))
        self.total = bool(TOTAL.search(self.sentence))
        self.average = bool(AVERAGE.search(re.sub(r"^[\s)*_]*(?:each|apiece)\b", "", self.after) + " | " + self.before))
        self.per = self.average or bool(AVERAGE.search(self.sentence))
        self.median = bool(MEDIAN.search(self.sentence))
        self.rest = bool(REST.search(self.sentence))
        self.together = bool(TOGETHER.search(self.sentence))
        self.largest = bool(_LARGEST.search(self.sentence))
        self.smallest = bool(_SMALLEST.search(self.sentence))
        self.whole = bool(_WHOLE.search(self.before))
        self.apposed = bool(_APPOSED_NUMBER.search(self.before))
        self.difference = bool(_DIFFERENCE.search(self.before))
        self.range = bool(_RANGE.search(self.local)) or (not self.changing and bool(re.search(r"\bfrom\b", self.local)))
        self.ratio = bool(_RATIO.search(self.local))
        self.sigma = bool(_SIGMA.search(self.sentence))

    def says(self, step: str, context: str) -> bool:
        """Return whether the text says that a number was computed by a step; `context` is what stands before it."""
        if step == "share":
            bracketed = self.before.endswith("(")
            return not _COMPARED.match(self.after) and (self.sharing or not self.changing or bracketed)
        if step == "product":
            return bool(_PRODUCT.search(self.sentence))
        if step == "change":
            return self.changing or bool(_THAT_IS.match(self.sentence) and CHANGE.search(context))
        if step == "median":
            return self.median
        if step == "mean":
            return self.per or self.median or bool(_MEAN.search(context))
        if step == "difference":
            return self.changing or self.rest or self.range or bool(_APART.search(self.sentence))
        if step == "quotient":
            return self.per or self.ratio or bool(AVERAGE.search(context))
        if step == "sum":
            return self.together or self.total
        return True
