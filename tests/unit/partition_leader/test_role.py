"""A leader's own work, on virtual time: the retention sweep runs, and each setting does what its name says."""

from __future__ import annotations

import asyncio

from kip932.ids import OFFSET_EARLIEST
from shard_runtime.config.process_settings import RETENTION_INTERVAL_MS
from sharegroups import NewTopic, TopicPartition
from sharegroups.aio import Admin, Producer
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World

RECORDS = 20
#: The value of every record. Each record is a batch; all batches together are over 500 and under 5,000 bytes.
VALUE = b"v" * 40


def log_starts(**configs: str) -> tuple[int, int]:
    """Return the log start of a topic with these configs (`_` for a dot): right after the writes, and two sweeps
    later."""

    async def main() -> tuple[int, int]:
        world = World(1, Shape.two())
        await world.open()
        await world.start("a")
        await world.settled()
        settings = {"bootstrap.servers": world.bootstrap()}
        admin = Admin(settings, transport=world.transport("admin"))
        producer = Producer(settings, transport=world.transport("p"))
        await admin.create_topics([NewTopic("jobs", 1, {name.replace("_", "."): configs[name] for name in configs})])
        for _ in range(RECORDS):
            await producer.send("jobs", VALUE)
        jobs = TopicPartition("jobs", 0)
        before = (await admin.list_offsets({jobs: OFFSET_EARLIEST}))[jobs]
        await asyncio.sleep(2 * RETENTION_INTERVAL_MS.default / 1000 + 1)
        after = (await admin.list_offsets({jobs: OFFSET_EARLIEST}))[jobs]
        await producer.close()
        await admin.close()
        await world.close()
        assert isinstance(before, int)
        assert isinstance(after, int)
        return before, after

    return determinism.run(1, main)


def test_records_older_than_retention_ms_are_deleted_however_few_bytes_they_have() -> None:
    assert log_starts(retention_ms="5000") == (0, RECORDS)


def test_the_oldest_records_above_retention_bytes_are_deleted_and_the_rest_stays() -> None:
    before, after = log_starts(retention_bytes="500")
    assert before == 0
    assert 0 < after < RECORDS


def test_without_retention_nothing_is_deleted() -> None:
    assert log_starts(retention_ms="-1", retention_bytes="-1") == (0, 0)
