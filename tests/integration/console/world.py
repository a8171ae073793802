"""A real cluster with something to see, and a console of it as a process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from httpx2 import Client

from kip932.ids import TopicPartition
from sharegroups import AcknowledgeType, Admin, Producer, ShareConsumer
from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic
from tests.support.node import StartedProcess
from tests.unit.sharegroups.console.browser import Browser

TOPIC: Final = "orders"
DLQ: Final = "dlq.orders"
GROUP: Final = "mail"
REASONS: Final = ("ConnectionError: the mail server is not there", "ValueError: <b>no address</b>\n  in line 12")
#: How many records are produced; each third one is rejected of those that are consumed, and some are held.
RECORDS: Final = 60
CONSUMED: Final = 30


def fill(settings: Mapping[str, Any], **more: str) -> None:
    """Make topics, records, and a group that has rejected every third of the records that it had.

    `more`: configs of the group.
    """
    with Admin(settings) as admin:
        queue = NewTopic(DLQ, config={"errors.deadletterqueue.group.enable": "true"})
        assert set(admin.create_topics([TOPIC, queue]).values()) == {None}
        configs = {
            "errors.deadletterqueue.topic.name": DLQ,
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.auto.offset.reset": "earliest",
            **more,
        }
        changes = [AlterConfig(name, value) for name, value in configs.items()]
        admin.incremental_alter_configs({ConfigResource.group(GROUP): changes})
    with Producer(settings) as producer:
        for number in range(RECORDS):
            producer.produce(TOPIC, f"order {number}", f"customer-{number % 7}")
    with consumer(settings) as mail:
        seen = 0
        while seen < CONSUMED:
            for message in mail.poll(timeout=1):
                seen += 1
                outcome = AcknowledgeType.ACCEPT if seen % 3 else AcknowledgeType.REJECT
                mail.acknowledge(message, outcome, reason="" if seen % 3 else REASONS[seen % 2])
            mail.commit_sync()


def leave_behind(settings: Mapping[str, Any], group: str) -> None:
    """Let another group consume ten records, and stop."""
    given = {**settings, "group.id": group, "share.acquire.mode": "record_limit", "max.poll.records": 10}
    with Admin(settings) as admin:
        earliest = [AlterConfig("share.auto.offset.reset", "earliest")]
        admin.incremental_alter_configs({ConfigResource.group(group): earliest})
    with ShareConsumer(given) as reader:
        reader.subscribe([TOPIC])
        while not reader.poll(timeout=1):
            pass
        reader.commit_sync()


def consumer(settings: Mapping[str, Any], records: int = CONSUMED) -> ShareConsumer:
    """Return a member of the group, which gets this many records with a poll."""
    given = {
        **settings,
        "group.id": GROUP,
        "client.id": "mailer-1",
        "share.acknowledgement.mode": "explicit",
        "share.acquire.mode": "record_limit",
        "max.poll.records": records,
    }
    mail = ShareConsumer(given)
    mail.subscribe([TOPIC])
    return mail


def letters(settings: Mapping[str, Any]) -> int:
    """Return how many letters were written."""
    place = TopicPartition(DLQ, 0)
    with Admin(settings) as admin:
        found = admin.list_offsets([place])[place]
    assert isinstance(found, int), found
    return found


class RunningConsole:
    """A console as a process, and a browser of it."""

    def __init__(self, bootstrap: str, folder: Path, *words: str) -> None:
        self.audit = folder / "audit.log"
        options = ("--port", "0", "--audit-log", str(self.audit), *words)
        command = ["tests.integration.console.run", "console", "--bootstrap-server", bootstrap, *options]
        self.process = StartedProcess(command, folder)
        self.said = self.process.first_line()
        self.address = self.said.split()[1]
        self.origin = "/".join(self.address.split("/")[:3])
        self.client = Client(base_url=self.origin, follow_redirects=True, timeout=60)
        self.browser = Browser(self.client, self.origin)

    def close(self) -> None:
        """End it."""
        self.client.close()
        self.process.stop()


@contextmanager
def running(bootstrap: str, folder: Path, *words: str) -> Iterator[RunningConsole]:
    """Run a console."""
    console = RunningConsole(bootstrap, folder, *words)
    try:
        yield console
    finally:
        console.close()
