"""Evidence about an effect: e-values, which may be checked after every event, and intervals of rates.

An e-value has an expectation of at most 1 without an effect, at any stopping time. So the chance that it ever
reaches 20 without an effect is at most 1 in 20, however often it is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Literal

ONE_IN_20 = math.log(20)
"""The log of the e-value that an effect of a lesson needs."""
ONE_IN_100 = math.log(100)
"""The log of the e-value that an edit needs."""
STAKES = (0.1, 0.2, 0.4, 0.6, 0.8)
"""The shares of its capital that the paired test bets on each pair."""
_BASES = tuple(0.05 + 0.1 * n for n in range(10))
_STEPS = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6)
_FEWEST = 3
"""Events of each arm below which nothing is said about the probability of harm."""


@dataclass(frozen=True, slots=True)
class CoinEvent:
    """One eligible run of a lesson: the probability of showing it, whether it was shown, and the outcome."""

    q: float
    shown: bool
    success: bool
    family: str = ""


@cache
def _grid(sign: int) -> tuple[tuple[float, float], ...]:
    pairs = ((p0, p0 + sign * step) for p0 in _BASES for step in _STEPS)
    return tuple((p0, p1) for p0, p1 in pairs if 0.01 <= p1 <= 0.99)


class CoinTest:
    """The e-value that showing a lesson lowers success (`harm`) or raises it (`help`), against its own coin.

    Each factor compares the outcome that a mixture of predictors expects for the arm that the coin chose with the one
    expected before the coin was flipped. Without an effect its expectation over the coin is exactly 1, whatever the
    difficulty of the tasks. Each family of tasks has its own mixture.
    """

    def __init__(self, direction: Literal["harm", "help"]) -> None:
        self._pairs = _grid(-1 if direction == "harm" else 1)
        self._weights: dict[str, list[float]] = {}
        self.log_e = 0.0

    def add(self, event: CoinEvent) -> None:
        """Take one more event into account."""
        q = event.q
        weights = self._weights.get(event.family) or [1 / len(self._pairs)] * len(self._pairs)
        seen, expected, updated = 0.0, 0.0, []
        for weight, (p0, p1) in zip(weights, self._pairs):
            likely0, likely1 = (p0, p1) if event.success else (1 - p0, 1 - p1)
            likely = weight * (likely1 if event.shown else likely0)
            seen += likely
            expected += weight * (q * likely1 + (1 - q) * likely0)
            updated.append(likely)
        self.log_e += math.log(seen / expected)
        self._weights[event.family] = [w / seen for w in updated]


@dataclass(frozen=True, slots=True)
class CoinArm:
    """Runs of one arm, and how many of them succeeded."""

    runs: int = 0
    successes: int = 0

    def add(self, success: bool) -> CoinArm:
        """Return the arm with one more run."""
        return CoinArm(self.runs + 1, self.successes + success)

    @property
    def rate(self) -> float:
        """The share of successes; 0 without runs."""
        return self.successes / self.runs if self.runs else 0.0

    @property
    def mean(self) -> float:
        """The posterior mean of the rate, from a uniform prior."""
        return (self.successes + 1) / (self.runs + 2)

    @property
    def _variance(self) -> float:
        return self.mean * (1 - self.mean) / (self.runs + 3)


def probability_of_harm(shown: CoinArm, withheld: CoinArm) -> float | None:
    """Return the posterior probability that showing lowers success; None if an arm has too few runs."""
    if min(shown.runs, withheld.runs) < _FEWEST:
        return None
    spread = math.sqrt(shown._variance + withheld._variance)
    return NormalDist().cdf((withheld.mean - shown.mean) / spread)


def wilson_interval(successes: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of a rate; 0 to 1 without runs."""
    if runs == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, scale = successes / runs, 1 + z * z / runs
    centre = (share + z * z / (2 * runs)) / scale
    reach = z / scale * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def effect_interval(shown: CoinArm, withheld: CoinArm, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the difference of two rates with its interval (Newcombe's, from the Wilson intervals of both)."""
    low1, high1 = wilson_interval(shown.successes, shown.runs, confidence)
    low0, high0 = wilson_interval(withheld.successes, withheld.runs, confidence)
    if not shown.runs or not withheld.runs:
        return 0.0, -1.0, 1.0
    effect = shown.rate - withheld.rate
    low = effect - math.hypot(shown.rate - low1, high0 - withheld.rate)
    high = effect + math.hypot(high1 - shown.rate, withheld.rate - low0)
    return effect, max(-1.0, low), min(1.0, high)


@dataclass
class PairedTest:
    """A bet on pairs of runs that differ only by the edit; only pairs with different outcomes count."""

    wins: int = 0
    losses: int = 0
    ties: int = 0
    _gain: list[float] = field(default_factory=lambda: [0.0] * len(STAKES), repr=False)
    _loss: list[float] = field(default_factory=lambda: [0.0] * len(STAKES), repr=False)

    def add(self, sign: int) -> None:
        """Add a pair: 1 if the edit did better, -1 if the base did, 0 if they did the same."""
        self.wins += sign > 0
        self.losses += sign < 0
        self.ties += sign == 0
        for n, stake in enumerate(STAKES):
            self._gain[n] += math.log1p(stake * sign)
            self._loss[n] += math.log1p(-stake * sign)

    @property
    def log_e(self) -> float:
        """The log of the e-value that the edit is better."""
        return _log_mean(self._gain)

    @property
    def log_e_worse(self) -> float:
        """The log of the e-value that the edit is worse."""
        return _log_mean(self._loss)

    @property
    def pairs(self) -> int:
        """All pairs, also those with equal outcomes."""
        return self.wins + self.losses + self.ties


def paired_test(signs: Iterable[int]) -> PairedTest:
    """Return the test of these pairs."""
    test = PairedTest()
    for sign in signs:
        test.add(sign)
    return test


def _log_mean(logs: list[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(value - top) for value in logs) / len(logs))


def delta_lower_bound(wins: int, losses: int, pairs: int, confidence: float = 0.95) -> float:
    """Return a lower bound of the mean difference of pairs, each -1, 0 or 1."""
    if pairs == 0:
        return -1.0
    delta = (wins - losses) / pairs
    # One pair of each kind is added, so that equal outcomes alone do not make the bound exact.
    spread = (wins + losses + 1) / (pairs + 1) - delta * delta
    return delta - NormalDist().inv_cdf(confidence) * math.sqrt(max(spread, 0.0) / pairs)


def select_discoveries(log_es: Mapping[str, float], alpha: float = 0.05) -> set[str]:
    """Return the claims that hold together at a false discovery rate of `alpha` (the e-BH procedure)."""
    ranked = sorted(log_es, key=lambda name: -log_es[name])
    kept = 0
    for rank, name in enumerate(ranked, 1):
        if log_es[name] >= math.log(len(ranked) / (alpha * rank)):
            kept = rank
    return set(ranked[:kept])


def paired_speed_test(ratios: Iterable[float], least: float = 0.05) -> PairedTest:
    """Return the paired test of times: each ratio is time with the edit by time without; under 5% counts as equal."""
    return paired_test(0 if abs(math.log(r)) < -math.log(1 - least) else (1 if r < 1 else -1) for r in ratios)
