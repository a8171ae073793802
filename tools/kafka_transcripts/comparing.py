"""What two servers' transcripts have in common, and where they differ. No I/O."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tools.kafka_transcripts.steps import MARK, Step

#: What differs from run to run, and what it is replaced with.
_PASSING: Final = (
    (re.compile(r"\d{2}:\d{2}:\d{2}\.\d{3} \[[^\]]*\] (?=[A-Z]+ )"), ""),
    (re.compile(r"\[?\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}[:,.]\d{3}\]?"), "TIME"),
    (re.compile(r'(?<="timestamp":)"?\d+"?'), "TIME"),
    (re.compile(r"CreateTime:\d+"), "CreateTime:TIME"),
    (re.compile(r"\bEpoch: \d+$"), "Epoch: EPOCH"),
    (re.compile(r"(?<![\w.-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"\b\d+\.\d{4,}\b"), "FIGURE"),
)
#: The words of an error, which each server chooses: after the class of the client's exception, or after what a tool
#: prints before the words alone.
_WORDS: Final = (
    re.compile(r"(?<=\wException: )(?!\S*Exception\b).+"),
    re.compile(r"(?<=Error while executing topic command : ).+"),
    re.compile(r"(?<=\bError: )(?!.*Exception\b).+"),
)
#: The figures of perf tools, which count time.
_FIGURES: Final = re.compile(r"(?<![\w:])\d+(?:\.\d+)?(?= (?:records/sec|ms\b))|\(\d+\.\d+ MB/sec\)|, \d+$")
#: Offsets of an event, which verifiable clients print in any order.
_OFFSETS: Final = re.compile(r'"offsets":\[([\d,]+)\]')
#: States that a tool would take, which it prints in the order of a Java set, another in each process.
_STATES: Final = re.compile(r"(?<=Valid states are: )\w+(?:, \w+)*")
#: A line of a stack trace, since the line that it begins with has the reason, or that Java logs without a logger.
_NOISE: Final = re.compile(r"SLF4J: .*|\s+at [\w.$/<>@]+\(.*|\s+\.\.\. \d+ more")
_PERF: Final = ("producer-perf-test", "share-consumer-perf-test")


class Hunk(NamedTuple):
    """Where the transcripts of a command differ: the lines of the broker, and those of this project's node."""

    command: str
    broker: tuple[str, ...]
    ours: tuple[str, ...]


class Difference(NamedTuple):
    """A difference that is meant. `rule`: the clause of docs/spec that says so. `tools`: whose output it is in.
    `command`, `broker` and `ours`: patterns for the whole command, and for the whole of what each side has there, its
    lines joined. `text`: the difference as a page shows it."""

    rule: str
    tools: tuple[str, ...]
    command: str
    broker: str
    ours: str
    text: str

    def explains(self, hunk: Hunk) -> bool:
        """Return whether this is that difference."""
        pairs = ((self.command, (hunk.command,)), (self.broker, hunk.broker), (self.ours, hunk.ours))
        return all(re.fullmatch(pattern, "\n".join(lines), re.DOTALL) for pattern, lines in pairs)


def normal(step: Step, text: str, *, address: str, mark: str) -> list[str]:
    """Return the lines of what a command printed, without what differs from run to run."""
    lines = [line.rstrip() for line in text.splitlines() if not _NOISE.fullmatch(line)]
    if step.own:
        lines = [line for line in lines if mark in line or line.startswith("__")]
    host, _, port = address.rpartition(":")
    for given, instead in ((mark, ""), (address, "ADDRESS"), (f"{host} {port}", "HOST PORT")):
        lines = [line.replace(given, instead) for line in lines]
    found = [_constant(step, line) for line in lines]
    return sorted(found) if step.unordered else found


def _constant(step: Step, line: str) -> str:
    if step.tool in _PERF:
        line = _FIGURES.sub("FIGURE", line)
    line = _OFFSETS.sub(lambda found: f'"offsets":{sorted(map(int, found[1].split(",")))}', line)
    line = _STATES.sub(lambda found: ", ".join(sorted(found[0].split(", "))), line)
    for pattern, instead in _PASSING:
        line = pattern.sub(instead, line)
    for pattern in _WORDS:
        line = pattern.sub("WORDS", line)
    return line


def hunks(step: Step, broker: Sequence[str], ours: Sequence[str]) -> Iterator[Hunk]:
    """Yield where the lines of the two differ."""
    for kind, start, end, from_, to in difflib.SequenceMatcher(None, broker, ours, autojunk=False).get_opcodes():
        if kind != "equal":
            yield Hunk(step.command, tuple(broker[start:end]), tuple(ours[from_:to]))


def named(step: Step, mark: str) -> str:
    """Return the arguments of a command with the names of this run."""
    return step.words.replace(MARK, mark)
