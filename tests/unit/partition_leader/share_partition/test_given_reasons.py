"""Why members gave records up, from the request to the letter and the explanation, through a change of leader
(PL-942 … PL-944)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1 import common_pb2, explain_record_pb2
from kip932.api.v1 import share_acknowledge_pb2 as ack_pb
from kip932.api.v1 import share_fetch_pb2 as fetch_pb
from kip932.failures import Failure
from kip932.ids import ACK_REJECT, ACK_RELEASE, STATE_ARCHIVING
from kip932.rpc.transport import TransportStatus
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_rpc.codec import acknowledge_request, fetch_request
from shard_runtime.rpc.binding import NO_CALLER
from tests.unit.partition_leader.dead_letters.letters import configure, offsets, passes, sent, start, states

from .worlds import GROUP, TOPIC, World, code, key, part, run, settle

WHY = "ValueError: no such order\n  in handle"
LIMIT_S = 30  # longer than a lock


def given_up(first: int, last: int, kind: int = ACK_RELEASE, reason: str = WHY) -> AckBatch:
    return AckBatch(first, last, (kind,), reason=reason)


async def reasons(world: World, last: int) -> list[tuple[int, int, str, int]]:
    """Ask for the explanations of all records up to `last`."""
    request = explain_record_pb2.ExplainRecordRequest(
        group_id=GROUP, topic_id=TOPIC, partition_index=0, offset=0, last_offset=last
    )
    found = await world.leader.service.explain_record(request, NO_CALLER)
    assert not found.error_code, found.error_message
    return [(one.first_offset, one.last_offset, one.reason, one.reason_delivery_count) for one in found.records]


@pytest.mark.rule("PL-942")
def test_fetches_and_acknowledgements_carry_it() -> None:
    batch: Any = common_pb2.AcknowledgementBatch(first_offset=3, last_offset=4, acknowledge_types=[2], reason=WHY)
    fetch, acknowledge = fetch_pb.ShareFetchRequest(), ack_pb.ShareAcknowledgeRequest()
    for message in (fetch, acknowledge):
        message.topics.add(topic_id=TOPIC).partitions.add(partition_index=0).acknowledgement_batches.append(batch)
    expected = {part(0): (given_up(3, 4),)}
    assert fetch_request(fetch, None).acknowledgements == expected
    assert acknowledge_request(acknowledge, None).acknowledgements == expected


@pytest.mark.rule("PL-942")
def test_a_reason_that_is_too_long_is_refused_and_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.produce(4)
        member = world.member()
        assert await member.fetch(0).ranges() == [(0, 3, 1)]
        acks = [given_up(0, 0), given_up(1, 1, reason="x" * 1_025)]
        assert code(await member.acknowledge({0: acks}).ack_error()) == "INVALID_REQUEST"
        assert not [write for write in world.persister.writes if write.batches], "nothing is half done"
        assert await member.acknowledge({0: acks[:1]}).ack_error() is None
        assert world.persister.stored[key()].failures == (Failure(0, 0, 1, WHY),)

    run(scenario)


@pytest.mark.rule("PL-942", "PL-943", "PL-944", "PL-611")
def test_a_successor_explains_the_record_and_writes_the_letter_with_the_reason() -> None:
    async def scenario(world: World) -> None:
        configure(world)
        world.elsewhere.answers.extend([TransportStatus.UNAVAILABLE] * 2)
        await world.produce(4)
        member = world.member()
        assert await member.fetch(0).ranges() == [(0, 3, 1)]
        acks = [given_up(1, 1, ACK_REJECT), given_up(2, 3, reason="b")]
        assert await member.acknowledge({0: acks}).ack_error() is None
        expected = [(0, 0, "", 0), (1, 1, WHY, 1), (2, 3, "b", 1)]
        assert await reasons(world, 3) == expected
        assert states(world)[1] == STATE_ARCHIVING
        world.lose()
        await world.lead(0)
        assert await reasons(world, 3) == expected, "not loaded"
        world.elsewhere.answers.clear()
        assert await world.member("n").fetch(0).ranges() == [(0, 0, 1), (2, 3, 2)]
        await settle()
        assert offsets(world) == [1]
        (letter,) = sent(world)
        assert list(letter)[:2] == ["reason", "topic"]
        assert letter["reason"] == WHY
        assert await reasons(world, 3) == expected, "loaded again"

    run(scenario)


@pytest.mark.rule("PL-942", "PL-943")
def test_a_lock_that_expires_at_the_limit_leaves_the_reason_of_the_delivery_before() -> None:
    async def scenario(world: World) -> None:
        configure(world)
        world.configure(delivery_count_limit=2)
        await world.produce(2)
        member = world.member()
        assert await member.fetch(0).ranges() == [(0, 1, 1)]
        assert await member.acknowledge({0: [given_up(0, 0), given_up(1, 1, reason="")]}).ack_error() is None
        assert await member.fetch().ranges() == [(0, 1, 2)]
        await passes(LIMIT_S)
        letters = {
            letter["offset"]: letter
            for number in range(len(world.elsewhere.requests))
            for letter in sent(world, number)
        }
        assert {offset: letter.get("reason") for offset, letter in letters.items()} == {"0": WHY, "1": None}
        assert start(world) == 2
        assert world.persister.stored[key()].failures == ()

    run(scenario)
