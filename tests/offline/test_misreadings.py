"""Readings that the words of a question, or the data, speak against are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.result_check import doubt_repeated_result
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 16)
SCHOOL = """
CREATE TABLE department (dept_id INTEGER PRIMARY KEY, name TEXT, city TEXT, opened TEXT);
CREATE TABLE student (student_id INTEGER PRIMARY KEY, name TEXT, age INTEGER, dept_id INTEGER REFERENCES department);
CREATE TABLE course (course_id INTEGER PRIMARY KEY, title TEXT, credits INTEGER, dept_id INTEGER REFERENCES department);
CREATE TABLE enroll (student_id INTEGER REFERENCES student, course_id INTEGER REFERENCES course, grade TEXT);
CREATE TABLE head (head_id INTEGER PRIMARY KEY, name TEXT, age INTEGER);
CREATE TABLE management (head_id INTEGER REFERENCES head, dept_id INTEGER REFERENCES department);
CREATE TABLE tourist_attraction (attraction_id INTEGER PRIMARY KEY, label TEXT);
CREATE TABLE address (address_id INTEGER PRIMARY KEY, street TEXT, city TEXT, state TEXT);
CREATE TABLE weather (day TEXT, zone INTEGER, temperature INTEGER);
INSERT INTO department VALUES (1, 'History', 'Rome', 'x'), (2, 'Biology', 'Oslo', 'y'), (3, 'Music', 'Bern', 'z');
INSERT INTO student VALUES (1, 'Ann', 20, 1), (2, 'Bob', 21, 1), (3, 'Cid', 22, 2), (4, 'Dan', 23, 99);
INSERT INTO course VALUES (1, 'Rome', 3, 1), (2, 'Greece', 4, 1), (3, 'Cells', 5, 2), (4, 'Cells', 6, 3);
INSERT INTO enroll VALUES (1, 1, 'A'), (1, 1, 'B'), (1, 2, 'A'), (2, 2, 'C'), (3, 3, 'A'), (3, 4, 'B');
INSERT INTO head VALUES (1, 'Eve', 50), (2, 'Eve', 60), (3, 'Gus', 70);
INSERT INTO management VALUES (1, 1), (2, 2);
INSERT INTO tourist_attraction VALUES (1, 'Tower'), (2, 'Bridge');
INSERT INTO address VALUES (1, 'Main St', 'Austin', 'Texas'), (2, 'Oak St', 'Phoenix', 'Arizona'),
  (3, 'Elm St', 'Dallas', 'Texas');
INSERT INTO weather VALUES ('1/1', 1, 30), ('1/1', 2, 31), ('1/2', 1, 20);
"""


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Departments, students and courses; one student's department is missing, one enrolled in a course twice."""
    folder: Path = tmp_path_factory.mktemp("school")
    path = str(folder / "school.sqlite")
    writer = sqlite3.connect(path)
    writer.executescript(SCHOOL)
    writer.close()
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What is the name of the department with the most students enrolled?", "enrolled"),
        ("What are the names and information of students?", "information"),
        ("What are the names of the students, and where are the students from?", "where"),
        ("What are the streets of addresses in Austin, Texas or in Phoenix, Arizona?", "belong to"),
        ("How many tourists are there?", "tourist_attraction"),
        ("What are the names of students and course titles?", "belong together"),
        ("What is the total number of credits of the 2 courses with the highest credits?", "total"),
        ("Students whose courses have no department", "courses"),
    ],
)
def test_a_reading_that_a_word_contradicts_is_refused(question: str, said: str, school: tuple[Vocabulary, Ask]) -> None:
    meant = understand(question, school[0], today=TODAY)
    assert isinstance(meant, Refusal), meant
    assert said in meant.reason


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("How many students are there in each department?", "dept_id"),
        ("What are the days with a temperature over 25?", "how often to list"),
        ("What are the names of students with more than 2 courses?", "more than once"),
        ("Show the names of heads and the number of departments.", "look the same"),
        ("How many heads of departments are older than 40?", "have no"),
    ],
)
def test_a_count_or_list_that_the_data_makes_unclear_is_refused(
    question: str, said: str, school: tuple[Vocabulary, Ask]
) -> None:
    doubt = _doubt(question, school)
    assert doubt is not None and said in doubt


@pytest.mark.parametrize(
    "question",
    [
        "How many students are there for each dept id?",
        "What are the different days with a temperature over 25?",
        "How many different courses does each student have?",
        "What is the average age of heads?",
        "Which department has the most students?",
    ],
)
def test_a_clear_question_is_still_answered(question: str, school: tuple[Vocabulary, Ask]) -> None:
    assert _doubt(question, school) is None


def test_a_grade_after_an_article_is_a_value(school: tuple[Vocabulary, Ask]) -> None:
    meant = understand("What are the names of students who received an A?", school[0], today=TODAY)
    assert isinstance(meant, Understanding)
    assert "`enroll.grade` is `A`" in meant.reading


def _doubt(question: str, school: tuple[Vocabulary, Ask]) -> str | None:
    vocabulary, ask = school
    catalog = vocabulary.catalog
    assert catalog is not None
    meant = understand(question, vocabulary, today=TODAY)
    assert isinstance(meant, Understanding), meant
    return doubt_repeated_result(meant, lambda plan: ask(compile_plan(plan, catalog)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """Customers with a date of their own, and what they ordered."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "customers.csv").write_text(
        "customer_id,name,signed_up\n" + "".join(f"{n},C{n},2023-{1 + n % 12:02d}-04\n" for n in range(1, 41))
    )
    (folder / "orders.csv").write_text(
        "order_id,customer_id,ordered_at,amount,status\n"
        + "".join(
            f"{n},{1 + n % 40},202{4 + n % 2}-0{1 + n % 9}-11,{n % 90}.5,{('paid', 'open')[n % 2]}\n"
            for n in range(1, 200)
        )
    )
    with open_vocabulary(str(folder), folder / "home") as (vocabulary, _):
        return vocabulary


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("number of customers who paid in 2025", "says when something was `paid`"),
        ("how many orders were paid in 2025?", "says when something was `paid`"),
    ],
)
def test_a_verb_that_the_reading_drops_is_refused(question: str, said: str, store: Vocabulary) -> None:
    found = understand(question, store, today=TODAY)
    assert isinstance(found, Refusal), found
    assert said in found.reason


@pytest.mark.parametrize(
    "question",
    [
        "how many customers signed up in 2023?",
        "how many customers placed an order in 2024?",
        "how many customers ordered in 2025?",
        "how did total amount change from 2024 to 2025?",
        "how did the average amount change between 2024 and 2025",
        "total amount from 2024 to 2025",
    ],
)
def test_a_verb_that_the_reading_uses_is_answered(question: str, store: Vocabulary) -> None:
    assert isinstance(understand(question, store, today=TODAY), Understanding)
