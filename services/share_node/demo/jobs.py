"""The demo's records and the work done for each: pure functions, the same with the queue and without it.

A job yields (key, value) records, and computes a tally of counters for one value. For a record that cannot be processed
it raises BrokenRecordError; the worker rejects that record.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import itertools
import json
import sysconfig
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

PLANTED: Final = (
    ("planted/unbalanced.py", b"def broken(:\n    pass\n"),
    ("planted/null_byte.py", b"x = 1\0\n"),
    ("planted/not_utf8.py", b"name = '\xff\xfe'\n"),
)
#: For one record in this many, a failure is injected at its first delivery, and the record is released.
FAILURE_EVERY: Final = 9

Tally = Counter[str]


class BrokenRecordError(Exception):
    """The record can never be processed."""


class InputError(Exception):
    """The demo's input cannot be read."""


class Job(Protocol):
    """Records, and the work for each."""

    name: str

    def records(self) -> Iterable[tuple[str, bytes]]:
        """Yield every record once, as (key, value)."""
        ...

    def process(self, value: bytes) -> Tally:
        """Return the record's counters. Raises BrokenRecordError when the record must be rejected."""
        ...


class StandardLibrary:
    """Every source file of the running Python's standard library, parsed; and a few added files that cannot be
    parsed."""

    name = "standard library"

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path in the library, bytes of the file), ordered by path, without packages that users installed."""
        root = Path(sysconfig.get_paths()["stdlib"])
        for path in sorted(root.rglob("*.py")):
            relative = path.relative_to(root)
            if relative.parts[0] != "site-packages" and path.is_file():
                yield relative.as_posix(), path.read_bytes()
        yield from PLANTED

    def process(self, value: bytes) -> Tally:
        """Count functions and lines of one source file."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(value)
        except (SyntaxError, ValueError, RecursionError, MemoryError, UnicodeError) as error:
            raise BrokenRecordError(f"{type(error).__name__}: {error}") from error
        functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))
        return Counter(functions=functions, lines=value.count(b"\n"))


class FileInput:
    """A file of the user's: one record per line, JSONL document or CSV row; a name ending in `.gz` means gzip.

    A CSV row may have several lines, inside quotes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        self.format = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}.get(plain.suffix, "lines")
        self.columns = 0
        if self.format == "csv":
            first = next(iter(self.records()), None)
            self.columns = len(_csv_fields(first[1].decode("utf-8", "replace"))) if first else 0

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield (number from 1, line or row without its end). Raises InputError when the file cannot be read."""
        try:
            with gzip.open(self.path, "rb") if self.path.suffix == ".gz" else self.path.open("rb") as lines:
                for number, line in enumerate(_csv_rows(lines) if self.format == "csv" else lines, 1):
                    yield str(number), line.rstrip(b"\r\n")
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"cannot read {self.path}: {error}. Expected lines, JSONL or CSV, plain or gzip."
            ) from error

    def process(self, value: bytes) -> Tally:
        """Count bytes and a checksum, and fields if the format has them."""
        tally: Tally = Counter(bytes=len(value), checksum=zlib.crc32(value))
        try:
            if self.format == "jsonl":
                document = json.loads(value)
                tally["fields"] = len(document) if isinstance(document, dict | list) else 1
            elif self.format == "csv":
                tally["fields"] = len(_csv_fields(value.decode()))
                if tally["fields"] != self.columns:
                    raise BrokenRecordError(f"{tally['fields']} columns, the first row has {self.columns}")
            else:
                value.decode()
        except (ValueError, csv.Error) as error:
            raise BrokenRecordError(f"{type(error).__name__}: {error}") from error
        return tally


def _csv_rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of each row, as the csv module splits them; also of a row it cannot read, which `process`
    refuses."""
    row: list[bytes] = []

    def texts() -> Iterator[str]:
        for line in lines:
            row.append(line)
            yield line.decode("utf-8", "surrogateescape")

    reader = csv.reader(texts())
    while True:
        try:
            next(reader)
        except StopIteration:
            return
        except csv.Error:
            pass  # the reader continues after it
        yield b"".join(row)
        row.clear()


def _csv_fields(text: str) -> list[str]:
    """Return the fields of one row. Raises csv.Error, also for text with more than one row."""
    rows = list(csv.reader(io.StringIO(text, newline="\n")))
    if len(rows) > 1:
        raise csv.Error(f"{len(rows)} rows in one record")
    return rows[0] if rows else []


def job_for(path: str | None) -> Job:
    """Return the job for `--input`, else the standard library's. Raises InputError for a path that is not a file."""
    if path is None:
        return StandardLibrary()
    if not Path(path).is_file():
        raise InputError(f"input {path} is not a file. Pass a file of lines, JSONL or CSV, plain or gzip.")
    return FileInput(Path(path))


def has_more_records(job: Job, count: int) -> bool:
    """Return whether the job has more than `count` records; reads no more than that. Raises InputError."""
    return next(itertools.islice(job.records(), count, None), None) is not None


def fails_first_attempt(key: str) -> bool:
    """Return whether the demo injects a failure at this record's first delivery."""
    return zlib.crc32(key.encode()) % FAILURE_EVERY == 0


def direct_count(job: Job) -> tuple[Tally, int, int]:
    """Return the totals without the queue: (counters, records processed, records broken)."""
    totals: Tally = Counter()
    accepted = rejected = 0
    for _, value in job.records():
        try:
            totals.update(job.process(value))
            accepted += 1
        except BrokenRecordError:
            rejected += 1
    return totals, accepted, rejected
