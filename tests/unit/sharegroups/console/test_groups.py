"""The pages of one group, and of one record."""

from __future__ import annotations

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from sharegroups.admin_values import MemberDescription, ShareGroupDescription
from sharegroups.console.groups import rebalance_of
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce

from .browser import OwnConsole, text_of

Record = pb.ExplainRecordResponse.Record


def plant(fake: FakeCluster, topic: str, number: int, *records: Record) -> None:
    """Set the response of a partition's leader about its records."""
    fake.explained[fake.partition(topic, number)] = pb.ExplainRecordResponse(
        start_offset=0, end_offset=8, high_watermark=8, loaded=True, held_records=1, in_flight_offsets=8,
        max_record_locks=2_000, delivery_count_limit=5, records=records,
    )  # fmt: skip


HELD = Record(
    first_offset=0, last_offset=0, state=pb.RECORD_STATE_ACQUIRED, obstacle=pb.DELIVERY_OBSTACLE_HELD,
    explanation="Member m-1 holds it.", delivery_count=2, member_id="m-1", lock_remaining_ms=17_500,
)  # fmt: skip
WAITING = Record(
    first_offset=1, last_offset=7, state=pb.RECORD_STATE_AVAILABLE, obstacle=pb.DELIVERY_OBSTACLE_NOT_FETCHED,
    explanation="Available.", delivery_count=1, reason="ValueError: <b>\nline 2", reason_delivery_count=1,
)  # fmt: skip


@pytest.fixture
def world(fake: FakeCluster) -> FakeCluster:
    """Group `g` has finished 3 of the 8 records of `orders-0`."""
    for number, finished in enumerate((3, 0)):
        consumed(fake, "orders", number, finished)
        plant(fake, "orders", number, HELD, WAITING)
    return fake


@pytest.mark.rule("CT-168")
def test_a_group_with_strips(world: FakeCluster, browser: OwnConsole) -> None:
    page = browser.get("/group?group=g")
    text = text_of(page)
    assert "Lag 13" in text
    assert "No member: no record of this group is processed now." in text
    assert text.index("orders-1 0 8") < text.index("orders-0 3 5")  # the largest lag first
    assert 'aria-label="orders-0: 7 can be delivered, 1 held by members"' in page
    assert "m-1 holds 1, for 17 s" in text.replace("17.5 s", "17 s")


@pytest.mark.rule("CT-168")
def test_a_strip_costs_its_leader_one_question_and_leaves_out_what_was_finished_since(
    world: FakeCluster, browser: OwnConsole
) -> None:
    """The start offset that is known is one of a moment ago; the log's end is not known when the question is sent."""
    done = Record(first_offset=3, last_offset=4, state=pb.RECORD_STATE_FINISHED, explanation="Accepted.")
    left = Record(first_offset=5, last_offset=7, state=pb.RECORD_STATE_AVAILABLE, explanation="Available.")
    beyond = Record(first_offset=8, last_offset=1_002, state=pb.RECORD_STATE_BEYOND_END, explanation="Nothing yet.")
    plant(world, "orders", 0, done, left, beyond)
    world.explained[world.partition("orders", 0)].start_offset = 5
    world.questions.clear()
    page = browser.get("/group?group=g")
    assert 'aria-label="orders-0: 3 can be delivered"' in page
    assert sorted((each.partition_index, each.offset, each.last_offset) for each in world.questions) == [
        (0, 3, 1_002),
        (1, 0, 999),
    ]


@pytest.mark.rule("CT-168")
def test_a_group_that_has_nothing_left_is_no_alarm(world: FakeCluster, browser: OwnConsole) -> None:
    for number in (0, 1):
        consumed(world, "orders", number, 8)
    text = text_of(browser.get("/group?group=g"))
    assert "Lag 0" in text
    assert "No member, and nothing waits." in text


