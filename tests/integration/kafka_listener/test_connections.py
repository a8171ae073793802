"""Connections of Kafka's clients, and of hostile ones, on real sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_listener.connection import READ_AT_ONCE_BYTES, READ_AT_ONCE_ELEMENTS
from kafka_listener.core.order import UNDER_WAY_MAX
from kafka_listener.limits import Limits
from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection, Paced
from kip932.errors import InvalidRequestError
from kip932.ids import REQUEST_PARTITIONS_MAX
from tests.integration.kafka_listener.listening import SHORT, at_once, listening
from tests.support.kafka_client import KafkaClient, frame

pytestmark = pytest.mark.asyncio

METADATA = api("Metadata")
PRODUCE = api("Produce")
NAMED = api("ApiVersions").request(client_software_name="a-test", client_software_version="1.0")


class Held:
    """Answers Metadata when the test lets it, and notes how many requests have begun."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[None]] = []

    async def answer(self, request: Any, version: int, connection: Connection) -> Any:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun.append(place)
        number = len(self.begun)
        await place
        return METADATA.response(controller_id=number)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.begun) < count:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0.005)


@pytest.mark.rule("KL-1")
async def test_requests_come_in_pieces_of_one_byte() -> None:
    async with listening({"Metadata": at_once}) as node, await KafkaClient.connect(node.port) as client:
        data = frame("Metadata", 13, number=7) + frame("ApiVersions", 0, number=8)
        for place in range(len(data)):
            client.writer.write(data[place : place + 1])
            await asyncio.sleep(0)
        assert (await client.answer("Metadata", 13))[0] == 7
        assert (await client.answer("ApiVersions", 0))[0] == 8


@pytest.mark.rule("KL-10", "KL-11", "KL-12", "KL-13", "KL-100")
async def test_what_is_offered_is_served_and_a_higher_version_of_the_question_is_answered() -> None:
    async with listening({"Metadata": at_once, "Produce": at_once}) as node:
        async with await KafkaClient.connect(node.port) as client:
            ranges = {
                each.api_key: (each.min_version, each.max_version)
                for each in (await client.ask("ApiVersions", 4, NAMED)).api_keys
            }
            assert ranges == {0: (0, 13), 3: (0, 13), 17: (1, 1), 18: (0, 4), 36: (0, 2)}
            third, fourth = [await client.ask("ApiVersions", version, NAMED) for version in (3, 4)]
            levels = {each.name: each.max_version_level for each in third.finalized_features}
            assert levels == {"share.version": 1, "transaction.version": 2}
            assert (len(third.supported_features), len(fourth.supported_features)) == (0, 2)
            newer = frame("ApiVersions", 4, NAMED, number=9)
            client.writer.write(newer[:6] + (99).to_bytes(2, "big") + newer[8:])
            number, response = await client.answer("ApiVersions", 0)
            assert (number, response.error_code, len(response.api_keys)) == (9, 35, 5)
        named = api("ApiVersions").request(client_software_name="no name", client_software_version="1")
        async with await KafkaClient.connect(node.port) as client:
            assert (await client.ask("ApiVersions", 3, named)).error_code == 42


@pytest.mark.rule("KL-12")
@pytest.mark.parametrize("head", ["0001000c", "7fff0000", "00030063", "00000002", "ffffffff"])
async def test_what_is_not_offered_closes_the_connection(head: str) -> None:
    async with listening({"Metadata": at_once, "Produce": at_once}) as node:
        async with await KafkaClient.connect(node.port) as client:
            data = bytes.fromhex(head) + bytes(12)
            client.writer.write(len(data).to_bytes(4, "big") + data)
            assert await client.closed() == b""
        assert node.refused == {"unserved": 1}


@pytest.mark.rule("KL-4")
async def test_answers_come_in_the_order_of_requests_which_overlap() -> None:
    held = Held()
    async with listening({"Metadata": held.answer}) as node, await KafkaClient.connect(node.port) as client:
        numbers = [client.send("Metadata", 13) for _ in range(5)]
        await held.until(5)
        for place in reversed(held.begun):
            place.set_result(None)
        answers = [await client.answer("Metadata", 13) for _ in numbers]
        assert [(number, response.controller_id) for number, response in answers] == [(each, each) for each in numbers]


