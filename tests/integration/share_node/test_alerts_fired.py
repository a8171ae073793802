"""Each alert fires on what a real cluster serves in the state that the alert is about, and the first command that
docs/howto/alerts.md gives for it shows the cause.

A cluster is scraped twice, and promtool evaluates the rules on both scrapes as if 100 minutes lay between them. The
reasons why some alerts have other tests are in `ELSEWHERE`.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest
import redis
from click.testing import CliRunner

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC
from sharegroups import AcknowledgeType, Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer
from sharegroups.cli.main import main
from sharegroups.insight import causes
from tests.integration.dead_letters.queues import ENABLE_CONFIG, TOPIC_CONFIG
from tests.integration.scenarios.wire import Wire
from tests.integration.share_node.test_progress import SETTINGS, consumer, of, produce, taken, until, work
from tests.integration.share_node.test_scrapes import scrape, series
from tests.packaging.metrics_listed import selectors
from tests.packaging.test_monitoring import MONITORING, alerts, first_commands
from tests.support.node import BOUND_S, QUICK, Cluster
from tests.support.ports import free_port
from tests.support.promtool import Labels, Series, assert_each_fires, labelled
from tests.support.stores import Server

RULES: Final = MONITORING / "rules.yaml"
#: What a nearly full store still takes: less than a test then produces, however much the store had before.
ROOM_BYTES: Final = 100_000
#: Between the two scrapes, as the rules see it.
MINUTES: Final = 100
#: What Prometheus adds.
POD: Final = {"namespace": "ns", "job": "ns/sharegroups"}
ROLES: Final = ("group-coordinator", "share-coordinator", "partition-leader")
#: Ages grow as fast as the time between the scrapes.
AGES: Final = {
    "sharegroups_share_group_oldest_unfinished_seconds",
    "sharegroups_share_group_dead_letters_oldest_age_seconds",
}  # fmt: skip
#: Counts what a node does each 10 s; two scrapes of a test may be closer.
ROUNDS: Final = "sharegroups_progress_rounds_total"
ROUNDS_PER_MINUTE: Final = 6
#: Alerts that fire for real in test_damage_alerts.py, and those that no test fires for real, which are tested on series
#: that are made up.
ELSEWHERE: Final = {
    "ShareGroupsVolumeFills": "the kubelet serves its metrics",
    "ShareGroupHistoryBehind": "it is of the pipeline, which needs Spark",
    "ShareGroupHistoryStale": "it is of the pipeline, which needs Spark",
    "ShareGroupHistoryLost": "it is of the pipeline, which needs Spark",
    "ShareGroupHistoryGone": "it is of the pipeline, which needs Spark",
    "ShareGroupsBackupMissed": "it takes a day; test_textfile.py fires it",
    "ShareGroupsRestoreDrillMissed": "it takes a week; test_textfile.py fires it",
    "ShareGroupsStoreDamaged": "test_damage_alerts.py damages a store",
    "ShareGroupsStateInQuarantine": "test_damage_alerts.py damages a store",
    "ShareGroupsRecordsUnreadable": "test_damage_alerts.py damages a store",
    "ShareGroupsShardFailed": "test_damage_alerts.py damages a store",
    **dict.fromkeys(
        (
            "ShareGroupsCallMemory",
            "ShareGroupsCallsThrottled",
            "ShareGroupsCertificateEnds",
            "ShareGroupsConnectionsCut",
            "ShareGroupsFiguresAbsent",
            "ShareGroupsNodeMemory",
            "ShareGroupsSecretsUnusable",
            "ShareGroupsTransactionsLate",
            "ShareGroupsWritesFenced",
        ),
        "test_node_alerts.py fires it: the trouble has to last, or takes much memory",
    ),
}
ASKED: Final = {name for rule in alerts() for name, _ in selectors(rule["expr"])}


class Scraped(NamedTuple):
    """What a node serves of the metrics that rules use, and when."""

    at: float
    series: Mapping[tuple[str, Labels], float]


def scraped(port: int) -> Scraped:
    found = series(scrape(port))
    return Scraped(time.monotonic(), {key: value for key, value in found.items() if key[0] in ASKED})


def stretched(before: Scraped, after: Scraped | None) -> Series:
    """Return the series of two scrapes, MINUTES apart; a value between them is on the line between theirs.

    The node plays all roles, so `up` of three pods is whether it answers. None: at the second time it does not.
    """
    ends = [1.0] * (MINUTES // 2) + [float(after is not None)] * (MINUTES - MINUTES // 2 + 1)
    made: dict[tuple[str, Labels], list[float | None]] = {
        ("up", labelled(**POD, pod=f"{role}-0", app_kubernetes_io_component=role)): list(ends) for role in ROLES
    }
    last = after or Scraped(before.at + 1, {})
    factor = MINUTES * 60 / (last.at - before.at)
    for key in before.series.keys() | last.series.keys():
        scale = factor if key[0] in AGES else 1.0
        one, two = (each.series.get(key) for each in (before, last))
        if key[0] == ROUNDS and one is not None and two is not None:
            two = max(two, one + ROUNDS_PER_MINUTE * MINUTES)
        line = [
            (one if at < MINUTES // 2 else two) if one is None or two is None else one + (two - one) * at / MINUTES
            for at in range(MINUTES + 1)
        ]
        made[key[0], key[1] | labelled(**POD, pod="node-0")] = [
            None if value is None else value * scale for value in line
        ]
    return made


def fires(alert: str, severity: str = "warning", **labels: str) -> Labels:
    return labelled(alertname=alert, namespace="ns", severity=severity, **labels)


def first_command(alert: str, *columns: str, **labels: str) -> list[str]:
    """Return the words of the page's first command, with the alert's labels in their places. The page must say that
    these columns are to be looked at."""
    ((command, shows),) = [row[1:] for row in first_commands() if row[0] == alert]
    assert [column for column in columns if column not in shows] == [], shows
    for name, value in labels.items():
        assert name in command, command
        command = command.replace(name, value)
    return command.split()


def printed(words: list[str], *options: str) -> str:
    """Run a command of `sharegroups`; return all that it prints."""
    assert words[0] == "sharegroups"
    result = CliRunner().invoke(main, [*words[1:], *options], prog_name="sharegroups")
    assert result.exit_code == 0, result.output
    return result.output


def row(text: str, of_column: str, name: str) -> dict[str, str]:
    """Return the cells of the only row with this name in this column, by the heads of the columns."""
    lines = text.splitlines()
    (head,) = [line for line in lines if of_column in line.split()]
    starts = [head.index(f" {word}") + 1 if head.index(word) else 0 for word in head.split()]
    found = [
        {
            word: line[start:end].strip()
            for word, start, end in zip(head.split(), starts, [*starts[1:], None], strict=True)
        }
        for line in lines[lines.index(head) + 1 :]
    ]
    (wanted,) = [cells for cells in found if cells[of_column] == name]
    return wanted


def configure(admin: Admin, kind: int, name: str, **configs: str) -> None:
    changes = [AlterConfig(config, value) for config, value in configs.items()]
    resource = ConfigResource(kind, name)
    assert admin.incremental_alter_configs({resource: changes}) == {resource: None}


# ---- what groups do

TOPICS: Final = {"orders": 40, "flood": 1_200, "poison": 2, "later": 5, "bad": 1, "dlq.bad": 0}
OF_GROUPS: Final = (
    fires("ShareGroupStalled", "critical", group="hung", topic="orders"),
    fires("ShareGroupRecordsOld", group="hung", topic="orders"),
    fires("ShareGroupAbandoned", group="stopped"),
    fires("ShareGroupLagGrows", group="slow", topic="flood"),
    fires("ShareGroupRecordsOld", group="slow", topic="flood"),
    fires("ShareGroupRecordsArchived", group="failing", topic="poison"),
    fires("ShareGroupDelayed", group="delaying"),
    fires("ShareGroupsDelayedFull", group="delaying"),
    fires("ShareGroupRecordsOld", group="delaying", topic="later"),
    fires("ShareGroupsDeadLettersWait", group="letters"),
    fires("ShareGroupsDeadLettersFull", "critical", group="letters"),
    fires("ShareGroupRecordsOld", group="letters", topic="bad"),
    fires("ShareGroupLagUnknown", group="unknown", topic="orders"),
)
#: When nothing more is done: what waits for delays, or for dead letters, is not due, and is no standstill.
AT_REST: Final = (
    fires("ShareGroupStalled", "critical", group="slow", topic="flood"),
    *(each for each in OF_GROUPS if not dict(each)["alertname"].endswith(("Grows", "Archived", "Delayed"))),
)
#: When no process answers.
GONE: Final = (
    *(fires("ShareGroupsRoleGone", "critical", role=role) - {("namespace", "ns")} for role in ROLES),
    *(
        fires("ShareGroupsPodGone", job=POD["job"], pod=f"{role}-0", app_kubernetes_io_component=role)
        for role in ROLES
    ),
)  # fmt: skip


class Groups:
    """Groups of one cluster, each in a state of its own; beside them `busy`, which keeps up."""

    def __init__(self, cluster: Cluster, port: int, stack: ExitStack) -> None:
        self.cluster, self.port, self._stack = cluster, port, stack
        self.admin = stack.enter_context(Admin(bootstrap_servers=cluster.bootstrap))
        self.admin.create_topics([NewTopic(topic) for topic in TOPICS])
        for topic, records in TOPICS.items():
            self.produce(topic, records)
        self.busy = self.member("busy")

    def produce(self, topic: str, records: int) -> None:
        produce(self.cluster, records, 0, topic)

    def member(self, group: str, topic: str = "orders", **options: Any) -> ShareConsumer:
        return self._stack.enter_context(consumer(self.cluster, group, topic, **options))

    def healthy(self) -> tuple[Scraped, ...]:
        """Return the scrapes of a cluster with one group that finishes what arrives."""
        work(self.busy, 40)
        until(self.port, of("busy", lag=0, records_finished_total=40))
        before = scraped(self.port)
        self.produce("orders", 6)
        work(self.busy, 6)
        until(self.port, of("busy", lag=0, records_finished_total=46))
        return before, scraped(self.port)

    def bad(self) -> tuple[Scraped, ...]:
        """Bring all other groups into their states; return a scrape of that, and one after more of the same."""
        configure(self.admin, RESOURCE_GROUP, "failing", **{"share.delivery.count.limit": "2"})
        configure(self.admin, RESOURCE_GROUP, "delaying", **{"sharegroups.retry.delayed.max": "10"})
        configure(self.admin, RESOURCE_TOPIC, "dlq.bad", **{ENABLE_CONFIG: "true"})
        waiting = {"sharegroups.errors.deadletterqueue.waiting.max": "2"}
        configure(self.admin, RESOURCE_GROUP, "letters", **{TOPIC_CONFIG: "dlq.bad", **waiting})
        configure(self.admin, RESOURCE_TOPIC, "dlq.bad", **{ENABLE_CONFIG: "false"})
        taken(self.member("hung", max_poll_records=4), 4)
        with consumer(self.cluster, "stopped", max_poll_records=5) as leaves:
            work(leaves, 10)
        asyncio.run(self._joined("unknown"))
        slow = self.member("slow", "flood", max_poll_records=5)
        failing = self.member("failing", "poison", max_poll_records=1)
        delaying, letters = self.member("delaying", "later"), self.member("letters", "bad")
        work(slow, 5)
        work(failing, 2, AcknowledgeType.RELEASE)
        work(delaying, 5, AcknowledgeType.RELEASE, delay=3_600)
        work(letters, 1, AcknowledgeType.REJECT)
        until(self.port, {
            **of("hung", lag=46, records_in_flight=4), **of("stopped", lag=36), **of("slow", "flood", lag=1_195),
            **of("failing", "poison", lag=1), **of("delaying", "later", lag=5, records_delayed=5),
            **of("letters", "bad", lag=1, dead_letters_waiting=1), **of("unknown", records_in_flight=0, lag=None),
        })  # fmt: skip
        before = scraped(self.port)
        for topic, records in {"flood": 300, "later": 5, "bad": 1}.items():
            self.produce(topic, records)
        work(slow, 5)
        taken(slow, 5)
        work(failing, 2, AcknowledgeType.RELEASE)
        work(delaying, 5, AcknowledgeType.RELEASE, delay=3_600)
        work(letters, 1, AcknowledgeType.REJECT)
        until(self.port, {
            **of("slow", "flood", lag=1_490, records_in_flight=5), **of("failing", "poison", lag=0),
            **of("delaying", "later", lag=10, records_delayed=10),
            **of("letters", "bad", lag=2, dead_letters_waiting=2), ("dead_letters_full", "letters", ""): 1,
        })  # fmt: skip
        return before, scraped(self.port)

    async def _joined(self, group: str) -> None:
        """Let a member join that fetches nothing."""
        async with Wire(self.cluster.bootstrap) as wire:
            await wire.join(group, ["orders"])

    def commands_help(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run the first command of each alert, and assert that it shows the cause in the page's columns."""

        def cells(alert: str, *columns: str, group: str, place: bool = True) -> tuple[str, ...]:
            words = first_command(alert, *columns, **({"GROUP": group} if place else {}))
            text = printed(words, "--bootstrap-server", self.cluster.bootstrap)
            shown = row(text, "GROUP", group)
            return tuple(shown[column] for column in columns)

        # The cause of a minute is made that of a moment, so that the test need not wait for it.
        with monkeypatch.context() as patched:
            patched.setattr(causes, "LONG_HELD_MS", 1)
            why, held = cells("ShareGroupStalled", "WHY", "IN-FLIGHT", group="hung", place=False)
            assert (why[:5], held) == ("held ", "4")
            oldest, why = cells("ShareGroupRecordsOld", "OLDEST", "WHY", group="hung", place=False)
            assert (oldest != "-", why[:5]) == (True, "held ")
        assert cells("ShareGroupAbandoned", "STATE", "LAG", group="stopped", place=False) == ("Empty", "36")
        columns = ("WHY", "ARRIVING/s", "FINISHING/s")
        found: tuple[str, ...] = ("", "0", "0")
        deadline = time.monotonic() + BOUND_S
        while not (found[0] == "handlers busy" and float(found[1]) > float(found[2])):
            assert time.monotonic() < deadline, found
            self.produce("flood", 20)
            found = cells("ShareGroupLagGrows", *columns, group="slow", place=False)
        assert cells("ShareGroupRecordsArchived", "ARCHIVED", group="failing") == ("2",)
        assert cells("ShareGroupDelayed", "DELAYED", group="delaying", place=False) == ("10",)
        assert cells("ShareGroupsDelayedFull", "DELAYED", group="delaying") == ("10",)
        assert cells("ShareGroupLagUnknown", "LAG", group="unknown") == ("-",)
        for alert in ("ShareGroupsDeadLettersWait", "ShareGroupsDeadLettersFull"):
            assert cells(alert, "DEAD-LETTERS", group="letters") == ("2",)
        text = printed(first_command(alert, "note", GROUP="letters"), "--bootstrap-server", self.cluster.bootstrap)
        _, _, named = text.partition("Why: ")
        explained = printed(named.split(), "--bootstrap-server", self.cluster.bootstrap)
        assert "topic 'dlq.bad' is not enabled as a dead-letter topic" in explained


