"""Extracts the cause of a failure from Spark's long error texts, in which Java's and Python's stacks are nested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

LOSS: Final = "DataLossError"
#: No node of the store answers; the job may retry.
UNREACHABLE: Final = "StoreUnreachableError"
#: The errors that readers raise when the store cannot be used.
STORE: Final = (UNREACHABLE, "StoreReplyError", "NoClusterError", "OtherClusterError")
#: The error for files that cannot be used.
FOLDER: Final = "FolderError"
#: Spark's error texts for failures after which a query may be restarted at once: a Python worker started too late; a
#: job was killed, but its Java process outlived its lock for a moment and recorded the end of one more batch; an
#: executor died while it committed a task's files, which Spark does not retry (the next attempt has its own folder).
PASSING: Final = (
    "Python worker failed to connect back",
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Authorized committer",
)
#: Longer texts are shortened to about this many characters, see `without_frames`.
SHORT_MAX: Final = 2000

_FRAME: Final = re.compile(r"\s*(?:at \S|\.\.\. \d+ more)")
_RAISED: Final = re.compile(
    r"(?:Caused by: |: )?(?:"
    r"(?:[\w$]+\.)*(?P<error>[A-Z][\w$]*(?:Error|Exception))(?:: (?P<said>.*))?"
    r"|(?:[\w$]+\.)+(?P<other>[A-Z][\w$]*): (?P<text>.+))"  # as pyarrow.lib.ArrowInvalid
)
#: Lines with these words say how a query ended. Spark reads them too: it treats an interruption as a stop.
_DECIDING: Final = re.compile("|".join([LOSS, *STORE, *PASSING, r"Interrupt\w*Exception"]))
#: Texts that only announce another text.
_HOLLOW: Final = ("Traceback (most recent call last)", "An exception was raised by the Python Proxy", "py4j.protocol.")
_TASK_LOST: Final = "Job aborted due to stage failure"
_CHAIN_MAX: Final = 3
_LINE_MAX: Final = 500
_DECIDING_MAX: Final = 2400


class Ended(NamedTuple):
    """The name and the text of the exception that ended a query. Used only for exceptions whose text says what to
    do."""

    name: str
    said: str


def ended_by(words: str) -> Ended | None:
    """The first such exception in a text; None without one. Spark passes a source's exceptions on as text only."""
    for line in words.splitlines():
        for name in (LOSS, *STORE, FOLDER):
            _, raised, said = line.partition(f"{name}: ")
            if raised:
                return Ended(name, said)
    return None


def without_frames(words: str) -> str:
    """The text without the lines of Java's stacks and without repeated lines, shortened to about 2,000 characters.

    A longer text keeps its beginning, which says where it happened, its end, which says why, and the last exceptions
    raised between them, each once. Lines that say how a query ended are kept whole, up to 2,400 characters of them.
    """
    lines: list[str] = []
    for line in words.splitlines():
        if not _FRAME.match(line) and lines[-1:] != [line]:
            lines.append(line)
    text = "\n".join(lines)
    return text if len(text) <= SHORT_MAX else _shortened([_line(line) for line in lines])


def _line(line: str) -> str:
    longest = _DECIDING_MAX if _DECIDING.search(line) else _LINE_MAX
    return line if len(line) <= longest else f"{line[: longest // 2]} … {line[-longest // 2 :]}"


def _shortened(lines: Sequence[str]) -> str:
    """The lines that are kept, in order, with "…" where lines were left out."""
    numbers = range(len(lines))
    last = {line: number for number, line in enumerate(lines)}
    deciding = {number for line, number in last.items() if _DECIDING.search(line)}
    raised = {number for line, number in last.items() if _RAISED.fullmatch(line.strip())}
    part = SHORT_MAX // 3
    kept = _within(lines, numbers, part) | _within(lines, reversed(numbers), part)
    kept |= _within(lines, sorted(deciding), _DECIDING_MAX) | _within(
        lines, sorted(raised - deciding, reverse=True), part
    )
    shortened: list[str] = []
    before = -1
    for number in sorted(kept):
        if lines[number] in shortened and last[lines[number]] in deciding | raised:
            continue
        shortened += ["…"] * (number > before + 1) + [lines[number]]
        before = number
    return "\n".join(shortened)


def _within(lines: Sequence[str], numbers: Iterable[int], longest: int) -> set[int]:
    """The first of these lines, at least one, up to `longest` characters together."""
    taken: set[int] = set()
    for number in numbers:
        longest -= len(lines[number]) + 1
        if taken and longest < 0:
            break
        taken.add(number)
    return taken


def cause(words: str) -> str:
    """The cause in one line: the last three exceptions, the outermost first, each with its text."""
    found = list(dict.fromkeys(_raised(words)))
    chain = [said for said in found if _TASK_LOST not in said] or found
    if chain:
        return ", caused by ".join(chain[-_CHAIN_MAX:])
    return next((line.strip() for line in words.splitlines() if line.strip()), "nothing")


def _raised(words: str) -> Iterator[str]:
    for line in words.splitlines():
        match = _RAISED.fullmatch(line.strip())
        if match is None or (match["error"] or "").startswith("Py4J"):
            continue
        name, said = match["error"] or match["other"], match["said"] or match["text"] or ""
        if not said.startswith(_HOLLOW):
            yield f"{name}: {said}" if said else name
