"""Files over HTTP and S3: only from listed places, within limits, and downloaded again if they changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import S3
from etude.app import App
from etude.errors import EtudeError, Invalid, LimitExceeded, NotFound, Refused, Unavailable
from etude.settings import RemoteSettings, load_settings
from etude.sources import source as sources
from etude.sources.files.remote_file import check_remote_allowed, download_remote_file


class Site:
    """A web server on the loopback: pages by path, and the requests it got."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, int]] = []
        self.url = ""

    def put(self, path: str, body: str, **headers: str) -> None:
        self.pages[path] = (200, {k.replace("_", "-"): v for k, v in headers.items()}, body.encode())

    def rules(self, **more: Any) -> RemoteSettings:
        return RemoteSettings(**{"allow": [self.url], "reach": ["127.0.0.1"]} | more)


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = site.pages.get(self.path, (404, {}, b""))
            if headers.get("ETag") and headers["ETag"] == self.headers.get("If-None-Match"):
                status, body = 304, b""
            site.seen.append((self.path, status))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        site.url = f"http://127.0.0.1:{server.server_port}/"
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site()) as started:
        yield started


def test_a_file_is_read_and_read_again_if_it_changed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "REMOTE_S", 0.0)
    site.put("/sales.csv", "id,v\n1,10\n", ETag='"a"')
    with App(home=tmp_path / "home", record=False, remote=site.rules()) as app:
        url = f"{site.url}sales.csv"
        assert app.sql(url, "SELECT v FROM sales").rows() == [(10,)]
        assert app.sql(url, "SELECT v FROM sales").rows() == [(10,)]
        assert [status for _, status in site.seen][:1] == [200]
        assert {status for _, status in site.seen[1:]} == {304}
        site.put("/sales.csv", "id,v\n1,20\n", ETag='"b"')
        assert app.sql(url, "SELECT v FROM sales").rows() == [(20,)]


def test_no_place_is_allowed_unless_it_is_listed(tmp_path: Path) -> None:
    with App(home=tmp_path / "home", record=False) as app:
        for url in ("https://data.example.com/a.csv", "s3://bucket/a.csv"):
            with pytest.raises(Refused) as caught:
                app.sql(url, "SELECT 1")
            assert "remote.allow" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "https://data.example.com/private/a.csv",
        "https://data.example.com/exports/../private/a.csv",
        "https://data.example.com/exports/%2e%2e/private/a.csv",
        "https://data.example.com/exports/%252e%252e/private/a.csv",
        "https://data.example.com/exports/..;/private/a.csv",
        "https://data.example.com/exports/..;a=b/private/a.csv",
        "https://data.example.com/exports/%2e%2e%3b/private/a.csv",
        "https://data.example.com/exports2/a.csv",
        "https://data.example.com:8443/exports/a.csv",
        "https://data.example.com.evil.org/exports/a.csv",
        "http://data.example.com/exports/a.csv",
        "s3://bucket2/a.csv",
    ],
)
def test_only_what_an_entry_covers_is_allowed(url: str) -> None:
    rules = RemoteSettings(allow=("https://data.example.com/exports", "s3://bucket/"))
    check_remote_allowed("https://data.example.com/exports/a.csv", rules)
    check_remote_allowed("s3://bucket/a.csv", rules)
    with pytest.raises(Refused):
        check_remote_allowed(url, rules)


def test_a_password_in_the_url_is_refused() -> None:
    with pytest.raises(Invalid, match="password"):
        check_remote_allowed(
            "https://me:secret@data.example.com/a.csv", RemoteSettings(allow=("https://data.example.com/",))
        )


def test_the_signature_of_a_url_is_in_no_error_and_no_stored_run(site: Site, tmp_path: Path) -> None:
    site.put("/b.csv?sig=HIDDEN", "id\n1\n")
    site.pages["/a.csv?sig=HIDDEN"] = (503, {}, b"")
    with App(home=tmp_path / "home", remote=site.rules()) as app:
        assert app.sql(f"{site.url}b.csv?sig=HIDDEN", "SELECT id FROM b").rows() == [(1,)]
        for url in (f"{site.url}a.csv?sig=HIDDEN", f"{site.url}a.csv?sig=HIDDEN b", "https://HIDDEN:x@h/a.csv"):
            with pytest.raises(EtudeError) as caught:
                app.sql(url, "SELECT 1")
            assert "HIDDEN" not in caught.value.message + caught.value.hint
        app.runs.work(app.runs.begin("ask", "how many rows?", f"{site.url}a.csv?sig=HIDDEN", model="offline"))
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file() and b"HIDDEN" in path.read_bytes()]


