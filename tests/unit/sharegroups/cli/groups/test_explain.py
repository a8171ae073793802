"""`sharegroups groups explain`: its text, and what is refused before any request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.errors import UnknownServerError
from sharegroups.admin_values import RecordExplanation
from sharegroups.cli.groups.explain import unfinished_of
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

Record = pb.ExplainRecordResponse.Record


def plant(fake: FakeCluster, *records: Record, **fields: Any) -> None:
    """Set the response of the leader of t-0."""
    answer = {"start_offset": 12, "end_offset": 40, "high_watermark": 52, "loaded": True} | fields
    fake.explained[fake.partition("t")] = pb.ExplainRecordResponse(
        **answer, held_records=1, in_flight_offsets=28, max_record_locks=2000, delivery_count_limit=5, records=records
    )


HELD = Record(
    first_offset=12,
    last_offset=12,
    state=pb.RECORD_STATE_ACQUIRED,
    obstacle=pb.DELIVERY_OBSTACLE_HELD,
    explanation="Member m has held it for 12.5 s, delivery 2 of 5; the lock ends in 17.5 s; it is delivered again then "
    "unless it is acknowledged.",
    delivery_count=2,
    member_id="m",
    lock_remaining_ms=17_500,
    held_ms=12_500,
    append_time_ms=1_795_564_800_000,
)
ARCHIVED = Record(
    first_offset=13,
    last_offset=14,
    state=pb.RECORD_STATE_ARCHIVED,
    obstacle=pb.DELIVERY_OBSTACLE_DELIVERY_LIMIT,
    explanation="Archived after 5 deliveries (share.delivery.count.limit is 5); it is not delivered again.",
    delivery_count=5,
    append_time_ms=1_795_564_801_000,
    reason='mail.RefusedError: unknown\nTraceback (most recent call last):\n  File "/app/mail.py", line 12, in send',
    reason_delivery_count=4,
)
WAITING = Record(
    first_offset=15,
    last_offset=15,
    state=pb.RECORD_STATE_AVAILABLE,
    obstacle=pb.DELIVERY_OBSTACLE_NOT_FETCHED,
    explanation="Available, and no delivery of it is known; no member has fetched this partition.",
    delivery_count=0,
)
MISSING = Record(
    first_offset=52,
    last_offset=52,
    state=pb.RECORD_STATE_BEYOND_END,
    obstacle=pb.DELIVERY_OBSTACLE_NO_RECORD,
    explanation="Nothing is written there yet; the next record gets offset 52.",
)


@pytest.mark.rule("CT-110")
def test_the_transcript(fake: FakeCluster) -> None:
    fake.add_member("m")
    plant(fake, HELD, ARCHIVED, WAITING, MISSING, fetching_members=1)
    check(
        "groups-explain",
        [
            "groups explain --group g --topic t:0 --offset 12-15",
            "groups explain --group g --topic t:0 --offset 13 --output json",
            "groups explain --group unknown --topic t:0 --offset 13",
            "groups explain --group g --topic T:0 --offset 13",
            "groups explain --group g --topic t:2 --offset 13",
            "groups explain --group g --topic t --offset 13",
            "groups explain --group g --topic t:0 --offset 14-13",
        ],
    )
    assert [(one.offset, one.last_offset) for one in fake.questions[:2]] == [(12, 15), (13, 13)]


@pytest.mark.rule("CT-110")
def test_without_an_offset_the_first_unfinished_records_are_reported(fake: FakeCluster) -> None:
    fake.add_member("m")
    plant(fake, HELD, ARCHIVED, WAITING)
    words = ("groups", "explain", "--group", "g", "--topic", "t:0")
    result = sharegroups(*words)
    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line[:1].isdigit()] == ["12: acquired", "15: available"]
    assert [(one.offset, one.last_offset) for one in fake.questions] == [(0, 0), (12, 51)], "up to the log's end"
    (shown,) = json.loads(sharegroups(*words, "--output", "json").stdout)
    assert [record["first_offset"] for record in shown["records"]] == [12, 15]


@pytest.mark.rule("CT-110")
def test_a_topic_without_a_partition_is_reported_partition_by_partition(fake: FakeCluster) -> None:
    plant(fake, HELD)
    fake.explained[fake.partition("t", 1)] = pb.ExplainRecordResponse(
        start_offset=7, end_offset=7, high_watermark=7, records=[MISSING]
    )
    result = sharegroups("groups", "explain", "--group", "g", "--topic", "t")
    assert result.exit_code == 0, result.stderr
    heads = [line.partition(":")[0] for line in result.stdout.splitlines() if line.startswith("Group g, ")]
    assert heads == ["Group g, t-0", "Group g, t-1"]
    assert result.stdout.endswith(
        "Nothing is written there yet; the next record gets offset 52.\n"
        "  The group has finished every record of this partition.\n"
    )
    assert result.stdout.count("has finished every record") == 1
    assert (fake.questions[-1].offset, fake.questions[-1].last_offset) == (7, 7), "where nothing is left"
    unknown = sharegroups("groups", "explain", "--group", "g", "--topic", "T")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "Topic T not found." in unknown.stderr


@pytest.mark.rule("CT-110")
def test_of_many_partitions_some_are_reported_and_the_others_noted(fake: FakeCluster) -> None:
    fake.add_topic("many", 21)
    for number in range(21):
        fake.explained[fake.partition("many", number)] = pb.ExplainRecordResponse(high_watermark=1, records=[WAITING])
    result = sharegroups("groups", "explain", "--group", "g", "--topic", "many")
    assert len([line for line in result.stdout.splitlines() if line.startswith("Group g, ")]) == 20
    assert "Note: many has 21 partitions; name one to see others, as in many:20." in result.stderr


@pytest.mark.rule("CT-110")
def test_a_few_records_are_enough_and_none_is_left_without_a_word() -> None:
    waiting = [RecordExplanation(number, number, "available", "not_fetched", "") for number in range(9)]
    over = [RecordExplanation(9, 9, "archived", "rejected", "")]
    assert unfinished_of([*over, *waiting]) == tuple(waiting[:5])
    assert unfinished_of(over) == tuple(over)


@pytest.mark.rule("CT-110")
def test_a_group_without_members_and_without_a_start_offset(fake: FakeCluster) -> None:
    plant(fake, WAITING, loaded=False, start_offset=-1, end_offset=-1, log_start_offset=52)
    result = sharegroups("groups", "explain", "--group", "g", "--topic", "t:0", "--offset", "16-17", "--offset", "15")
    assert result.exit_code == 0, result.stderr
    first, second, *rest = result.stdout.splitlines()
    assert first == "Group g, t-0: start offset not set; the log is empty, its next offset is 52."
    assert second == "Empty; members: 0, 0 have this partition, 0 fetch this partition now."
    assert "in flight" not in result.stdout, "nothing is in flight where nothing is loaded"
    assert any("The group has no members: start a consumer." in line for line in rest)
    assert [(one.offset, one.last_offset) for one in fake.questions] == [(16, 17), (15, 15)], "in the order given"


@pytest.mark.rule("CT-110")
def test_that_the_members_are_not_known_is_a_note_and_what_the_leader_knows_is_printed(fake: FakeCluster) -> None:
    plant(fake, WAITING)
    fake.groups["g"] = None
    fake.errors["describe"].append(UnknownServerError.code)
    result = sharegroups("groups", "explain", "--group", "g", "--topic", "t:0", "--offset", "15")
    assert result.exit_code == 0, result.stderr
    assert "15: available" in result.stdout
    assert "Members: 0 fetch this partition now." in result.stdout
    assert "Note: the group's members are not known: " in result.stderr


@pytest.mark.rule("CT-110")
def test_an_unknown_topic_is_an_error_that_names_the_nearest(fake: FakeCluster) -> None:
    fake.add_topic("orders", 1)
    result = sharegroups("groups", "explain", "--group", "g", "--topic", "order:0", "--offset", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: Topic order not found. Did you mean 'orders'? All topics: sharegroups topics list\n"
    )


@pytest.mark.rule("CT-82", "CT-110", "CT-143", "PL-944")
def test_what_others_named_does_nothing_to_a_terminal(fake: FakeCluster) -> None:
    nasty = "r\x1b[2J\n\u202e\rline <b>"
    plant(fake, Record(first_offset=1, last_offset=1, explanation="m\x1b[31m", member_id="m", reason=nasty))
    result = sharegroups("groups", "explain", "--group", "g", "--topic", "t:0", "--offset", "1")
    assert not set("\x1b\u202e\r") & set(result.stdout)
    assert r"m\x1b[31m" in result.stdout
    assert "  Reason given at delivery 0: r\\x1b[2J\n    \\u202e\\rline <b>\n" in result.stdout
    shown = json.loads(
        sharegroups("groups", "explain", "--group", "g", "--topic", "t:0", "--offset", "1", "--output", "json").stdout
    )
    assert shown[0]["records"][0]["explanation"] == "m\x1b[31m"
    assert shown[0]["records"][0]["reason"] == nasty


@pytest.mark.rule("CT-111")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "t:x"], "expected one partition of a topic, TOPIC:PARTITION, as in orders:0"),
        (["--topic", ":0"], "expected one partition"),
        (["--topic", "t"], "expected one partition"),
        (["--topic", "t:-1"], "expected one partition"),
        (["--topic", "t:2147483648"], "expected one partition"),
        (["--offset", "x"], "expected an offset from 0 on, or a range of them, as in 17 or 17-20"),
        (["--offset", "-1"], "expected an offset from 0 on"),
        (["--offset", "1-2-3"], "expected an offset from 0 on"),
        (["--offset", "9-8"], "must end at or after its begin"),
        (["--offset", "9223372036854775808"], "at 9223372036854775807 at most"),
        (["--offset", "0-1000"], "names 1001 offsets in 1 ranges; at most 1000 in 20 are explained at a time"),
        (["--offset", "0-600", "--offset", "600-999"], "names 1001 offsets in 2 ranges"),
        ([word for number in range(21) for word in ("--offset", str(number))], "names 21 offsets in 21 ranges"),
        (["--group", " "], "it is empty; expected a name"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(words: list[str], said: str) -> None:
    given = {"--group": "g", "--topic": "t:0", "--offset": "1"}
    defaults = [word for pair in given.items() if pair[0] not in words for word in pair]
    result = CliRunner().invoke(main, ["groups", "explain", *words, *defaults, "--bootstrap-server", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
