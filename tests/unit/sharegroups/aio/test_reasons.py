"""A consumer says why it gives records up: what is sent, cut and refused (CL-165)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.failures import REASON_BYTES_MAX
from sharegroups import ShareConsumer
from sharegroups.messages import AcknowledgeType, TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
_TEN_MB = 10_000_000


@pytest.mark.rule("CL-165", "PL-942")
@on_fake_cluster()
async def test_a_reason_travels_with_a_commit_and_with_the_next_fetch(fake: FakeCluster) -> None:
    produce(fake, 5)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second, third, fourth, fifth = await c.poll(5)
        c.acknowledge(first, REJECT, reason="ValueError: no address")
        c.acknowledge_offset("t", 0, second.offset(), RELEASE, delay=60, reason="db down")
        c.acknowledge(third, RELEASE, reason="never sent")
        c.acknowledge(third)
        c.acknowledge(fourth, RELEASE, delay=60, reason="db down")
        c.acknowledge(fifth, RELEASE, delay=0)
        assert await c.commit_sync() == {TopicIdPartition("t", 0, fake.topics["t"][0]): None}
        assert fake.reasons("t") == {0: (1, "ValueError: no address"), 1: (1, "db down"), 3: (1, "db down")}
        assert fake.states("t") == {0: "archived", 1: "delayed", 2: "acknowledged", 3: "delayed", 4: "available"}
        (again,) = await c.poll(5)
        commits = len(fake.acknowledges)
        c.acknowledge(again, REJECT, reason="\x1b[31mline 1\nline 2 \u202e")
        assert not await c.poll(0.1), "a poll sends it in a fetch"
        assert len(fake.acknowledges) == commits
        assert fake.reasons("t")[4] == (2, "\x1b[31mline 1\nline 2 \u202e")


@pytest.mark.rule("CL-165")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("x" * 1_024, "x" * 1_024),
        ("x" * 1_025, "x" * 1_021 + "…"),
        ("é" * 600, "é" * 510 + "…"),
        ("\U0001f4a3" * 300, "\U0001f4a3" * 255 + "…"),
        ("x" * _TEN_MB, "x" * 1_021 + "…"),
        ("bad \udcff\ud800 byte", "bad ?? byte"),
        ("\ud800" * 2_000, "?" * 1_021 + "…"),
        ("\x00<b>&amp;</b>\u2066", "\x00<b>&amp;</b>\u2066"),
        ("", ""),
    ],
)
def test_a_reason_is_cut_at_a_characters_end_and_can_always_be_sent(given: str, sent: str) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            first, second = await c.poll(5)
            c.acknowledge(first, REJECT, reason=given)
            c.acknowledge_offset("t", 0, second.offset(), REJECT, reason=given)
            assert list((await c.commit_sync()).values()) == [None]
        assert fake.reasons("t") == ({0: (1, sent), 1: (1, sent)} if sent else {})
        assert len(sent.encode()) <= REASON_BYTES_MAX

    story()


@pytest.mark.rule("CL-165")
@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        (ACCEPT, "done", "expected none with this type: only AcknowledgeType.RELEASE and REJECT give a record up"),
        (RENEW, "slow", "expected none with this type"),
        (REJECT, None, 'expected text, or "" for none. Write acknowledge'),
        (RELEASE, ValueError("no"), r"reason is ValueError\('no'\) \(ValueError\); expected text"),
        (RELEASE, b"bytes", "expected text"),
        (REJECT, 0, "expected text"),
        (REJECT, ["a"], "expected text"),
        (ACCEPT, None, "expected text"),
    ],
)
def test_a_reason_that_cannot_be_is_refused_where_it_is_given(
    kind: AcknowledgeType, reason: Any, expected: str
) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            with pytest.raises(ValueError, match=f"acknowledge: reason is .*{expected.removeprefix('reason is ')}"):
                c.acknowledge(message, kind, reason=reason)
            with pytest.raises(ValueError, match="acknowledge_offset: reason is "):
                c.acknowledge_offset("t", 0, 0, kind, reason=reason)
            c.acknowledge(message)
            await c.commit_sync()
        assert fake.states("t") == {0: "acknowledged"}, "the refused call changed nothing"
        assert fake.reasons("t") == {}

    story()


@pytest.mark.rule("CL-165")
@on_fake_cluster()
async def test_what_no_poll_returned_and_what_is_renewed_has_no_reason(fake: FakeCluster) -> None:
    produce(fake, 3)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, *_ = await c.poll(5)
        c.acknowledge(first, RENEW)
        await c.commit_sync()
    requests: list[Any] = [*fake.acknowledges, *fake.fetches]
    batches = [
        batch
        for request in requests
        for topic in request.topics
        for part in topic.partitions
        for batch in part.acknowledgement_batches
    ]
    assert batches
    assert {batch.reason for batch in batches} == {""}


@pytest.mark.rule("CL-165", "CL-45")
def test_the_blocking_consumer_sends_it_too() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    produce(fake, 2)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings, transport=fake.transport()) as c:
        c.subscribe(["t"])
        seen = 0
        while seen < 2:
            for message in c.poll(10):
                seen += 1
                c.acknowledge_offset("t", 0, message.offset(), REJECT, reason="no address")
                c.acknowledge(message, REJECT, reason=f"no address in {message.offset()}")
        c.commit_sync(10)
    assert fake.reasons("t") == {0: (1, "no address in 0"), 1: (1, "no address in 1")}
