"""What a model is told of a source whose profile is known."""

from __future__ import annotations

from pathlib import Path

from etude.app import App
from etude.models.base import UserMessage
from etude.models.scripted import Line, Scripted


def test_a_model_sees_the_values_and_keys_that_a_profile_found(tmp_path: Path):
    (tmp_path / "crm").mkdir()
    rows = "".join(f"{n},{'open' if n % 3 else 'closed'},person{n}@example.com\n" for n in range(60))
    (tmp_path / "crm" / "cases.csv").write_text("id,state,email\n" + rows)
    with App(home=tmp_path / "home") as app:
        app.profile(str(tmp_path / "crm"))
        told = shown(app, tmp_path / "crm")
    assert "state -- {'closed', 'open'}" in told
    assert "id key" in told
    assert "person1" not in told


def shown(app: App, source: Path) -> str:
    model = Scripted([Line(text="I see.")])
    app.ask(str(source), "What is there?", model=model)
    return "\n".join(m.text for m in model.seen[0].conversation if isinstance(m, UserMessage))
