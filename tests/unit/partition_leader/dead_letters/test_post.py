"""Dead letters of real share-partitions: written, retried, given up, and handed to a successor. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from kip932 import errors
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING, topic_id_text
from kip932.rpc.transport import TransportStatus
from partition_leader.dead_letters.core.destination import QueueTopic
from partition_leader.topic_log.core.batch import NewBatch
from tests.unit.partition_leader.dead_letters.letters import (
    REJECT,
    configure,
    counted,
    offsets,
    passes,
    rejected,
    sent,
    start,
    states,
    unwritten,
)
from tests.unit.partition_leader.share_partition.persister import Stored
from tests.unit.partition_leader.share_partition.worlds import TOPIC, World, key, run, settle

DROPPED = "sharegroups_share_group_dead_letters_dropped_total"
WRITTEN = "sharegroups_share_group_dead_letters_written_total"


@pytest.mark.rule("PL-904", "PL-912", "T15")
def test_archiving_is_stored_before_the_answer_then_the_letter_is_written_and_then_archived() -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.held = asyncio.Event()
        await rejected(world, 3)
        assert states(world) == dict.fromkeys(range(3), STATE_ARCHIVING)
        assert (start(world), offsets(world)) == (0, [0, 1, 2])
        assert await unwritten(world) == 3
        world.elsewhere.held.set()
        await settle()
        assert (start(world), states(world)) == (3, {})
        assert sent(world)[0] == {
            "topic": "t", "partition": "0", "offset": "0", "group": "g", "delivery.count": "1",
            "message": "Offset rejected by client.", "topic.id": topic_id_text(TOPIC),
        }  # fmt: skip
        assert (counted(world, WRITTEN), await unwritten(world)) == (3, 0)
        assert counted(world, "sharegroups_share_group_dead_letter_produce_requests_total") == 1

    run(scenario)


@pytest.mark.rule("PL-907", "PL-912", "PL-915", "PL-920")
def test_a_letter_that_cannot_be_written_waits_with_back_off_and_holds_no_other_record() -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.answers.extend([TransportStatus.UNAVAILABLE, errors.NotLeaderOrFollowerError.code] * 4)
        with structlog.testing.capture_logs() as logged:
            member = await rejected(world, 2)
            await world.produce(5)
            assert await member.fetch(0).ranges() == [(2, 6, 1)]
            assert await member.accept(2, 6).ack_error() is None
            sizes = []
            for seconds in (2, 3, 6, 10, 20, 40, 40, 40):
                await passes(seconds)
                sizes.append(len(world.elsewhere.requests))
        assert sizes == sorted(sizes)
        assert len(set(sizes)) >= 6
        assert sizes[-1] == 9, "eight failures, and the dead letter"
        assert all(offsets(world, at) == [0, 1] for at in range(9))
        assert (start(world), states(world)) == (7, {})
        assert counted(world, "sharegroups_share_group_dead_letter_failed_produce_requests_total") == 8
        (line,) = [line for line in logged if line["event"] == "dead_letters_waiting"]
        assert (line["group"], line["topic"], line["partition"], line["offsets"]) == ("g", "t", 0, "0-1")
        assert (line["reason"], line["dead_letter_topic"]) == ("unreachable", "dlq.t")
        assert line["try_next"]
        assert line["next_try_in_s"] > 0
        assert [line["log_level"] for line in logged if line["event"] == "dead_letter_writes_recovered"] == ["info"]

    run(scenario)


@pytest.mark.rule("PL-906", "PL-907", "PL-912")
def test_a_topic_that_is_not_enabled_is_waited_for_and_used_at_once_when_it_is() -> None:
    async def scenario(world: World) -> None:
        await rejected(world, 1, enabled=False)
        await passes(100)
        assert states(world) == {0: STATE_ARCHIVING}
        assert world.elsewhere.requests == []
        configure(world)
        await settle()
        assert (offsets(world), start(world)) == ([0], 1)

    run(scenario)


@pytest.mark.rule("PL-912")
def test_a_change_of_topics_begins_the_back_off_again() -> None:
    """A new topic has no leader for a moment, and its dead letters have already waited long."""

    async def scenario(world: World) -> None:
        await rejected(world, 2, missing=True)
        await passes(200)
        world.elsewhere.answers.append(errors.NotLeaderOrFollowerError.code)
        configure(world)
        await settle()
        assert len(world.elsewhere.requests) == 1
        await passes(2)
        assert (len(world.elsewhere.requests), start(world)) == (2, 2)

    run(scenario)


@pytest.mark.rule("PL-907")
def test_the_policy_drop_archives_after_a_failed_check_and_after_five_attempts() -> None:
    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as logged:
            await rejected(world, 2, drops=True, enabled=False)
            assert (start(world), counted(world, DROPPED, reason="not_enabled")) == (2, 2)
        assert any(line["event"] == "records_archived_without_letter" for line in logged)
        world.elsewhere.answers.extend([TransportStatus.UNAVAILABLE] * 9)
        await rejected(world, 1, 1, drops=True)
        await passes(60)
        assert len(world.elsewhere.requests) == 5
        assert (start(world, 1), counted(world, DROPPED, reason="unreachable")) == (1, 1)

    run(scenario)


@pytest.mark.rule("PL-906")
def test_nothing_is_given_up_while_the_metadata_is_incomplete() -> None:
    async def scenario(world: World) -> None:
        await rejected(world, 1, drops=True, enabled=False, complete_since_ms=-1)
        await passes(300)
        assert states(world) == {0: STATE_ARCHIVING}
        configure(world, complete_since_ms=1 << 62)
        await settle()
        assert (offsets(world), start(world)) == ([0], 1)

    run(scenario)


@pytest.mark.rule("PL-917", "PL-918")
def test_a_loop_and_a_queue_that_is_switched_off_end_in_archived_and_are_reported() -> None:
    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as logged:
            await rejected(world, 2, topic="t", prefix="")
            assert (start(world), counted(world, DROPPED, reason="loop")) == (2, 2)
            await rejected(world, 3, 1, missing=True, prefix="dlq.")
            assert states(world, 1) == dict.fromkeys(range(3), STATE_ARCHIVING)
            configure(world, topic="")
            await settle()
        assert (start(world, 1), counted(world, DROPPED, reason="switched_off")) == (3, 3)
        reported = [line["cause"] for line in logged if line["event"] == "records_archived_without_letter"]
        assert "has them already" in reported[0]
        assert "switched off" in reported[1]
        assert world.elsewhere.requests == []

    run(scenario)


@pytest.mark.rule("PL-923")
def test_a_circle_of_dead_letter_topics_ends_and_is_logged() -> None:
    async def scenario(world: World) -> None:
        configure(world)
        world.letters.letters_in.add(key(0).topic_id)
        records = [Record(value=b"x"), Record(value=b"y")]
        records[0].headers.add(key="__dlq.errors.hops", value=b"4")
        batch = RecordBatch(records=records)
        await world.log().append([NewBatch(batch.SerializeToString(), 2, 7)], 1_000)
        with structlog.testing.capture_logs() as logged:
            member = world.member("m0")
            await member.fetch(0).ranges(0)
            assert await member.accept(0, 1, 0, kind=REJECT).ack_error(0) is None
            await settle()
        assert (offsets(world), start(world), counted(world, DROPPED, reason="loop")) == ([1], 2, 1)
        (line,) = [line for line in logged if line["event"] == "records_archived_without_letter"]
        assert "4th in a row" in line["cause"]
        assert (line["offsets"], "topics that none of them reads" in line["try_next"]) == ("0", True)

    run(scenario)


@pytest.mark.rule("PL-911")
def test_one_letter_that_is_refused_waits_by_itself_and_the_others_are_written() -> None:
    async def scenario(world: World) -> None:
        refuse = errors.InvalidRecordError.code
        # All three records; the first one with its copy, then without; then each of the others.
        world.elsewhere.answers.extend([refuse, refuse, refuse, 0, 0, 0])
        await rejected(world, 3, copies=True)
        assert [offsets(world, at) for at in range(5)] == [[0, 1, 2], [0], [0], [1], [2]]
        assert states(world)[0] == STATE_ARCHIVING
        assert {states(world)[1], states(world)[2]} == {STATE_ARCHIVED}
        await passes(2)
        assert (offsets(world), start(world)) == ([0], 3)

    run(scenario)


@pytest.mark.rule("PL-911")
@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("copies", [False, True])
def test_a_letter_that_was_refused_by_itself_is_never_tried_together_with_others(first: int, copies: bool) -> None:
    async def scenario(world: World) -> None:
        refuse = errors.InvalidRecordError.code
        refusals = (first > 1) + 1 + copies  # all records, if several; the first one; the first one without its copy
        world.elsewhere.answers.extend([refuse] * refusals)
        await rejected(world, first, copies=copies)
        assert states(world)[0] == STATE_ARCHIVING
        asked = len(world.elsewhere.requests)
        world.elsewhere.held = asyncio.Event()
        await rejected(world, 1, keep=True)
        await rejected(world, 1, keep=True)
        await passes(3)  # now the refused letter and the last one are due
        world.elsewhere.answers.extend([0, refuse])
        world.elsewhere.held.set()
        await settle()
        assert [offsets(world, at) for at in range(asked, asked + 3)] == [[first], [0], [first + 1]]
        await passes(5)
        assert (offsets(world), start(world)) == ([0], first + 2)

    run(scenario)


@pytest.mark.rule("PL-911")
def test_a_letter_that_is_too_large_even_without_a_copy_waits_for_a_larger_limit() -> None:
    async def scenario(world: World) -> None:
        await rejected(world, 2, max_message_bytes=100)
        await passes(50)
        assert world.elsewhere.requests == []
        assert await unwritten(world) == 2
        configure(world)
        await settle()
        assert (offsets(world), start(world)) == ([0, 1], 2)

    run(scenario)


@pytest.mark.rule("PL-611", "12.22")
def test_a_leader_that_is_lost_amid_a_letter_is_followed_by_one_that_writes_it_again() -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.held = asyncio.Event()
        await rejected(world, 2)
        world.lose()
        world.elsewhere.held.set()
        await settle()
        assert states(world) == dict.fromkeys(range(2), STATE_ARCHIVING)
        await world.lead(0)
        await world.member("n").fetch(0, max_wait_ms=100).ranges()
        await settle()
        assert [offsets(world, at) for at in range(2)] == [[0, 1], [0, 1]]
        assert start(world) == 2

    run(scenario)


@pytest.mark.rule("PL-912")
def test_requests_to_one_node_are_coalesced_with_one_in_flight() -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.held = asyncio.Event()
        await rejected(world, 2, 0, partitions=4)
        for number in (1, 2, 3):
            await rejected(world, 1, number, keep=True)
        assert len(world.elsewhere.requests) == 1
        world.elsewhere.held.set()
        await settle()
        assert world.elsewhere.most == 1
        assert [len(request.topic_data[0].partition_data) for request in world.elsewhere.requests] == [1, 3]
        assert [start(world, number) for number in range(4)] == [2, 1, 1, 1]

    run(scenario)


@pytest.mark.rule("PL-909", "PL-914")
def test_a_partition_that_is_led_here_is_appended_to_without_a_request() -> None:
    async def scenario(world: World) -> None:
        configure(world)
        world.letters.now = world.letters.now._replace(topic=QueueTopic(TOPIC, 3, True, 1 << 20))
        await rejected(world, 2, 3, keep=True)
        assert world.elsewhere.requests == []
        assert (world.log(0).high_watermark, start(world, 3)) == (2, 2), "3 mod 3 is partition 0"

    run(scenario)


@pytest.mark.rule("PL-908")
def test_a_missing_topic_is_created_once_for_all_who_wait_for_it() -> None:
    async def scenario(world: World) -> None:
        configure(world, missing=True, creates=True)
        world.letters.create_error = errors.RequestTimedOutError("the store is slow")
        await rejected(world, 1, 0, keep=True)
        await rejected(world, 1, 1, keep=True)
        tries = len(world.letters.created)
        assert states(world) == {0: STATE_ARCHIVING}
        world.letters.create_error = None
        world.leader.topics_changed(frozenset())
        await settle()
        assert world.letters.created[tries:] == ["dlq.t"]
        assert (start(world), start(world, 1)) == (1, 1)

    run(scenario)


@pytest.mark.rule("PL-916", "PL-920")
def test_the_bound_is_reported_when_it_is_reached_and_when_it_is_left() -> None:
    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as logged:
            member = await rejected(world, 3, enabled=False, dead_letters_max=3)
            await world.produce(2)
            assert await member.fetch(0, max_wait_ms=500).ranges() == []
            assert counted(world, "sharegroups_share_group_dead_letters_full") == 1
            configure(world, dead_letters_max=3)
            await settle()
            assert await member.fetch(0).ranges() == [(3, 4, 1)]
        assert [line["event"] for line in logged if line["event"].startswith("dead_letter_limit_")] == [
            "dead_letter_limit_reached",
            "dead_letter_limit_cleared",
        ]

    run(scenario)


@pytest.mark.rule("PL-905", "PL-409")
def test_gaps_are_no_letters_and_rejected_gaps_are() -> None:
    async def scenario(world: World) -> None:
        configure(world, copies=True)
        await world.produce(4)
        member = world.member()
        await member.fetch(0).ranges()
        assert await member.accept(0, 1, kind=0).ack_error() is None
        assert await member.accept(2, 3, kind=REJECT).ack_error() is None
        await settle()
        assert offsets(world) == [2, 3]
        assert start(world) == 4

    run(scenario)


@pytest.mark.rule("PL-911", "PL-913")
def test_records_that_the_log_has_no_more_get_a_letter_without_copy() -> None:
    async def scenario(world: World) -> None:
        configure(world, copies=True)
        await world.produce(4)
        await world.log().move_log_start(4)
        await world.produce(1)
        world.persister.stored[key()] = Stored(0, ranks=dict.fromkeys(range(5), (1, STATE_ARCHIVING)))
        await world.member().fetch(0, max_wait_ms=100).ranges()
        await settle()
        assert offsets(world) == [0, 1, 2, 3, 4]

    run(scenario)
