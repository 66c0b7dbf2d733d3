"""Datasets that are uploaded: any kind of file becomes tables to ask about; what is refused leaves nothing behind."""

from __future__ import annotations

import io
import json
import re
import socket
import sqlite3
import stat
import struct
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import Running, listening
from etude.api.server import create_app
from etude.app import App
from etude.cancellation import Cancellation
from etude.errors import Cancelled
from etude.store.identity import Identity
from workbook import write_workbook

SALES = b"region,day,amount\nnorth,2024-01-03,10\nsouth,2024-02-04,32\nnorth,2024-02-05,8\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def empty(home: Path) -> Iterator[TestClient]:
    """An etude without any dataset."""
    with serving(home) as client:
        yield client


@contextmanager
def serving(home: Path, **settings: Any) -> Iterator[TestClient]:
    with App(home=str(home), server=settings) as app, TestClient(create_app(app), base_url="http://localhost") as web:
        yield web


def upload(client: TestClient, *files: tuple[str, bytes], **fields: str) -> dict[str, Any]:
    answer = client.post("/api/datasets", files=[("file", each) for each in files], data=fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def rows(client: TestClient, dataset: str, query: str) -> list[list[Any]]:
    answer = client.post("/api/sql", json={"dataset": dataset, "query": query})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["rows"])


def left_behind(home: Path) -> list[str]:
    """Files of uploads anywhere in the home, whole or in part."""
    return [str(p) for p in home.rglob("*") if p.is_file() and ("upload" in str(p) or p.name.startswith("."))]


def refuse(client: TestClient, name: str, data: bytes) -> dict[str, Any]:
    answer = client.post("/api/datasets", files={"file": (name, data)})
    assert 400 <= answer.status_code < 500, answer.text
    assert client.get("/api/datasets").json()["items"] == []
    return dict(answer.json())


def test_a_csv_file_is_a_dataset_to_ask_about(empty: TestClient) -> None:
    report = upload(empty, ("Sales 2024.csv", SALES))
    assert report["name"] == "sales_2024"
    assert report["tables"] == [
        {
            "name": "sales_2024",
            "rows": 3,
            "columns": [
                {"name": "region", "type": "VARCHAR"},
                {"name": "day", "type": "DATE"},
                {"name": "amount", "type": "BIGINT"},
            ],
        }
    ]
    answer = empty.post("/api/ask", json={"question": "total amount by region", "model": "offline"}).json()
    assert sorted(answer["result"]["rows"]) == [["north", 18], ["south", 32]]
    assert empty.get("/api/datasets").json()["items"][0] == {
        "id": "sales_2024",
        "kind": "files",
        "tables": None,
        "removable": True,
    }


def test_the_name_may_be_given(empty: TestClient) -> None:
    assert upload(empty, ("x.csv", SALES), name="north")["name"] == "north"
    raw = empty.post("/api/datasets", params={"name": "south"}, content=SALES)
    assert (raw.status_code, raw.json()["name"]) == (201, "south")
    again = empty.post("/api/datasets", files={"file": ("x.csv", SALES)}, data={"name": "north"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    bad = empty.post("/api/datasets", files={"file": ("x.csv", SALES)}, data={"name": "North Sea"})
    assert bad.status_code == 422
    assert "North Sea" in bad.json()["detail"]


def test_a_name_that_is_made_from_a_file_is_free(empty: TestClient) -> None:
    assert [upload(empty, ("sales.csv", SALES))["name"] for _ in range(3)] == ["sales", "sales_2", "sales_3"]


def test_other_names_of_the_route(empty: TestClient) -> None:
    for path in ("/api/ingest/file", "/ingest/file", "/datasets"):
        made = empty.post(path, params={"name": "sales.csv"}, content=SALES)
        assert (made.status_code, made.json()["tables"][0]["rows"]) == (201, 3)


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"region": ["a", "b"], "amount": [1, 2]}), out)
    return out.getvalue()


def database(tmp_path: Path, kind: str) -> bytes:
    path = tmp_path / f"made.{kind}"
    with sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path)) as con:  # type: ignore[attr-defined]
        con.execute("CREATE TABLE sold (region VARCHAR, amount INTEGER)")
        con.execute("INSERT INTO sold VALUES ('a', 1), ('b', 2)")
    con.close()
    return path.read_bytes()


