"""English words that say what to do: count, average, group, compare, order. None of them is a name in the data."""

from __future__ import annotations

from dataclasses import dataclass

STOP = frozenset(
    """
    the a an is are was were be been being am there here me us we i you my our your their its his her he she it they
    them these those this that which who whom whose what where please pls plz can could would will shall should may
    might do does did done doing so also too very just all any some either such as well about
    corresponding respective respectively various actually overall
    record records row rows entry entries data dataset database table tables list result results
    information info details detail exist exists existing one ones whats wich anything anyone everyone everybody
    then than ever have has had having with want need like know see tell let help using use based
    column columns along together up down off if into onto themselves itself
    associated related relevant given particular specific certain combination combinations
    listed stored named called titled known text string letter word phrase following part vary varies differ differs
    """.split()  # noqa: SIM905 - a list of words reads best as text
)

ASKING = frozenset(
    """
    what which who whom whose list show give return get find display tell provide fetch retrieve select
    name report identify determine calculate compute output print view include
    """.split()  # noqa: SIM905
)

REQUESTS = frozenset(
    """
    report print show give find return get tell provide fetch retrieve display compute calculate
    """.split()  # noqa: SIM905
)
"""Verbs that ask for an answer, also after `please` or `can you`."""

LINKING = frozenset(
    """
    make makes made making placed placing write writes wrote written writing publish publishes published
    serve serves served serving offer offers offered offering belong belongs belonged belonging worked
    working receive receives received receiving give gives gave given own owns owned contain contains contained
    presented presenting appear appears appeared hold holds held associated affiliated
    flow flows flowed operate operates operated operating locate located live lives lived living reside
    happen happened occur occurred take takes took taken taking teach teaches taught teaching
    attend attends attended attending enroll enrolled enrol participate participated assign assigned
    get gets got carry carries carried provide provides provided link linked connect connected
    come comes came go goes went reach reached earn earned gain gained recorded
    found finds used authored accept accepts accepted generate generated obtain obtained
    perform performed conduct conducted handle handled covered involve involved require requires required
    released submit submitted posted played sing sang sung direct directed produce produced
    exist exists included featured represent represented lie lies stayed
    purchased buy buys bought ordered sell sells sold selling shipped pay paid spend spent
    visited reviewed rated treat treated prescribe prescribed diagnose diagnosed
    experienced issued opened reported involving involve involves occured registered send sends sent sending cite cites
    cited manage managed describe described correspond corresponds corresponded
    """.split()  # noqa: SIM905
)
"""Verbs that only say that two things belong together; the keys say how."""

IDLE = frozenset(
    """
    made placed recorded happened occurred occured exist exists included found held contained represented located
    offered given associated created added
    """.split()  # noqa: SIM905
)
"""Verbs that, even alone, only say that a thing exists."""

PRESENT = {
    "bought": "buy", "sold": "sell", "sent": "send", "paid": "pay", "spent": "spend", "given": "give", "gave": "give",
    "taken": "take", "took": "take", "written": "write", "wrote": "write", "got": "get", "held": "hold",
    "made": "make",
    "went": "go", "taught": "teach",
}  # fmt: skip

VERBS = frozenset(
    """
    release order review visit play work use post rate purchase place record experience cover feature author run stay
    cost ship
    """.split()  # noqa: SIM905
)
"""Verbs that are also nouns: they are verbs only after `do`, `does` or `did`."""

UNITS = frozenset(
    """
    cm mm centimeter centimeters meter meters metre metres kilometer kilometers km mile miles foot feet inch inches mph
    kmh kph kg kilogram kilograms pound pounds lb lbs gram grams ton
    tons tonne tonnes dollar dollars usd euro euros eur cent cents percent
    year years day days hour hours minute minutes seconds square cubic star stars point points people
    time times unit units degree degrees liter liters litre litres
    """.split()  # noqa: SIM905
)

