"""The commit log of an ingest: which row files are committed. Readers open only the files that it names (PM-35).

raw/<kind>/commits/<number>.json                 one micro-batch
raw/<kind>/commits/<first>-<last>.json           many micro-batches merged; it replaces their commits
raw/<kind>/commits/<first>-<last>.<n>.json       the same batches rewritten, for example without rows that are too old

Each is a small file that is written atomically. It holds the folder, its files, and the end positions that Spark
recorded. So nothing depends on renaming a folder, which object stores cannot do, or on files that a killed task leaves
behind. Folders of earlier builds, `batch=<number>` and `batch=<first>-<last>`, have no commit file and count as
committed by their names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from share_metrics.reader import Kind

#: A file in a folder of an earlier build: the end positions that Spark recorded for it.
POSITIONS: Final = "_positions"
_COMMIT: Final = re.compile(r"(\d+)(?:-(\d+))?(?:\.(\d+))?\.json")
_FOLDER: Final = re.compile(r"batch=(\d+)(?:-(\d+))?")
_HOUR: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")


class Piece(NamedTuple):
    """A file of rows. `hour`: when they were appended, as 2026-11-22T08; "" for rows without a time. `path`: a path or
    URI. `size`: in bytes."""

    hour: str
    path: str
    size: int


@dataclass(frozen=True)
class Span:
    """The batches `first` to `last`, both included, in one commit or in one folder of an earlier build.

    `made`: how many earlier commits of this span there were. `note`: the commit file, or that folder.
    """

    first: int
    last: int
    made: int
    note: Path

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content of the commit; built from the files for a folder of an earlier build. Raises OSError."""
        if self.note.suffix == ".json":
            content: dict[str, Any] = json.loads(self.note.read_text(encoding="utf-8"))
            return content
        positions = self.note / POSITIONS
        files = sorted(self.note.glob("dt=*/hour=*/*.parquet"))
        return {
            "folder": str(self.note),
            "positions": positions.read_text(encoding="utf-8") if positions.exists() else None,
            "files": [[path.relative_to(self.note).as_posix(), path.stat().st_size] for path in files],
        }

    @property
    def folder(self) -> str:
        """The path or URI of the folder with its files. A path in a commit is relative to the folder of the kind."""
        folder: str = self.content["folder"]
        return folder if "://" in folder else str(self.note.parent.parent / folder)

    @property
    def positions(self) -> str:
        """The end positions of its last batch, as Spark recorded them; empty if they are unknown."""
        return self.content["positions"] or ""

    @property
    def trimmed(self) -> bool:
        """True if rows were left out of it because of their age."""
        return bool(self.content.get("trimmed", False))

    @property
    def pieces(self) -> list[Piece]:
        """Its files, by hour."""
        return sorted(Piece(_hour(name), f"{self.folder}/{name}", size) for name, size in self.content["files"])

    @property
    def hours(self) -> set[str]:
        """The hours in which its rows were appended."""
        return {piece.hour for piece in self.pieces if piece.hour}

    @property
    def size(self) -> int:
        """The total size of its files, bytes."""
        return sum(piece.size for piece in self.pieces)


def raw(data: Path, kind: Kind) -> Path:
    """The folder with the rows of a kind, and the commits that name them."""
    return data / "raw" / kind


def spans(data: Path, kind: Kind) -> list[Span]:
    """Every commit and every folder of an earlier build, in order. Some may cover others, see `visible`."""
    found = []
    for pattern, note in ((_COMMIT, "commits/*.json"), (_FOLDER, "batch=*")):
        for path in raw(data, kind).glob(note):
            match = pattern.fullmatch(path.name)
            if match is not None:
                made = int(match[3] or 0) if pattern is _COMMIT else 0
                found.append(Span(int(match[1]), int(match[2] or match[1]), made, path))
    return sorted(found, key=lambda span: (span.first, -span.last, -span.made))


def visible(data: Path, kind: Kind) -> list[Span]:
    """The spans that together hold every row once: spans that another one replaces are left out."""
    shown: list[Span] = []
    for span in spans(data, kind):
        if not shown or span.last > shown[-1].last:
            shown.append(span)
    return shown


def covered(data: Path, kind: Kind) -> list[tuple[Span, Span]]:
    """The spans that others replace, each with the visible one that replaces it."""
    shown = visible(data, kind)
    there = (one for one in spans(data, kind) if one not in shown)
    return [(one, next(span for span in shown if span.first <= one.first and one.last <= span.last)) for one in there]


class Written(NamedTuple):
    """A folder and its files, by name and size, as `RowFiles.write` wrote them.

    `folder`: a URI, or a name below the folder of the kind.
    """

    folder: str
    files: list[tuple[str, int]]


def commit(
    data: Path, kind: Kind, numbers: tuple[int, int], found: Written, positions: str, *, trimmed: bool = False
) -> Span:
    """Commit written files as the batches from the first to the last of `numbers`. Raises OSError.

    `trimmed`: rows that are too old were left out. The caller must own the directory.
    """
    first, last = numbers
    made = max((span.made + 1 for span in spans(data, kind) if (span.first, span.last) == numbers), default=0)
    name = f"{first:08d}" if first == last else f"{first:08d}-{last:08d}"
    note = raw(data, kind) / "commits" / (f"{name}.{made}.json" if made else f"{name}.json")
    note.parent.mkdir(parents=True, exist_ok=True)
    new = note.with_suffix(".new")
    content = {**found._asdict(), "positions": positions, "trimmed": trimmed}
    new.write_text(json.dumps(content), encoding="utf-8")
    new.replace(note)
    return Span(first, last, made, note)


def _hour(name: str) -> str:
    match = _HOUR.match(name)
    return f"{match[1]}T{match[2]}" if match else ""
