"""The directory of an ingest job: its owner, its cluster, and which folders of batches count (PM-35).

raw/<kind>/batch=<number>/dt=…/hour=…            one micro-batch
raw/<kind>/batch=<first>-<last>/dt=…/hour=…      many micro-batches compacted into one folder, which replaces theirs
checkpoints/<kind>                               Spark's positions
read-up-to                                       the time up to which everything is there, see `read_up_to`
topics.json                                      the topics that were, see `topic_names`
metrics/<table>/window=1m|1h/dt=…/hour=…         windows
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from share_metrics.reader import Kind

#: Readers do not see folders whose names begin with this: Spark ignores names that begin with a dot.
HIDDEN: Final = ".unfinished."
#: A file in a batch's folder: the end positions that Spark had noted for it. Spark ignores this name too.
POSITIONS: Final = "_positions"
_BATCH: Final = re.compile(r"batch=(\d+)(?:-(\d+))?")
_CLUSTER: Final = "cluster-id"
_LOCK: Final = "ingest.lock"


class FolderError(Exception):
    """The directory, or a file, cannot be used; the text tells why and what to do."""


class Span(NamedTuple):
    """The numbers of the batches that a folder holds, the last included."""

    first: int
    last: int
    folder: Path


def raw(data: Path, kind: Kind) -> Path:
    """The folder with the rows of a kind."""
    return data / "raw" / kind


def checkpoints(data: Path, kind: Kind) -> Path:
    """The folder in which Spark keeps the positions of a kind."""
    return data / "checkpoints" / kind


def batch_name(first: int, last: int | None = None) -> str:
    """The name of the folder of one batch, or of the batches `first` to `last`."""
    return f"batch={first:08d}" if last is None else f"batch={first:08d}-{last:08d}"


def spans(data: Path, kind: Kind) -> list[Span]:
    """Every folder of batches, in order. Compacted folders may cover others, see `visible`."""
    found = []
    for folder in raw(data, kind).glob("batch=*"):
        match = _BATCH.fullmatch(folder.name)
        if match is not None:
            found.append(Span(int(match[1]), int(match[2] or match[1]), folder))
    return sorted(found, key=lambda span: (span.first, -span.last))


def visible(data: Path, kind: Kind) -> list[Path]:
    """The folders that hold every row once: folders that a compacted one replaces are left out."""
    return [span.folder for span in spans_visible(data, kind)]


def spans_visible(data: Path, kind: Kind) -> list[Span]:
    """As `visible`, with the batch numbers."""
    shown: list[Span] = []
    for span in spans(data, kind):
        if not shown or span.last > shown[-1].last:
            shown.append(span)
    return shown


def confirmed(data: Path, kind: Kind) -> int:
    """The number of the last batch that Spark will not repeat; −1 if there is none."""
    names = (path.name for path in (checkpoints(data, kind) / "commits").glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def query_id(data: Path, kind: Kind) -> str:
    """Spark's id of the query that owns these checkpoints; new checkpoints have another id. Empty if there are none."""
    note = checkpoints(data, kind) / "metadata"
    return str(json.loads(note.read_text())["id"]) if note.exists() else ""


def noted(data: Path, kind: Kind, number: int) -> str:
    """The end positions of a batch, which Spark notes before it runs the batch; empty if it has not noted any."""
    note = checkpoints(data, kind) / "offsets" / str(number)
    return note.read_text() if note.exists() else ""


def written(data: Path, kind: Kind, number: int) -> Path | None:
    """The folder that holds the rows of a batch for the positions that Spark has noted; None if there is none.

    It may be a compacted folder that ends with this batch. Raises FolderError if the folder was written for other
    positions. A single batch's folder of an earlier build has no positions and is accepted.
    """
    positions = noted(data, kind, number)
    single = raw(data, kind) / batch_name(number)
    if single.exists():
        note = single / POSITIONS
        if note.exists() and note.read_text() != positions:
            raise _of_other_positions(data, kind, single)
        return single
    for span in spans(data, kind):
        if span.first <= number <= span.last:
            if not positions or span.last != number or positions_of(span.folder) != positions:
                raise _of_other_positions(data, kind, span.folder)
            return span.folder
    return None


def positions_of(folder: Path) -> str:
    """The end positions of a folder's last batch, as Spark had noted them; empty if they are unknown."""
    note = folder / POSITIONS
    return note.read_text() if note.exists() else ""


def _of_other_positions(data: Path, kind: Kind, folder: Path) -> FolderError:
    return FolderError(
        f"{folder} holds rows of other positions than {checkpoints(data, kind)} has for this batch; "
        "restore those checkpoints, or remove both folders to ingest anew"
    )


def in_step(data: Path, kind: Kind) -> None:
    """Raise FolderError when there are rows that Spark would ingest again, because their positions are gone."""
    there = spans(data, kind)
    last, done = max((span.last for span in there), default=-1), confirmed(data, kind)
    if last > done + 1:
        raise FolderError(
            f"{raw(data, kind)} holds batches up to {last}, but {checkpoints(data, kind)} knows of {done + 1} that are "
            "done; restore the checkpoints that belong to them, or remove both folders to ingest anew"
        )


@contextmanager
def owned(data: Path, cluster_id: str = "") -> Iterator[None]:
    """Lock the directory for one ingest job of one cluster. Raises FolderError.

    The lock ends with the process. Positions of one cluster mean nothing in another, so the first job notes the
    cluster's id.
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
    """Inside, an OSError is raised as a FolderError that names the file and the option."""
    try:
        yield
    except OSError as error:
        raise FolderError(
            f"{out} cannot be written: {error.strerror or error}; give another file with {option}"
        ) from error


def check_cluster(data: Path, cluster_id: str) -> str:
    """The id of the cluster whose rows a directory holds; empty if it has none. Raises FolderError if it is another."""
    note = data / _CLUSTER
    known = note.read_text().strip() if note.exists() else ""
    if known and cluster_id and known != cluster_id:
        raise FolderError(
            f"directory {data} holds positions and rows of cluster {known}, and this store is of cluster {cluster_id}; "
            "give another directory with --data, or remove this one"
        )
    return known


def _belongs(data: Path, cluster_id: str) -> None:
    if cluster_id and not check_cluster(data, cluster_id):
        note = data / _CLUSTER
        new = note.with_suffix(".new")
        new.write_text(cluster_id)
        new.replace(note)
