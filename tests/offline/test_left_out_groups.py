"""Counts of related tables: rows without a partner are counted by themselves, or the answer says that they are not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.app import App
from etude.errors import NotUnderstood
from etude.feedback import give_feedback

TABLES = """
CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY, Name TEXT);
CREATE TABLE Album (AlbumId INTEGER PRIMARY KEY, Title TEXT, ArtistId INTEGER REFERENCES Artist);
CREATE TABLE MediaType (MediaTypeId INTEGER PRIMARY KEY, Name TEXT);
CREATE TABLE Genre (GenreId INTEGER PRIMARY KEY, Name TEXT);
CREATE TABLE Track (TrackId INTEGER PRIMARY KEY, Name TEXT, MediaTypeId INTEGER REFERENCES MediaType,
                    GenreId INTEGER REFERENCES Genre);
INSERT INTO Artist VALUES (1, 'Abba'), (2, 'Blur'), (3, 'Cake'), (4, 'Devo');
INSERT INTO Album VALUES (1, 'Gold', 1), (2, 'Waterloo', 1), (3, 'Parklife', 2);
INSERT INTO MediaType VALUES (1, 'MPEG'), (2, 'AAC');
INSERT INTO Genre VALUES (1, 'Pop'), (2, 'Rock');
INSERT INTO Track VALUES (1, 'One', 1, 1), (2, 'Two', 1, NULL), (3, 'Three', 2, NULL), (4, 'Four', 2, 2);
"""


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    folder = tmp_path_factory.mktemp("music")
    path: Path = folder / "music.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
    with App(home=folder / "home") as app:
        yield app, str(path)


def test_each_table_is_counted_by_itself(music: tuple[App, str]) -> None:
    app, path = music
    answer = app.ask(path, "number of artists and number of albums", model="offline").require()
    assert answer.result is not None and answer.result.rows() == [(4, 3)]


def test_one_number_for_two_things_is_refused(music: tuple[App, str]) -> None:
    app, path = music
    with pytest.raises(NotUnderstood, match="number of artists and the number of albums"):
        app.ask(path, "how many artists and albums are there?", model="offline").require()


@pytest.mark.parametrize("question", ["number of albums per artist", "average number of albums per artist"])
def test_an_answer_says_how_many_groups_are_left_out(music: tuple[App, str], question: str) -> None:
    app, path = music
    answer = app.ask(path, question, model="offline").require()
    assert "2 rows of `Artist` have no `Album` and are not counted." in answer.text


def test_a_part_of_a_full_name_brings_in_no_other_table(music: tuple[App, str]) -> None:
    app, path = music
    answer = app.ask(path, "how many tracks per media type?", model="offline").require()
    assert answer.result is not None and "Genre" not in answer.code
    assert sorted(row[-1] for row in answer.result.rows()) == [2, 2]


def test_an_answer_says_that_it_was_marked_wrong_before(music: tuple[App, str]) -> None:
    app, path = music
    first = app.ask(path, "how many genres are there?", model="offline").require()
    assert "marked wrong" not in first.text
    give_feedback(app, first.run_id, "wrong")
    again = app.ask(path, "how many genres are there?", model="offline").require()
    assert f"was marked wrong before ({first.run_id})" in again.text
