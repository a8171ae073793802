"""What went wrong, out of the long texts that Spark hands on: Java's stacks and Python's, nested in each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

LOSS: Final = "DataLossError"
#: What readers raise where the store cannot be used; the first of it where no node answers, which may pass.
UNREACHABLE: Final = "StoreUnreachableError"
STORE: Final = (UNREACHABLE, "StoreReplyError", "NoClusterError")
#: What is raised where files cannot be used.
FOLDER: Final = "FolderError"
#: What ends a query that may do better at once, in Spark's words: a Python worker that was late, and the Java process
#: of a job that was killed, which lives a moment longer than its lock and may note the end of one more batch.
PASSING: Final = ("Python worker failed to connect back", "CONCURRENT_STREAM_LOG_UPDATE")
#: Of a longer text only what matters is handed on, see `without_frames`.
SHORT_MAX: Final = 2000

_FRAME: Final = re.compile(r"\s*(?:at \S|\.\.\. \d+ more)")
_RAISED: Final = re.compile(
    r"(?:Caused by: |: )?(?:"
    r"(?:[\w$]+\.)*(?P<error>[A-Z][\w$]*(?:Error|Exception))(?:: (?P<said>.*))?"
    r"|(?:[\w$]+\.)+(?P<other>[A-Z][\w$]*): (?P<told>.+))"  # as pyarrow.lib.ArrowInvalid
)
#: By these an end is told from another: by us, and by Spark, to which a query that is interrupted was stopped.
_TELLING: Final = re.compile("|".join([LOSS, *STORE, *PASSING, r"Interrupt\w*Exception"]))
#: Says only that something else is said behind it.
_HOLLOW: Final = ("Traceback (most recent call last)", "An exception was raised by the Python Proxy", "py4j.protocol.")
_TASK_LOST: Final = "Job aborted due to stage failure"
_CHAIN_MAX: Final = 3
_LINE_MAX: Final = 500
_TELLING_MAX: Final = 2400


class Ended(NamedTuple):
    """What ended a query, of that which says by itself what to do: the exception's name, and what it said."""

    name: str
    said: str


def ended_by(words: str) -> Ended | None:
    """The first such exception that a text tells of. Exceptions of a source come back from Spark as text only."""
    for line in words.splitlines():
        for name in (LOSS, *STORE, FOLDER):
            _, raised, said = line.partition(f"{name}: ")
            if raised:
                return Ended(name, said)
    return None


def without_frames(words: str) -> str:
    """The text without the lines of Java's stacks, each line once in a row, and 2,000 characters of it or little more.

    Of a longer one both ends are left: the beginning says where it happened and the end why; and between them what was
    raised, the last of it, each once. Lines by which somebody tells one end of a query from another stay whole, 2,400
    characters of them.
    """
    lines: list[str] = []
    for line in words.splitlines():
        if not _FRAME.match(line) and lines[-1:] != [line]:
            lines.append(line)
    text = "\n".join(lines)
    return text if len(text) <= SHORT_MAX else _shortened([_line(line) for line in lines])


def _line(line: str) -> str:
    longest = _TELLING_MAX if _TELLING.search(line) else _LINE_MAX
    return line if len(line) <= longest else f"{line[: longest // 2]} … {line[-longest // 2 :]}"


def _shortened(lines: Sequence[str]) -> str:
    """The lines that stay, in order, with a mark where others were."""
    numbers = range(len(lines))
    last = {line: number for number, line in enumerate(lines)}
    telling = {number for line, number in last.items() if _TELLING.search(line)}
    raised = {number for line, number in last.items() if _RAISED.fullmatch(line.strip())}
    part = SHORT_MAX // 3
    kept = _within(lines, numbers, part) | _within(lines, reversed(numbers), part)
    kept |= _within(lines, sorted(telling), _TELLING_MAX) | _within(lines, sorted(raised - telling, reverse=True), part)
    told: list[str] = []
    before = -1
    for number in sorted(kept):
        if lines[number] in told and last[lines[number]] in telling | raised:
            continue
        told += ["…"] * (number > before + 1) + [lines[number]]
        before = number
    return "\n".join(told)


def _within(lines: Sequence[str], numbers: Iterable[int], longest: int) -> set[int]:
    """The first of these lines, at least one, up to so many characters together."""
    taken: set[int] = set()
    for number in numbers:
        longest -= len(lines[number]) + 1
        if taken and longest < 0:
            break
        taken.add(number)
    return taken


def cause(words: str) -> str:
    """What went wrong in one line: what was raised, the last three from the outermost, each with what it said."""
    found = list(dict.fromkeys(_raised(words)))
    telling = [said for said in found if _TASK_LOST not in said] or found
    if telling:
        return ", caused by ".join(telling[-_CHAIN_MAX:])
    return next((line.strip() for line in words.splitlines() if line.strip()), "nothing")


def _raised(words: str) -> Iterator[str]:
    for line in words.splitlines():
        match = _RAISED.fullmatch(line.strip())
        if match is None or (match["error"] or "").startswith("Py4J"):
            continue
        name, said = match["error"] or match["other"], match["said"] or match["told"] or ""
        if not said.startswith(_HOLLOW):
            yield f"{name}: {said}" if said else name
