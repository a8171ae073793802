"""A producer that may not write to a topic: its records fail at once, naming the topic; later records are tried."""

from __future__ import annotations

import asyncio

import pytest

from sharegroups.errors import KafkaError, TopicAuthorizationFailedError
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.test_producer import producer

WRITE_T, DESCRIBE_T = "WRITE on topic 't'", "DESCRIBE on topic 't'"
ASK = "sharegroups acls add --allow-principal User:NAME --producer --topic t --command-config FILE"


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize(
    ("denied", "said"),
    [
        ({WRITE_T}, f"User:alice has no right to WRITE on topic 't'. An administrator can allow it: {ASK}"),
        (
            {DESCRIBE_T, WRITE_T},
            f"User:alice has no right to DESCRIBE on topic 't'. An administrator can allow it: {ASK}",
        ),
    ],
)
@on_fake_cluster()
async def test_a_record_that_may_not_be_written_fails_at_once_and_a_later_one_is_tried(
    fake: FakeCluster, denied: set[str], said: str
) -> None:
    async with producer(fake) as p:
        fake.denied = denied
        for _ in range(2):
            began = now_s()
            with pytest.raises(TopicAuthorizationFailedError) as raised:
                await p.send("t", b"x")
            assert raised.value.message == said
            assert now_s() - began < 1.1
        fake.denied = set()
        assert (await p.send("t", b"y")).offset() == 0
        fake.denied = denied
        await p.produce("t", b"z")
        assert await p.flush(5) == 0
        assert fake.log("t").end == 1


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_an_error_without_a_text_names_the_topic_too(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        fake.errors["produce"].append(TopicAuthorizationFailedError.code)
        with pytest.raises(TopicAuthorizationFailedError) as raised:
            await p.send("t", b"x")
        assert raised.value.message == f"topic 't': Not authorised for the topic. An administrator can allow it: {ASK}"


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize("is_sent", [True, False])
@on_fake_cluster()
async def test_records_in_the_buffer_fail_when_the_metadata_refuse_their_topic(
    fake: FakeCluster, is_sent: bool
) -> None:
    fake.add_topic("u")
    errors: dict[str, KafkaError | None] = {}

    def done(error: KafkaError | None, report: DeliveryReport) -> None:
        errors[report.topic()] = error

    async with producer(fake) as p:
        await p.send("t", b"a")
        await p.send("u", b"a")
        before = fake.leaders
        fake.leaders = dict.fromkeys(before, (-1, 2))
        if is_sent:
            fake.errors["produce_stream"].append(1)
        else:
            p.cluster.request_refresh()
            await asyncio.sleep(2)
        await p.produce("t", b"b", on_delivery=done)
        await p.produce("u", b"b", on_delivery=done)
        await asyncio.sleep(3)
        assert errors == {}, "both records must still wait for a leader"
        fake.denied = {DESCRIBE_T}
        await asyncio.sleep(3)
        assert list(errors) == ["t"]
        assert type(errors["t"]) is TopicAuthorizationFailedError
        assert ("not known to be stored or not" in str(errors["t"])) is is_sent
        assert "User:alice has no right to DESCRIBE on topic 't'" in str(errors["t"])
        fake.leaders, fake.denied = dict.fromkeys(before, (0, 3)), set()
        assert (await p.send("t", b"c")).value() == b"c"
        assert await p.flush(10) == 0
        assert errors["u"] is None


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_transaction_with_a_record_that_may_not_be_written_is_aborted_with_that_error(
    fake: FakeCluster,
) -> None:
    async with producer(fake, **{"transactional.id": "x"}) as p:
        fake.denied = {WRITE_T}
        with pytest.raises(TopicAuthorizationFailedError):
            async with p.transaction():
                await p.produce("t", b"x")
        fake.denied = set()
        async with p.transaction():
            await p.produce("t", b"y")
        assert fake.log("t").end >= 1
