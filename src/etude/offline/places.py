"""Codes of countries and US states, so that Germany finds `DE` and California `CA`."""

from __future__ import annotations

COUNTRIES = {
    "argentina": "AR ARG", "australia": "AU AUS", "austria": "AT AUT", "bangladesh": "BD BGD", "belgium": "BE BEL",
    "brazil": "BR BRA", "bulgaria": "BG BGR", "canada": "CA CAN", "chile": "CL CHL", "china": "CN CHN",
    "colombia": "CO COL", "croatia": "HR HRV", "czechia": "CZ CZE", "czech republic": "CZ CZE", "denmark": "DK DNK",
    "egypt": "EG EGY", "estonia": "EE EST", "finland": "FI FIN", "france": "FR FRA", "germany": "DE DEU GER",
    "greece": "GR GRC", "hong kong": "HK HKG", "hungary": "HU HUN", "iceland": "IS ISL", "india": "IN IND",
    "indonesia": "ID IDN", "ireland": "IE IRL", "israel": "IL ISR", "italy": "IT ITA", "japan": "JP JPN",
    "kenya": "KE KEN", "latvia": "LV LVA", "lithuania": "LT LTU", "luxembourg": "LU LUX", "malaysia": "MY MYS",
    "mexico": "MX MEX", "morocco": "MA MAR", "netherlands": "NL NLD", "the netherlands": "NL NLD",
    "new zealand": "NZ NZL", "nigeria": "NG NGA", "norway": "NO NOR", "pakistan": "PK PAK", "peru": "PE PER",
    "philippines": "PH PHL", "poland": "PL POL", "portugal": "PT PRT", "romania": "RO ROU", "russia": "RU RUS",
    "saudi arabia": "SA SAU", "serbia": "RS SRB", "singapore": "SG SGP", "slovakia": "SK SVK", "slovenia": "SI SVN",
    "south africa": "ZA ZAF", "south korea": "KR KOR", "spain": "ES ESP", "sweden": "SE SWE", "switzerland": "CH CHE",
    "taiwan": "TW TWN", "thailand": "TH THA", "turkey": "TR TUR", "ukraine": "UA UKR",
    "united arab emirates": "AE ARE UAE", "united kingdom": "GB GBR UK", "great britain": "GB GBR UK",
    "united states": "US USA", "united states of america": "US USA", "usa": "US USA", "america": "US USA",
    "vietnam": "VN VNM",
}  # fmt: skip

STATES = {
    "alabama": "AL", "alaska": "AK", "arizona": "AZ", "arkansas": "AR", "california": "CA", "colorado": "CO",
    "connecticut": "CT", "delaware": "DE", "florida": "FL", "georgia": "GA", "hawaii": "HI", "idaho": "ID",
    "illinois": "IL", "indiana": "IN", "iowa": "IA", "kansas": "KS", "kentucky": "KY", "louisiana": "LA",
    "maine": "ME", "maryland": "MD", "massachusetts": "MA", "michigan": "MI", "minnesota": "MN", "mississippi": "MS",
    "missouri": "MO", "montana": "MT", "nebraska": "NE", "nevada": "NV", "new hampshire": "NH", "new jersey": "NJ",
    "new mexico": "NM", "new york": "NY", "north carolina": "NC", "north dakota": "ND", "ohio": "OH",
    "oklahoma": "OK", "oregon": "OR", "pennsylvania": "PA", "rhode island": "RI", "south carolina": "SC",
    "south dakota": "SD", "tennessee": "TN", "texas": "TX", "utah": "UT", "vermont": "VT", "virginia": "VA",
    "washington": "WA", "west virginia": "WV", "wisconsin": "WI", "wyoming": "WY",
}  # fmt: skip

_NATIONALITIES = {
    "german": "germany", "french": "france", "spanish": "spain", "italian": "italy", "polish": "poland",
    "swedish": "sweden", "japanese": "japan", "american": "united states", "british": "united kingdom",
    "canadian": "canada", "brazilian": "brazil", "chinese": "china", "indian": "india", "dutch": "netherlands",
    "swiss": "switzerland", "austrian": "austria", "danish": "denmark", "norwegian": "norway", "mexican": "mexico",
    "australian": "australia", "portuguese": "portugal", "irish": "ireland", "greek": "greece", "finnish": "finland",
}  # fmt: skip


_CONTINENTS = {"european": "europe", "asian": "asia", "african": "africa"}
_ORIGINS = frozenset(("country", "nation", "nationality", "continent", "origin", "region"))
"""Words of column names whose values adjectives stand for: european for Europe."""

CODED = _ORIGINS | {"sex", "gender", "state", "province"}
"""Words of column names that may hold codes."""


def place_names(code: str, column_words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the place, or the gender, that a code stands for, if the column holds such codes."""
    found: list[str] = []
    upper = code.strip().upper()
    if {"sex", "gender"} & {*column_words}:
        found += (
            {"M": ["male", "men", "man"], "F": ["female", "women", "woman"]}.get(upper[:1], [])
            if len(upper) < 7
            else []
        )
    if {"state", "province", "region"} & {*column_words}:
        found += [name for name, short in STATES.items() if short == upper]
    if {"country", "nation", "nationality"} & {*column_words}:
        found += [name for name, codes in COUNTRIES.items() if upper in codes.split() or name == code.strip().lower()]
    if _ORIGINS & {*column_words}:
        origins = (*found, code.strip().lower())
        found += [adjective for adjective, name in (_NATIONALITIES | _CONTINENTS).items() if name in origins]
    return tuple(dict.fromkeys(found))
