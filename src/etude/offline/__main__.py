"""`python -m etude.offline SOURCE QUESTION`: show how the rules read a question, for people who change them."""

from __future__ import annotations

import argparse
import sys
from datetime import date

from etude.app import App
from etude.cli.printable import printable_lines
from etude.errors import EtudeError
from etude.offline.trace import trace_question
from etude.offline.vocabulary_build import build_vocabulary


def print_trace(arguments: list[str] | None = None) -> int:
    """Print the trace of a question; return 1 if the source cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m etude.offline", description=__doc__)
    parser.add_argument("source", help="a registered source, a path or a URL")
    parser.add_argument("question")
    options = parser.parse_args(arguments)
    try:
        with App(record=False) as app:
            catalog = app.catalog(options.source)
            vocabulary = build_vocabulary(catalog, lambda sql: app.sql(options.source, sql).rows())
    except EtudeError as error:
        print(printable_lines(str(error)), file=sys.stderr)
        return 1
    print(printable_lines(trace_question(options.question, vocabulary, date.today())))
    return 0


if __name__ == "__main__":
    sys.exit(print_trace())