@pytest.mark.rule("KL-4")
async def test_of_many_requests_64_are_under_way_and_no_other_is_cut_out() -> None:
    held = Held()
    async with listening({"Metadata": held.answer}) as node, await KafkaClient.connect(node.port) as client:
        for _ in range(300):
            client.send("Metadata", 13)
        await held.until(UNDER_WAY_MAX)
        await asyncio.sleep(0.1)
        assert (len(held.begun), node.listener.under_way) == (UNDER_WAY_MAX, UNDER_WAY_MAX)
        for count in range(300):
            await held.until(count + 1)
            held.begun[count].set_result(None)
            assert (await client.answer("Metadata", 13))[0] == count + 1
            assert node.listener.under_way <= UNDER_WAY_MAX


@pytest.mark.rule("KL-4")
async def test_a_request_that_wants_no_answer_gets_none() -> None:
    async def none(request: Any, version: int, connection: Connection) -> Any:
        return None

    answers = {"Metadata": at_once, "Produce": none}
    async with listening(answers) as node, await KafkaClient.connect(node.port) as client:
        client.send("Produce", 9)
        number = client.send("Metadata", 13)
        assert (await client.answer("Metadata", 13))[0] == number


@pytest.mark.rule("KL-1", "KL-9")
@pytest.mark.parametrize("size", [-1, 0, 7, 8 * 1024 * 1024 + 1, 2**31 - 1])
async def test_a_size_that_no_request_has_closes_the_connection_at_once(size: int) -> None:
    async with listening() as node:
        async with await KafkaClient.connect(node.port) as client:
            client.writer.write(size.to_bytes(4, "big", signed=True))
            assert await client.closed() == b""
        assert (node.listener.counts.malformed, node.refused) == (1, {"malformed": 1})
        await node.idle()


@pytest.mark.rule("KL-1", "CM-91")
async def test_a_request_without_records_may_have_a_mebibyte() -> None:
    async with listening({"Metadata": at_once}) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.send(
                "Metadata", 4, METADATA.request(topics=[METADATA.request.MetadataRequestTopic(name="x" * 30_000)] * 40)
            )
            assert await client.closed() == b""
        assert node.listener.counts.malformed == 1


@pytest.mark.rule("KL-1", "KL-9")
async def test_garbage_closes_its_connection_and_is_counted() -> None:
    drawn = random.Random(7)
    async with listening({"Metadata": at_once, "Produce": at_once}) as node:
        async with await KafkaClient.connect(node.port) as canary:
            for _ in range(200):
                async with await KafkaClient.connect(node.port) as client:
                    body = drawn.choice((b"\0\3\0\x0d", b"\0\0\0\x09", b"\0\x12\0\3", b"")) + drawn.randbytes(60)
                    client.writer.write(len(body).to_bytes(4, "big") + body)
                    client.writer.write_eof()
                    await client.closed()
            await canary.ask("Metadata", 13)
            assert node.listener.counts.malformed > 50
            assert node.listener.connections == 1
        await node.idle()


@pytest.mark.rule("KL-3")
async def test_half_a_request_and_a_silent_connection_are_closed_and_a_waiting_one_is_not() -> None:
    held = Held()
    async with listening({"Metadata": held.answer}, limits=SHORT) as node:
        async with (
            await KafkaClient.connect(node.port) as half,
            await KafkaClient.connect(node.port) as silent,
            await KafkaClient.connect(node.port) as waiting,
        ):
            half.writer.write(frame("Metadata", 13)[:-1])
            waiting.send("Metadata", 13)
            await asyncio.gather(half.closed(), silent.closed())
            held.begun[0].set_result(None)
            assert (await waiting.answer("Metadata", 13))[0] == 1
        assert node.refused == {"partial": 1}
        await node.idle()


@pytest.mark.rule("KL-3", "KL-4")
async def test_half_a_request_is_not_the_clients_fault_while_64_are_under_way() -> None:
    held = Held()
    async with (
        listening({"Metadata": held.answer}, limits=SHORT) as node,
        await KafkaClient.connect(node.port) as client,
    ):
        for _ in range(UNDER_WAY_MAX):
            client.send("Metadata", 13)
        last = frame("Metadata", 13, number=UNDER_WAY_MAX + 1)
        client.writer.write(last[:-1])
        await held.until(UNDER_WAY_MAX)
        await asyncio.sleep(2.2)
        for place in held.begun:
            place.set_result(None)
        for number in range(UNDER_WAY_MAX):
            assert (await client.answer("Metadata", 13))[0] == number + 1
        client.writer.write(last[-1:])
        await held.until(UNDER_WAY_MAX + 1)
        assert node.refused == {}


def large(size: int) -> Any:
    async def answer(request: Any, version: int, connection: Connection) -> Any:
        return METADATA.response(
            cluster_id="x" * 30_000, topics=[METADATA.response.MetadataResponseTopic(name="y" * 30_000)] * size
        )

    return answer