def packed(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_each_kind_of_file(empty: TestClient, tmp_path: Path) -> None:
    book = tmp_path / "book.xlsx"
    write_workbook(book, {"Sold": [["region", "amount"], ["a", 1], ["b", 2]]})
    kinds = {
        "tsv": b"region\tamount\na\t1\nb\t2\n",
        "json": json.dumps([{"region": "a", "amount": 1}, {"region": "b", "amount": 2}]).encode(),
        "ndjson": b'{"region": "a", "amount": 1}\n{"region": "b", "amount": 2}\n',
        "parquet": parquet(),
        "xlsx": book.read_bytes(),
        "sqlite": database(tmp_path, "sqlite"),
        "duckdb": database(tmp_path, "duckdb"),
        "zip": packed(**{"data/sold.csv": b"region,amount\na,1\nb,2\n"}),
    }
    for ending, data in kinds.items():
        # The name says nothing: the bytes do.
        made = empty.post("/api/datasets", params={"name": f"of_{ending}"}, content=data)
        assert made.status_code == 201, f"{ending}: {made.text}"
        [table] = made.json()["tables"]
        assert (ending, table["rows"], [c["name"] for c in table["columns"]]) == (ending, 2, ["region", "amount"])
        assert rows(empty, f"of_{ending}", f"SELECT sum(amount) FROM {table['name']}") in ([[3]], [["3"]])


def test_several_files_are_tables_of_one_dataset(empty: TestClient) -> None:
    made = upload(
        empty, ("orders.csv", b"id,customer\n1,7\n2,7\n"), ("customers.csv", b"id,name\n7,Ann\n"), name="shop"
    )
    assert sorted(t["name"] for t in made["tables"]) == ["customers", "orders"]
    joined = "SELECT name, count(*) FROM orders JOIN customers ON customers.id = orders.customer GROUP BY 1"
    assert rows(empty, "shop", joined) == [["Ann", 2]]


def test_a_folder_as_a_zip_archive(empty: TestClient) -> None:
    made = upload(
        empty, ("shop.zip", packed(**{"a/orders.csv": SALES, "a/notes.bin": b"\x00\x01", "b/more.csv": SALES}))
    )
    assert [t["rows"] for t in made["tables"]] == [3, 3]
    assert any("notes.bin" in note for note in made["notes"])


GUIDE = b"# Returns\nWithin 30 days.\n\n## Cost\nFree of charge.\n```sh\n# no heading\n```\n"


def test_documents_are_tables_of_their_text(empty: TestClient) -> None:
    page = b"<!doctype html><html><head><title>x</title></head><body><h1>Hours</h1><p>From 9 to 5.</p></body></html>"
    prose = b"Dear Ann,\n\nthe boxes, all of them, came late.\nSorry, Bob\n"
    made = upload(empty, ("guide.md", GUIDE), ("hours.html", page), ("letter.txt", prose), name="papers")
    assert {t["name"]: t["rows"] for t in made["tables"]} == {"guide": 2, "hours": 1, "letter": 2}
    assert rows(empty, "papers", "SELECT heading, text FROM guide ORDER BY part") == [
        ["Returns", "Within 30 days."],
        ["Cost", "Free of charge.\n```sh\n# no heading\n```"],
    ]
    assert rows(empty, "papers", "SELECT heading, text FROM hours") == [["Hours", "From 9 to 5."]]
    found = rows(empty, "papers", "SELECT document, part FROM letter WHERE text LIKE '%boxes%'")
    assert found == [["letter.txt", 2]]


def test_a_folder_of_documents_and_tables(empty: TestClient) -> None:
    made = upload(
        empty, ("shop.zip", packed(**{"guide.md": GUIDE, "orders.csv": SALES, "list.txt": b"a,b\n1,2\n3,4\n"}))
    )
    assert {t["name"]: t["rows"] for t in made["tables"]} == {"shop_guide": 2, "shop_orders": 3, "shop_list": 2}


def test_a_pdf_is_a_table_of_its_pages(empty: TestClient) -> None:
    pytest.importorskip("pypdf")
    made = upload(empty, ("report.pdf", pdf("Sales rose by 12 percent.")))
    assert [c["name"] for c in made["tables"][0]["columns"]] == ["document", "part", "heading", "text"]
    assert rows(empty, "report", "SELECT part, text FROM report") == [[1, "Sales rose by 12 percent."]]
    damaged = empty.post("/api/datasets", files={"file": ("bad.pdf", b"%PDF-1.4\n" + bytes(200))})
    assert (damaged.status_code, "bad.pdf" in damaged.json()["detail"]) == (422, True)


def pdf(text: str) -> bytes:
    """A PDF of one page, as small as the format allows."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R "
        b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
    ]
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(out)
    return out + b"xref\n0 5\n0000000000 65535 f \n" + table + end


def test_the_report_says_what_was_assumed(empty: TestClient) -> None:
    made = upload(empty, ("days.csv", b"day,amount\n03/04/2024,1\n05/06/2024,2\n"))
    assert any("day" in note for note in made["notes"])


def test_names_in_any_script(empty: TestClient) -> None:
    made = upload(empty, ("売上 2024.csv", SALES), ("Umsätze.csv", SALES))
    assert made["name"].isascii()
    assert rows(empty, made["name"], f'SELECT count(*) FROM "{made["tables"][0]["name"]}"') == [[3]]


def test_an_uploaded_dataset_outlives_the_server_and_is_seen_by_others(home: Path) -> None:
    with App(home=str(home)) as app, TestClient(create_app(app), base_url="http://localhost") as first:
        upload(first, ("sales.csv", SALES))
        with App(home=str(home)) as other:
            assert other.sql("sales", "SELECT sum(amount) FROM sales").rows() == [(50,)]
    with App(home=str(home)) as app, TestClient(create_app(app), base_url="http://localhost") as second:
        assert rows(second, "sales", "SELECT count(*) FROM sales") == [[3]]


def test_a_worker_with_another_home_reads_it_too(home: Path, tmp_path: Path) -> None:
    shared = {"store": f"sqlite:///{tmp_path / 'store.db'}", "objects": str(tmp_path / "objects")}
    with App(home=str(home), **shared) as app, TestClient(create_app(app), base_url="http://localhost") as first:
        upload(first, ("sales.csv", SALES))
    with App(home=str(tmp_path / "second"), **shared) as other:
        assert other.sql("sales", "SELECT sum(amount) FROM sales").rows() == [(50,)]


def test_removing_it_removes_all_of_it(empty: TestClient, home: Path) -> None:
    made = upload(empty, ("sales.csv", SALES))
    assert rows(empty, "sales", "SELECT count(*) FROM sales") == [[3]]
    assert left_behind(home)
    assert empty.delete(f"/api/datasets/{made['name']}").status_code == 204
    assert left_behind(home) == []
    assert empty.delete(f"/api/datasets/{made['name']}").status_code == 404
    assert empty.post("/api/sql", json={"dataset": "sales", "query": "SELECT 1"}).status_code == 404
    assert upload(empty, ("sales.csv", b"x\n1\n"))["tables"][0]["rows"] == 1
    assert rows(empty, "sales", "SELECT * FROM sales") == [[1]]


def test_what_the_operator_added_stays(client: TestClient) -> None:
    refused = client.delete("/api/datasets/shop")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


# Who may.


@pytest.fixture
def guarded(home: Path) -> Iterator[tuple[App, TestClient, dict[str, dict[str, str]]]]:
    """A server with keys: an analyst and a reader of one tenant, and an analyst of another."""
    with App(home=str(home), server={"tenant_storage": {"ours": 5000}}) as app:
        keys = {}
        for name, role, tenant in (("ann", "analyst", "ours"), ("ray", "reader", "ours"), ("bob", "analyst", "theirs")):
            _, secret = Identity(app.store).create_key(name, role, tenant)  # type: ignore[arg-type]
            keys[name] = {"Authorization": f"Bearer {secret}"}
        with TestClient(create_app(app, keys_required=True), base_url="https://etude.example") as client:
            yield app, client, keys


def test_a_dataset_is_its_tenant_s_alone(guarded: tuple[App, TestClient, dict[str, dict[str, str]]]) -> None:
    app, client, keys = guarded
    sent = {"file": ("sales.csv", SALES)}
    assert client.post("/api/datasets", files=sent).status_code == 401
    assert client.post("/api/datasets", files=sent, headers=keys["ray"]).status_code == 403
    assert client.post("/api/datasets", files=sent, headers=keys["ann"]).json()["name"] == "sales"
    assert [d["id"] for d in client.get("/api/datasets", headers=keys["ray"]).json()["items"]] == ["sales"]
    assert client.get("/api/datasets", headers=keys["bob"]).json()["items"] == []
    for method, path in (("GET", "/api/datasets/sales/schema"), ("DELETE", "/api/datasets/sales")):
        assert client.request(method, path, headers=keys["bob"]).status_code == 404
    assert client.delete("/api/datasets/sales", headers=keys["ray"]).status_code == 403
    assert app.scoped("ours").sources()["sales"].by == "ann"
    # The other tenant may have its own of the same name.
    assert (
        client.post("/api/datasets", files={"file": ("sales.csv", b"x\n1\n")}, headers=keys["bob"]).status_code == 201
    )
    query = {"dataset": "sales", "query": "SELECT count(*) FROM sales"}
    assert [client.post("/api/sql", json=query, headers=keys[k]).json()["rows"] for k in ("ann", "bob")] == [
        [[3]],
        [[1]],
    ]


def test_it_counts_toward_the_tenant_s_storage(guarded: tuple[App, TestClient, dict[str, dict[str, str]]]) -> None:
    app, client, keys = guarded
    store = app.scoped("ours").store
    client.post("/api/datasets", files={"file": ("sales.csv", SALES)}, headers=keys["ann"])
    # The table that was made of the file stays on the disk too.
    assert len(SALES) < store.storage_use().files < 5000
    large = b"x\n" + b"1\n" * 3000
    for params in ({}, {"name": "large"}):
        over = client.post("/api/datasets", params=params, content=large, headers=keys["ann"])
        assert (over.status_code, over.json()["limit"]) == (429, "storage")
    chunked = client.post("/api/datasets", content=iter([large]), headers=keys["ann"])
    assert (chunked.status_code, chunked.json()["limit"]) == (429, "storage")
    assert list(app.scoped("ours").sources()) == ["sales"]
    client.delete("/api/datasets/sales", headers=keys["ann"])
    assert store.storage_use().files == 0


# What is refused leaves nothing behind.


def bomb() -> bytes:
    return packed(**{"zeros.csv": b"0\n" * (40 << 20)})


def lying_bomb() -> bytes:
    """An archive that says its file is small."""
    data = bytearray(packed(**{"zeros.csv": b"0\n" * (40 << 20)}))
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.find(mark)
        struct.pack_into("<I", data, place + at, 1000)
    return bytes(data)


def climbing() -> bytes:
    return packed(**{"../../outside.csv": SALES})


def linking() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("passwords.csv")
        link.create_system = 3
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return out.getvalue()


REFUSED = {
    "bomb.zip": (bomb, "bomb|-fold"),
    "lying.zip": (lying_bomb, ""),
    "climbing.zip": (climbing, "leads out"),
    "linking.zip": (linking, "link"),
    "picture.csv": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(100), "image"),
    "page.csv": (lambda: b"<!doctype html><html><body>Not found</body></html>", "web page"),
    "noise.csv": (lambda: bytes(range(256)) * 20, "binary"),
    "cut.parquet": (lambda: parquet()[:-20], ""),
    "cut.sqlite": (lambda: b"SQLite format 3\0" + bytes(50), ""),
    "empty.csv": (lambda: b"", "empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_with_the_reason(empty: TestClient, home: Path, name: str) -> None:
    make, why = REFUSED[name]
    problem = refuse(empty, name, make())
    assert name.partition(".")[0] in problem["detail"] or "bomb" in name
    assert re.search(why, problem["detail"])
    assert str(home) not in problem["detail"] + problem.get("hint", "")
    assert left_behind(home) == []


def test_a_database_comes_alone(empty: TestClient, home: Path, tmp_path: Path) -> None:
    files = [("file", ("a.sqlite", database(tmp_path, "sqlite"))), ("file", ("b.csv", SALES))]
    answer = empty.post("/api/datasets", files=files)
    assert answer.status_code == 422
    assert left_behind(home) == []


FORM = b'--x\r\nContent-Disposition: form-data; name="%s"; filename="a.csv"\r\n\r\n'
MALFORMED = {
    "no boundary": b"no boundary at all",
    "another field": FORM % b"other" + b"1\r\n--x--\r\n",
    "no end": FORM % b"file" + b"a\n1\n",
    "no part": b"--x--\r\n",
    "a field twice": (FORM % b"name" + b"a\r\n") * 2 + FORM % b"file" + b"a\n1\n\r\n--x--\r\n",
    "a long head": b"--x\r\nX-Long: " + b"y" * 20_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_form_is_refused(empty: TestClient, home: Path, what: str) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = empty.post("/api/datasets", content=MALFORMED[what], headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.text
    assert left_behind(home) == []


def test_an_upload_that_is_too_large_is_refused(home: Path) -> None:
    with serving(home, upload=1000) as client:
        for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
            answer = client.post("/api/datasets", params={"name": "x"}, content=content)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert "1,000" in answer.json()["detail"]
        upload(client, ("sales.csv", SALES))
    assert len(list(home.rglob("*.part"))) == 0


def test_an_operator_may_refuse_all_uploads(home: Path) -> None:
    with serving(home, upload=0) as client:
        assert client.post("/api/datasets", params={"name": "x"}, content=SALES).status_code == 403


# Over a real socket.


@pytest.fixture
def live(home: Path) -> Iterator[Running]:
    with App(home=str(home), server={"body_s": 2.0}) as app, listening(app) as running:
        yield running


def wait_for(condition: Any) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_cut_upload_leaves_nothing(live: Running, home: Path) -> None:
    with socket.create_connection(("localhost", live.port)) as connection:
        head = f"POST /api/datasets?name=cut HTTP/1.1\r\nHost: localhost:{live.port}\r\nContent-Length: 100000\r\n\r\n"
        connection.sendall(head.encode() + SALES)
        wait_for(lambda: list(home.rglob("etude-upload-*")))
    wait_for(lambda: not list(home.rglob("etude-upload-*")))
    assert live.app.sources() == {}


def test_an_upload_that_stops_arriving_is_refused(live: Running, home: Path) -> None:
    with socket.create_connection(("localhost", live.port)) as connection:
        head = f"POST /api/datasets?name=slow HTTP/1.1\r\nHost: localhost:{live.port}\r\nContent-Length: 100000\r\n\r\n"
        connection.sendall(head.encode() + SALES)
        connection.settimeout(60)
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")
    wait_for(lambda: not list(home.rglob("etude-upload-*")))


def test_a_large_upload_is_streamed_to_disk(live: Running) -> None:
    """Larger than any other body may be, in a form and as it is; other requests are answered meanwhile."""
    line = b"north,2024-01-03,10\n"
    data = SALES[:18] + line * ((8 << 20) // len(line))
    with httpx.Client(base_url=live.url, timeout=120) as web:
        made = web.post("/api/datasets", files={"file": ("big.csv", data)})
        assert made.status_code == 201, made.text
        assert made.json()["tables"][0]["rows"] == (8 << 20) // len(line)
        assert web.post("/api/datasets", params={"name": "raw"}, content=data).status_code == 201
        assert web.post("/api/log", content=data).status_code == 413


def test_uploads_at_once_get_names_of_their_own(live: Running) -> None:
    made: list[str] = []

    def send() -> None:
        with httpx.Client(base_url=live.url, timeout=120) as web:
            made.append(web.post("/api/datasets", files={"file": ("sales.csv", SALES)}).json()["name"])

    threads = [threading.Thread(target=send) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(made) == ["sales", "sales_2", "sales_3", "sales_4"]
    assert sorted(live.app.sources()) == sorted(made)


def test_the_same_request_again_answers_the_same(live: Running) -> None:
    with httpx.Client(base_url=live.url, timeout=120) as web:
        once, twice = (
            web.post("/api/datasets", params={"name": "sales.csv"}, content=SALES, headers={"Idempotency-Key": "k"})
            for _ in range(2)
        )
    assert once.json() == twice.json()
    assert twice.headers["idempotency-replayed"] == "true"
    assert list(live.app.sources()) == ["sales"]


def test_a_key_of_another_upload_is_refused(live: Running) -> None:
    key = {"Idempotency-Key": "k"}
    other = SALES[:-2] + b"9\n"
    assert len(other) == len(SALES) and other != SALES
    with httpx.Client(base_url=live.url, timeout=120) as web:
        form = web.post("/api/datasets", files={"file": ("sales.csv", SALES)}, headers=key)
        assert form.status_code == 201
        for content in (other, SALES + other):
            wrong = web.post("/api/datasets", files={"file": ("sales.csv", content)}, headers=key)
            assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid")
        plain = {"Idempotency-Key": "plain"}
        named = {"name": "plain.csv"}
        assert web.post("/api/datasets", params=named, content=SALES, headers=plain).status_code == 201
        for params, content in ((named, other), ({"name": "february.csv"}, SALES), (named, iter([other]))):
            wrong = web.post("/api/datasets", params=params, content=content, headers=plain)
            assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid")
        again = web.post("/api/datasets", params=named, content=iter([SALES[:5], SALES[5:]]), headers=plain)
        assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert sorted(live.app.sources()) == ["plain", "sales"]


def test_a_request_repeated_at_once_finds_the_response_kept(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Identity.keep

    def keep_slowly(*arguments: Any) -> None:
        time.sleep(0.5)
        keep(*arguments)

    monkeypatch.setattr(Identity, "keep", keep_slowly)
    headers = {"Idempotency-Key": "slow"}
    with httpx.Client(base_url=live.url, timeout=120) as web:
        once, twice = (web.post("/api/datasets", files={"file": ("sales.csv", SALES)}, headers=headers) for _ in "12")
    assert (once.status_code, twice.status_code) == (201, 201)
    assert once.json() == twice.json()


def test_uploads_that_arrive_at_once_share_the_room_of_their_tenant(home: Path) -> None:
    """The length of a chunked body is not known before, and an upload that has not ended holds its bytes too."""
    head = b"POST /api/datasets?name=u%d HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    with App(home=str(home), server={"storage": 10 << 20}) as app, listening(app) as server, ExitStack() as stack:
        sending = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 120)) for _ in range(4)]
        for number, connection in enumerate(sending):
            connection.sendall(head % number)
            with suppress(ConnectionError):  # refused before all of it was sent
                for _ in range(4 if number < 2 else 8):
                    connection.sendall(chunk)
            if number < 2:  # bytes are written once there are enough
                wait_until(lambda n=number: received_bytes(home) >= (n + 1) * (3 << 20))  # type: ignore[misc]
        for connection in sending[2:]:
            answer = connection.recv(65_536)
            assert b" 429 " in answer.partition(b"\r\n")[0], answer
        assert received_bytes(home) <= 10 << 20


def received_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in (home / "scratch").rglob("*.part"))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_with_too_many_columns_is_refused(empty: TestClient, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"wide.{kind}"
    columns = ", ".join(f"c{i} INTEGER" for i in range(1001))
    database: Any = sqlite3.connect(file) if kind == "sqlite" else duckdb.connect(str(file))
    for number in range(20):
        database.execute(f"CREATE TABLE t{number} ({columns})")
    database.commit()
    database.close()
    answer = empty.post("/api/datasets", files=[("file", (file.name, file.read_bytes()))])
    assert answer.status_code == 429, answer.text
    assert "more than 20,000 columns" in answer.json()["detail"]
    assert empty.get("/api/datasets").json()["items"] == []


def test_a_profile_is_not_made_for_a_client_that_has_left(home: Path) -> None:
    with App(home=str(home)) as app, TestClient(create_app(app), base_url="http://localhost") as web:
        upload(web, ("sales.csv", SALES), name="sales")
        cancel = Cancellation()
        cancel.cancel()
        with pytest.raises(Cancelled):
            app.profile("sales", cancel)
        assert app.known_profile("sales") is None
        assert web.get("/api/datasets/sales/profile").status_code == 200
