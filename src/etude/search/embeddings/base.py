"""The interface of embeddings, and how their libraries are loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

from etude.errors import Unavailable
from etude.lean_imports import allow_numpy_import


class Embeddings(ABC):
    """A model that turns texts into vectors of length 1."""

    name: str
    """The name and the version belong to an index: vectors of two models are never compared."""
    version: str
    batch: ClassVar[int] = 1024
    """Texts that are embedded in one call."""
    quick: ClassVar[bool] = False
    """Whether thousands of texts take less than a second, so that they can be embedded for one question."""

    @property
    def identity(self) -> str:
        """The model as an index names it."""
        return f"{self.name} {self.version}"

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Any:
        """Return a float32 array with one row for each text; a text without a meaning has a row of zeros."""


def load_numpy_for_embeddings() -> Any:
    """Return numpy, also in a process that left it out."""
    allow_numpy_import()
    return load_embedding_library("numpy")


def load_embedding_library(name: str, package: str = "") -> Any:
    """Return a library of the extra `search`; raise if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        wanted = package or "'etude[search]'"
        raise Unavailable(f"`{name}` is not installed.", hint=f"pip install {wanted}") from None


def embeddings_to_unit_length(vectors: Any) -> Any:
    """Return the vectors with length 1; those of length 0, or with NaN, become zeros."""
    np = load_numpy_for_embeddings()
    array = np.nan_to_num(np.asarray(vectors, dtype=np.float32))
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)