@pytest.mark.rule("KL-14", "KL-2")
async def test_a_client_that_does_not_read_is_closed() -> None:
    """200 answers of 1 MB each would be 200 MB; the listener begins none while the first ones are unread."""
    async with listening({"Metadata": large(33)}, limits=SHORT) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one that reads
            for _ in range(200):
                client.send("Metadata", 12)
            async with asyncio.timeout(10):
                while not node.refused:
                    assert node.held < 100_000_000
                    await asyncio.sleep(0.01)
        assert node.refused == {"unread": 1}
        await node.idle()


@pytest.mark.rule("KL-14")
async def test_a_client_that_reads_slowly_gets_all_answers() -> None:
    async with listening({"Metadata": large(33)}, limits=SHORT) as node, await KafkaClient.connect(node.port) as client:
        for number in range(20):
            client.send("Metadata", 12)
            await asyncio.sleep(0.02)
            assert (await client.answer("Metadata", 12))[0] == number + 1
        assert node.refused == {}


@pytest.mark.rule("KL-2")
async def test_the_bytes_of_half_a_request_count_and_are_given_back() -> None:
    async with listening() as node:
        async with await KafkaClient.connect(node.port) as client:
            client.writer.write((5_000_000).to_bytes(4, "big") + bytes(1_000_000))
            async with asyncio.timeout(10):
                while node.held < 1_000_004:  # noqa: ASYNC110 - nothing says so
                    await asyncio.sleep(0.01)
            assert node.held == 1_000_004
        await node.idle()


@pytest.mark.rule("KL-2", "KL-3")
async def test_without_room_nothing_is_read_and_half_a_request_does_not_wait_for_ever() -> None:
    async with listening({"Metadata": at_once}, limits=SHORT, budget_bytes=2_000_000) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.writer.write((8_000_000).to_bytes(4, "big") + bytes(7_000_000))
            assert await client.closed() == b""
            assert node.refused == {"partial": 1}
        await node.idle()
        async with await KafkaClient.connect(node.port) as client:
            await client.ask("Metadata", 13)


@pytest.mark.rule("KL-15", "KL-5")
async def test_what_fails_as_a_whole_is_answered_so_or_ends_the_connection() -> None:
    async def refuses(request: Any, version: int, connection: Connection) -> Any:
        raise InvalidRequestError("no")

    async def breaks(request: Any, version: int, connection: Connection) -> Any:
        raise ZeroDivisionError

    async with listening({"DescribeCluster": refuses, "ListGroups": breaks, "Produce": refuses}) as node:
        async with await KafkaClient.connect(node.port) as client:
            response = await client.ask("DescribeCluster", 1)
            assert (response.error_code, response.error_message) == (InvalidRequestError.code, "no")
            assert (await client.ask("ListGroups", 4)).error_code == -1
            client.send("Produce", 9)
            assert await client.closed() == b""
        assert node.refused == {"failed": 1}


@pytest.mark.rule("KL-16", "KL-4")
async def test_an_answer_that_is_held_back_holds_those_after_it() -> None:
    async def paced(request: Any, version: int, connection: Connection) -> Any:
        return Paced(api("ListGroups").response(error_code=3), 60_000)

    answers = {"ListGroups": paced, "Metadata": at_once}
    async with listening(answers) as node, await KafkaClient.connect(node.port) as client:
        began_s = asyncio.get_running_loop().time()
        client.send("ListGroups", 4)
        client.send("Metadata", 13)
        assert (await client.answer("ListGroups", 4))[1].error_code == 3
        assert asyncio.get_running_loop().time() - began_s >= 0.19
        assert (await client.answer("Metadata", 13))[0] == 2


@pytest.mark.rule("KL-17")
async def test_a_client_over_its_quota_begins_nothing_for_as_long() -> None:
    begun = []

    async def throttled(request: Any, version: int, connection: Connection) -> Any:
        begun.append(asyncio.get_running_loop().time())
        return METADATA.response(throttle_time_ms=300 if len(begun) == 1 else 0)

    async with listening({"Metadata": throttled}) as node, await KafkaClient.connect(node.port) as client:
        await client.ask("Metadata", 13)
        await client.ask("Metadata", 13)
        assert begun[1] - begun[0] >= 0.29


