"""Which proposer to try next: Thompson sampling on how often its edits were kept."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ProposerRecord:
    """How often edits of a proposer were tried and kept, and what they cost."""

    tried: int = 0
    kept: int = 0
    runs: int = 0
    """Runs of the suite that its edits took."""


def rank_proposers_by_bandit(
    records: Mapping[str, ProposerRecord], names: Iterable[str], chance: random.Random
) -> list[str]:
    """Return the proposers, most promising first: a sample of the share of edits kept, by the runs that each took."""

    def sample(name: str) -> float:
        record = records.get(name, ProposerRecord())
        share = chance.betavariate(record.kept + 1, record.tried - record.kept + 1)
        return share / (1 + record.runs / max(record.tried, 1) / 10)

    return sorted(names, key=sample, reverse=True)
