"""Writes what is known of the newest backup as metrics into a file that Prometheus' node exporter reads (CM-229).

A backup ends with its process, so there is nothing to scrape.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, write_to_textfile

from shard_runtime.metrics.families import ComputedMetrics, gauge
from share_node.backup.manifest import Manifest
from share_node.backup.segments import BackupFilesError


class BackupMetrics(ComputedMetrics):
    """The metrics of one whole backup."""

    success = gauge(
        "sharegroups_backup_last_success_timestamp_seconds",
        "When the newest whole backup began: it has what was confirmed before. Seconds since 1970.",
    )
    duration = gauge("sharegroups_backup_duration_seconds", "How long it took.")
    size = gauge("sharegroups_backup_size_bytes", "Bytes of its files.")
    entries = gauge("sharegroups_backup_entries", "Entries of streams in it.")
    damaged = gauge("sharegroups_backup_damaged_entries", "Entries in it that were damaged in the store already.")

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def collect(self) -> Iterable[Metric]:
        """Yield each family with its value."""
        of = self._manifest
        yield self.success.of(of.began_ms / 1000)
        yield self.duration.of((of.ended_ms - of.began_ms) / 1000)
        yield self.size.of(of.bytes)
        yield self.entries.of(of.entries)
        yield self.damaged.of(of.damaged)


def check_textfile(path: Path) -> None:
    """Refuse a file that could not be written after the backup. Raises BackupFilesError."""
    if not path.parent.is_dir():
        raise BackupFilesError(
            f"there is no directory {path.parent} to write {path.name} into; make it, or give another file with "
            "--textfile"
        )
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        why = "is a directory" if path.is_dir() else f"cannot be written in {path.parent}"
        raise BackupFilesError(f"{path} {why}; give another file with --textfile")


def write_textfile(path: Path, manifest: Manifest) -> None:
    """Replace the file as a whole, so that a reader never finds half of it. Raises BackupFilesError."""
    registry = CollectorRegistry()
    registry.register(BackupMetrics(manifest))
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise BackupFilesError(
            f"the backup is whole, but {path} cannot be written: {error.strerror}. Make it writable; until then the "
            "alert on a missed backup may fire"
        ) from error
