"""`etude backup`: copy store, results, catalogs and playbooks to a folder or a bucket, while everything runs."""

from __future__ import annotations

import argparse
import json
import sys

from etude.cli.options import parse_source_options

EXAMPLES = (
    "etude backup /mnt/backups",
    "etude backup s3://backups/etude --option endpoint=https://s3.example.com --keep 7",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("place", help="a folder, s3://bucket/prefix, gs:// or az://")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the bucket, such as endpoint"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="afterwards, keep only the newest N backups in this place"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Make a backup; exit with 1 if files were damaged or lost before it."""
    from etude.app import App
    from etude.errors import Invalid
    from etude.operations.backup import make_backup, open_backup_place, remove_backups

    if options.keep is not None and options.keep < 1:
        raise Invalid(f"`--keep {options.keep}` would keep no backup.", hint="Give 1 or more.")
    with App() as app:
        place = open_backup_place(app.settings, options.place, parse_source_options(options.option))
        done = make_backup(app, place, lambda text: sys.stderr.write(f"{text} ...\n"))
        removed = remove_backups(place, options.keep) if options.keep is not None else 0
    manifest = done.manifest
    if options.json:
        body = {"id": manifest.id, "place": place.url, "artifacts": manifest.artifact_count}
        body |= {"bytes": manifest.artifact_bytes, "copied": done.copied, "copied_bytes": done.copied_bytes}
        body |= {"missing": list(manifest.missing), "seconds": done.seconds, "removed": removed}
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        sys.stdout.write(f"{manifest.id} in {place.url}: the store, {manifest.artifact_count:,} artifacts ")
        sys.stdout.write(
            f"({done.copied:,} new, {done.copied_bytes:,} bytes), {len(manifest.objects):,} other objects, "
        )
        sys.stdout.write(f"{done.seconds:.1f} s.\n")
        if removed:
            sys.stdout.write(f"Removed {removed} older backup{'' if removed == 1 else 's'}.\n")
        for hash in manifest.missing[:10]:
            sys.stdout.write(f"PROBLEM: the artifact {hash} is damaged or lost, and is not in the backup\n")
    return 1 if manifest.missing else 0
