"""Dead letters as the services write them (PL-909), for tests of the tool that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroups.produced import ProducedRecord, encode
from tests.support.fake_cluster.cluster import FakeCluster

REJECTED = b"Offset rejected by client."
TOO_OFTEN = b"Offset delivery count exceeded the threshold."
Headers = Sequence[tuple[str, bytes | None]]


def letter_headers(
    offset: int, topic: str = "orders", partition: int = 0, group: str = "g", count: int = 5, *,
    cause: bytes = TOO_OFTEN,
) -> list[tuple[str, bytes | None]]:  # fmt: skip
    """The six headers."""
    said = (topic, partition, offset, group, count)
    names = ("topic", "partition", "offset", "group", "delivery.count")
    texts = [(f"__dlq.errors.{name}", str(value).encode()) for name, value in zip(names, said, strict=True)]
    return [*texts, ("__dlq.errors.message", cause)]


def copy_of(
    offset: int, key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = (), *,
    at_ms: int = 5_000, topic: str = "orders", partition: int = 0, group: str = "g", count: int = 5,
    cause: bytes = TOO_OFTEN,
) -> ProducedRecord:  # fmt: skip
    """A letter with a copy of its record."""
    return key, value, [*headers, *letter_headers(offset, topic, partition, group, count, cause=cause)], at_ms


def bare(
    offset: int, topic: str = "orders", partition: int = 0, group: str = "g", count: int = 5, *,
    cause: bytes = TOO_OFTEN, at_ms: int = 9_000,
) -> ProducedRecord:  # fmt: skip
    """A letter that has headers only."""
    key = f"{group}:{topic}:{partition}:{offset}".encode()
    return key, None, letter_headers(offset, topic, partition, group, count, cause=cause), at_ms


def store(fake: FakeCluster, topic: str, *records: ProducedRecord, partition: int = 0, at_ms: int = 1_000) -> None:
    """Put records into the fake cluster as one batch, appended at this time."""
    log = fake.log(topic, partition)
    log.now_ms = at_ms
    log.append(encode(list(records))[0], len(records))
    fake.notify()
