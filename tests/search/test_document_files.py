"""Documents in a folder: passages of Markdown, HTML, text and PDF."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.app import App


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "docs").mkdir(parents=True)
    (folder / "sales.csv").write_text("id,amount\n1,10\n2,20\n")
    (folder / "docs" / "refunds.md").write_text(
        "# Refunds\n\nMoney goes back within 14 days.\n\n## Exceptions\n\nGift cards are never refunded.\n"
    )
    (folder / "docs" / "page.html").write_text(
        "<html><head><title>x</title><style>.hidden{}</style></head><body><h1>Shipping</h1>"
        "<script>var parcels = 1</script><p>Parcels leave on Monday.</p></body></html>"
    )
    (folder / "letter.txt").write_text("Dear reader\nthe lighthouse opens in May\n")
    return folder


def test_passages_are_found_under_their_headings(app: App, folder: Path) -> None:
    app.indexes.build(str(folder))
    (hit,) = app.search("gift cards", str(folder), kinds=["file"], mode="text").hits
    assert (hit.table, hit.title) == ("docs/refunds.md", "docs/refunds.md: Exceptions")
    (hit,) = app.search("parcels", str(folder), kinds=["file"], mode="text").hits
    assert (hit.title, hit.snippet.strip()) == ("docs/page.html: Shipping", "Parcels leave on Monday.")
    (hit,) = app.search("lighthouse", str(folder), kinds=["file"], mode="text").hits
    assert hit.table == "letter.txt"


def test_a_folder_may_hold_documents_alone(app: App, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.md").write_text("The moon is made of rock.")
    built = app.indexes.build(str(tmp_path / "only"))
    assert built.kinds == {"file": 1}
    assert app.search("moon", str(tmp_path / "only")).hits[0].table == "a.md"


def test_a_link_out_of_the_folder_is_not_followed(app: App, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("the treasure is under the oak")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    app.indexes.build(str(folder))
    assert app.search("treasure oak", str(folder), mode="text").hits == []


def test_a_damaged_pdf_is_told_and_hides_nothing_else(app: App, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 no")
    built = app.indexes.build(str(folder))
    assert any("`broken.pdf` was not indexed" in note for note in built.notes)
    assert built.kinds["file"] >= 4


def test_a_page_of_a_pdf_is_found(app: App, folder: Path) -> None:
    stream = b"BT /F1 24 Tf 72 720 Td (Penguins swim well) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    body += b"xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(body),
    )
    (folder / "birds.pdf").write_bytes(body)
    app.indexes.build(str(folder))
    (hit,) = app.search("penguins", str(folder), kinds=["file"], mode="text").hits
    assert hit.title == "birds.pdf: page 1"
