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


@pytest.mark.rule("CL-143")
def test_the_epochs_of_two_steps_in_flight_are_reused_when_both_are_refused() -> None:
    for order in ((0, 1), (1, 0)):
        session = FetchSession()
        session.opened(session.fetch_step({A: "a"}).generation, 55)
        steps = session.fetch_step({A: "a"}), session.acknowledge_step()
        assert [step.epoch for step in steps] == [1, 2]
        for number in order:
            session.refused(steps[number])
        assert [session.acknowledge_step().epoch, session.fetch_step({A: "a"}).epoch] == [1, 2]


@pytest.mark.rule("CL-143")
def test_a_refused_step_of_a_lost_session_does_not_disturb_the_next_one() -> None:
    session = FetchSession()
    session.opened(session.fetch_step({A: "a"}).generation, 55)
    step = session.fetch_step({A: "a"})
    session.acknowledge_step()
    session.refused(step)
    assert session.lost(step.generation)
    session.opened(session.fetch_step({A: "a"}).generation, 56)
    session.refused(session.fetch_step({A: "a"}))
    assert session.fetch_step({A: "a"}).epoch == 1
