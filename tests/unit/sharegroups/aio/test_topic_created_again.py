"""A topic is deleted and created again during sends: records that the old topic may hold are not sent to the new
one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kip932.errors import KafkaError, RequestTimedOutError, UnknownTopicIdError
from kip932.ids import TopicIdPartition
from sharegroups import Producer as BlockingProducer
from sharegroups.aio import Producer
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import on_fake_cluster

#: Outcomes of an attempt that may have appended: the kind of fault in the fake, and its error code.
OPEN = [
    ("produce_lost", 1),
    ("produce_stream", 1),
    ("produce", 3),
    ("produce", 5),
    ("produce", 6),
    ("produce", 7),
    ("produce", 13),
    ("produce", 20),
]
#: Error codes that are returned only if nothing was written.
NOTHING_WRITTEN = [19, 56, 100]


def producer(fake: FakeCluster, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": fake.bootstrap} | settings, transport=fake.transport())


class Place:
    """The first partition of the topic that had the name `t` when this object was made."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake = fake
        self.id = fake.topics["t"][0]

    @property
    def end(self) -> int:
        return self._fake.logs[TopicIdPartition(self.id, 0)].end

    @property
    def sequences(self) -> list[int]:
        """The base sequences of all batches sent here, in order, including repetitions."""
        return [
            batch.base_sequence
            for request in self._fake.produces
            for topic in request.topic_data
            if topic.topic_id == self.id
            for batch in topic.partition_data[0].batches
        ]


