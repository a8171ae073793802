"""The client's side of a share session: epochs, partitions added and forgotten, lost sessions."""

from __future__ import annotations

import pytest

from kip932.ids import TopicIdPartition
from sharegroups.consuming.core.fetch_session import CHANGES_MAX, FetchSession

A, B = TopicIdPartition(b"a" * 16, 0), TopicIdPartition(b"b" * 16, 0)


@pytest.mark.rule("CL-30", "PL-503")
def test_the_first_step_opens_with_everything_and_later_ones_show_what_changed() -> None:
    session = FetchSession()
    first = session.fetch_step({A: "a"})
    assert (first.epoch, first.added, first.forgotten) == (0, [A], [])
    assert not session.is_established
    session.opened(first.generation, 55)
    second = session.fetch_step({B: "b"})
    assert (second.epoch, second.session_id, second.added, second.forgotten) == (1, 55, [B], [A])
    assert session.acknowledge_step().epoch == 2
    session._epoch = 2**31 - 1
    assert session.acknowledge_step().epoch == 2**31 - 1
    assert session.acknowledge_step().epoch == 1


@pytest.mark.rule("CL-30", "CM-62")
def test_very_many_partitions_are_added_and_forgotten_by_several_requests() -> None:
    session = FetchSession()
    many = {TopicIdPartition(b"a" * 16, number): "a" for number in range(CHANGES_MAX + 5)}
    first, second = session.fetch_step(many), session.fetch_step(many)
    assert (len(first.added), len(second.added)) == (CHANGES_MAX, 5)
    assert session.known == tuple(many)
    assert session.fetch_step(many).added == []
    moves = [session.fetch_step({B: "b"}) for _ in range(3)]
    assert [(len(step.forgotten), step.added) for step in moves] == [(CHANGES_MAX, []), (5, [B]), (0, [])]
    assert session.known == (B,)


@pytest.mark.rule("CL-31", "PL-502a", "PL-504")
def test_a_lost_session_starts_over_and_old_news_does_not_disturb_it() -> None:
    session = FetchSession()
    old = session.fetch_step({A: "a"})
    assert session.lost(old.generation)
    new = session.fetch_step({A: "a"})
    assert (new.epoch, new.added) == (0, [A])
    session.opened(old.generation, 1)
    assert not session.is_established
    session.opened(new.generation, 2)
    assert not session.lost(old.generation)
    assert session.close_step()[:2] == (-1, 2)


def test_a_step_that_the_leader_was_too_busy_for_is_taken_again_with_its_epoch() -> None:
    session = FetchSession()
    session.opened(session.fetch_step({A: "a"}).generation, 55)
    step = session.fetch_step({B: "b"})
    session.refused(step)
    assert session.known == (A,)
    assert session.fetch_step({B: "b"}) == step


def test_a_refused_step_leaves_the_epoch_of_a_later_one_alone() -> None:
    session = FetchSession()
    session.opened(session.fetch_step({A: "a"}).generation, 55)
    step = session.fetch_step({B: "b"})
    assert session.acknowledge_step().epoch == 2
    session.refused(step)
    again = session.fetch_step({B: "b"})
    assert (again.epoch, again.added, again.forgotten) == (3, [B], [A])
