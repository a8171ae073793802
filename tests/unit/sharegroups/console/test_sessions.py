"""Sessions: their number, their end, and what is known about them."""

from __future__ import annotations

import pytest

from sharegroups.console.sessions import IDLE_S, LIFE_S, Session, Sessions
from sharegroups.errors import IllegalStateError
from tests.support.fake_cluster.cluster import FakeCluster


def session(now_s: float = 0.0) -> Session:
    return Session("User:ann", {"bootstrap.servers": "node0:9000", "sasl.password": "secret"}, now_s, now_s)


@pytest.mark.rule("CT-162")
def test_a_session_is_found_by_its_random_name_alone() -> None:
    sessions, ann = Sessions(), session()
    name, _ = sessions.open(ann)
    assert sessions.find(name, 1) is ann
    assert sessions.find(name[:-1], 1) is None
    assert sessions.find("", 1) is None
    assert len(name) > 40
    assert name != sessions.open(session())[0]


@pytest.mark.rule("CT-162")
def test_it_ends_when_idle_or_old() -> None:
    sessions, ann = Sessions(), session()
    name, _ = sessions.open(ann)
    now_s = 0.0
    while now_s + IDLE_S - 1 < LIFE_S:
        now_s += IDLE_S - 1
        assert sessions.find(name, now_s) is ann
    assert sessions.find(name, LIFE_S) is None
    other, _ = sessions.open(bob := session())
    assert sessions.is_open(bob, IDLE_S - 1)
    assert not sessions.is_open(bob, IDLE_S)
    assert sessions.find(other, IDLE_S) is None
    assert sessions.expire(LIFE_S) == [ann, bob]
    assert len(sessions) == 0


@pytest.mark.rule("CT-162")
def test_it_goes_on_while_its_tasks_run() -> None:
    sessions, ann = Sessions(), session()
    name, _ = sessions.open(ann)
    ann.tasks = 1
    assert sessions.expire(2 * LIFE_S) == []
    assert sessions.find(name, 2 * LIFE_S) is ann
    ann.tasks = 0
    assert sessions.expire(2 * LIFE_S) == [ann]


@pytest.mark.rule("CT-162")
def test_one_too_many_ends_the_one_that_is_idle_longest() -> None:
    sessions = Sessions(most=2)
    names = [sessions.open(session())[0] for _ in range(2)]
    sessions.find(names[0], 5)
    _, ended = sessions.open(session(6))
    assert len(ended) == 1
    assert sessions.find(names[1], 6) is None
    assert sessions.find(names[0], 6) is not None


def test_an_ended_session_makes_no_more_calls(fake: FakeCluster) -> None:
    ann = session()
    assert ann.admin is ann.admin
    ann.close()
    ann.close()
    with pytest.raises(IllegalStateError, match="sign in again"):
        _ = ann.admin


@pytest.mark.rule("CT-162")
def test_secrets_are_not_printed() -> None:
    ann = session()
    assert "secret" not in repr(ann)
    assert ann.csrf not in repr(ann)


@pytest.mark.rule("CT-168")
def test_so_many_pages_are_kept_and_no_more() -> None:
    ann = session()
    for number in range(20):
        ann.keep(f"/{number}", number, number)
    assert list(ann.kept) == [f"/{number}" for number in range(12, 20)]