CURRENCY = frozenset(("dollar", "dollars", "usd", "euro", "euros", "eur", "cent", "cents"))
"""Units of money."""


@dataclass(frozen=True)
class Word:
    """An operator word: its tag for the grammar, and its detail."""

    tag: str
    data: object = None


def _operators() -> dict[tuple[str, ...], Word]:
    words: dict[tuple[str, ...], Word] = {}

    def put(tag: str, data: object, *phrases: str) -> None:
        for phrase in phrases:
            words[tuple(phrase.split())] = Word(tag, data)

    put("#", "", "how many", "number of", "numbers of", "total number of", "count of", "counts of", "total count of",
        "count the number of", "count the total number of", "count the numbers of", "overall number of",
        "total numbers of", "how many of", "number of total", "amount of times",
        "frequency of")  # fmt: skip
    put("#", "distinct", "number of distinct", "number of unique", "number of different", "how many distinct",
        "how many different", "how many unique", "count of distinct", "count of unique", "distinct count of",
        "count the number of distinct", "count the number of different", "count the number of unique",
        "distinct number of", "different number of", "total number of unique", "total number of distinct",
        "total number of different",
        "unique number of")  # fmt: skip
    put(
        "U",
        None,
        "distinct",
        "unique",
        "different",
        "distinct list of",
        "list of distinct",
        "unique list of",
        "list of unique",
    )
    put("A", "avg", "average", "avg", "mean", "typical", "average value of", "mean value of", "average of", "avg of")
    put("A", "sum", "total", "sum of", "sum", "combined", "total sum of", "overall total", "how much",
        "total of", "sum total of")  # fmt: skip
    put("A", "median", "median", "median of", "median value of")
    put("A", "stddev", "standard deviation of", "standard deviation", "std dev of", "stddev of", "stdev of", "stddev")
    for part, names in ((0.25, ("first", "lower", "1st")), (0.75, ("third", "upper", "3rd"))):
        put("A", part, *(f"{name} quartile{of}" for name in names for of in ("", " of")))
    put("A", "max", "maximum", "max", "maximum value of", "maximum of", "max of", "highest value of")
    put("A", "min", "minimum", "min", "minimum value of", "minimum of", "min of", "lowest value of")

    put("S", ("desc", "altitude height elevation"), "highest")
    put("S", ("desc", "area size population capacity"), "largest", "biggest")
    put("S", ("desc", ""), "greatest", "maximal", "top")
    put("S", ("asc", "altitude height elevation"), "lowest")
    put("S", ("asc", "area size population"), "smallest")
    put("S", ("asc", ""), "least", "minimal")
    put("n", None, "count", "counts")
    put("M", "desc", "most", "most number of", "highest number of", "largest number of",
        "greatest number of", "maximum number of", "highest count of", "biggest number of",
        "highest total number of", "largest amount of", "greatest amount of", "highest amount of", "most amount of",
        "biggest amount of")  # fmt: skip
    put("P", "desc", "most frequent", "most common", "most frequently used", "most commonly used", "most popular",
        "most used", "most frequently occurring",
        *(f"{verb} {the}most {often}" for verb in ("used", "appears", "appear", "occurs", "occur")
          for the in ("", "the ") for often in ("often", "frequently", "commonly")))  # fmt: skip
    put("P", "asc", "least frequent", "least common", "least popular", "least frequently used",
        *(f"{verb} {the}least {often}" for verb in ("used", "appears", "occurs") for the in ("", "the ")
          for often in ("often", "frequently", "commonly")))  # fmt: skip
    put("M", "asc", "fewest", "least number of", "lowest number of", "smallest number of", "minimum number of",
        "fewest number of", "fewest amount of", "smallest amount of", "lowest amount of",
        "least amount of")  # fmt: skip
    put("S", ("desc", "length duration distance runtime millisecond second minute hour"), "longest")
    put("S", ("asc", "length duration distance runtime millisecond second minute hour"), "shortest")
    put("S", ("desc", "altitude height elevation"), "tallest")
    put("S", ("asc", "price cost fare"), "cheapest", "least expensive")
    put("S", ("desc", "price cost fare"), "most expensive", "priciest", "costliest")
    put("S", ("desc", "rating score grade"), "best", "best rated", "top rated", "highest rated", "highest - rated",
        "top - rated", "best - rated")  # fmt: skip
    put("S", ("desc", "!sales"), "best selling", "best - selling", "bestselling", "top selling", "top - selling",
        "most sold", "best seller", "best sellers", "best - seller", "best - sellers", "bestseller", "bestsellers",
        "top seller", "top sellers")  # fmt: skip
    put("S", ("asc", "!sales"), "worst selling", "worst - selling", "least sold")
    put("S", ("asc", "rating score grade"), "worst", "worst rated", "lowest rated", "lowest - rated")
    # The oldest has the highest age, but the earliest date: `!` turns the direction around.
    put("S", ("asc", "!age birthdate birth birthday date year founded built opened"), "oldest")
    put("S", ("desc", "!age birthdate birth birthday date year"), "youngest")
    put("S", ("asc", "date year time joined created"), "earliest")
    put("S", ("desc", "date year time joined created"), "newest", "latest", "most recent")
    put("S", ("desc", "date year time joined created"), "latest ones")
    put("S", ("desc", "speed"), "fastest")
    put("S", ("asc", "speed"), "slowest")
    put("S", ("desc", "weight"), "heaviest")
    put("S", ("asc", "weight"), "lightest")
    put("S", ("desc", "population"), "most populous", "most populated")
    put("S", ("asc", "population"), "least populous", "least populated")
    put("S", ("desc", "citation"), "most cited", "most - cited")
    put("S", ("desc", "value price worth amount cost"), "most valuable")
    put("S", ("asc", "value price worth amount cost"), "least valuable")
    put("S", ("desc", "width"), "widest")
    put("S", ("asc", "width"), "narrowest")
    put("S", ("desc", "depth"), "deepest")
    put("S", ("desc", "altitude height elevation"), "highest single")
    put("S", ("desc", "area size population"), "largest single", "biggest single")
    put("S", ("asc", "area size population"), "smallest single")

    put("g", None, "for each", "per", "by", "in each", "each", "every", "across", "of each", "grouped by", "group by",
        "broken down by", "split by", "for every", "within each", "in every", "by each", "at each", "on each",
        "from each", "to each", "per each", "for each of", "with each", "under each", "through each", "for different",
        "across different", "separately for each", "breakdown by",
        "of every", "from every", "at every", "across each", "into each",
        "for each unique", "for each distinct", "for each different", "for each of different", "in different",
        "over the", "over each", "over", "in terms of")  # fmt: skip
    for grain, phrases in {
        "month": ("monthly", "month by month"),
        "year": ("yearly", "annual", "annually", "year by year"),
        "day": ("daily",),
        "week": ("weekly",),
        "quarter": ("quarterly",),
    }.items():
        put("G", grain, *phrases)
    for unit in ("day", "week", "month", "quarter", "year"):
        put("t", unit, unit, f"{unit}s")
    put("t", "weekday", "day of the week", "day of week", "days of the week")

    put("i", ("percent", None), "growth", "growth rate", "percentage change", "percent change", "relative change")
    put("i", ("difference", None), "change", "changes", "change in", "absolute change")
    for unit in ("day", "week", "month", "quarter", "year"):
        for over in (f"{unit} over {unit}", f"{unit} - over - {unit}", f"{unit[0]}o{unit[0]}"):
            put("G", unit, over)
            put("i", ("percent", unit), f"{over} growth", f"{over} growth of", f"{over} percentage change")
            put("i", ("difference", unit), f"{over} change", f"{over} change in", f"{over} difference")

    put("c", ">", "more than", "greater than", "over", "above", "higher than", "exceeding", "exceeds", "exceed",
        "larger than", "bigger than", "in excess of", ">", "greater", "larger", "higher",
        "that exceeds", "that exceed", "which exceeds", "bigger")  # fmt: skip
    put("c", "<", "less than", "fewer than", "under", "below", "lower than", "smaller than", "<",
        "smaller", "lower", "lesser than")  # fmt: skip
    # Which of the two directions is better depends on the column.
    put("c", "better", "better than")
    put("c", "worse", "worse than")
    put("d", "best", "best first", "best ones first")
    put("d", "worst", "worst first", "worst ones first")
    put("o", (">", "age"), "older than", "older")
    put("o", ("<", "age"), "younger than", "younger")
    put("o", (">", "height"), "taller than")
    put("o", (">", "length duration distance"), "longer than")
    put("o", ("<", "length duration distance height"), "shorter than")
    put("o", (">", "weight"), "heavier than")
    put("o", ("<", "weight"), "lighter than")
    put("o", (">", "price cost fare"), "more expensive than", "costlier than")
    put("o", ("<", "price cost fare"), "cheaper than", "less expensive than")
    put("o", (">", "speed"), "faster than")
    put("o", ("<", "speed"), "slower than")
    put("o", (">", "width"), "wider than")
    put("o", (">", "value price worth amount"), "worth more than", "valued over", "valued above", "worth over")
    put("o", ("<", "value price worth amount"), "worth less than", "valued below", "worth under")
    put("c", ">=", "at least", "no less than", "no fewer than", "a minimum of", ">=", "greater than or equal to",
        "not less than", "more than or equal to", "not fewer than", "larger than or equal to",
        "higher than or equal to", "bigger than or equal to", "equal to or more than", "equal to or greater than",
        "equal or greater than", "equal or more than", "no smaller than", "no lower than",
        "not lower than")  # fmt: skip
    put("c", "<=", "at most", "no more than", "up to", "a maximum of", "<=", "less than or equal to", "not more than",
        "fewer than or equal to", "smaller than or equal to", "lower than or equal to", "equal to or less than",
        "equal or less than", "no greater than", "no larger than", "no higher than", "not greater than")  # fmt: skip
    put("c", "=", "equal to", "exactly", "equals", "=", "equal", "is exactly")
    put("c", "!=", "!=", "<>", "not equal to", "other than")
    put("e", ">=", "or more", "or higher", "or greater", "or above", "and above", "or over", "and up", "and higher")
    put("e", "<=", "or less", "or fewer", "or lower", "or below", "and below", "or under")
    put("w", None, "between")

    put("x", None, "no", "not", "without", "never", "not any", "without any", "have no", "has no", "do not have any",
        "do not have", "does not have any", "does not have", "did not", "have not", "has not", "have never",
        "has never", "had no", "with no", "are not", "is not", "were not", "was not", "do not", "does not",
        "not have",
        "not have any", "excluding", "except", "except for", "not in", "lacking", "lack", "non", "have not made any",
        "no longer", "not part of any", "none", "neither", "aren not", "cannot", "not been")  # fmt: skip
    put("x", "missing", "missing", "null", "missing values in", "missing values of", "missing values for",
        "missing value in", "null values in", "null values of", "null values for", "nulls in", "empty values in",
        "missing values", "null values", "blank", "unknown", "empty")  # fmt: skip
    put("x", None, "without a single", "not a single", "w / o")
    put("O", None, "ordered by", "sorted by", "order by", "sort by", "order the results by", "sort the results by",
        "ordered", "sorted", "order", "sort", "rank by", "ranked by", "in order of", "in the order of",
        "order them by", "sort them by",
        "order it by", "order results by", "sort results by", "order the result by", "sort the result by",
        "order the output by", "arranged by", "ordered from", "sorted from", "starting from the", "starting from",
        "starting with the", "sort the", "order the", "sorted in order of", "arrange by", "listed by", "in order by",
        "sorted according to", "ordered according to", "order the list by", "sort the list by", "order them based on",
        "sorted based on", "ordered based on", "ordering by", "sorting by", "alphabetically ordered by",
        "alphabetically sorted by", "ordered alphabetically by", "sorted alphabetically by",
        "according to")  # fmt: skip
    put("d", "desc", "in descending order", "descending", "desc", "from highest to lowest", "highest to lowest",
        "from most to least", "largest first", "highest first", "most first", "descending order",
        "in decreasing order",
        "from largest to smallest", "largest to smallest", "longest to shortest", "from longest to shortest",
        "highest to the lowest", "best to the lowest", "in reverse order", "newest first", "latest first",
        "from best to worst", "from most recent to least recent", "most recent first", "in desc order",
        "starting from the top", "in a descending manner", "in descending manner",
        "from the highest to the lowest", "in reverse alphabetical order", "best to worst", "from latest to earliest",
        "from most recent to oldest", "from newest to oldest", "in the descending order", "in a descending order",
        "by descending order", "in descending alphabetical order", "in reversed alphabetical order",
        "in the reverse order", "in descending alphabetic order", "in reverse lexicographical order",
        "from high to low", "high to low", "from large to small", "from the largest to the smallest",
        "from oldest to youngest", "in decreasing alphabetical order", "in the decreasing order",
        "in descending order alphabetically", "in reverse chronological order", "from old to young",
        "from the most to the least", "from the most recent to the oldest", "in desending order",
        "in descending lexicographical order", "highest ones first", "largest ones first", "decreasing",
        "in descending",
        "decreasing order", "in a decreasing order", "from big to small", "from biggest to smallest")  # fmt: skip
    put("d", "asc", "in ascending manner", "in an ascending manner")
    put("d", "asc", "in ascending order", "ascending", "asc", "from lowest to highest", "lowest to highest",
        "alphabetically", "in alphabetical order", "smallest first", "lowest first", "ascending order",
        "in increasing order", "from smallest to largest", "from shortest to longest", "from least to most",
        "oldest first", "earliest first", "chronologically", "in chronological order", "shortest to longest",
        "smallest to largest", "from the lowest to the highest", "from earliest to latest", "in asc order",
        "from early to late",
        "by alphabetical order", "from oldest to newest", "from oldest to most recent", "in the ascending order",
        "in an ascending order", "by ascending order", "in ascending alphabetical order", "in alphabetic order",
        "in the alphabetical order", "in lexicographical order", "in lexicographic order", "in the increasing order",
        "alphabetical order", "from low to high", "low to high", "from small to large", "from youngest to oldest",
        "from the smallest to the largest", "in ascending order alphabetically", "in lexical order",
        "in an alphabetical order", "by alphabetic order", "from young to old", "in alphabetical ascending order",
        "from least to greatest", "in increasing alphabetical order", "in the alphabetic order",
        "in ascending alphabetic order", "in ascending lexicographical order", "in dictionary order", "increasing",
        "in ascending", "increasing order", "in an increasing order", "from small to big",
        "from smallest to biggest")  # fmt: skip
    high = ("highest", "largest", "biggest", "greatest", "most", "longest", "high", "large", "big", "long")
    low = ("lowest", "smallest", "least", "fewest", "shortest", "low", "small", "short")
    for first, second in ((first, second) for first in high for second in low):
        for begin, the in ((begin, the) for begin in ("", "from ") for the in ("", "the ")):
            put("d", "desc", f"{begin}{the}{first} to {the}{second}")
            put("d", "asc", f"{begin}{the}{second} to {the}{first}")
    put("R", 1, "ratio of", "ratio", "proportion of", "proportion", "share of", "fraction of",
        "ratio between")  # fmt: skip
    put("R", 100, "percentage of", "percent of", "percentage", "% of", "as a percentage of")
    parts = ("letter", "word", "substring", "string", "phrase", "text", "character", "prefix", "suffix")
    said = ("", *(f" {article}{part}" for article in ("", "the ", "a ") for part in parts))
    for way, verbs in {
        "starts_with": ("starts with", "starting with", "start with", "begins with", "begin with", "beginning with"),
        "ends_with": ("ends with", "ending with", "end with", "ending in", "ends in", "end in"),
        "contains": ("contains", "containing", "contain"),
    }.items():
        put("l", way, *(verb + part for verb in verbs for part in said))
    held = ("includes", "include", "including", "has", "have", "having", "with")
    put("l", "contains", *(verb + part for verb in held for part in said if part and not part.endswith("fix")))
    for way, ending in (("starts_with", "prefix"), ("ends_with", "suffix")):
        put("l", way, *(f"{verb} {the}{ending}" for verb in ("with", "has", "have") for the in ("", "the ", "a ")))
    put("|", None, "or", "nor")
    put("|", "vs", "vs", "versus", "vs .", "compared with")
    put("&", None, "and", "as well as", "along with", "&", "together with", "plus", "showing", "returning", "listing",
        "with their", "with its", "with his", "with her", "alongside")  # fmt: skip
    put("I", None, "all information", "all the information", "all info", "all the info", "all details",
        "all the details", "all data", "all the data", "all columns", "all the columns", "all fields",
        "all attributes",
        "full details", "full information", "complete information", "complete details", "everything", "every column",
        "all available information", "all the available information", "all available details", "the full rows",
        "all of the information", "all of the details", "all known information", "full records")  # fmt: skip
    put("v", "distribution", "distribution of", "frequency distribution of", "breakdown of", "histogram of")
    put("v", "spread", "spread of", "range of", "dispersion of", "variation of", "variability of", "spread in")
    put("v", "quartiles", "quartiles of", "quartile of")
    put("y", "correlation", "correlation between", "correlation of", "correlation", "correlated")
    put("y", "outlier", "outliers in", "outliers of", "outliers for", "outliers", "outlier", "unusual",
        "extreme values of", "extreme values in", "outliers by")  # fmt: skip
    put("m", None, "missing values per column", "missing values by column", "missing values in each column",
        "missing values of each column", "null values per column", "nulls per column", "missing values for each column",
        "missing data per column", "columns have missing values", "columns with missing values",
        "columns contain missing values", "columns have nulls", "columns have missing data")  # fmt: skip
    put("a", None, "on average")
    put("b", None, "both")
    put(
        "-",
        None,
        "find out",
        "in total",
        "altogether",
        "in all",
        "in the database",
        "in the dataset",
        "in the data",
        "in our records",
        "in the table",
        "in record",
        "in the records",
        "on file",
        "at all",
        "for the record",
        "in the list",
        "in our database",
        "in this database",
        "we have",
        "do we have",
        "on record",
        "case insensitive",
        "case - insensitive",
        "case insensitively",
        "case - insensitively",
    )
    put("j", None, "by doing a left join", "by doing an inner join", "using a left join", "using an inner join",
        "based on joining", "by joining", "by doing a join", "left join", "inner join")  # fmt: skip
    put("p", "for", "for all", "across all", "for all of")
    put("f", None, "out of", "to the total number of", "to the number of", "out of all",
        "out of the total number of", "among all",
        "out of total", "relative to", "compared to", "to total", "among")  # fmt: skip
    for word in ("in", "of", "for", "from", "to", "at", "on", "within", "during", "into", "through", "via", "among",
                 "around", "near", "towards", "against", "under"):  # fmt: skip
        put("p", word, word)
    words[("under",)] = Word("c", "<")
    words[("over",)] = Word("c", ">")
    words[("among",)] = Word("p", "among")
    return words


OPERATORS = _operators()
LONGEST = max(len(phrase) for phrase in OPERATORS)
