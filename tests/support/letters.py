"""Dead letters as the services write them (PL-909), for tests of the tool that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroups.producing.produced import ProducedRecord, encode
from tests.support.fake_cluster.cluster import FakeCluster

REJECTED = b"Offset rejected by client."
TOO_OFTEN = b"Offset delivery count exceeded the threshold."
Headers = Sequence[tuple[str, bytes | None]]


def letter_headers(
    offset: int, topic: str = "orders", partition: int = 0, group: str = "g", count: int = 5, *,
    cause: bytes = TOO_OFTEN, topic_id: str = "", reason: bytes | None = None,
) -> list[tuple[str, bytes | None]]:  # fmt: skip
    """Return the headers that the server writes; without a topic id, those of a dead letter from an earlier release."""
    said = (topic, partition, offset, group, count)
    names = ("topic", "partition", "offset", "group", "delivery.count")
    texts = [(f"__dlq.errors.{name}", str(value).encode()) for name, value in zip(names, said, strict=True)]
    named = [("__dlq.errors.topic.id", topic_id.encode())] if topic_id else []
    said_why = [] if reason is None else [("__dlq.errors.reason", reason)]
    return [*said_why, *texts, ("__dlq.errors.message", cause), *named]


def copy_of(
    offset: int, key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = (), *,
    at_ms: int = 5_000, topic: str = "orders", partition: int = 0, group: str = "g", count: int = 5,
    cause: bytes = TOO_OFTEN, topic_id: str = "", reason: bytes | None = None,
) -> ProducedRecord:  # fmt: skip
    """Return a dead letter with a copy of its record."""
    own = letter_headers(offset, topic, partition, group, count, cause=cause, topic_id=topic_id, reason=reason)
    return key, value, [*headers, *own], at_ms


def bare(
    offset: int, topic: str = "orders", partition: int = 0, group: str = "g", count: int = 5, *,
    cause: bytes = TOO_OFTEN, at_ms: int = 9_000, topic_id: str = "", reason: bytes | None = None,
) -> ProducedRecord:  # fmt: skip
    """Return a dead letter with headers only."""
    key = f"{group}:{topic}:{partition}:{offset}".encode()
    own = letter_headers(offset, topic, partition, group, count, cause=cause, topic_id=topic_id, reason=reason)
    return key, None, own, at_ms


def store(fake: FakeCluster, topic: str, *records: ProducedRecord, partition: int = 0, at_ms: int = 1_000) -> None:
    """Store records in the fake cluster as one batch, appended at this time."""
    log = fake.log(topic, partition)
    log.now_ms = at_ms
    log.append(encode(list(records))[0], len(records))
    fake.notify()
