"""All proposers that need no model, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from etude.learning.edits.proposers import casts, checks, constants, retry, structure
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis

Propose = Callable[[SuiteDiagnosis], Iterator[DiagnosisProposal]]
OFFLINE: dict[str, Propose] = {
    checks.NAME: checks.propose_checks,
    retry.NAME: retry.propose_retries,
    constants.WAITS: constants.propose_waits,
    casts.NAME: casts.propose_casts,
    structure.CHUNKS: structure.propose_chunks,
    structure.HANDLERS: structure.propose_handlers,
    constants.CONSTANTS: constants.propose_constants,
    structure.FALLBACKS: structure.propose_fallbacks,
    structure.CACHES: structure.propose_caches,
}
