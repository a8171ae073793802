"""Checks the invariants of every share-partition object in these tests after each event that it handles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.invariants import BrokenInvariantError
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.transitions import IllegalTransitionError


@pytest.fixture(autouse=True)
def contradictions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the list of broken invariants and impossible transitions, to which the test adds as it runs. A test that
    expects some removes them."""
    found: list[str] = []
    handle, give_up = SharePartition.handle, SharePartition.give_up

    def checked(self: SharePartition, event: ev.Event, now_ms: int) -> list[fx.Effect]:
        effects = handle(self, event, now_ms)
        try:
            self.check()
        except BrokenInvariantError as error:
            found.append(f"after {type(event).__name__}: {error}")
        return effects

    def noted(self: SharePartition, error: IllegalTransitionError) -> list[fx.Effect]:
        found.append(str(error))
        return give_up(self, error)

    monkeypatch.setattr(SharePartition, "handle", checked)
    monkeypatch.setattr(SharePartition, "give_up", noted)
    yield found
    assert found == []
