"""Kafka's command-line tools as processes, from a folder that has their jars."""

from __future__ import annotations

import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

#: A tool's name, without `kafka-` and `.sh` → its class below org.apache.kafka.tools.
CLASSES: Final = {
    "acls": "AclCommand",
    "cluster": "ClusterTool",
    "configs": "ConfigCommand",
    "console-producer": "ConsoleProducer",
    "console-share-consumer": "consumer.ConsoleShareConsumer",
    "delete-records": "DeleteRecordsCommand",
    "features": "FeatureCommand",
    "get-offsets": "GetOffsetShell",
    "groups": "GroupsCommand",
    "producer-perf-test": "ProducerPerformance",
    "share-consumer-perf-test": "ShareConsumerPerformance",
    "share-groups": "consumer.group.ShareGroupCommand",
    "topics": "TopicCommand",
    "transactions": "TransactionsCommand",
    "verifiable-producer": "VerifiableProducer",
    "verifiable-share-consumer": "VerifiableShareConsumer",
}
#: For programs that live a second: start quickly rather than run fast.
JAVA: Final = ("java", "-Xmx256m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_BOUND_S: Final = 120


class Done(NamedTuple):
    """How a tool ended: its exit status, and what it wrote."""

    status: int
    out: str
    errors: str


class KafkaTools:
    """The tools of the jars in a folder."""

    def __init__(self, folder: Path, java: Sequence[str] = JAVA) -> None:
        self.folder = folder
        self._java = tuple(java)

    @property
    def class_path(self) -> str:
        """The class path of all jars."""
        return f"{self.folder}/*"

    def command(self, tool: str, *words: str) -> list[str]:
        """Return the command line. Raises KeyError when there is no such tool."""
        name = f"org.apache.kafka.tools.{CLASSES[tool]}"
        return [*self._java, "-cp", self.class_path, name, *words]

    def run(self, tool: str, *words: str, given: str = "") -> Done:
        """Run a tool to its end, with this standard input. After two minutes it is killed, and has SIGKILL's status."""
        try:
            done = subprocess.run(
                self.command(tool, *words), input=given, capture_output=True, text=True, timeout=_BOUND_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Done(-signal.SIGKILL, "", f"{tool} was not done within {_BOUND_S} s\n")
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, tool: str, *words: str) -> Running:
        """Start a tool that runs until it is ended."""
        return Running(self.command(tool, *words))


class Running:
    """A tool that was started. Its standard error is not kept."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._read = b""

    def line(self) -> str:
        """Return its next line of output, or an empty text when it has ended. Raises TimeoutError after two minutes
        without any."""
        output = self._process.stdout
        if output is None:
            raise ValueError("the output of the process is not a pipe")
        while b"\n" not in self._read:
            if not select.select([output], [], [], _BOUND_S)[0]:
                raise TimeoutError(f"process {self._process.pid} wrote nothing within {_BOUND_S} s")
            found = output.read(65_536)
            if not found:
                return ""
            self._read += found
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace") + "\n"

    def stop(self) -> Done:
        """End it with SIGTERM, or with SIGKILL if it stays; return its exit status and the rest of its output."""
        self._process.terminate()
        try:
            out, _ = self._process.communicate(timeout=_BOUND_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, _ = self._process.communicate()
        return Done(self._process.returncode, (self._read + out).decode(errors="replace"), "")


def missing(folder: Path) -> str:
    """Return what is missing to run the tools of the folder, or an empty text."""
    if shutil.which("java") is None:
        return "there is no java"
    if not list(folder.glob("kafka-tools-*.jar")):
        return f"{folder} has no kafka-tools-….jar; fetch it with Maven, see docs/contributing/testing.md"
    return ""
