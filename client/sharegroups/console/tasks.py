"""What runs in the background for users: counts of dead letters, redrives and purges, each bounded (CT-164).

Of two tasks that change the same topic only one runs, so that two operators cannot send the same letters twice.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from kip932.errors import KafkaError
from sharegroups.console.sessions import Session

RUNNING_MAX: Final = 4
#: How many run or wait in all, and of one user; and how many are kept after their end.
WAITING_MAX: Final = 16
OF_USER_MAX: Final = 8
KEPT_MAX: Final = 60
LINES_MAX: Final = 200


class StoppedError(Exception):
    """The task was stopped by its user, or with the console."""


class BusyError(Exception):
    """The task cannot begin now; the message says why."""


@dataclass(eq=False, slots=True)
class Task:
    """One piece of work. `subject`: the topic that it reads or changes. `key`: what it does, for a user who asks again.
    `data`: its result, of which parts may be there before its end."""

    id: str
    session: Session
    title: str
    subject: str
    key: object
    changes: bool
    began_ms: int
    data: Any = None
    error: str = ""
    ended_ms: int | None = None
    done: int = 0
    total: int = 0
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    on_stop: Callable[[], None] | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.ended_ms is not None

    @property
    def is_stopping(self) -> bool:
        """Whether it was stopped."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Make it end soon."""
        self._stop.set()
        if self.on_stop is not None:
            self.on_stop()

    def step(self, count: int = 1) -> None:
        """Note progress. Raises StoppedError if the task was stopped."""
        self.done += count
        if self._stop.is_set():
            raise StoppedError


class Tasks:
    """All tasks. `now_ms`: the time, in ms since 1970."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._pool = ThreadPoolExecutor(RUNNING_MAX, thread_name_prefix="sharegroups-console")
        self._tasks: dict[str, Task] = {}
        self._lock = threading.Lock()

    def begin(
        self,
        session: Session,
        title: str,
        work: Callable[[Task], None],
        *,
        subject: str,
        key: object = None,
        changes: bool = False,
    ) -> Task:
        """Begin a task. Raises BusyError if there are too many, or if another one changes the same topic now."""
        task = Task(secrets.token_urlsafe(12), session, title, subject, key, changes, self._now_ms())
        with self._lock:
            self._require_room(task)
            self._tasks[task.id] = task
            session.tasks += 1
        self._pool.submit(self._run, task, work)
        return task

    def get(self, session: Session, name: str) -> Task | None:
        """Return a task of this session."""
        with self._lock:
            task = self._tasks.get(name)
        return task if task is not None and task.session is session else None

    def latest(self, session: Session, key: object) -> Task | None:
        """Return the newest task of the session with this key."""
        with self._lock:
            found = [task for task in self._tasks.values() if task.session is session and task.key == key]
        return found[-1] if found else None

    def has_changed(self, task: Task) -> bool:
        """Return whether a change of the task's topic, by any user of this console, has ended since the task began."""
        with self._lock:
            changes = [each for each in self._tasks.values() if each.changes and each.subject == task.subject]
        return any(each.ended_ms is not None and each.ended_ms >= task.began_ms for each in changes)

    def stop_of(self, session: Session) -> None:
        """Stop the tasks of a session."""
        with self._lock:
            found = [task for task in self._tasks.values() if task.session is session and not task.is_over]
        for task in found:
            task.stop()

    def close(self) -> None:
        """Stop all tasks, and wait until they have ended. Blocks for some seconds at most, as each task's calls do."""
        with self._lock:
            found = [task for task in self._tasks.values() if not task.is_over]
        for task in found:
            task.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _require_room(self, task: Task) -> None:
        running = [each for each in self._tasks.values() if not each.is_over]
        for each in running:
            if task.changes and each.changes and each.subject == task.subject:
                who = "you are" if each.session is task.session else f"{each.session.user} is"
                raise BusyError(
                    f"{who} changing {task.subject} at this moment ({each.title}). Two at a time could send the same "
                    "letters twice: wait until it has ended, then reload the page to see what is left."
                )
        if sum(each.session is task.session for each in running) >= OF_USER_MAX or len(running) >= WAITING_MAX:
            raise BusyError(
                f"{len(running)} tasks run or wait here; at most {OF_USER_MAX} of one user and {WAITING_MAX} in all "
                "may do so. Try again when one has ended."
            )
        over = [name for name, each in self._tasks.items() if each.is_over]
        for name in over[: max(len(over) - KEPT_MAX + 1, 0)]:
            del self._tasks[name]

    def _run(self, task: Task, work: Callable[[Task], None]) -> None:
        try:
            task.step(0)
            work(task)
        except StoppedError:
            task.error = task.error or "It was stopped."
        except KafkaError as error:
            task.error = f"{error.name}: {error.message}"
        except Exception as error:
            task.error = str(getattr(error, "message", "")) or f"{type(error).__name__}: {error}"
        finally:
            with self._lock:
                task.ended_ms = self._now_ms()
                task.session.tasks -= 1
