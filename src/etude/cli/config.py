"""`etude config`."""

from __future__ import annotations

import argparse
import json
import sys

from etude.cli.output import print_output_table

EXAMPLES = (
    "etude config",
    "etude config --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def is_number(value: object) -> bool:
    """True for a number, which is a limit (`budget.tokens`) and never a secret."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def run(options: argparse.Namespace) -> None:
    """Print each setting, its effective value and its origin. Secrets are not shown."""
    from etude.redaction import is_redacted_name, redact_value
    from etude.settings import flatten_settings, load_settings_with_origins

    settings, origins = load_settings_with_origins()
    values = settings.model_dump(mode="json")
    values["store"], values["objects"] = settings.store_url, settings.objects_url
    rows = [
        (
            key,
            "***" if is_redacted_name(key) and not is_number(value) else str(redact_value(value)),
            origins.get(key, "default"),
        )
        for key, value in flatten_settings(values)
    ]
    if options.json:
        items = [{"key": k, "value": v, "origin": o} for k, v, o in rows]
        sys.stdout.write(json.dumps(items) + "\n")
    else:
        print_output_table(["setting", "value", "from"], rows, sys.stdout)
