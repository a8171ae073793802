"""Each alert fires on what a real cluster serves in the state that the alert is about, and the first command that
docs/howto/alerts.md gives for it shows the cause.

A cluster is scraped twice, and promtool evaluates the rules on both scrapes as if 100 minutes lay between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from click.testing import CliRunner

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC
from sharegroups import AcknowledgeType, Admin, AlterConfig, ConfigResource, NewTopic, ShareConsumer
from sharegroups.cli.main import main
from sharegroups.insight import causes
from tests.integration.dead_letters.queues import ENABLE_CONFIG, TOPIC_CONFIG
from tests.integration.scenarios.wire import Wire
from tests.integration.share_node.test_progress import SETTINGS, consumer, of, produce, taken, until, work
from tests.integration.share_node.test_scrapes import scrape, series
from tests.packaging.metrics_listed import selectors
from tests.packaging.test_monitoring import MONITORING, alerts, first_commands
from tests.support.node import BOUND_S, Cluster
from tests.support.ports import free_port
from tests.support.promtool import Labels, Series, assert_each_fires, labelled

RULES: Final = MONITORING / "rules.yaml"
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
            assert (why[:8], held) == ("held by ", "4")
            oldest, why = cells("ShareGroupRecordsOld", "OLDEST", "WHY", group="hung", place=False)
            assert (oldest != "-", why[:8]) == (True, "held by ")
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
