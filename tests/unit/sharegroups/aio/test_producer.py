"""The asyncio producer against the fake cluster, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import InvalidRequestError, KafkaError, MessageTooLargeError, UnknownTopicOrPartitionError
from sharegroups.aio import Producer
from sharegroups.aio.producer import MAY_BE_STORED, TAKEN_BACK
from sharegroups.connection import wire
from sharegroups.errors import BufferFullError, RequestTimedOutError
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.leader import Leader
from tests.support.fake_cluster.stories import on_fake_cluster, play


def producer(fake: FakeCluster, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": fake.bootstrap} | settings, transport=fake.transport())


@pytest.mark.rule("CM-42")
@on_fake_cluster()
async def test_send_returns_where_the_record_is_stored(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        reports = [await p.send("t", f"v{number}", key=b"k") for number in range(3)]
        assert [(r.topic(), r.partition(), r.offset(), r.value()) for r in reports] == [
            ("t", 0, 0, b"v0"),
            ("t", 0, 1, b"v1"),
            ("t", 0, 2, b"v2"),
        ]


@pytest.mark.rule("P-1", "CM-43", "CM-110")
@on_fake_cluster()
async def test_what_piles_up_during_a_request_leaves_together(fake: FakeCluster) -> None:
    fake.hold_produce = asyncio.Event()
    async with producer(fake) as p:
        await p.produce("t", b"first")
        await asyncio.sleep(0.01)
        for number in range(200):
            await p.produce("t", str(number))
        fake.hold_produce.set()
        assert await p.flush() == 0
        counts = [batch.record_count for r in fake.produces for batch in r.topic_data[0].partition_data[0].batches]
        assert counts == [1, 200]
        sequences = [batch.base_sequence for r in fake.produces for batch in r.topic_data[0].partition_data[0].batches]
        assert sequences == [0, 1]
        for request in fake.produces:  # the zeros too: an unset field would mean no producer, or an incomplete one
            for batch in request.topic_data[0].partition_data[0].batches:
                given = [batch.HasField(name) for name in ("producer_id", "producer_epoch", "base_sequence")]
                assert given == [True] * 3
                assert batch.producer_id > 0


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize("fault", ["produce_stream", "produce_lost"])
@on_fake_cluster()
async def test_a_lost_request_or_answer_is_repeated_with_the_same_sequence_and_stored_once(
    fake: FakeCluster, fault: str
) -> None:
    async with producer(fake) as p:
        await p.send("t", b"a")
        fake.errors[fault].append(1)
        report = await p.send("t", b"b")
        assert report.offset() == 1
        assert (await p.send("t", b"c")).offset() == 2
        assert fake.log("t").end == 3


@pytest.mark.rule("CL-34", "CM-14")
@on_fake_cluster(nodes=2)
async def test_a_redirect_is_followed(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        await p.send("t", b"a")
        fake.move_leader("t", 0, 1)
        assert (await p.send("t", b"b")).offset() == 1


@pytest.mark.rule("CM-43")
@on_fake_cluster()
async def test_after_a_definite_failure_a_new_producer_id_is_taken(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        await p.send("t", b"a")
        fake.errors["produce"].append(10)
        with pytest.raises(MessageTooLargeError):
            await p.send("t", b"b")
        assert (await p.send("t", b"c")).offset() == 1
        batches = [r.topic_data[0].partition_data[0].batches[0] for r in fake.produces]
        assert [(b.producer_id, b.base_sequence) for b in batches] == [(1001, 0), (1001, 1), (1002, 0)]


@pytest.mark.rule("CM-43", "CM-21", "CL-34")
@on_fake_cluster()
async def test_in_a_topic_that_was_created_again_sequences_begin_again(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        former = fake.topics["t"][0]
        await p.send("t", b"a")
        present = fake.add_topic("t")
        assert (await p.send("t", b"b")).offset() == 0
        sent = [r.topic_data[0] for r in fake.produces]
        numbers = [(t.topic_id, t.partition_data[0].batches[0].base_sequence) for t in sent]
        assert list(dict.fromkeys(numbers)) == [(former, 0), (former, 1), (present, 0)]


@pytest.mark.rule("CM-42")
@on_fake_cluster()
async def test_delivery_times_out_when_the_leader_never_takes_the_batch(fake: FakeCluster) -> None:
    async with producer(fake, **{"delivery.timeout.ms": 3000}) as p:
        await p.send("t", b"a")
        fake.errors["produce"].extend([19] * 1000)
        with pytest.raises(RequestTimedOutError, match="3000 ms"):
            await p.send("t", b"b")
        fake.errors["produce"].clear()


@on_fake_cluster()
async def test_a_full_buffer_waits_and_then_refuses(fake: FakeCluster) -> None:
    fake.hold_produce = asyncio.Event()
    async with producer(fake, **{"buffer.memory": 1000, "max.block.ms": 2000}) as p:
        await p.produce("t", b"x" * 500)
        with pytest.raises(BufferFullError, match=r"buffer\.memory"):
            await p.produce("t", b"x" * 600)
        waiting = asyncio.create_task(p.produce("t", b"x" * 600))
        await asyncio.sleep(0.1)
        fake.hold_produce.set()
        await waiting
        assert await p.flush() == 0


@on_fake_cluster()
async def test_an_unknown_topic_partition_or_large_record_is_refused_with_words(fake: FakeCluster) -> None:
    async with producer(fake, **{"max.block.ms": 1000, "max.request.size": 100}) as p:
        with pytest.raises(UnknownTopicOrPartitionError, match="sharegroups topics create nope"):
            await p.send("nope", b"x")
        with pytest.raises(InvalidRequestError, match="partitions 0 to 0"):
            await p.send("t", b"x", partition=1)
        with pytest.raises(MessageTooLargeError, match=r"max\.request\.size"):
            await p.send("t", b"x" * 200)


@on_fake_cluster(nodes=2, partitions=4)
async def test_keys_stay_on_their_partition_and_keyless_records_use_all(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        keyed = {(await p.send("t", b"v", key=b"k")).partition() for _ in range(5)}
        keyless = {(await p.send("t", b"v")).partition() for _ in range(8)}
        assert len(keyed) == 1
        assert keyless == {0, 1, 2, 3}


@on_fake_cluster()
async def test_callbacks_get_reports_and_close_delivers_what_is_left(fake: FakeCluster) -> None:
    heard: list[tuple[KafkaError | None, int]] = []

    def done(error: KafkaError | None, report: DeliveryReport) -> None:
        heard.append((error, report.offset()))

    p = producer(fake)
    for _ in range(3):
        await p.produce("t", b"v", on_delivery=done)
    await p.close()
    assert heard == [(None, 0), (None, 1), (None, 2)]


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize("turns", range(12))
@on_fake_cluster()
async def test_close_reports_the_fate_of_every_record_at_whatever_turn_of_the_loop_it_comes(
    fake: FakeCluster, turns: int
) -> None:
    """In one of these turns, a sending task has been created but has not taken its first step."""

    heard: list[bytes | None] = []
    p = producer(fake)
    await p.send("t", b"first")
    for value in (b"a", b"b", b"c"):
        await p.produce("t", value, on_delivery=lambda error, report: heard.append(report.value()))
        if value == b"a":
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # `a` is in flight, and the others wait for its response
    for _ in range(turns):
        await asyncio.sleep(0)
    await p.close(0)
    assert heard == [b"a", b"b", b"c"]


@pytest.mark.rule("CM-44")
@on_fake_cluster()
async def test_leaving_a_transaction_commits_it_and_an_exception_aborts_it(fake: FakeCluster) -> None:
    async with producer(fake, **{"transactional.id": "tx"}) as p:
        async with p.transaction():
            await p.send("t", b"a")

        async def fail() -> None:
            async with p.transaction():
                await p.send("t", b"b")
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert [committed for _, committed in fake.transactions.ended] == [True, False]
        assert all(r.topic_data[0].partition_data[0].batches[0].is_transactional for r in fake.produces)


@pytest.mark.rule("CL-112", "CM-116")
@pytest.mark.parametrize(
    "settings",
    [
        {"compression.type": "gzip", "compression.gzip.level": "1"},
        {"compression.type": "snappy"},
        {"compression.type": "lz4", "compression.lz4.level": 12},
        {"compression.type": "zstd", "compression.zstd.level": -7},
    ],
    ids=["gzip", "snappy", "lz4", "zstd"],
)
@on_fake_cluster()
async def test_compressed_batches_are_smaller_and_readable(fake: FakeCluster, settings: dict[str, Any]) -> None:
    async with producer(fake, **settings) as p:
        for _ in range(100):
            await p.produce("t", b"the same words again")
        await p.flush()
    batch = fake.log("t").batches[-1]
    found = RecordBatch.FromString(batch.batch)
    kind = Compression[settings["compression.type"].upper()]
    assert found.compression == kind
    assert len(batch.batch) < 1000
    plain = b"".join(frames_of(kind).unpacked(found.compressed_records, 10_000))
    level = next((int(value) for name, value in settings.items() if name.endswith("level")), None)
    assert found.compressed_records == frames_of(kind).compress(plain, level)
    assert wire.decode(batch).records[0].value == b"the same words again"


@pytest.mark.rule("CL-110", "CM-113")
@on_fake_cluster(partitions=2_005)
async def test_a_request_names_two_thousand_partitions_at_most(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        await p.send("t", b"first", partition=0)
        for number in range(2_005):
            await p.produce("t", b"v", partition=number)
        assert await p.flush() == 0
        counts = [len(request.topic_data[0].partition_data) for request in fake.produces]
        assert max(counts) <= 2_000
        assert sum(counts) == 2_005 + 1


@on_fake_cluster()
async def test_a_serializer_gets_each_value_and_key_also_those_that_are_bytes_already(fake: FakeCluster) -> None:
    settings = {"value.serializer": lambda value: b"<%s>" % value, "key.serializer": lambda key: bytes([len(key)])}
    async with producer(fake, **settings) as p:
        reports = [await p.send("t", b"v", key=b"four"), await p.send("t", b"w"), await p.send("t", None, key="five5")]
    stored = RecordBatch.FromString(fake.log("t").batches[0].batch).records[0]
    assert (stored.value, stored.key) == (b"<v>", b"\4")
    assert [(report.value(), report.key()) for report in reports] == [(b"<v>", b"\4"), (b"<w>", None), (None, b"\5")]


async def note_of(cancelled: asyncio.Future[Any]) -> str:
    """Return the note that a cancelled `send` carries about its record."""
    with pytest.raises(asyncio.CancelledError) as raised:
        await cancelled
    (note,) = raised.value.__notes__
    return note


@pytest.mark.rule("CL-142")
@on_fake_cluster()
async def test_a_send_that_is_cancelled_takes_its_record_back_unless_a_request_carries_it(fake: FakeCluster) -> None:
    fake.hold_produce = asyncio.Event()
    async with producer(fake) as p:
        sends = [asyncio.ensure_future(p.send("t", f"v{number}", key=b"k")) for number in range(5)]
        await asyncio.sleep(0.01)
        later = [asyncio.ensure_future(p.send("t", f"w{number}", key=b"k")) for number in range(4)]
        await asyncio.sleep(0.01)
        used = p.sender.buffer.used_bytes
        for gone in (later[1], later[3], sends[0]):
            gone.cancel()
        await asyncio.sleep(0)
        notes = [await note_of(gone) for gone in (later[1], later[3], sends[0])]
        assert notes == [TAKEN_BACK, TAKEN_BACK, MAY_BE_STORED]
        assert p.sender.buffer.records == 7
        assert p.sender.buffer.used_bytes < used
        fake.hold_produce.set()
        reports = [await one for one in (*sends[1:], later[0], later[2])]
        assert [report.value() for report in reports] == [b"v1", b"v2", b"v3", b"v4", b"w0", b"w2"]
        assert fake.log("t").end == 7, "what a request carried is stored, what waited is not"
        assert (p.sender.buffer.records, p.sender.buffer.used_bytes) == (0, 0)
        assert (await p.send("t", b"more", key=b"k")).offset() == 7


@pytest.mark.rule("CL-153")
@on_fake_cluster()
async def test_a_topic_that_does_not_exist_is_waited_for_and_named(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(fake, **{"max.block.ms": 20_000}) as p:
        waiting = asyncio.ensure_future(p.send("young", b"v"))
        await asyncio.sleep(10)
        (line,) = [one.message for one in caplog.records if "young" in one.message]
        assert "It waits for max.block.ms, 20000 ms." in line
        fake.add_topic("young")
        assert (await waiting).offset() == 0
        with pytest.raises(
            UnknownTopicOrPartitionError, match=r"20000 ms; create it first.*sharegroups topics create no"
        ):
            await p.send("no", b"v")


@pytest.mark.rule("CL-142")
@pytest.mark.parametrize("transactional", [False, True])
@on_fake_cluster()
async def test_a_send_that_is_cancelled_in_flight_is_not_sent_again_if_it_was_not_stored(
    fake: FakeCluster, transactional: bool
) -> None:
    """In a transaction the record is sent again: once it has a sequence there, it stays."""
    settings = {"transactional.id": "x"} if transactional else {}
    async with producer(fake, **settings) as p, p.transaction() if transactional else nullcontext():
        await p.send("t", b"a")
        fake.hold_produce = asyncio.Event()
        fake.errors["produce"].append(19)  # NOT_ENOUGH_REPLICAS: nothing was written
        gone = asyncio.ensure_future(p.send("t", b"gone"))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.sleep(0)
        assert p.sender.buffer.records == 1, "a request carries it"
        fake.hold_produce.set()
        await asyncio.sleep(1)
        assert p.sender.buffer.records == 0
        assert fake.log("t").end == (2 if transactional else 1)
        assert (await p.send("t", b"b")).offset() == (2 if transactional else 1)


@pytest.mark.rule("CL-142")
@on_fake_cluster()
async def test_a_send_that_times_out_while_the_leader_is_away_is_not_stored_later(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        await p.send("t", b"a")
        fake.errors["produce"].extend([19] * 1_000)  # NOT_ENOUGH_REPLICAS: nothing was written
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await p.send("t", b"gone")
        fake.errors["produce"].clear()
        assert (await p.send("t", b"b")).offset() == 1
        assert await p.flush() == 0
        assert fake.log("t").end == 2


class _Strict(Leader):
    """Refuses all batches for a partition because of one of them, as leaders do (CM-43)."""

    refusal = MessageTooLargeError.code

    def _store(self, partition: Any, part: Any, outcome: Any, transactional_id: str) -> int:
        if any(b"poison" in batch.record_batch for batch in part.batches):
            return self.refusal
        return super()._store(partition, part, outcome, transactional_id)


class _StrictCluster(FakeCluster):
    def services(self, node: int) -> list[tuple[Any, object]]:
        return [
            (name, _Strict(self, node) if type(service) is Leader else service)
            for name, service in super().services(node)
        ]


@pytest.mark.rule("CL-154")
@pytest.mark.parametrize("refusal", [2, 10, 76, 87])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_refused_costs_no_other_batch_that_was_sent_with_it(
    refusal: int, idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Strict, "refusal", refusal)
    outcomes: dict[bytes, KafkaError | None] = {}

    def done(error: KafkaError | None, report: DeliveryReport) -> None:
        outcomes[bytes(report.value() or b"")] = error

    async def story(fake: FakeCluster) -> None:
        settings = {"batch.num.records": 1, "enable.idempotence": idempotent}
        fake.hold_produce = asyncio.Event()
        async with producer(fake, **settings) as p:
            for value in (b"first", b"a", b"b", b"poison 1", b"c", b"poison 2", b"d", b"e"):
                await p.produce("t", value, on_delivery=done)
                await asyncio.sleep(0.01)
            fake.hold_produce.set()
            assert await p.flush(60) == 0
        good = [b"first", b"a", b"b", b"c", b"d", b"e"]
        assert {value: error and error.code for value, error in outcomes.items()} == (
            dict.fromkeys(good) | dict.fromkeys([b"poison 1", b"poison 2"], refusal)
        )
        assert fake.log("t").end == len(good), "none is stored twice"
        stored = b"".join(batch.batch for batch in fake.log("t").read(0, 1 << 20))
        assert sorted(good, key=stored.find) == good, "in their order"
        refused = [len(r.topic_data[0].partition_data[0].batches) for r in fake.produces]
        assert len(refused) < 12

    play(story, kind=_StrictCluster)


@pytest.mark.rule("CL-154")
def test_a_batch_that_was_refused_alone_is_never_again_in_a_request_with_others_of_its_partition() -> None:
    async def story(fake: FakeCluster) -> None:
        fake.hold_produce = asyncio.Event()
        async with producer(fake, **{"batch.num.records": 1}) as p:
            for number in range(5):
                await p.produce("t", str(number))
                await asyncio.sleep(0.01)
            fake.errors["produce"].extend([0, 10, 19, 19])
            fake.hold_produce.set()
            assert await p.flush(60) == 0
        counts = [len(r.topic_data[0].partition_data[0].batches) for r in fake.produces]
        assert counts == [1, 4, 1, 1, 1, 1, 1, 1], "the retries for want of replicas are of one batch too"
        assert fake.log("t").end == 5

    play(story)
