"""A fake cluster with the topic `orders`, and `dlq.orders`, which is the DLQ of the groups `g` and `h`."""

from __future__ import annotations

import pytest

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import REJECTED, bare, copy_of, store

DLQ = "dlq.orders"
#: 14 November 2023, 22:13:20 UTC.
T0 = 1_700_000_000_000
REFUSED = b"""mail.RefusedError: the server does not know ann@example.org, and has said so three times
Traceback (most recent call last):
  File "/app/mail.py", line 12, in send_mail
    raise RefusedError(answer)"""


@pytest.fixture
def queue(fake: FakeCluster) -> FakeCluster:
    """The cluster with a dead-letter queue that is still empty."""
    for name in ("orders", DLQ):
        fake.add_topic(name, 2)
    fake.configs[RESOURCE_TOPIC, DLQ] = {"errors.deadletterqueue.group.enable": "true"}
    for group in ("g", "h"):
        fake.groups[group] = None
        fake.configs[RESOURCE_GROUP, group] = {"errors.deadletterqueue.topic.name": DLQ}
    return fake


@pytest.fixture
def letters(queue: FakeCluster) -> FakeCluster:
    """Five dead letters of two groups, in two partitions, with one of them stored twice; and a record that is not a
    dead letter."""
    rejected = copy_of(1, cause=REJECTED, count=1, reason=REFUSED)
    store(queue, DLQ, copy_of(0, at_ms=T0 - 60_000), rejected, at_ms=T0)
    store(queue, DLQ, bare(2, group="h", reason=b"TimeoutError"), at_ms=T0 + 60_000)
    store(queue, DLQ, rejected, (None, b"x", (), 5), partition=1, at_ms=T0 + 120_000)
    store(queue, DLQ, bare(7, partition=1, count=2, cause=REJECTED), partition=1, at_ms=T0 + 180_000)
    return queue
