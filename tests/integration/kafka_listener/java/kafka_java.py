"""Kafka's Java clients and tools for tests: fetched with Maven into build/kafka-java, where they stay, and driven as
processes."""

from __future__ import annotations

import fcntl
import json
import select
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.support.node import BOUND_S
from tools.kafka_transcripts.running import JAVA

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[3]
_KEPT: Final = _ROOT / "build" / "kafka-java"
#: Fetching takes a quarter of a minute where Maven has nothing yet.
_FETCH_S: Final = 240


class MissingError(Exception):
    """Java, Maven or Kafka's jars are missing; the message says which."""


class KafkaJava(NamedTuple):
    """Where the jars of Kafka's clients and tools are, and the classes of Clients.java."""

    jars: Path
    classes: Path


def kafka_java() -> KafkaJava:
    """Return the jars and classes, which are fetched and compiled when they are not there yet, by one process at a
    time. Raises MissingError when that is not possible."""
    if lacking := [each for each in ("java", "javac", "mvn") if shutil.which(each) is None]:
        raise MissingError(f"there is no {' and no '.join(lacking)}")
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        jars = _made(
            "jars",
            _HERE / "pom.xml",
            lambda folder: [
                *("mvn", "-q", "-B", "-f", str(_HERE / "pom.xml")),
                *("dependency:copy-dependencies", f"-DoutputDirectory={folder}"),
            ],
        )
        classes = _made(
            "classes",
            _HERE / "Clients.java",
            lambda folder: [
                *("javac", "-nowarn", "-proc:none", "-d", str(folder), "-cp", f"{jars}/*"),
                str(_HERE / "Clients.java"),
            ],
        )
    return KafkaJava(jars, classes)


def _made(name: str, source: Path, command: Any) -> Path:
    """Return the folder that the command makes of the source. It is made again when the source has changed."""
    folder, made_of = _KEPT / name, _KEPT / f"{name}-of"
    text = source.read_text(encoding="utf-8")
    if made_of.exists() and made_of.read_text(encoding="utf-8") == text:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = command(folder)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{words[0]} was not done within {_FETCH_S} s") from error
    if done.returncode:
        said = f"{done.stdout}{done.stderr}".strip().splitlines() or [""]
        raise MissingError(f"{words[0]} ended with status {done.returncode}: {said[0][:300]}")
    made_of.write_text(text, encoding="utf-8")
    return folder


class JavaProcess:
    """A process of Clients.java, in which a test opens clients by name."""

    def __init__(self, java: KafkaJava) -> None:
        words = [*JAVA, "-cp", f"{java.classes}:{java.jars}/*", "Clients"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        try:
            self._process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def call(self, name: str, what: str, *values: Any) -> dict[str, Any]:
        """Have a client do something; return its answer. Raises JavaError with what the call threw."""
        send, receive = self._process.stdin, self._process.stdout
        assert send is not None
        assert receive is not None
        send.write(json.dumps([name, what, *values]) + "\n")
        send.flush()
        assert select.select([receive], [], [], 2 * BOUND_S)[0], f"{what} of {name} has no answer"
        line = receive.readline()
        assert line, f"the process ended with status {self._process.wait(BOUND_S)}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaError(answer["error"], answer["message"], answer)
        return answer


class JavaError(Exception):
    """What a call of a Java client threw: the name of its class, its message, and the rest of the answer."""

    def __init__(self, kind: str, message: str, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.answer = answer


class Sender:
    """A KafkaProducer. `stored`: value → partition and offset of each confirmed record; `failed`: value → error."""

    def __init__(self, process: JavaProcess, name: str, servers: str, **settings: str) -> None:
        self.stored: dict[str | None, tuple[int, int]] = {}
        self.failed: dict[str | None, str] = {}
        self._process, self._name = process, name
        process.call(name, "open", "producer", {"bootstrap.servers": servers, **settings})

    def send(
        self, topic: str, values: Iterable[str | None], *, key: str | None = None, partition: int | None = None
    ) -> None:
        """Send records without waiting for them."""
        self._take(self._process.call(self._name, "send", topic, [[key, value, partition] for value in values]))

    def flush(self) -> None:
        """Wait until all are stored or failed."""
        self._take(self._process.call(self._name, "flush"))

    def _take(self, answer: Mapping[str, Any]) -> None:
        for value, *found in answer["sent"]:
            if len(found) == 1:
                self.failed[value] = found[0]
            else:
                assert value is None or value not in self.stored, f"{value} is confirmed twice"
                self.stored[value] = (found[0], found[1])


class Record(NamedTuple):
    """A record as a member was given it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    timestamp: int
    delivery: int
    headers: Mapping[str, str | None]

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


class Member:
    """A KafkaShareConsumer. `confirmed`: offsets by partition whose acknowledgements were confirmed; `refused`: the
    errors of others."""

    def __init__(
        self, process: JavaProcess, name: str, servers: str, group: str, topics: Sequence[str], **settings: str
    ) -> None:
        self.confirmed: dict[int, set[int]] = defaultdict(set)
        self.refused: list[str] = []
        self._process, self._name = process, name
        process.call(name, "open", "member", {"bootstrap.servers": servers, "group.id": group, **settings})
        self.call("subscribe", list(topics))

    def call(self, what: str, *values: Any) -> dict[str, Any]:
        """Do something; keep what the callback was given meanwhile. Raises JavaError."""
        try:
            answer = self._process.call(self._name, what, *values)
        except JavaError as error:
            self._take(error.answer)
            raise
        self._take(answer)
        return answer

    def _take(self, answer: Mapping[str, Any]) -> None:
        for _, partition, offsets, error in answer.get("acknowledged", ()):
            if error is None:
                self.confirmed[partition] |= set(offsets)
            else:
                self.refused.append(error)

    def poll(self, milliseconds: int = 500) -> list[Record]:
        """Return the next records."""
        return [Record(**each) for each in self.call("poll", milliseconds)["records"]]

    def some(self) -> list[Record]:
        """Poll until records come."""
        deadline = time.monotonic() + BOUND_S
        while not (found := self.poll()):
            assert time.monotonic() < deadline, f"nothing came to {self._name}"
        return found

    def acknowledge(self, *each: tuple[Record, str]) -> None:
        """Acknowledge records, each with a type: ACCEPT, RELEASE, REJECT, RENEW."""
        self.call("acknowledge", [[*record.place, kind] for record, kind in each])

    def commit(self) -> None:
        """Commit, and check that each partition confirms."""
        assert self.call("commit")["refused"] == {}

    def close(self) -> None:
        """Leave the group."""
        self.call("close")
