"""Questions about one file as people keep it: values spelled in two ways, missing dates, marks and amounts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask

from etude.app import App
from etude.offline.better_direction import more_is_better
from etude.offline.result_check import settle_choices_by_result
from etude.offline.understand import Clarification, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """A file of one table whose classes and subjects are not always spelled in the same way."""
    folder = tmp_path_factory.mktemp("school")
    path = folder / "school.csv"
    lines = ["Class,Student,Subject,Grade,Days absent,Unit price,Date"]
    for n in range(120):
        group = ("5a", "5b", "6a")[n % 3]
        group = group.upper() if n % 10 == 3 else group
        subject = ("Maths", "Sport")[n % 2] + (" " if n % 12 == 5 else "")
        day = "" if n % 40 == 7 else f"2024-{1 + n % 12:02d}-{1 + n % 28:02d}"
        lines.append(f"{group},Kim{'abcdefghijklmnopqrst'[n % 20]},{subject},{1 + n % 6},{n % 7},{10 + n % 3}.5,{day}")
    path.write_text("\n".join(lines) + "\n")
    with App(home=folder / "home", record=False) as app:

        def run(sql: str) -> Rows:
            return app.sql(str(path), sql).rows()

        yield build_vocabulary(app.catalog(str(path)), run), run


def read(question: str, vocabulary: Vocabulary, previous: Understanding | None = None) -> Understanding:
    found = understand(question, vocabulary, previous=previous, today=TODAY)
    assert isinstance(found, Understanding), found
    return found


def rows_of(found: Understanding, vocabulary: Vocabulary, ask: Ask) -> Rows:
    assert vocabulary.catalog is not None
    return [tuple(row) for row in ask(compile_plan(found.plan, vocabulary.catalog))]


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        (
            "Top 5 students by days absent",
            'SELECT Student, sum("Days absent") AS s FROM school GROUP BY 1 ORDER BY s DESC, 1 LIMIT 5',
        ),
        (
            "bottom 3 students by days absent",
            'SELECT Student, sum("Days absent") AS s FROM school GROUP BY 1 ORDER BY s, 1 LIMIT 3',
        ),
        (
            "show me days absent by month",
            "SELECT date_trunc('month', Date)::DATE AS m, sum(\"Days absent\") FROM school GROUP BY 1 ORDER BY m",
        ),
        (
            "Monthly days absent for Kimd",
            "SELECT date_trunc('month', Date)::DATE AS m, sum(\"Days absent\") FROM school WHERE Student = 'Kimd' "
            "GROUP BY 1 ORDER BY m",
        ),
    ],
)
def test_an_amount_is_added_up_and_never_grouped(question: str, sql: str, school: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = school
    first = read("total days absent per student", vocabulary)
    for previous in (None, first):  # a whole question means the same in a conversation
        found = read(question, vocabulary, previous)
        assert rows_of(found, vocabulary, ask) == [tuple(row) for row in ask(sql)]
        assert found.reading.startswith("Total `school.Days absent` per ")


def test_another_number_in_a_follow_up_is_measured_too(school: tuple[Vocabulary, Ask]) -> None:
    vocabulary, _ = school
    first = read("average grade per student", vocabulary)
    found = read("what about the unit price?", vocabulary, first)
    assert found.reading == "Average `school.Unit price` per `school.Student`."
    assert read("and unit price", vocabulary, first).reading == (
        "Average `school.Grade` and average `school.Unit price` per `school.Student`."
    )


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        ("grade by student", ["the total `Grade` for each", "the average `Grade` for each"]),
        ("monthly grade", ["the total `Grade` for each", "the average `Grade` for each"]),
        ("top 3 students by grade", ["the average `Grade` of each", "the highest single `Grade` of each"]),
        ("which month had the highest days absent?", None),
        ("which student has the most days absent?", None),
    ],
)
def test_a_number_with_two_readings_is_asked_back(
    question: str, labels: list[str] | None, school: tuple[Vocabulary, Ask]
) -> None:
    vocabulary, ask = school
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Clarification), found
    labels = labels or ["the total `Days absent` of each", "the highest single `Days absent` of each"]
    assert [choice.label for choice in found.choices] == labels
    for label in labels:
        meant = take_choice(found, label)
        assert isinstance(meant, Understanding) and rows_of(meant, vocabulary, ask)


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("total days absent per class", 'SELECT lower(Class), sum("Days absent") FROM school GROUP BY 1'),
        ("how many classes are there?", "SELECT count(DISTINCT lower(Class)) FROM school"),
        ("average grade by subject", "SELECT trim(Subject), avg(Grade) FROM school GROUP BY 1"),
        (
            "which class has the highest total days absent?",
            'SELECT lower(Class), sum("Days absent") AS s FROM school GROUP BY 1 ORDER BY s DESC LIMIT 1',
        ),
        ("total days absent for class 5b", "SELECT sum(\"Days absent\") FROM school WHERE lower(Class) = '5b'"),
        ("list the subjects", "SELECT DISTINCT trim(Subject) FROM school"),
    ],
)
def test_spellings_of_one_value_are_one_in_groups_and_filters(
    question: str, sql: str, school: tuple[Vocabulary, Ask]
) -> None:
    vocabulary, ask = school
    found = read(question, vocabulary)
    assert sorted(rows_of(found, vocabulary, ask)) == sorted(tuple(row) for row in ask(sql))
    (told,) = found.told
    assert "differ only in case, blanks, hyphens or accents are counted together: `" in told


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        ("total days absent where the grade is worse than 4", ["`Grade` above 4", "`Grade` below 4"]),
        (
            "average grade per student, best first",
            ["the highest `Grade` is the best", "the lowest `Grade` is the best"],
        ),
        ("what is the worst grade?", ["the highest `Grade` is the worst", "the lowest `Grade` is the worst"]),
    ],
)
def test_better_and_worse_are_asked_back_unless_the_column_says_which(
    question: str, labels: list[str], school: tuple[Vocabulary, Ask]
) -> None:
    vocabulary, ask = school
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Clarification), found
    assert [choice.label for choice in found.choices] == labels
    first, second = (take_choice(found, label) for label in labels)
    assert isinstance(first, Understanding) and isinstance(second, Understanding)
    assert first.plan != second.plan
    assert settle_choices_by_result(found, ask) is None
    told = described(vocabulary, "Grade", "1 is best, 6 is worst; a higher number is worse")
    assert read(question, told).plan == (second if "best" in question else first).plan


@pytest.mark.parametrize(
    ("comment", "more"),
    [
        ("1 is best, 6 is worst", False),
        ("Higher is better.", True),
        ("lower numbers are better", False),
        ("from 1 (worst) to 10 (best)", True),
        ("5 = best", True),
        ("the mark of the exam", None),
    ],
)
def test_a_description_says_whether_more_is_better(
    comment: str, more: bool | None, school: tuple[Vocabulary, Ask]
) -> None:
    assert more_is_better(described(school[0], "Grade", comment).tables[0].column("Grade")) is more


def described(vocabulary: Vocabulary, column: str, comment: str) -> Vocabulary:
    (table,) = vocabulary.tables
    columns = tuple(replace(c, comment=comment) if c.name == column else c for c in table.columns)
    return replace(vocabulary, tables=(replace(table, columns=columns),))


@pytest.mark.parametrize(
    ("question", "same"),
    [
        ("show a bar chart of average grade by month", "average grade by month"),
        ("plot days absent by month", "days absent by month"),
        ("total days absent per student as a pie chart", "total days absent per student"),
        ("line graph of days absent by month", "days absent by month"),
        ("average garde by student", "average grade by student"),
        ("top 5 studnets by days absent", "top 5 students by days absent"),
        ("days absent in March", "total days absent in March 2024"),
    ],
)
def test_words_for_charts_and_slips_change_nothing(question: str, same: str, school: tuple[Vocabulary, Ask]) -> None:
    found = read(question, school[0])
    assert found.plan == read(same, school[0]).plan


def test_the_answer_repeats_what_was_corrected(school: tuple[Vocabulary, Ask]) -> None:
    vocabulary, _ = school
    assert read("average garde by student", vocabulary).told == ("`garde` is read as `school.Grade`.",)
    assert read("top 5 studnets by days absent", vocabulary).told == ("`studnets` is read as `school.Student`.",)
    assert read("days absent in March", vocabulary).told == (
        "`March` is taken as March 2024, the only one in the data.",
    )


def test_a_refusal_names_only_words_of_the_question(school: tuple[Vocabulary, Ask]) -> None:
    found = understand("Compare 2024 and 2025", school[0], today=TODAY)
    assert isinstance(found, Refusal)
    assert found.reason == "It is not clear what `2024` and `2025` mean here."


def test_a_refusal_names_the_text_column_that_holds_dates(tmp_path: Path) -> None:
    path = tmp_path / "rentals.csv"
    path.write_text("no,version,pickup\n1,1.2.10,2024-06-29\n2,1.2.11,03/04/2024\n3,1.2.10,2024-07-01\n")
    with App(home=tmp_path / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(str(path)), lambda sql: app.sql(str(path), sql).rows())
    refused = understand("How many rentals per month?", vocabulary, today=TODAY)
    assert "has no date column: `pickup` holds dates as text; `etude sources show` says why." in str(refused)
