"""The responses and writes of a share-state shard while entries of its log are in quarantine."""

from __future__ import annotations

import pytest

from kip932.errors import InQuarantineError, KafkaError
from kip932.ids import SharePartitionKey
from kip932.state_values import DeleteState, ReadSummary, StateCommand
from shard_runtime.hosting.shard import DamagedEntry
from share_coordinator.core.commands import CommandBatch, CopyCold, DeleteTopics, Removed, RemoveOrphans
from share_coordinator.core.records import ShareTombstone
from tests.support.share_state import COLD_MS, KEY, OTHER_TOPIC, TOPIC, Driver, initialize, read, write

OTHER = SharePartitionKey("G1", TOPIC, 1)
GONE = SharePartitionKey("G1", OTHER_TOPIC, 0)
COMMANDS = [initialize(9, 0), read(7), write((0, 5, 2, 1), start=0), DeleteState(KEY), ReadSummary(KEY)]


def hurt(key: SharePartitionKey | None) -> Driver:
    """A shard with state for KEY and OTHER, followed by a damaged entry for `key`."""
    driver = Driver()
    driver.run(initialize(5, 10))
    driver.run(initialize(5, 10, key=OTHER))
    assert driver.shard.quarantine(DamagedEntry("{sgs:4}:log", "7-3", "is damaged: its checksum is 0", key))
    return driver


@pytest.mark.rule("SC-114")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_nothing_is_decided_on_damaged_state_and_the_refusal_names_the_entry(command: StateCommand) -> None:
    for key, more in ((KEY, "of {sgs:4}:log is damaged"), (None, "share-partition is unknown")):
        driver = hurt(key)
        with pytest.raises(InQuarantineError, match=r"entry 7-3 of \{sgs:4\}:log") as refused:
            driver.run(command)
        assert f"the stored state of {KEY.text} is in quarantine: " in str(refused.value)
        assert "`sharegroups state repair`" in str(refused.value)
        assert more in str(refused.value)


@pytest.mark.rule("SC-114")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_share_partition_that_the_log_does_not_name_is_refused_too_never_taken_for_new(command: StateCommand) -> None:
    driver = Driver()
    driver.shard.quarantine(DamagedEntry("{sgs:4}:log", "7-3", "is damaged", None))
    with pytest.raises(InQuarantineError):
        driver.run(command)


@pytest.mark.rule("SC-113", "SC-114", "SC-12")
def test_other_share_partitions_of_the_same_request_are_served() -> None:
    driver = hurt(KEY)
    outcomes = driver.run(CommandBatch((ReadSummary(KEY), ReadSummary(OTHER))))
    assert isinstance(outcomes, tuple)
    refusal, summary = outcomes
    assert isinstance(refusal, KafkaError)
    assert summary.start_offset == 10
    assert driver.written(write((10, 15, 2, 1), start=10, key=OTHER))


@pytest.mark.rule("SC-114", "CM-108")
def test_no_copy_of_damaged_state_is_written() -> None:
    for key, copied in ((KEY, [OTHER]), (None, [])):
        driver = hurt(key)
        driver.advance(COLD_MS * 2)
        assert [record.key for record in driver.written(CopyCold((KEY, OTHER)))] == copied
        assert [copies[0].key for copies in driver.shard.rewrite([KEY, OTHER], 0)] == copied


@pytest.mark.rule("SC-114", "SC-80")
def test_the_deletion_of_a_topic_ends_the_damage_of_its_share_partitions() -> None:
    driver = hurt(GONE)  # the damaged entry is the key's only one, so the key has no state
    driver.metadata.topics.pop(OTHER_TOPIC)
    assert driver.run(DeleteTopics(frozenset({OTHER_TOPIC}))) == Removed(1, 0)
    assert driver.log[-1] == ShareTombstone(GONE)
    assert not driver.shard.quarantined()
    driver = hurt(GONE)
    driver.metadata.topics.pop(OTHER_TOPIC)
    driver.metadata.settled_ms = 0
    driver.shard.loaded(0)
    assert driver.run_due() == [ShareTombstone(GONE)]
    assert driver.run(RemoveOrphans((GONE,))) == Removed(0, 0)


@pytest.mark.rule("SC-59", "CM-107")
def test_a_tombstone_that_was_not_stored_leaves_the_damage_as_it_was() -> None:
    driver = hurt(KEY)
    driver.metadata.topics.pop(TOPIC)
    token = driver.shard.replay(ShareTombstone(KEY))
    assert not driver.shard.quarantined()
    driver.shard.undo(token)
    assert [found.at for found in driver.shard.quarantined()] == ["7-3"]
    assert driver.state(KEY).start_offset == 10