def test_a_private_address_needs_to_be_allowed(site: Site, tmp_path: Path) -> None:
    site.put("/a.csv", "a,b\n1,2\n")
    with pytest.raises(Refused, match="not a public address"):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules(reach=[]))
    assert site.seen == []


@pytest.mark.parametrize("place", ["s3://bucket/b.csv", "ftp://h/b.csv", "file:///etc/passwd", "data:,a"])
def test_a_redirect_leads_to_http_alone(site: Site, tmp_path: Path, place: str) -> None:
    site.pages["/a.csv"] = (302, {"Location": place}, b"")
    with pytest.raises(Refused, match="redirects to"):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules(allow=[site.url, "s3://bucket/"]))


def test_a_redirect_must_be_allowed_as_well(site: Site, tmp_path: Path) -> None:
    site.put("/b.csv", "a,b\n1,2\n")
    site.pages["/a.csv"] = (302, {"Location": "/b.csv"}, b"")
    assert download_remote_file(f"{site.url}a.csv", tmp_path, site.rules()).read_text() == "a,b\n1,2\n"
    site.pages["/a.csv"] = (302, {"Location": "http://169.254.169.254/latest"}, b"")
    with pytest.raises(Refused):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules())
    site.pages["/a.csv"] = (302, {"Location": "/a.csv"}, b"")
    with pytest.raises(Unavailable, match="redirects"):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules())


def test_a_large_file_is_refused_and_nothing_is_left(site: Site, tmp_path: Path) -> None:
    site.put("/a.csv", "x" * 5000)
    with pytest.raises(LimitExceeded, match="5,000 bytes"):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules(bytes=1000))
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (403, Unavailable), (500, Unavailable)])
def test_an_error_of_the_server_never_becomes_data(
    site: Site, tmp_path: Path, status: int, error: type[EtudeError]
) -> None:
    site.put("/a.csv", "a,b\n1,2\n", ETag='"x"')
    download_remote_file(f"{site.url}a.csv", tmp_path, site.rules())
    site.pages["/a.csv"] = (status, {}, b"<html>")
    with pytest.raises(error):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules())


def test_a_body_that_ends_early_is_an_error(site: Site, tmp_path: Path) -> None:
    site.put("/a.csv", "a,b\n1,2\n", Content_Length="5000")
    with pytest.raises(Unavailable, match="ended early"):
        download_remote_file(f"{site.url}a.csv", tmp_path, site.rules())
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_s3_objects_and_folders(s3_server: S3, tmp_path: Path) -> None:
    folder = s3_server.folder / "remote"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("id,v\n1,10\n")
    (folder / "b.csv").write_text("id,w\n1,30\n")
    rules = RemoteSettings(allow=("s3://bucket/remote",), s3=s3_server.options)
    assert download_remote_file("s3://bucket/remote/a.csv", tmp_path, rules).read_text() == "id,v\n1,10\n"
    with App(home=tmp_path / "home", record=False, remote=rules) as app:
        assert app.sql("s3://bucket/remote/", "SELECT v, w FROM a JOIN b USING (id)").rows() == [(10, 30)]
    with pytest.raises(NotFound):
        download_remote_file("s3://bucket/remote/none.csv", tmp_path, rules)


def test_the_settings_name_places(tmp_path: Path) -> None:
    found = load_settings({"ETUDE_REMOTE__ALLOW": "https://a.example.com/, s3://b/", "ETUDE_HOME": str(tmp_path)})
    assert found.remote.allow == ("https://a.example.com/", "s3://b/")
    for wrong in ("data.example.com", "ftp://x/", "https://*.example.com/", "s3://"):
        with pytest.raises(Invalid):
            load_settings({"ETUDE_HOME": str(tmp_path)}, remote={"allow": [wrong]})
