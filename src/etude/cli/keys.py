"""`etude keys create|list|revoke`."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from etude.cli.output import print_output_table

if TYPE_CHECKING:
    from etude.store.identity import Identity

EXAMPLES = (
    "etude keys create ana --role analyst",
    "etude keys list",
    "etude keys revoke key_...",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="create a key; it is shown only once")
    create.add_argument("name", help="who or what will use it")
    create.add_argument("--role", choices=("reader", "analyst", "admin"), default="analyst")
    create.add_argument("--days", type=int, metavar="N", help="days until it expires")
    create.add_argument("--per-minute", type=int, metavar="N", help="requests per minute")
    create.add_argument("--at-once", type=int, metavar="N", help="requests at the same time")
    create.add_argument("--daily-tokens", type=int, metavar="N")
    create.add_argument("--daily-cost-usd", type=float, metavar="X")
    create.add_argument("--daily-seconds", type=float, metavar="S", help="seconds that its runs may take per day")
    listing = verbs.add_parser("list", help="list keys, without their secrets")
    revoke = verbs.add_parser("revoke", help="revoke a key")
    revoke.add_argument("key", help="its id")
    for each in (create, revoke):
        each.add_argument("--tenant", default="main", help="the tenant of the key (main)")
    listing.add_argument("--tenant", help="only keys of this tenant")
    for each in (create, listing, revoke):
        each.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Run the verb."""
    from etude.app import App
    from etude.store.identity import Identity

    with App() as app:
        {"create": _create, "list": _list, "revoke": _revoke}[options.verb](Identity(app.store), options)


def _create(identity: Identity, options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from etude.errors import Invalid
    from etude.store.identity import KeyLimits
    from etude.validation import explain_validation

    given = {name: getattr(options, name) for name in KeyLimits.model_fields}
    try:
        limits = KeyLimits.model_validate(given)
    except ValidationError as error:
        raise explain_validation(
            error,
            "the limits",
            name=lambda field: f"`--{field.replace('_', '-')}`",
            hint="`etude keys create --help` says more.",
        ) from None
    if options.days is not None and not 0 < options.days <= 36_500:
        raise Invalid(f"`--days {options.days}` is not possible.", hint="Give 1 or more.")
    expires = datetime.now(UTC) + timedelta(days=options.days) if options.days else None
    key, secret = identity.create_key(options.name, options.role, options.tenant, limits, expires)
    if options.json:
        sys.stdout.write(json.dumps(key.model_dump(mode="json") | {"key": secret}) + "\n")
    else:
        sys.stdout.write(f"{secret}\n")
        sys.stderr.write(f"Key {key.id} for {key.tenant}, role {key.role}. It is shown only once: save it.\n")


def _list(identity: Identity, options: argparse.Namespace) -> None:
    keys = identity.keys(options.tenant)
    if options.json:
        sys.stdout.write(json.dumps([key.model_dump(mode="json") for key in keys]) + "\n")
        return
    now = datetime.now(UTC)
    rows = [
        (
            key.id,
            key.tenant,
            key.name,
            key.role,
            f"{key.created_at.astimezone():%Y-%m-%d}",
            "revoked" if key.revoked_at else "expired" if key.expires_at and key.expires_at <= now else "valid",
        )
        for key in keys
    ]
    print_output_table(["key", "tenant", "name", "role", "created", "state"], rows, sys.stdout)


def _revoke(identity: Identity, options: argparse.Namespace) -> None:
    identity.revoke_key(options.key, options.tenant)
    if options.json:
        sys.stdout.write(json.dumps({"revoked": options.key}) + "\n")
    else:
        sys.stderr.write(f"revoked {options.key}\n")