def long_to_read() -> Iterator[Any]:
    """Topics of a Produce: many bytes, or many elements in fewer bytes."""
    topic, partition = PRODUCE.request.TopicProduceData, PRODUCE.request.PartitionProduceData()
    yield [topic(name="t" * 200)] * (READ_AT_ONCE_BYTES // 200 + 1)
    many = [topic(name="t", partition_data=[partition])] * (READ_AT_ONCE_ELEMENTS // 2 + 1)
    assert sum(map(len, PRODUCE.encode_request(9, PRODUCE.request(topic_data=many)))) < READ_AT_ONCE_BYTES
    yield many


@pytest.mark.rule("KL-18", "KL-4")
@pytest.mark.parametrize("data", list(long_to_read()), ids=["bytes", "elements"])
async def test_a_large_request_is_read_in_a_thread_and_keeps_its_place(data: list[Any]) -> None:
    order = []

    async def noted(request: Any, version: int, connection: Connection) -> Any:
        order.append(len(request.topic_data))
        return PRODUCE.response()

    async with listening({"Produce": noted}) as node, await KafkaClient.connect(node.port) as client:
        for topics in (data, data[:1], data, data[:2]):
            client.send("Produce", 9, PRODUCE.request(topic_data=topics))
        for number in range(4):
            assert (await client.answer("Produce", 9))[0] == number + 1
        assert order == [len(data), 1, len(data), 2]


@pytest.mark.rule("KL-19")
async def test_a_request_that_names_too_much_is_refused_as_a_whole_or_closes_the_connection() -> None:
    async def never(request: Any, version: int, connection: Connection) -> Any:
        raise AssertionError

    names = [METADATA.request.MetadataRequestTopic(name="")] * (REQUEST_PARTITIONS_MAX + 1)
    data = PRODUCE.request.TopicProduceData(partition_data=[PRODUCE.request.PartitionProduceData()] * len(names))
    async with listening({"Produce": never, "Metadata": never}) as node:
        async with await KafkaClient.connect(node.port) as client:
            assert (await client.ask("Metadata", 13, METADATA.request(topics=names))).error_code == 42
            client.send("Produce", 9, PRODUCE.request(topic_data=[data]))
            assert await client.closed() == b""
        assert node.refused == {"failed": 1}
    async with listening({"Metadata": at_once}) as node, await KafkaClient.connect(node.port) as client:
        assert (await client.ask("Metadata", 13, METADATA.request(topics=names[1:]))).cluster_id == "c"


@pytest.mark.rule("KL-15")
async def test_an_error_without_a_place_in_this_version_is_no_empty_answer() -> None:
    async def refuses(request: Any, version: int, connection: Connection) -> Any:
        raise InvalidRequestError("no")

    async with listening({"Metadata": refuses}) as node:
        async with await KafkaClient.connect(node.port) as client:
            assert (await client.ask("Metadata", 13)).error_code == InvalidRequestError.code
            client.send("Metadata", 12)
            assert await client.closed() == b""
        assert node.refused == {"failed": 1}


@pytest.mark.rule("KL-8", "KL-9")
async def test_there_are_no_more_connections_than_there_may_be() -> None:
    async with listening({"Metadata": at_once}, connections_max=8) as node:
        clients = [await KafkaClient.connect(node.port) for _ in range(9)]
        answers = await asyncio.gather(*(client.ask("Metadata", 13) for client in clients), return_exceptions=True)
        assert sum(not isinstance(answer, BaseException) for answer in answers) == 6
        assert node.refused == {"connections": 3}
        for client in clients:
            client.close()
        await node.idle()
        async with await KafkaClient.connect(node.port) as client:
            await client.ask("Metadata", 13)


@pytest.mark.rule("KL-7")
async def test_a_listener_that_drains_answers_what_is_under_way_and_takes_nothing_more() -> None:
    held = Held()
    async with (
        listening({"Metadata": held.answer}) as node,
        await KafkaClient.connect(node.port) as client,
        await KafkaClient.connect(node.port) as idle,
    ):
        client.send("Metadata", 13)
        await held.until(1)
        draining = asyncio.ensure_future(node.listener.drain(5))
        assert await idle.closed() == b""
        client.send("Metadata", 13)
        held.begun[0].set_result(None)
        assert (await client.answer("Metadata", 13))[0] == 1
        assert await client.closed() == b""
        await draining
        assert len(held.begun) == 1
        with pytest.raises(OSError, match="Connect call failed"):
            await KafkaClient.connect(node.port)


@pytest.mark.rule("KL-7")
async def test_what_is_not_answered_in_time_ends_with_the_listener() -> None:
    held = Held()
    async with (
        listening({"Metadata": held.answer}, limits=Limits()) as node,
        await KafkaClient.connect(node.port) as client,
    ):
        client.send("Metadata", 13)
        await held.until(1)
        await node.listener.drain(0.05)
        assert await client.closed() == b""
        assert held.begun[0].cancelled()
        await node.idle()
