"""The diagram of the whole database: every table once, arrows forward, boxes apart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from etude.catalog.model import ForeignKeyEvidence, SourceProfile, TableProfile
from etude.catalog.page.diagram import DRAWN, HEIGHT, lay_out_diagram
from etude.catalog.page.report import render_catalog
from etude.catalog.page.table_groups import group_tables

NAMES = [f"t{i}" for i in range(12)]
EDGES = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))


def source(*tables: tuple[str, tuple[str, ...]]) -> SourceProfile:
    def keys(targets: tuple[str, ...]) -> tuple[ForeignKeyEvidence, ...]:
        return tuple(
            ForeignKeyEvidence(columns=(f"{t}_id",), to_table=t, to_columns=("id",), origin="declared") for t in targets
        )

    made = tuple(TableProfile(name=name, rows=1, foreign_keys=keys(targets)) for name, targets in tables)
    return SourceProfile(source="s", kind="duckdb", dialect="duckdb", fingerprint="f", tables=made)


def test_a_table_stands_left_of_those_it_refers_to() -> None:
    layout = lay_out_diagram({"lines": ["orders", "products"], "orders": ["customers"]})
    across = {name: x for name, (x, _) in layout.places.items()}
    assert across["lines"] < across["orders"] < across["customers"] == across["products"]
    assert len(layout.bends["lines", "products"]) == 1, "the line runs past orders, not behind it"


@settings(max_examples=60)
@given(EDGES)
def test_boxes_never_overlap_whatever_refers_to_what(edges: dict[str, list[str]]) -> None:
    edges = {name: [to for to in targets if to != name] for name, targets in edges.items()}
    edges = {name: targets for name, targets in edges.items() if targets}
    if not edges:
        return
    layout = lay_out_diagram(edges)
    assert set(layout.places) == {*edges, *(to for targets in edges.values() for to in targets)}
    boxes = list(layout.places.values())
    for i, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[i + 1 :]:
            assert abs(x - other_x) >= layout.width or abs(y - other_y) >= HEIGHT
    assert layout == lay_out_diagram(edges)


def test_the_page_draws_tables_that_refer_to_others() -> None:
    page = render_catalog(source(("customers", ()), ("orders", ("customers",)), ("notes", ())))
    assert 'aria-label="Diagram of the database"' in page
    assert "Not drawn: 1 table that refers to no other." in page
    assert 'id="diagram"' not in render_catalog(source(("customers", ()), ("notes", ()))), (
        "no caption without a drawing"
    )


def test_many_tables_are_grouped_and_shown_one_at_a_time() -> None:
    names = [f"{group}_{i}" for group in ("crm", "hr", "web") for i in range(DRAWN // 2)]
    tables = [(name, (names[(i * 7) % len(names)],)) for i, name in enumerate(names)]
    profile = source(*tables, ("odd", ()))
    assert [(label, len(group)) for label, group in group_tables(profile.tables)] == [
        ("crm", 60), ("hr", 60), ("web", 60), ("other tables", 1)
    ]  # fmt: skip
    page = render_catalog(profile)
    assert "data-folded" in page and '<details class="group" id="g.crm">' in page
    assert "crm · 60" in page, "the diagram draws groups"
    schemas = source(*((f"{schema}.t{i}", ()) for schema in ("a", "b") for i in range(20)))
    assert [label for label, _ in group_tables(schemas.tables)] == ["a", "b"]
