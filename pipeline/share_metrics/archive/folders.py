"""The directory of an ingest job: its owner, its cluster, and Spark's progress in it (PM-35).

raw/<kind>/commits/…                             which row files are committed, see `commits`
raw/<kind>/batch=….<token>/dt=…/hour=…           the rows of one or more micro-batches
checkpoints/<kind>                               Spark's positions
read-up-to                                       the time up to which everything was read, see `read_up_to`
topics.json                                      existing and former topics, see `topic_names`
outages.json                                     spans in which nothing was read, see `outages`
group-configs.json                               groups with configs, see `group_configs`
counters.json                                    the values of the counters for Prometheus, see `counters`
metrics/<table>/size=1m|1h/dt=…/hour=…           windows
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from share_metrics.archive.commits import Span, raw, spans
from share_metrics.reader import Kind

_CLUSTER: Final = "cluster-id"
_LOCK: Final = "ingest.lock"


class FolderError(Exception):
    """The directory, or a file, cannot be used; the text says why and what to do."""


def checkpoints(data: Path, kind: Kind) -> Path:
    """The folder in which Spark keeps the positions of a kind."""
    return data / "checkpoints" / kind


def confirmed(data: Path, kind: Kind) -> int:
    """The number of the last batch that Spark will not repeat; −1 if there is none."""
    names = (path.name for path in (checkpoints(data, kind) / "commits").glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def query_id(data: Path, kind: Kind) -> str:
    """Spark's id of the query that owns these checkpoints; new checkpoints have another id. Empty if there are none."""
    note = checkpoints(data, kind) / "metadata"
    return str(json.loads(note.read_text())["id"]) if note.exists() else ""


def noted(data: Path, kind: Kind, number: int) -> str:
    """The end positions of a batch, which Spark records before it runs the batch; empty if none are recorded."""
    note = checkpoints(data, kind) / "offsets" / str(number)
    return note.read_text() if note.exists() else ""


def written(data: Path, kind: Kind, number: int) -> Span | None:
    """The span that holds the rows of a batch, for the positions that Spark recorded; None if there is none.

    It may be a merged span that ends with this batch. Raises FolderError if it was written for other positions. A
    single batch of an earlier build has no positions and is accepted.
    """
    positions = noted(data, kind, number)
    there = [span for span in spans(data, kind) if span.first <= number <= span.last]
    for span in sorted(there, key=lambda span: span.last - span.first):
        single = span.first == span.last
        of_others = span.content["positions"] not in {None, positions}
        if of_others or not (single or (positions and span.last == number and span.positions)):
            raise _of_other_positions(data, kind, span.folder)
        return span
    return None


def _of_other_positions(data: Path, kind: Kind, folder: str) -> FolderError:
    return FolderError(
        f"{folder} holds rows of other positions than {checkpoints(data, kind)} has for this batch; "
        "restore those checkpoints, or remove both folders to ingest from scratch"
    )


def in_step(data: Path, kind: Kind) -> None:
    """Raise FolderError when Spark would ingest rows a second time, because their positions were lost."""
    there = spans(data, kind)
    last, done = max((span.last for span in there), default=-1), confirmed(data, kind)
    if last > done + 1:
        raise FolderError(
            f"{raw(data, kind)} holds batches up to {last}, but {checkpoints(data, kind)} knows of {done + 1} that are "
            "done; restore the checkpoints that belong to them, or remove both folders to ingest from scratch"
        )


@contextmanager
def owned(data: Path, cluster_id: str = "") -> Iterator[None]:
    """Lock the directory for one ingest job of one cluster. Raises FolderError.

    The lock is released when the process ends. Positions of one cluster mean nothing in another, so the first job
    stores the cluster's id in the directory.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = os.open(data / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FolderError(
            f"directory {data} cannot be written to: {error.strerror}; give another with --data"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
            raise FolderError(f"process {holder} ingests into {data} already; wait for it or stop it") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        _belongs(data, cluster_id)
        yield
    finally:
        os.close(lock)


def writable(out: Path, option: str) -> None:
    """Raise FolderError unless a file can be written there. Call it before the work, so that the work is not lost."""
    if not out.parent.is_dir():
        raise FolderError(
            f"there is no directory {out.parent} to write {out.name} into; make it, or give another file with {option}"
        )
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise FolderError(f"{out} cannot be written; give another file with {option}")


@contextmanager
def writing(out: Path, option: str) -> Iterator[None]:
    """Turn an OSError into a FolderError that names the file and the option."""
    try:
        yield
    except OSError as error:
        raise FolderError(
            f"{out} cannot be written: {error.strerror or error}; give another file with {option}"
        ) from error


def check_cluster(data: Path, cluster_id: str) -> str:
    """The id of the cluster whose rows a directory holds; empty if none is stored.

    Raises FolderError if it differs from `cluster_id`.
    """
    note = data / _CLUSTER
    known = note.read_text().strip() if note.exists() else ""
    if known and cluster_id and known != cluster_id:
        raise FolderError(
            f"directory {data} holds positions and rows of cluster {known}, but this store is of cluster {cluster_id}; "
            "give another directory with --data, or remove this one"
        )
    return known


def _belongs(data: Path, cluster_id: str) -> None:
    if cluster_id and not check_cluster(data, cluster_id):
        note = data / _CLUSTER
        new = note.with_suffix(".new")
        new.write_text(cluster_id)
        new.replace(note)
