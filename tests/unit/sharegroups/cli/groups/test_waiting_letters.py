"""Before waiting dead letters are discarded, the tools report how many, where, and the fate of their records."""

from __future__ import annotations

import pytest

from kip932.errors import UnknownServerError
from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups

DELETE = ("groups", "delete", "--group", "g")
DELETE_OFFSETS = ("groups", "delete-offsets", "--group", "g", "--topic", "t")
RESET = ("groups", "reset-offsets", "--group", "g", "--topic", "t:0", "--to-earliest")

GONE = "This change discards what waits: it is written to no dead-letter topic, and "
AGAIN = f"{GONE}the group begins again by share.auto.offset.reset."
BY_OFFSET = f"{GONE}their records from the new offset on are delivered again, the others never."


def letters(fake: FakeCluster, topic: str, number: int, count: int) -> None:
    """Let group `g` finish one record of a partition; after it, `count` records wait to become dead letters."""
    produce(fake, count + 1, topic, number)
    consumed(fake, topic, number, 1)
    states = fake.logs[fake.partition(topic, number)].states["g"]
    states |= dict.fromkeys(range(1, count + 1), ("archiving", "", 5))


@pytest.mark.rule("CT-24a")
@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (DELETE, f"3 dead letters wait to be written, of other:0, t:0. {AGAIN}"),
        (DELETE_OFFSETS, f"1 dead letter waits to be written, of t:0. {AGAIN}"),
        ((*RESET, "--dry-run"), f"1 dead letter waits to be written, of t:0. {BY_OFFSET}"),
        ((*RESET, "--execute"), f"1 dead letter waits to be written, of t:0. {BY_OFFSET}"),
    ],
)
def test_what_waits_is_reported_and_the_change_is_made(
    fake: FakeCluster, words: tuple[str, ...], reported: str
) -> None:
    fake.add_topic("other")
    letters(fake, "t", 0, 1)
    letters(fake, "other", 0, 2)
    result = sharegroups(*words)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"Warn: In group 'g' {reported}")
    assert "sharegroups groups describe --group g --verbose\n" in result.stderr


@pytest.mark.rule("CT-24a")
def test_no_more_than_five_partitions_are_named(fake: FakeCluster) -> None:
    fake.add_topic("wide", 7)
    for number in range(7):
        letters(fake, "wide", number, 1)
    assert "of wide:0, wide:1, wide:2, wide:3, wide:4 and 2 more. " in sharegroups(*DELETE).stderr


@pytest.mark.rule("CT-24a")
@pytest.mark.parametrize("words", [DELETE, DELETE_OFFSETS, (*RESET, "--execute")])
def test_where_none_waits_nothing_is_reported(fake: FakeCluster, words: tuple[str, ...]) -> None:
    produce(fake, 3)
    consumed(fake, "t", 0, 2)
    assert sharegroups(*words).stderr == ""


@pytest.mark.rule("CT-24a")
def test_what_cannot_be_reported_is_said_and_stops_nothing(fake: FakeCluster) -> None:
    letters(fake, "t", 0, 1)
    fake.initialised.add(("g", fake.partition("t", 1).topic_id))
    fake.stateless[TopicIdPartition(fake.partition("t", 1).topic_id, 1)] = "being loaded"
    result = sharegroups(*DELETE)
    assert result.stderr.startswith(
        "Warn: It is not known whether dead letters of group 'g' wait in t:1.\nWarn: In group"
    )
    assert "Deletion of requested share groups ('g') was successful." in result.stdout


@pytest.mark.rule("CT-24a")
def test_an_answer_that_does_not_come_is_said_and_stops_nothing(fake: FakeCluster) -> None:
    letters(fake, "t", 0, 1)
    fake.errors["describe_offsets"].append(UnknownServerError.code)
    result = sharegroups(*DELETE)
    assert result.stderr.startswith("Warn: It is not known whether dead letters of group 'g' wait: ")
    assert "Deletion of requested share groups ('g') was successful." in result.stdout


@pytest.mark.rule("CT-135")
def test_describe_verbose_reports_letters_that_wait_and_how_to_learn_why(fake: FakeCluster) -> None:
    fake.add_topic("wide", 7)
    describe = ("groups", "describe", "--group", "g")
    letters(fake, "wide", 0, 2)
    result = sharegroups(*describe, "--verbose")
    assert (result.exit_code, result.stderr) == (
        0,
        "Note: group 'g', wide-0: 2 dead letters wait to be written. Why: sharegroups groups explain --group g "
        "--topic wide:0 --offset 1-1000\n",
    )
    assert sharegroups(*describe).stderr == ""
    for number in range(7):
        letters(fake, "wide", number, 1)
    *_, first, last = sharegroups(*describe, "--verbose").stderr.splitlines()
    assert first.startswith("Note: group 'g', wide-4: 1 dead letter waits")
    assert last == "Note: group 'g': dead letters wait in 2 more partitions, see above."
