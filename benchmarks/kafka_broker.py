"""A Kafka broker that a benchmark starts for itself, and Java's tools that measure, from the folder of an installation.

The folder is one that holds Kafka's jars, in itself or in its folders, as `libs` of Apache's download does. Whatever is
written goes into the run's own folder.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from benchmarks.peers import await_port, find_program, free_ports
from benchmarks.processes import BenchmarkError, Crew, Process

#: The heap that Kafka's own start script gives a broker.
_HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_TOOL_HEAP: Final = ("-Xmx256m",)
_FORMAT_S: Final = 60.0
_MARK: Final = "for share consumer"
_MOMENT: Final = "%Y-%m-%d %H:%M:%S:%f"
#: The line of the whole run, and with records to warm up the one after it; lines of progress have no percentiles.
_SENT: Final = re.compile(r"^(\d+) (?:steady state )?records sent, ([\d.]+) records/sec.* 50th", re.MULTILINE)


class Installation:
    """Kafka's jars in a folder. Raises BenchmarkError when there are none, or no Java."""

    def __init__(self, folder: Path) -> None:
        folders = [folder, *sorted(each for each in folder.glob("*") if each.is_dir())]
        found = [each.resolve() for each in folders if any(each.glob("kafka*.jar"))]
        if not found:
            raise BenchmarkError(f"{folder} and its folders hold no kafka*.jar; give --kafka another folder")
        if find_program("java") is None:
            raise BenchmarkError("Kafka needs the program java, which is not on PATH")
        self._class_path = ":".join(f"{each}/*" for each in found)

    def words(self, name: str, *arguments: str, heap: Sequence[str] = _TOOL_HEAP) -> list[str]:
        """Return the command that runs a class."""
        return ["java", *heap, "-cp", self._class_path, name, *arguments]

    def run(self, name: str, *arguments: str, limit_s: float) -> str:
        """Run a class to its end. Returns what it printed. Raises BenchmarkError when it fails, or takes too long."""
        words = self.words(name, *arguments)
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{name} took more than {limit_s:g} s") from None
        if done.returncode != 0:
            raise BenchmarkError(f"{name} ended with status {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
        return done.stdout

    def start(self, folder: Path, crew: Crew) -> tuple[Process, str]:
        """Start a broker with a new store in `folder`. Returns its process and address. Raises BenchmarkError."""
        port, controller = free_ports(2)
        settings = folder / "broker.properties"
        folder.mkdir()
        settings.write_text(properties(port, controller, folder / "log"), encoding="utf-8")
        made = ("format", "--cluster-id", cluster_id(), "--config", str(settings))
        self.run("kafka.tools.StorageTool", *made, limit_s=_FORMAT_S)
        broker = Process("broker", self.words("kafka.Kafka", str(settings), heap=_HEAP), crew, is_server=True)
        await_port("broker", port, crew)
        return broker, f"127.0.0.1:{port}"


def cluster_id() -> str:
    """Return a new id as Kafka writes it, 16 bytes in base64; the first letter is given, since "-" begins an option."""
    return "K" + secrets.token_urlsafe(16)[1:]


def properties(port: int, controller: int, log: Path) -> str:
    """Return the settings of a single broker on loopback: defaults, but for the number of replicas."""
    once = (
        "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr", "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    )  # fmt: skip
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(log),
    } | dict.fromkeys(once, "1")
    return "".join(f"{name}={value}\n" for name, value in given.items())


def producer_words(address: str, topic: str, records: int, value_bytes: int) -> tuple[str, ...]:
    """Return class and arguments of Java's producer test; half of the records before those that count warm the JVM."""
    return (
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", address, "--topic", topic,
        "--num-records", str(records + records // 2), "--warmup-records", str(records // 2),
        "--record-size", str(value_bytes), "--throughput", "-1",
    )  # fmt: skip


def consumer_words(address: str, topic: str, group: str, records: int) -> tuple[str, ...]:
    """Return class and arguments of Java's share consumer test."""
    return (
        "org.apache.kafka.tools.ShareConsumerPerformance", "--bootstrap-server", address, "--topic", topic,
        "--group", group, "--num-records", str(records), "--timeout", "60000",
        "--show-detailed-stats", "--reporting-interval", "100",
    )  # fmt: skip


def produced_per_s(output: str) -> float:
    """Return the rate that Java's producer test reports, without records to warm up. Raises BenchmarkError."""
    found = _SENT.findall(output)
    if not found:
        raise BenchmarkError(f"ProducerPerformance reported no rate; it printed:\n{output[-1000:]}")
    return float(found[-1][1])


def consumed_per_s(output: str) -> float:
    """Return the rate of Java's share consumer test after its first line of progress, up to which it joins the group.

    Raises BenchmarkError.
    """
    rows = [line.split(", ") for line in output.splitlines() if line[:1].isdigit() and line.count(", ") == 6]
    steps = [row for row in rows if _MARK in row[6] and int(row[5]) > 0]
    totals = [row for row in rows if _MARK not in row[6]]
    if not steps or not totals:
        raise BenchmarkError(f"ShareConsumerPerformance reported no rate; it printed:\n{output[-1000:]}")
    first, last = steps[0], totals[-1]
    seconds = (datetime.strptime(last[1], _MOMENT) - datetime.strptime(first[1], _MOMENT)).total_seconds()
    records = int(last[5]) - int(first[5])
    if seconds <= 0 or records <= 0:
        raise BenchmarkError("ShareConsumerPerformance was done within a tenth of a second; give it more records")
    return records / seconds


__all__ = [
    "Installation", "cluster_id", "consumed_per_s", "consumer_words", "produced_per_s", "producer_words", "properties",
]  # fmt: skip