@pytest.mark.rule("CT-168")
@pytest.mark.parametrize(
    ("group_epoch", "member_epochs", "words"),
    [
        (4, (4, 4), "none"),
        (5, (), "none"),
        (5, (4, 4), "going on: a new assignment is being computed"),
        (4, (4, 3, 0), "going on: 2 of 3 members have not taken over the new assignment yet"),
    ],
)
def test_a_rebalance_is_named(group_epoch: int, member_epochs: tuple[int, ...], words: str) -> None:
    members = tuple(
        MemberDescription(f"m-{number}", "c", "/127.0.0.1", None, epoch, (), {})
        for number, epoch in enumerate(member_epochs)
    )
    assert rebalance_of(ShareGroupDescription("g", "Stable", group_epoch, 4, "simple", members, None)) == words


@pytest.mark.rule("CT-168")
def test_share_partitions_and_members_are_paged(fake: FakeCluster, browser: OwnConsole) -> None:
    for topic, number in (("orders", 0), ("orders", 1), ("dlq.orders", 0), ("dlq.orders", 1)):
        plant(fake, topic, number, HELD)
    fake.add_topic("wide", 60)
    for number in range(60):
        consumed(fake, "wide", number, 0)
    for number in range(120):
        fake.add_member(f"m-{number:03}")
    text = text_of(browser.get("/group?group=g"))
    assert "1 to 25 of 64" in text
    assert "26 to 50 of 64" in text_of(browser.get("/group?group=g&page=1"))
    assert "51 to 64 of 64" in text_of(browser.get("/group?group=g&page=99"))
    assert "Members 120" in text
    assert "50 of 120 members; more" in text
    assert "100 of 120 members; more" in text_of(browser.get("/group?group=g&members=2"))
    assert "m-119" in text_of(browser.get("/group?group=g&members=3"))


@pytest.mark.rule("CT-168")
def test_at_most_ten_strips_are_drawn(fake: FakeCluster, browser: OwnConsole) -> None:
    fake.add_topic("wide", 20)
    for number in range(20):
        produce(fake, 2, "wide", partition=number)
        consumed(fake, "wide", number, 0)
        plant(fake, "wide", number, HELD)
    assert browser.get("/group?group=g").count('class="strip"') == 10


@pytest.mark.rule("CT-168")
def test_an_unknown_group_is_named_with_the_nearest(browser: OwnConsole, fake: FakeCluster) -> None:
    fake.groups["mail"] = None
    for path in ("/group?group=mial", "/reset?group=mial", "/explain?group=mial&topic=orders"):
        assert "Group mial not found. Did you mean 'mail'?" in text_of(browser.get(path, status=404))


@pytest.mark.rule("CT-168")
def test_a_record_is_explained_with_its_value_and_reason(world: FakeCluster, browser: OwnConsole) -> None:
    one = Record()
    one.CopyFrom(WAITING)
    one.first_offset = one.last_offset = 4
    plant(world, "orders", 0, one)
    page = browser.get("/explain?group=g&topic=orders&partition=0&offset=4")
    text = text_of(page)
    assert "4: available" in text
    assert "Topic orders : 2 partitions; partition 0 has 8 offsets, 8 from the group's start offset on" in text
    assert "job 4" in text
    assert "ValueError: &lt;b&gt;\nline 2" in page
    assert "<b>" not in page
    assert "Which record?" in text_of(browser.get("/explain?group=g"))


@pytest.mark.rule("CT-110", "CT-168")
def test_of_a_finished_record_the_command_that_finds_its_letter_is_named(
    world: FakeCluster, browser: OwnConsole
) -> None:
    one = Record(first_offset=4, last_offset=4, state=pb.RECORD_STATE_FINISHED, explanation="Accepted or given up.")
    plant(world, "orders", 0, one)
    path = "/explain?group=g&topic=orders&partition=0&offset=4"
    assert "has a dead letter: sharegroups dlq list --group g --origin orders:0;" in text_of(browser.get(path))
    plant(world, "orders", 0, WAITING)
    assert "dlq list" not in text_of(browser.get(path))


@pytest.mark.rule("CT-168")
def test_without_an_offset_the_first_unfinished_are_explained(world: FakeCluster, browser: OwnConsole) -> None:
    text = text_of(browser.get("/explain?group=g&topic=orders&partition=0"))
    assert "0: acquired Member m-1 holds it." in text
    assert "1 to 7: available" in text
