"""Other words for names that occur in much data: countries and their adjectives."""

from __future__ import annotations

from etude.runtime.number_check.mentions import mention_word_set

_COUNTRIES = """
united states: us usa u.s america american americans états-unis estados unidos vereinigte staaten
united kingdom: uk britain great britain british britons royaume-uni reino unido
germany: german germans deutschland deutsche allemagne alemania
france: french frankreich francia französische
china: chinese chine
japan: japanese japon
italy: italian italians italien italie italia
spain: spanish spaniards spanien espagne españa
brazil: brazilian brazilians brasilien brésil brasil
canada: canadian canadians kanada
india: indian indians indien inde
russia: russian russians russland russie rusia
mexico: mexican mexicans mexiko mexique méxico
netherlands: dutch holland niederlande pays-bas países bajos
switzerland: swiss schweiz suisse suiza
austria: austrian austrians österreich autriche
australia: australian australians
ireland: irish irland irlande
poland: polish poles polen pologne polonia
sweden: swedish swedes schweden suède suecia
norway: norwegian norwegians norwegen norvège noruega
denmark: danish danes dänemark danemark dinamarca
finland: finnish finns finnland finlande finlandia
portugal: portuguese
belgium: belgian belgians belgien belgique bélgica
greece: greek greeks
turkey: turkish turks
egypt: egyptian egyptians
argentina: argentinian argentine argentinians
chile: chilean chileans
south korea: korean koreans
czech republic: czech czechs czechia
hungary: hungarian hungarians
vietnam: vietnamese
kenya: kenyan
south africa: south african
"""
_PAIRS = {"great britain", "estados unidos", "vereinigte staaten", "reino unido", "pays-bas", "países bajos"}


def _parse() -> dict[str, str]:
    known: dict[str, str] = {}
    for line in _COUNTRIES.strip().splitlines():
        name, _, rest = line.partition(": ")
        words = rest.split()
        known[name] = name
        for i, word in enumerate(words):
            known[word] = name
            if i + 1 < len(words) and f"{word} {words[i + 1]}" in _PAIRS:
                known[f"{word} {words[i + 1]}"] = name
    return known


_KNOWN = _parse()


_DATES = sorted(
    mention_word_set(
        "january february march april may june july august september october november december "
        "monday tuesday wednesday thursday friday saturday sunday"
    )
)
_SHORT = {full[:3]: full for full in _DATES} | {full: full[:3] for full in _DATES}


def other_names(name: str) -> list[str]:
    """Return other words for a country, a month or a day of the week, in lower case; empty if the name is none."""
    if name.lower() in _SHORT:
        return [_SHORT[name.lower()]]
    country = _KNOWN.get(name.lower())
    return [word for word, of in _KNOWN.items() if of == country and word != name.lower()] if country else []
