"""Every topic RPC checks the topic id, and the leader epoch if the caller gives one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kip932.errors import FencedLeaderEpochError, InvalidRequestError, NotLeaderOrFollowerError
from kip932.ids import TopicIdPartition
from partition_leader.topic_rpc.log_directory import check_leader_epoch, checked_topic_id

PARTITION = TopicIdPartition(bytes(15) + b"\7", 3)
LED: Any = SimpleNamespace(epoch=5)


def test_a_topic_id_has_sixteen_bytes() -> None:
    assert checked_topic_id(bytes(range(16))) == bytes(range(16))
    for size in (0, 15, 17):
        with pytest.raises(InvalidRequestError, match=f"has {size} bytes; expected 16"):
            checked_topic_id(bytes(size))


@pytest.mark.parametrize("known", [None, -1, 5])
def test_the_present_leader_epoch_or_none_is_let_through(known: int | None) -> None:
    check_leader_epoch(LED, PARTITION, known)


@pytest.mark.parametrize(
    ("known", "error", "words"),
    [
        (4, FencedLeaderEpochError, "-3: leader epoch 4 is old; it is 5 now"),
        (0, FencedLeaderEpochError, "-3: leader epoch 0 is old; it is 5 now"),
        (-2, FencedLeaderEpochError, "leader epoch -2 is old"),
        (6, NotLeaderOrFollowerError, "-3: leader epoch 6 is not known here; this node led 5"),
    ],
)
def test_another_leader_epoch_is_refused_by_its_age(known: int, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_leader_epoch(LED, PARTITION, known)