async def until(condition: Callable[[], object], step_s: float = 0.01) -> None:
    """Wait until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(step_s)
    raise AssertionError("it never came to that")


async def attempted(fake: FakeCluster, send: Awaitable[Any]) -> asyncio.Future[Any]:
    """Start to send; return during the back-off after the last of the ordered faults."""
    sending = asyncio.ensure_future(send)
    await until(lambda: not any(fake.errors.values()))
    assert not sending.done()
    return sending


def created_again(fake: FakeCluster) -> tuple[Place, Place]:
    former = Place(fake)
    fake.add_topic("t")
    return former, Place(fake)


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize(("fault", "code"), OPEN)
@pytest.mark.parametrize("settings", [{}, {"acks": "1"}, {"enable.idempotence": False}], ids=str)
@on_fake_cluster()
async def test_a_batch_that_may_be_stored_fails_and_does_not_go_to_the_new_topic(
    fake: FakeCluster, fault: str, code: int, settings: dict[str, Any]
) -> None:
    async with producer(fake, **settings) as p:
        await p.send("t", b"before")
        fake.errors[fault].append(code)
        sending = await attempted(fake, p.send("t", b"doubtful"))
        _, present = created_again(fake)
        with pytest.raises(UnknownTopicIdError) as failed:
            await sending
        reported = str(failed.value)
        assert "topic 't' was deleted and created again while the record was under way" in reported
        assert "may have been stored in the deleted topic" in reported
        assert "Send it again if the new topic should have it" in reported
        assert (present.end, p.sender.buffer.used_bytes, p.sender.buffer.records) == (0, 0, 0)
        assert (await p.send("t", b"again")).offset() == 0
        assert present.sequences in ([0], [-1])


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize("code", NOTHING_WRITTEN)
@pytest.mark.parametrize("settings", [{}, {"acks": "1"}, {"enable.idempotence": False}], ids=str)
@on_fake_cluster()
async def test_a_batch_that_is_known_not_to_be_stored_goes_to_the_new_topic(
    fake: FakeCluster, code: int, settings: dict[str, Any]
) -> None:
    async with producer(fake, **settings) as p:
        await p.send("t", b"before")
        fake.errors["produce"].extend([code] * 2)
        sending = await attempted(fake, p.send("t", b"refused"))
        former, present = created_again(fake)
        assert (await sending).offset() == 0
        assert (former.end, present.end) == (1, 1)


@pytest.mark.rule("CM-43")
@on_fake_cluster()
async def test_a_batch_that_was_never_sent_because_the_leader_is_down_goes_to_the_new_topic(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        await p.send("t", b"before")
        fake.network.stop("node0:9000")
        sending = asyncio.create_task(p.send("t", b"b"))
        await asyncio.sleep(1)
        former, present = created_again(fake)
        fake.serve(0)
        assert (await sending).offset() == 0
        assert (former.end, present.end) == (1, 1)


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize("code", NOTHING_WRITTEN)
@on_fake_cluster()
async def test_a_refusal_says_nothing_of_the_attempts_before_it(fake: FakeCluster, code: int) -> None:
    async with producer(fake) as p:
        fake.errors["produce_lost"].append(1)
        fake.errors["produce"].extend([0, code, code])  # the response that is lost is the first one
        sending = await attempted(fake, p.send("t", b"doubtful"))
        former, present = created_again(fake)
        with pytest.raises(UnknownTopicIdError, match="may have been stored"):
            await sending
        assert (former.end, present.end) == (1, 0)


@pytest.mark.rule("CM-43")
@on_fake_cluster()
async def test_what_stands_behind_goes_to_the_new_topic_in_order_and_without_a_gap(fake: FakeCluster) -> None:
    heard: list[tuple[bytes | None, str, int]] = []

    def reported(error: KafkaError | None, report: DeliveryReport) -> None:
        heard.append((report.value(), "" if error is None else error.name, report.offset()))

    async with producer(fake, **{"batch.num.records": 1}) as p:
        await p.send("t", b"before")
        fake.errors["produce_lost"].append(1)
        sending = [asyncio.create_task(p.send("t", f"doubtful{number}")) for number in range(3)]
        await attempted(fake, asyncio.gather(*sending, return_exceptions=True))
        former = Place(fake)
        for number in range(7):
            await p.produce("t", str(number), on_delivery=reported)
        _, present = created_again(fake)
        assert await p.flush() == 0
        assert all(isinstance(each.exception(), UnknownTopicIdError) for each in sending)
        assert heard == [(str(number).encode(), "", number) for number in range(7)]
        assert former.end == 4
        assert present.sequences == list(range(7))


@pytest.mark.rule("CM-43")
@on_fake_cluster()
async def test_a_batch_in_doubt_waits_while_a_node_that_is_behind_names_the_former_topic(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        await p.send("t", b"before")
        former, present = created_again(fake)
        assert (await p.send("t", b"first")).offset() == 0
        fake.errors["produce_lost"].append(1)
        sending = await attempted(fake, p.send("t", b"doubtful"))
        behind = former.sequences[:]
        fake.topics["t"], fake.metadata_version = (former.id, 1), 1
        p.cluster.request_refresh()
        await asyncio.sleep(5)
        assert p.cluster.topics["t"].topic_id == former.id
        assert not sending.done()
        assert former.sequences == behind, "not sent to the previous topic"
        fake.topics["t"], fake.metadata_version = (present.id, 1), 2
        assert (await sending).offset() == 1
        assert present.end == 2
        assert set(present.sequences) == {0, 1}


@pytest.mark.rule("CM-43")
@on_fake_cluster()
async def test_a_batch_in_doubt_under_the_former_id_is_repeated_while_the_metadata_name_it(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        fake.errors["produce_lost"].append(1)
        fake.errors["produce"].extend([0, 7, 7, 7])
        sending = await attempted(fake, p.send("t", b"doubtful"))
        assert (await sending).offset() == 0
        assert Place(fake).sequences == [0] * 5
        assert Place(fake).end == 1


@pytest.mark.rule("CM-43")
@on_fake_cluster()
async def test_it_waits_for_newer_metadata_no_longer_than_it_may(fake: FakeCluster) -> None:
    async with producer(fake, **{"delivery.timeout.ms": 5000}) as p:
        former, present = created_again(fake)
        fake.errors["produce_lost"].append(1)
        sending = await attempted(fake, p.send("t", b"doubtful"))
        fake.topics["t"], fake.metadata_version = (former.id, 1), 1
        p.cluster.request_refresh()
        with pytest.raises(RequestTimedOutError, match="not known to be stored or not within 5000 ms"):
            await sending
        assert (former.end, present.end) == (0, 1)
        assert p.sender.buffer.records == 0
        assert (await p.send("t", b"next")).offset() == 0, "what is not in doubt goes where the name leads"


@pytest.mark.rule("CM-43")
@on_fake_cluster(nodes=2)
async def test_a_silent_leader_that_was_given_up_leaves_a_batch_in_doubt(fake: FakeCluster) -> None:
    transport = SilentTransport(fake.network)
    async with Producer({"bootstrap.servers": "node0:9000"}, transport=transport) as p:
        await p.send("t", b"before")
        transport.silent.add("node0:9000")
        fake.coordinator = 1
        sending = asyncio.create_task(p.send("t", b"doubtful"))
        await asyncio.sleep(4)
        fake.move_leader("t", 0, 1)
        fake.errors["produce"].extend([19] * 3)
        await until(lambda: len(fake.errors["produce"]) < 3, 0.1)
        assert "node0:9000" in transport.closed
        _, present = created_again(fake)
        fake.leaders[TopicIdPartition(present.id, 0)] = (1, 1)
        with pytest.raises(UnknownTopicIdError, match="may have been stored"):
            await sending
        assert present.end == 0
        await transport.speak("node0:9000")


@pytest.mark.rule("CM-43", "CM-44")
@on_fake_cluster()
async def test_a_transaction_with_a_batch_in_doubt_is_aborted(fake: FakeCluster) -> None:
    async def transact(p: Producer) -> None:
        async with p.transaction():
            sending = await attempted(fake, p.send("t", b"doubtful"))
            created_again(fake)
            with pytest.raises(UnknownTopicIdError):
                await sending
            await p.send("t", b"behind")

    async with producer(fake, **{"transactional.id": "tx"}) as p:
        fake.errors["produce_lost"].append(1)
        with pytest.raises(UnknownTopicIdError, match="may have been stored"):
            await transact(p)
        assert [committed for _, committed in fake.transactions.ended] == [False]
        async with p.transaction():
            await p.send("t", b"next")
        assert [committed for _, committed in fake.transactions.ended] == [False, True]


@pytest.mark.rule("CM-43")
def test_the_blocking_producer_hears_of_it_once() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    heard: list[KafkaError | None] = []
    with BlockingProducer({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as p:
        p.produce("t", b"before")
        assert p.flush(30) == 0
        fake.hold_produce = asyncio.Event()
        p.produce("t", b"doubtful", on_delivery=lambda error, report: heard.append(error))
        fake.errors["produce_lost"].append(1)

        async def recreated_behind_the_attempt() -> None:
            assert fake.hold_produce is not None
            fake.hold_produce.set()
            await until(lambda: not fake.errors["produce_lost"], 0.001)
            fake.add_topic("t")

        p._thread.call(recreated_behind_the_attempt())
        assert p.flush(30) == 0
        p.poll(0)
    assert [type(error) for error in heard] == [UnknownTopicIdError]
    assert fake.log("t").end == 0
