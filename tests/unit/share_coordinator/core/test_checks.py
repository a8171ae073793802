"""Requests that pass and requests that are refused: table 2.3, row by row and RPC by RPC."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip932 import errors
from kip932.ids import SharePartitionKey
from kip932.state_batches import StateBatch
from kip932.state_values import (
    DeleteState,
    ReadState,
    ReadSummary,
    StaleLeaderError,
    StateCommand,
    StateSummary,
    StoredState,
)
from share_coordinator.core.commands import CommandBatch
from tests.support.share_state import KEY, OTHER_TOPIC, TOPIC, Driver, initialize, read, write

Make = Callable[[SharePartitionKey], StateCommand]
RPCS: dict[str, Make] = {
    "initialize": lambda key: initialize(key=key),
    "read": lambda key: read(9, key=key),
    "write": lambda key: write(key=key),
    "delete": DeleteState,
    "summary": ReadSummary,
}

STORED_STATE_EPOCH, STORED_LEADER_EPOCH = 5, 3


def _stored() -> Driver:
    driver = Driver()
    driver.run(initialize(STORED_STATE_EPOCH, 10))
    driver.run(read(STORED_LEADER_EPOCH))
    return driver


def _code(driver: Driver, command: StateCommand) -> int:
    before = list(driver.log)
    try:
        driver.run(command)
    except errors.KafkaError as error:
        assert driver.log == before, "a refused operation writes nothing"
        return error.code
    return errors.NONE


@pytest.mark.rule("SC-20", "SC-21")
@pytest.mark.parametrize("rpc", RPCS)
@pytest.mark.parametrize("key", [KEY._replace(topic_id=bytes(16)), KEY._replace(partition=-1)])
def test_a_null_topic_id_or_negative_partition_is_invalid_for_every_rpc(rpc: str, key: SharePartitionKey) -> None:
    assert _code(_stored(), RPCS[rpc](key)) == errors.InvalidRequestError.code


@pytest.mark.rule("SC-22", "SC-47", "SC-50")
@pytest.mark.parametrize(
    ("rpc", "code"),
    [
        ("initialize", errors.NONE),
        ("read", errors.InvalidRequestError.code),
        ("write", errors.InvalidRequestError.code),
        ("delete", errors.NONE),
        ("summary", errors.NONE),
    ],
)
def test_a_key_without_state(rpc: str, code: int) -> None:
    assert _code(Driver(), RPCS[rpc](KEY)) == code


@pytest.mark.rule("SC-23", "SC-26")
@pytest.mark.parametrize(
    ("epoch", "read_code", "write_code"),
    [
        (STORED_LEADER_EPOCH, 0, 0),
        (STORED_LEADER_EPOCH - 1, 74, 74),
        (STORED_LEADER_EPOCH + 1, 0, 0),
    ],
)
def test_leader_epochs_equal_lower_and_higher(epoch: int, read_code: int, write_code: int) -> None:
    assert _code(_stored(), read(epoch)) == read_code
    assert _code(_stored(), write(leader=epoch)) == write_code


@pytest.mark.rule("SC-24", "SC-26", "SC-29", "PL-706")
@pytest.mark.parametrize(
    ("epoch", "code"),
    [(STORED_STATE_EPOCH, 0), (STORED_STATE_EPOCH - 1, 124), (STORED_STATE_EPOCH + 1, 0)],
)
def test_state_epochs_equal_lower_and_higher(epoch: int, code: int) -> None:
    assert _code(_stored(), initialize(epoch)) == code
    assert _code(_stored(), write(state=epoch)) == code
    assert _code(_stored(), DeleteState(KEY, epoch)) == code
    assert _code(_stored(), DeleteState(KEY, -1)) == 0


@pytest.mark.rule("SC-28")
@pytest.mark.parametrize("epoch", [-1, -2])
@pytest.mark.parametrize("known", [True, False])
def test_a_negative_epoch_is_refused_before_anything_is_said_of_the_key(epoch: int, known: bool) -> None:
    for command in (initialize(epoch, 0), write(state=epoch), write(leader=epoch), read(epoch)):
        driver = _stored() if known else Driver()
        before = list(driver.log)
        with pytest.raises(errors.InvalidRequestError, match=f"(leader|state) epoch {epoch} is negative"):
            driver.run(command)
        assert driver.log == before


@pytest.mark.rule("SC-25", "SC-48", "SC-82")
@pytest.mark.parametrize("rpc", RPCS)
def test_a_topic_unknown_to_metadata_is_refused_last(rpc: str) -> None:
    driver = _stored()
    driver.metadata.topics.clear()
    assert _code(driver, RPCS[rpc](KEY)) == errors.UnknownTopicOrPartitionError.code


@pytest.mark.rule("SC-25", "SC-82")
@pytest.mark.parametrize("rpc", ["initialize", "delete", "summary"])
def test_a_partition_past_the_topics_count_is_unknown(rpc: str) -> None:
    assert _code(Driver(), RPCS[rpc](KEY._replace(partition=10))) == errors.UnknownTopicOrPartitionError.code
    assert _code(Driver(), RPCS[rpc](KEY._replace(partition=9))) == errors.NONE


@pytest.mark.rule("SC-30", "SC-31")
def test_fencing_comes_before_metadata_and_missing_state_before_both() -> None:
    driver = _stored()
    driver.metadata.topics.clear()
    assert _code(driver, read(2)) == 74
    assert _code(driver, write(leader=2, state=4)) == 74
    assert _code(driver, write(leader=3, state=4)) == 124
    assert _code(driver, initialize(4)) == 124
    assert _code(driver, DeleteState(KEY, 4)) == 124
    assert _code(driver, read(2, key=SharePartitionKey("G2", TOPIC, 0))) == 42


@pytest.mark.rule("SC-29a", "PL-602", "PL-706")
def test_leader_epoch_and_generation_are_fenced_as_one_pair() -> None:
    driver = _stored()
    driver.run(read(7, 2))
    assert _code(driver, write(leader=7, generation=1)) == 74
    assert _code(driver, write(leader=7)) == 74, "an absent generation counts as 0"
    assert _code(driver, write(leader=7, generation=2)) == 0
    assert _code(driver, write(leader=8, generation=0)) == 0
    assert _code(driver, read(7, 1)) == 74
    assert _code(driver, read(6, 9)) == 74
    with pytest.raises(StaleLeaderError) as refusal:
        driver.run(read(6))
    assert refusal.value.leader_epoch == 7


@pytest.mark.scenario("S-089")
def test_a_fenced_write_leaves_the_epochs_alone() -> None:
    driver = Driver()
    driver.run(initialize(1, 0))
    driver.run(read(1))
    before = driver.state()
    assert _code(driver, write(leader=0)) == 74
    assert _code(driver, write(state=0, leader=5)) == 124
    assert driver.state() == before
    assert (before.fence, before.fence_state_epoch) == ((1, 0), 1)


@pytest.mark.rule("SC-26", "SC-33", "SC-40")
def test_the_fencing_walk_through_of_section_7() -> None:
    driver = _stored()
    writes = {(5, 3): 0, (5, 2): 74, (4, 3): 124, (4, 2): 74, (6, 9): 0}
    for (state_epoch, leader_epoch), code in writes.items():
        assert _code(driver, write(state=state_epoch, leader=leader_epoch)) == code
    assert (driver.state().state_epoch, driver.state().leader_epoch) == (5, 3)
    assert driver.written(read(3)) == []
    assert _code(driver, read(4)) == 0
    assert _code(driver, write(state=5, leader=3)) == 74
    assert _code(driver, initialize(4)) == 124
    assert driver.written(initialize(5, 42)) == []
    assert len(driver.written(initialize(6, -1))) == 1
    assert _code(driver, write(state=5)) == 124
    driver.run(DeleteState(KEY))
    assert _code(driver, read(9)) == 42


@pytest.mark.rule("SC-43")
@pytest.mark.parametrize(
    "batch",
    [(9, 8, 0, 1), (0, 1, 1, 1), (0, 1, 5, 1), (0, 1, -1, 1), (0, 1, 0, -1), (0, 1, 0, 1, -1), (0, 1, 2, 1, 5)],
)
def test_impossible_batches_are_refused(batch: tuple[int, ...]) -> None:
    assert _code(_stored(), write(batch)) == errors.InvalidRequestError.code


@pytest.mark.rule("SC-12", "P-2")
def test_in_a_batch_one_refused_key_does_not_fail_the_others() -> None:
    driver = _stored()
    other = SharePartitionKey("G1", OTHER_TOPIC, 1)
    missing = SharePartitionKey("G1", OTHER_TOPIC, 2)
    driver.run(initialize(1, 0, key=other))
    commands = (write((10, 11, 2, 1)), ReadState(missing, 1), write((0, 4, 0, 1), key=other), ReadSummary(other))
    replies = driver.run(CommandBatch(commands))
    assert isinstance(replies, tuple)
    assert replies[0] is None
    assert isinstance(replies[1], errors.InvalidRequestError)
    assert replies[2] is None
    assert replies[3] == StateSummary(1, 0, 0, 0, 0, 0)
    assert [record.key for record in driver.log[-2:]] == [KEY, other]
    view = driver.run(read(3))
    assert isinstance(view, StoredState)
    assert view.batches == (StateBatch(10, 11, 2, 1),)
