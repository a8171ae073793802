"""The session that a removal ends, in whatever order removals and sessions arrive (PL-528, PL-529)."""

from __future__ import annotations

from itertools import permutations

import pytest

from kip932.errors import ShareSessionNotFoundError, UnknownMemberIdError
from kip932.ids import TopicIdPartition
from partition_leader.sessions.core.session import (
    REMOVAL_REMEMBERED_MS,
    REMOVED_MEMBERS_MAX,
    Removed,
    RemovedMembers,
    SessionCache,
    SessionKey,
    SessionRequest,
)

P0 = TopicIdPartition(bytes(16), 0)
KEY, OTHER = SessionKey("g", "m"), SessionKey("g", "n")


def opening(member_epoch: int | None, key: SessionKey = KEY) -> SessionRequest:
    return SessionRequest(key, 0, None, 1, (P0,), member_epoch=member_epoch)


def going_on(epoch: int, member_epoch: int | None, session_id: int = 11) -> SessionRequest:
    return SessionRequest(KEY, epoch, session_id, 1, member_epoch=member_epoch)


@pytest.mark.rule("PL-528")
def test_a_session_of_the_life_that_is_over_ends_and_no_other() -> None:
    cache = SessionCache(10)
    cache.fetch(opening(5), 11, 0)
    cache.fetch(opening(5, OTHER), 12, 0)
    outcome, closed = cache.member_removed(KEY, 6, 0)
    assert outcome is Removed.ENDED
    assert closed is not None
    assert (closed.key, closed.partitions, closed.group_is_empty) == (KEY, (P0,), False)
    with pytest.raises(ShareSessionNotFoundError):
        cache.fetch(going_on(1, 5), 0, 0)
    assert len(cache) == 1
    _, last = cache.member_removed(OTHER, 7, 0)
    assert last is not None
    assert last.group_is_empty


@pytest.mark.rule("PL-528")
def test_what_is_not_known_to_be_of_that_life_stays() -> None:
    cache = SessionCache(10)
    assert cache.member_removed(KEY, 6, 0) == (Removed.NO_SESSION, None)
    cache.fetch(opening(None), 11, 0)
    assert cache.member_removed(KEY, 6, 0) == (Removed.NO_EPOCH, None), "an older client"
    cache.fetch(going_on(1, 7), 0, 0)
    cache.fetch(going_on(2, None), 0, 0)
    cache.fetch(going_on(3, 3), 0, 0)
    for _ in range(2):
        assert cache.member_removed(KEY, 7, 0) == (Removed.LATER_LIFE, None), "the highest epoch counts"
    assert cache.member_removed(KEY, 8, 0)[0] is Removed.ENDED


@pytest.mark.rule("PL-528", "PL-529")
def test_in_whatever_order_orders_of_the_past_come_they_leave_the_present_life_alone() -> None:
    # Three memberships ("lives"), with the member epochs 5, 8 and 12. The first two ended at the group epochs 6 and 9;
    # the third one has not ended.
    for order in permutations((6, 9, 6, 9)):
        for joined in range(len(order) + 1):  # how many removals arrive before the third life opens its session
            cache = SessionCache(10)
            cache.fetch(opening(8), 11, 0)
            ended = 0
            for group_epoch in order[:joined]:
                ended += cache.member_removed(KEY, group_epoch, 1)[0] is Removed.ENDED
            assert ended == (9 in order[:joined])
            cache.fetch(opening(12), 12, 2)
            for group_epoch in order[joined:]:
                assert cache.member_removed(KEY, group_epoch, 3) == (Removed.LATER_LIFE, None)
            assert cache.fetch(going_on(1, 12, 12), 0, 4).session_id == 12


@pytest.mark.rule("PL-529")
def test_a_life_that_is_over_opens_no_session_for_a_minute_and_replaces_none() -> None:
    cache = SessionCache(10)
    cache.member_removed(KEY, 6, 0)
    cache.member_removed(KEY, 4, 1)  # a late removal, for an earlier life
    with pytest.raises(UnknownMemberIdError, match="join again"):
        cache.fetch(opening(5), 11, 2)
    assert len(cache) == 0
    cache.fetch(opening(5, OTHER), 13, 2)
    cache.fetch(opening(6), 12, 3)
    with pytest.raises(UnknownMemberIdError):
        cache.fetch(opening(5), 14, 4)
    assert cache.fetch(going_on(1, 6, 12), 0, 5).session_id == 12
    assert cache.fetch(opening(None), 15, 6).session_id == 15, "an older client is not refused"
    assert cache.fetch(opening(5), 16, REMOVAL_REMEMBERED_MS + 1).session_id == 16


@pytest.mark.rule("PL-529")
def test_no_more_members_are_remembered_than_the_bound() -> None:
    def member(number: int) -> SessionKey:
        return SessionKey("g", f"m{number}")

    removed = RemovedMembers()
    for number in range(REMOVED_MEMBERS_MAX + 5):
        removed.note(member(number), 6, number)
        assert len(removed) <= REMOVED_MEMBERS_MAX
    now_ms = REMOVED_MEMBERS_MAX + 5
    assert not removed.is_over(member(4), 5, 0)
    assert removed.is_over(member(5), 5, now_ms) or removed.is_over(member(6), 5, now_ms)
    assert removed.is_over(member(REMOVED_MEMBERS_MAX + 4), 5, 0)
