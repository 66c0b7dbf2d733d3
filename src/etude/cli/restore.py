"""`etude restore`: make a new store from a backup."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from etude.cli.options import parse_source_options
from etude.cli.output import print_output_table

if TYPE_CHECKING:
    from etude.operations.backup import BackupManifest

EXAMPLES = (
    "etude restore /mnt/backups --list",
    "etude restore /mnt/backups --check",
    "etude restore /mnt/backups",
    "etude restore s3://backups/etude --backup backup_01...",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("place", help="the folder or bucket that `etude backup` wrote to")
    parser.add_argument("--backup", metavar="ID", help="which backup; the newest by default")
    parser.add_argument("--list", action="store_true", help="only list the backups")
    parser.add_argument("--check", action="store_true", help="only read every file of the backup and check it")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the bucket, such as endpoint"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Restore into the store and the object store of the settings, which must be empty."""
    from etude.operations.backup import check_backup, find_backup, list_backups, open_backup_place, restore_backup
    from etude.settings import load_settings

    settings = load_settings()
    place = open_backup_place(settings, options.place, parse_source_options(options.option))
    if options.list:
        _list(list_backups(place), options)
        return 0
    manifest = find_backup(place, options.backup)
    if options.check:
        damaged = check_backup(place, manifest)
        if options.json:
            sys.stdout.write(json.dumps({"id": manifest.id, "damaged": damaged}) + "\n")
        else:
            sys.stdout.write("".join(f"damaged or lost: {hash}\n" for hash in damaged) or f"{manifest.id} is whole.\n")
        return 1 if damaged else 0
    done = restore_backup(settings, place, manifest, lambda text: sys.stderr.write(f"{text} ...\n"))
    if options.json:
        body = {"id": manifest.id, "artifacts": done.artifacts, "objects": done.objects, "seconds": done.seconds}
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        at = f"{manifest.created_at.astimezone():%Y-%m-%d %H:%M:%S}"
        sys.stdout.write(
            f"Restored {manifest.id} of {at}: the store, {done.artifacts:,} artifacts, {done.seconds:.1f} s.\n"
        )
    return 0


def _list(manifests: list[BackupManifest], options: argparse.Namespace) -> None:
    if options.json:
        for each in manifests:
            facts = {"id": each.id, "created_at": each.created_at.isoformat(), "kind": each.kind}
            facts |= {"version": each.version, "artifacts": str(each.artifact_count), "bytes": str(each.artifact_bytes)}
            sys.stdout.write(json.dumps(facts) + "\n")
        return
    rows = [
        (
            m.id,
            f"{m.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
            m.kind,
            m.version,
            f"{m.artifact_count:,}",
            f"{m.artifact_bytes:,}",
        )
        for m in manifests
    ]
    print_output_table(["backup", "when", "store", "version", "artifacts", "bytes"], rows, sys.stdout)
