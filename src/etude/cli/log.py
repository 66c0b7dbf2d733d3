"""`etude log TEXT`."""

from __future__ import annotations

import argparse

EXAMPLES = (
    'etude log "revenue means net of refunds" --worked --source shop',
    'etude log "joining orders and refunds by day counts twice" --failed --code "SELECT ..."',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("text", help="what was tried, and what was learned")
    outcome = parser.add_mutually_exclusive_group()
    outcome.add_argument("--worked", dest="outcome", action="store_const", const="worked", help="it worked")
    outcome.add_argument("--failed", dest="outcome", action="store_const", const="failed", help="it failed")
    parser.add_argument("--source", help="the named source that it is about")
    parser.add_argument("--code", help="what was run")
    parser.add_argument("--run", metavar="RUN", help="the run that it is about")
    parser.set_defaults(outcome="note")


def run(options: argparse.Namespace) -> None:
    """Store the report."""
    from etude.app import App
    from etude.errors import Invalid
    from etude.store.identity import Identity

    if not options.text.strip():
        raise Invalid("The report is empty.", hint="Say what was tried, and what was learned.")
    with App() as app:
        fields = {"text": options.text, "outcome": options.outcome, "code": options.code}
        if options.source is not None:
            fields["dataset"] = app.source_name(options.source)
        if options.run is not None:
            fields["run_id"] = app.store.run(options.run).id
        print(f"reported {Identity(app.store).add_report(app.tenant, fields).id}")
