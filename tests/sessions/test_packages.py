"""Libraries for analysis work inside a session, if they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from etude.app import App
from etude.runtime.notebook import Notebook
from etude.sessions.local import LocalProvider

USES = {
    "scipy": "from scipy import stats\nround(float(stats.norm.cdf(0)), 3)",
    "sklearn": "from sklearn.linear_model import LinearRegression as Line\n"
    "round(float(Line().fit([[1], [3]], [1, 2]).coef_[0]), 3)",
    "statsmodels": "import statsmodels.api as sm\nround(float(sm.OLS([1, 2], [2, 4]).fit().params[0]), 3)",
    "matplotlib": "import matplotlib\nmatplotlib.get_backend().lower() == 'agg' and 0.5",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with App(home=tmp_path_factory.mktemp("home")) as app, app.open_session(record=False) as session:
        yield session


@pytest.mark.parametrize("name", USES)
def test_a_library_of_the_extra_analysis_is_imported_on_demand(session: Notebook, name: str):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    cell = session.execute(USES[name])
    assert (cell.ok, cell.text) == (True, "0.5"), cell.error


def test_the_libraries_are_those_of_this_interpreter():
    told = LocalProvider().packages()
    assert told[:4] == ("pandas", "numpy", "pyarrow", "duckdb")
    assert {name for name in USES if find_spec(name)} <= set(told)


def test_tables_are_printed_with_all_their_columns(session: Notebook, tmp_path: Path):
    cell = session.execute("import pandas as pd\nprint(pd.DataFrame({f'column_{n}': ['x' * 10] for n in range(14)}))")
    assert cell.ok and "column_13" in cell.stdout and "..." not in cell.stdout
