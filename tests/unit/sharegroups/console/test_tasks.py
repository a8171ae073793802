"""Tasks: how many run, what excludes another, how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kip932.errors import InvalidRequestError
from sharegroups.console.sessions import Session
from sharegroups.console.tasks import (
    KEPT_MAX,
    OF_USER_MAX,
    RUNNING_MAX,
    WAITING_MAX,
    BusyError,
    StoppedError,
    Task,
    Tasks,
)


class Room:
    """Tasks that wait until they may go on."""

    def __init__(self) -> None:
        self.tasks = Tasks(lambda: 7)
        self.goes_on = threading.Event()
        self.running: list[str] = []
        self._one = threading.Lock()

    def work(self, task: Task) -> None:
        with self._one:
            self.running.append(task.subject)
        assert self.goes_on.wait(30)
        task.step()

    def begin(self, user: Session, subject: str = "t", *, changes: bool = False, key: object = None) -> Task:
        return self.tasks.begin(user, "Title", self.work, subject=subject, key=key, changes=changes)

    def end(self) -> None:
        self.goes_on.set()
        self.tasks.close()


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.end()


def user(name: str = "User:ann") -> Session:
    return Session(name, {}, 0, 0)


@pytest.mark.rule("CT-164")
def test_a_second_change_of_a_topic_is_refused_with_who_makes_the_first(room: Room) -> None:
    ann, bob = user(), user("User:bob")
    room.begin(ann, changes=True)
    with pytest.raises(BusyError, match=r"User:ann is changing t at this moment \(Title\)"):
        room.begin(bob, changes=True)
    with pytest.raises(BusyError, match="you are changing t"):
        room.begin(ann, changes=True)
    room.begin(bob, changes=False)
    room.begin(bob, "other", changes=True)


@pytest.mark.rule("CT-164")
def test_so_many_and_no_more(room: Room) -> None:
    users = [user(f"User:{number}") for number in range(3)]
    for _ in range(OF_USER_MAX):
        room.begin(users[0])
    with pytest.raises(BusyError, match="8 tasks run or wait"):
        room.begin(users[0])
    for _ in range(WAITING_MAX - OF_USER_MAX):
        room.begin(users[1])
    with pytest.raises(BusyError, match="16 tasks run or wait"):
        room.begin(users[2])
    assert len(room.running) <= RUNNING_MAX
    assert [each.tasks for each in users] == [8, 8, 0]
    room.end()
    assert len(room.running) >= RUNNING_MAX


@pytest.mark.rule("CT-164")
def test_a_task_is_its_users_alone(room: Room) -> None:
    ann, bob = user(), user("User:bob")
    first, second = room.begin(ann, key="k"), room.begin(ann, key="k")
    assert room.tasks.get(ann, first.id) is first
    assert room.tasks.get(bob, first.id) is None
    assert room.tasks.latest(ann, "k") is second
    assert room.tasks.latest(bob, "k") is None


def ended(work: object) -> Task:
    """Run work as a task to its end."""
    tasks = Tasks(lambda: 7)
    ann = user()
    task = tasks.begin(ann, "Title", work, subject="t")  # type: ignore[arg-type]
    tasks._pool.shutdown(wait=True)
    assert task.ended_ms == 7
    assert ann.tasks == 0
    return task


def test_an_error_is_shown() -> None:
    def refused(_: Task) -> None:
        raise InvalidRequestError("no")

    def broken(_: Task) -> None:
        raise ZeroDivisionError("by zero")

    assert ended(refused).error == "INVALID_REQUEST: no"
    assert ended(broken).error == "ZeroDivisionError: by zero"
    assert ended(lambda task: None).error == ""


@pytest.mark.rule("CT-164")
def test_a_stopped_task_ends_at_its_next_step(room: Room) -> None:
    ann = user()
    task, asked = room.begin(ann), threading.Event()
    task.on_stop = asked.set
    room.tasks.stop_of(ann)
    assert asked.is_set()
    assert task.is_stopping
    with pytest.raises(StoppedError):
        task.step()
    room.end()
    assert task.error == "It was stopped."


@pytest.mark.rule("CT-164")
def test_ended_tasks_are_forgotten_after_many_more() -> None:
    tasks, ann = Tasks(lambda: 7), user()
    first = tasks.begin(ann, "Title", lambda task: None, subject="t")
    for _ in range(KEPT_MAX + WAITING_MAX):
        done = threading.Event()
        tasks.begin(ann, "Title", lambda task, done=done: done.set(), subject="t")  # type: ignore[misc]
        assert done.wait(30)
        while ann.tasks:
            pass
    assert tasks.get(ann, first.id) is None
    tasks.close()