@pytest.mark.rule("PL-956")
def test_groups_in_trouble_raise_their_alerts_and_the_first_commands_show_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end the node is killed, and all pods are gone."""
    monkeypatch.setattr(causes, "FRESH_MS", 0)
    port = free_port()
    with Cluster({**SETTINGS, "metrics.port": str(port), "lease.ms": "10000"}) as cluster, ExitStack() as stack:
        groups = Groups(cluster, port, stack)
        healthy, bad = groups.healthy(), groups.bad()
        rest = (bad[1], scraped(port))
        groups.commands_help(monkeypatch)
        stack.close()
        cluster.node.kill()
        with pytest.raises(OSError, match="refused"):
            scraped(port)
        cases = {
            "healthy": (stretched(*healthy), MINUTES, ()),
            "in trouble": (stretched(*bad), MINUTES, OF_GROUPS),
            "at rest": (stretched(*rest), MINUTES, AT_REST),
            "gone": (stretched(healthy[1], None), MINUTES, GONE),
        }
        assert_each_fires(tmp_path, RULES, cases)


# ---- the store

#: What the store answers while it does something else: no commit ends.
SLEEPS_S: Final = 0.8
LEFT_OUT: Final = fires("ShareGroupsLeftOut")
#: The services whose commits are made slow.
COMMITTING: Final = ("partition_leader", "share_coordinator")
#: No group has series here, so none raises an alert.
NO_ROWS: Final = {"metrics.progress.rows.max": "0", "group.share.auto.offset.reset": "earliest"}


def of_store(node: str) -> dict[str, tuple[Labels, ...]]:
    """Return what fires for this node of the store in each state."""
    slow = fires("ShareGroupsStoreFsyncDelayed", node=node)
    full = fires("ShareGroupsStoreMemory", "critical", node=node)
    return {
        "slow": (LEFT_OUT, slow, *(fires("ShareGroupsCommitsSlow", service=each) for each in COMMITTING)),
        "full": (LEFT_OUT, full, fires("ShareGroupsWritesRefused", "critical", service="partition_leader")),
        "alone": (LEFT_OUT, fires("ShareGroupsStoreReplicaGone", "critical")),
    }


def until_served(port: int, holds: Callable[[Callable[..., float]], bool]) -> Scraped:
    """Return a scrape for which this holds of a function: it returns the sum of a metric's series with these labels."""
    deadline = time.monotonic() + BOUND_S
    while True:
        found = scraped(port)

        def total(name: str, found: Scraped = found, **labels: str) -> float:
            chosen = [value for key, value in found.series.items() if key[0] == name and key[1] >= labels.items()]
            return sum(chosen)

        if holds(total):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@contextmanager
