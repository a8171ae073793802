"""The start offsets of all groups in some topics, as one shard reports them (SC-116)."""

from __future__ import annotations

import pytest

from kip932.errors import InQuarantineError, InvalidRequestError
from kip932.ids import SharePartitionKey
from kip932.state_values import DeleteState, StoredStart
from shard_runtime.hosting.shard import DamagedEntry
from share_coordinator.core.commands import ListStarts
from share_coordinator.core.shard import TOPIC_STARTS_MAX
from tests.support.share_state import KEY, OTHER_TOPIC, TOPIC, Driver, initialize, read, write

ASKED = ListStarts(frozenset({TOPIC}))
ELSEWHERE = SharePartitionKey("G2", OTHER_TOPIC, 0)


@pytest.mark.rule("SC-116", "SC-118")
def test_every_group_with_state_for_the_topic_is_listed_and_no_other() -> None:
    driver = Driver()
    later, second = SharePartitionKey("G2", TOPIC, 3), SharePartitionKey("G1", TOPIC, 1)
    driver.run(initialize(5, 10))
    driver.run(initialize(5, -1, key=later))
    driver.run(initialize(5, 7, key=second))
    driver.run(initialize(5, 1, key=ELSEWHERE))
    driver.run(read(7))
    driver.run(write((22, 25, 2, 1), start=20, dcc=4))
    before = len(driver.log)
    assert driver.run(ASKED) == ((KEY, StoredStart(20, 4)), (later, StoredStart(-1, -1)), (second, StoredStart(7, 0)))
    driver.run(DeleteState(second))
    assert driver.run(ASKED) == ((KEY, StoredStart(20, 4)), (later, StoredStart(-1, -1)))
    assert len(driver.log) == before + 1, "to ask writes nothing"


@pytest.mark.rule("SC-116")
@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        pytest.param(None, "share-partition is unknown", id="of an unknown key"),
        pytest.param(SharePartitionKey("G9", TOPIC, 4), "it is of SharePartitionKey", id="of the topic"),
    ],
)
def test_damage_that_may_be_of_the_topic_is_an_error_and_never_one_group_fewer(
    damaged: SharePartitionKey | None, reason: str
) -> None:
    driver = Driver()
    driver.run(initialize(5, 10))
    driver.shard.quarantine(DamagedEntry("{sgs:4}:log", "7-3", "is damaged", damaged))
    with pytest.raises(InQuarantineError, match=r"entry 7-3 of \{sgs:4\}:log is damaged") as refused:
        driver.run(ASKED)
    assert reason in str(refused.value)


@pytest.mark.rule("SC-116")
def test_damage_of_another_topic_is_none_of_its_business() -> None:
    driver = Driver()
    driver.run(initialize(5, 10))
    driver.shard.quarantine(DamagedEntry("{sgs:4}:log", "7-3", "is damaged", ELSEWHERE))
    assert driver.run(ASKED) == ((KEY, StoredStart(10, 0)),)


@pytest.mark.rule("SC-116")
def test_more_share_partitions_than_an_answer_holds_are_refused_not_left_out() -> None:
    driver = Driver()
    for number in range(TOPIC_STARTS_MAX + 1):
        driver.run(initialize(5, 10, key=SharePartitionKey(f"g{number}", TOPIC, 0)))
    with pytest.raises(InvalidRequestError, match=f"{TOPIC_STARTS_MAX + 1} share-partitions"):
        driver.run(ASKED)
