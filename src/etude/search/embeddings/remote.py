"""Embeddings of a server that speaks OpenAI's protocol, with the address and the key of a provider in `models`."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from etude.errors import Invalid, ModelError, ModelUnavailable
from etude.search.embeddings.base import Embeddings, embeddings_to_unit_length, load_numpy_for_embeddings
from etude.settings import ModelSettings, read_setting_reference

if TYPE_CHECKING:
    from etude.settings import Settings

OPENAI = "https://api.openai.com/v1"
ANSWER = 256 << 20
"""The most bytes of an answer."""


class RemoteEmbeddings(Embeddings):
    """`POST base_url/embeddings`, in batches."""

    batch: ClassVar[int] = 256

    def __init__(self, settings: Settings, kind: str, model: str) -> None:
        load_numpy_for_embeddings()
        given = settings.models.get(kind, ModelSettings())
        address = given.base_url or (OPENAI if kind == "openai" else "")
        if not model or not address.startswith(("http://", "https://")):
            raise Invalid(
                f"The embeddings `{kind}:{model}` have no address.",
                hint=f"Set `models.{kind}.base_url` to the address of a server that speaks OpenAI's protocol.",
            )
        self.name, self.version = f"{kind}:{model}", address
        self._model, self._timeout_s = model, given.timeout_s
        key = read_setting_reference(given.api_key, f"`models.{kind}.api_key`") if given.api_key else ""
        self._key = key or (os.environ.get("OPENAI_API_KEY", "") if kind == "openai" else "")

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the vectors of the texts."""
        np = load_numpy_for_embeddings()
        found: list[Any] = []
        for start in range(0, len(texts), self.batch):
            # Servers refuse an empty text.
            found += self._ask([text or " " for text in texts[start : start + self.batch]])
        return embeddings_to_unit_length(np.array(found, dtype=np.float32)) if found else np.zeros((0, 1), np.float32)

    def _ask(self, texts: list[str]) -> list[list[float]]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        body = json.dumps({"model": self._model, "input": texts, "encoding_format": "float"}).encode()
        request = urllib.request.Request(f"{self.version.rstrip('/')}/embeddings", body, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310 - http or https
                data = json.loads(answer.read(ANSWER))["data"]
            vectors = [each["embedding"] for each in sorted(data, key=lambda each: each["index"])]
        except urllib.error.HTTPError as error:
            raise ModelError(
                f"The embeddings `{self.name}` failed: the server answered {error.code}.",
                hint="Check the name of the model and the key.",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise ModelUnavailable(
                f"The embeddings `{self.name}` cannot be reached: {error}.", hint="Check `base_url`."
            ) from None
        except (ValueError, KeyError, TypeError):
            raise ModelError(f"The embeddings `{self.name}` sent no vectors.", hint="Check `base_url`.") from None
        if len(vectors) != len(texts) or len({len(v) for v in vectors}) != 1:
            raise ModelError(
                f"The embeddings `{self.name}` sent {len(vectors)} vectors for {len(texts)} texts.",
                hint="Check the server.",
            )
        return vectors