def stopped_thread(process: int, name: str) -> Iterator[None]:
    """Stop one thread of a child process, as a disk that does not answer would."""
    traced = ctypes.CDLL(None, use_errno=True).ptrace
    traced.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    (thread,) = [
        each for each in Path(f"/proc/{process}/task").iterdir() if (each / "comm").read_text().strip() == name
    ]
    seize, interrupt, detach = 0x4206, 0x4207, 17
    for request in (seize, interrupt):
        assert traced(request, int(thread.name), None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert traced(detach, int(thread.name), None, None) == 0, os.strerror(ctypes.get_errno())


def answered(words: list[str]) -> str:
    """Send what redis-cli would send with these words; return the answer."""
    assert words[:2] == ["redis-cli", "-u"], words
    with redis.Redis.from_url(words[2]) as store:
        return str(store.execute_command(*words[3:]))


def warned(cluster: Cluster, alert: str, event: str) -> str:
    """Return the cause of the newest such line of the node's log, where the page says to read one."""
    assert first_command(alert, "cause") == ["kubectl", "logs", "POD"]
    lines = [json.loads(line) for line in cluster.node.errors.splitlines() if f'"{event}"' in line]
    assert lines[-1]["level"] in ("warning", "error")
    return str(lines[-1]["cause"])


def slowed(cluster: Cluster, port: int, store: redis.Redis, pid: int, member: ShareConsumer) -> Scraped:
    """Keep the store's disk from answering, then let other commands keep the store busy while a group commits."""
    with stopped_thread(pid, "bio_aof"):
        until_served(port, lambda total: produced(cluster) and total("sharegroups_store_fsync_delayed_total") > 0)

    def slow(total: Callable[..., float]) -> bool:
        produced(cluster)
        for message in member.poll(timeout=BOUND_S):
            member.acknowledge(message)
        sleeps = threading.Thread(target=store.execute_command, args=("DEBUG", "SLEEP", SLEEPS_S))
        sleeps.start()
        member.commit_async()
        produced(cluster)
        sleeps.join()
        member.commit_sync()
        name = "sharegroups_batch_flush_time_seconds_bucket"
        return all(total(name, le="+Inf", service=each) > total(name, le="0.5", service=each) for each in COMMITTING)

    return until_served(port, slow)


def produced(cluster: Cluster) -> bool:
    produce(cluster, 1, 0, "filler")
    return True


def filled(cluster: Cluster, port: int, store: redis.Redis) -> tuple[Scraped, Scraped]:
    """Give the store a limit that it nearly reaches, and produce more than fits."""
    rng, errors = Random(1), list[Any]()
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(10):
            producer.produce("filler", rng.randbytes(20_000))
    limit = int(store.info("memory")["used_memory"]) + ROOM_BYTES
    store.config_set("maxmemory", limit)
    before = until_served(port, lambda total: total("sharegroups_store_memory_limit_bytes") == limit)
    refused = "sharegroups_batch_refused_records_total"
    with Producer(bootstrap_servers=cluster.bootstrap, delivery_timeout_ms=3_000, request_timeout_ms=1_000) as producer:
        for _ in range(20):
            producer.produce("filler", rng.randbytes(20_000), on_delivery=lambda error, _: errors.append(error))
    assert any(errors)
    until_served(port, lambda total: total(refused) > 0)

    def is_nearly_full(total: Callable[..., float]) -> bool:
        """Return whether the scrape is of the current limit, which follows what the store frees after the refusals."""
        used, limit = total("sharegroups_store_memory_used_bytes"), total("sharegroups_store_memory_limit_bytes")
        if used > 0.95 * limit:
            return True
        store.config_set("maxmemory", int(store.info("memory")["used_memory"] * 1.02))
        return False

    return before, until_served(port, is_nearly_full)


@pytest.mark.rule("PL-956", "CM-131", "CM-208")
def test_a_store_in_trouble_raises_its_alerts_and_the_first_commands_show_why(tmp_path: Path) -> None:
    """A store whose disk is slow, that is kept busy, that is full, and whose replica goes."""
    port = free_port()
    options = ("--appendfsync", "everysec", "--enable-debug-command", "local")
    with ExitStack() as stack:
        server = started(stack, *options)
        replica = started(stack, "--replicaof", "127.0.0.1", str(server.port))
        node, url = f"127.0.0.1:{server.port}", f"redis://127.0.0.1:{server.port}"
        settings = {**QUICK, **NO_ROWS, "metrics.port": str(port), "store.replicas": "1", "lease.ms": "6000"}
        settings |= {"store.produce.memory.percent": "100"}
        cluster = stack.enter_context(Cluster(settings, "--store", url, "--init"))
        store = stack.enter_context(redis.Redis.from_url(url))
        until_served(port, lambda total: total("sharegroups_store_replicas_connected") == 1)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("filler")])
        produced(cluster)
        with consumer(cluster, "workers", "filler") as member:
            work(member, 1)
            before = until_served(port, lambda total: total("sharegroups_share_group_rows_left_out") == 1)
            assert server.process is not None
            slow = (before, slowed(cluster, port, store, server.process.pid, member))
        assert "'aof_delayed_fsync': 0" not in answered(first_command(
            "ShareGroupsStoreFsyncDelayed", "aof_delayed_fsync", NODE=node
        ))  # fmt: skip
        assert "DEBUG" in answered(first_command("ShareGroupsCommitsSlow", "commands", NODE=node))
        full = filled(cluster, port, store)
        listed = printed(
            first_command("ShareGroupsStoreMemory", "LEFT", "BYTES"), "--bootstrap-server", cluster.bootstrap
        )
        topics, _, stores = listed.strip().split("\n\n")
        assert row(topics, "TOPIC", "filler")["BYTES"].endswith("KiB")
        assert re.search(r"\((9\d|1\d\d)% used\)", row(stores, "STORE", node)["LEFT"])
        assert "maxmemory" in warned(cluster, "ShareGroupsWritesRefused", "topic_writes_refused")
        left = printed(first_command("ShareGroupsLeftOut"), "--bootstrap-server", cluster.bootstrap)
        assert row(left, "GROUP", "workers")["LAG"] != ""
        store.config_set("maxmemory", 0)
        replica.stop()
        names = ("sharegroups_store_replicas_connected", "sharegroups_store_memory_limit_bytes")
        one = until_served(port, lambda total: not any(map(total, names)))
        found = answered(first_command("ShareGroupsStoreReplicaGone", "connected_slaves", NODE=node))
        assert "'connected_slaves': 0" in found
        gone = (one, scraped(port))
    expected = of_store(node)
    cases = {"slow": slow, "full": full, "alone": gone}
    assert_each_fires(tmp_path, RULES, {
        name: (stretched(*both), MINUTES, expected[name]) for name, both in cases.items()
    })  # fmt: skip


def started(stack: ExitStack, *options: str) -> Server:
    server = Server(*options)
    stack.callback(shutil.rmtree, server.folder, ignore_errors=True)
    stack.callback(server.stop)
    asyncio.run(server.start())
    return server


def test_every_alert_fires_here_or_has_a_reason_why_not() -> None:
    in_states = [each for alerts_of in of_store("").values() for each in alerts_of]
    here = {dict(each)["alertname"] for each in (*OF_GROUPS, *GONE, *in_states)}
    assert here & ELSEWHERE.keys() == set()
    assert here | ELSEWHERE.keys() == {rule["alert"] for rule in alerts()}
