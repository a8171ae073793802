"""The records produced to a topic of the fake cluster."""

from __future__ import annotations

from typing import NamedTuple

from kip932.record_batches import open_batch
from tests.support.fake_cluster.cluster import FakeCluster


class Produced(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int

    @property
    def place(self) -> tuple[int, int]:
        """The partition and offset of the dead letter that it was made from."""
        said = {name.removeprefix("__dlq.redrive."): value or b"" for name, value in self.headers}
        return int(said["partition"]), int(said["offset"])


def produced(fake: FakeCluster, topic: str = "orders", partition: int = 0, since: int = 0) -> list[Produced]:
    """Return the records from offset `since` onwards."""
    found: list[Produced] = []
    for batch in fake.log(topic, partition).batches:
        base_ms, records = open_batch(batch.batch, batch.count)
        for offset, record in enumerate(records, batch.base_offset):
            if offset >= since:
                headers = [(one.key, one.value if one.HasField("value") else None) for one in record.headers]
                key = record.key if record.HasField("key") else None
                value = record.value if record.HasField("value") else None
                found.append(Produced(key, value, headers, base_ms + record.timestamp_delta_ms))
    return found
