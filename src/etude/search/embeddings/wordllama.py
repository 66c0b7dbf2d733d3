"""WordLlama: static word vectors from its wheel, thousands of texts per second. Nothing is downloaded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from etude.search.embeddings.base import (
    Embeddings,
    embeddings_to_unit_length,
    load_embedding_library,
    load_numpy_for_embeddings,
)

if TYPE_CHECKING:
    from etude.settings import Settings


class WordLlamaEmbeddings(Embeddings):
    """The small model of WordLlama, 256 dimensions."""

    quick: ClassVar[bool] = True

    def __init__(self, settings: Settings, kind: str, model: str) -> None:
        load_numpy_for_embeddings()
        self._library = load_embedding_library("wordllama")
        self.name, self.version = "wordllama", version("wordllama")
        self._lock = threading.Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the vectors of the texts."""
        with self._lock:
            if self._model is None:
                # Its default looks for the tokenizer in a folder that the wheel does not have.
                folder = Path(self._library.__file__).parent
                self._model = self._library.WordLlama.load(cache_dir=folder, disable_download=True)
            return embeddings_to_unit_length(self._model.embed(list(texts), norm=False))
