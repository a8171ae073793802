"""The client's view of its share session with one leader: the epoch, the id, and the partitions in the leader's
session.

Rules CL-30 to CL-32 and PL-502a. Each step uses the next epoch, so the host must send requests in the order of their
steps. Every loss of the session starts a new *generation*: records delivered before it can no longer be acknowledged
(CL-33), and late errors of an older generation do not affect the current one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kip932.ids import EPOCH_LEAVE, REQUEST_PARTITIONS_MAX, TopicIdPartition

#: The maximum number of partitions that one request adds and forgets in total. A leader accepts twice as many; the
#: other half is for acknowledgements (CM-62).
CHANGES_MAX: Final = REQUEST_PARTITIONS_MAX // 2

_OPEN: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class SessionStep(NamedTuple):
    """The session fields of one request."""

    epoch: int
    session_id: int | None
    generation: int
    added: list[TopicIdPartition]
    forgotten: list[TopicIdPartition]


class FetchSession:
    """Epochs and partitions of one share session."""

    __slots__ = (
        "_before_close",
        "_epoch",
        "_established",
        "_known",
        "_last_known",
        "_session_id",
        "_unused",
        "generation",
    )

    def __init__(self) -> None:
        self._epoch = _OPEN
        self._session_id: int | None = None
        self._established = False
        self._known: dict[TopicIdPartition, None] = {}
        self._last_known: dict[TopicIdPartition, None] = {}
        self._before_close = (_OPEN, self._known)
        #: The epochs of refused steps that a later step, still without an answer, has overtaken.
        self._unused: set[int] = set()
        self.generation = 0

    @property
    def is_open(self) -> bool:
        """True when an opening request has been sent and nothing has closed the session since."""
        return self._epoch != _OPEN

    @property
    def is_established(self) -> bool:
        """True when the leader has confirmed the session, so that acknowledgements can be sent (CL-32)."""
        return self._established

    @property
    def known(self) -> tuple[TopicIdPartition, ...]:
        """The partitions in the leader's session as of the last request.

        After the session has ended, these are the last ones, because requests in flight still refer to them.
        """
        return tuple(self._known or self._last_known)

    def fetch_step(self, wanted: Mapping[TopicIdPartition, str]) -> SessionStep:
        """Return the next ShareFetch's step: all partitions if it opens the session, otherwise only the changes
        (CL-30).

        `wanted` maps partitions to topic names, in fetch order. Changes beyond CHANGES_MAX are left to later fetches
        (CM-62). A re-created topic has another id, so its old partitions are forgotten and its new ones added.
        """
        if wanted.keys() == self._known.keys():
            step = SessionStep(self._epoch, self._session_id, self.generation, [], [])
            self._advance()
            return step
        forgotten = [partition for partition in self._known if partition not in wanted][:CHANGES_MAX]
        added = [partition for partition in wanted if partition not in self._known][: CHANGES_MAX - len(forgotten)]
        step = SessionStep(self._epoch, self._session_id, self.generation, added, forgotten)
        for partition in forgotten:
            del self._known[partition]
        self._known.update(dict.fromkeys(added))
        self._advance()
        return step

    def acknowledge_step(self) -> SessionStep:
        """Return the next ShareAcknowledge's step. Call it only while the session is established."""
        step = SessionStep(self._epoch, self._session_id, self.generation, [], [])
        self._advance()
        return step

    def close_step(self) -> SessionStep:
        """Return the step that closes the session with epoch −1 (CL-28, CL-37). The next `fetch_step` opens another."""
        step = SessionStep(EPOCH_LEAVE, self._session_id, self.generation, [], [])
        self._before_close = (self._epoch, self._known)
        self._reset()
        return step

    def refused(self, step: SessionStep) -> bool:
        """Undo a step that the leader did not process (CL-87, CL-143), so that its session is unchanged. Returns False,
        and does nothing, if that session was not established or has been lost.

        The next request repeats the step's changes. It also reuses the epoch, unless a later step has used the next
        one; if that step is refused too, both epochs are reused. Epoch 0 is that of a step that was never taken.
        """
        if step.epoch == EPOCH_LEAVE:
            if self.generation != step.generation + 1 or self.is_open:
                return False
            self._epoch, self._known = self._before_close
            self._session_id, self._established, self.generation = step.session_id, True, step.generation
            return True
        if step.generation != self.generation or not self._established:
            return False
        if step.epoch == _OPEN:
            return True
        self._unused.add(step.epoch)
        while (last := next((epoch for epoch in self._unused if _next(epoch) == self._epoch), None)) is not None:
            self._unused.remove(last)
            self._epoch = last
        for partition in step.added:
            self._known.pop(partition, None)
        self._known.update(dict.fromkeys(step.forgotten))
        return True

    def opened(self, generation: int, session_id: int | None) -> None:
        """Mark the session as established, because the leader has answered a request with epoch 0. Does nothing if
        `generation` is out of date.

        `session_id` is None if the leader does not support the session id extension.
        """
        if generation == self.generation and self.is_open:
            self._session_id = session_id
            self._established = True

    def lost(self, generation: int) -> bool:
        """Note that the session of `generation` was lost (CL-31, PL-524): the next request opens a new one.

        Returns False, and does nothing, when `generation` is out of date.
        """
        if generation != self.generation:
            return False
        self._reset()
        return True

    def _advance(self) -> None:
        self._epoch = _next(self._epoch)

    def _reset(self) -> None:
        self._epoch = _OPEN
        self._session_id = None
        self._established = False
        self._unused.clear()
        self._last_known = self._known or self._last_known
        self._known = {}
        self.generation += 1


def _next(epoch: int) -> int:
    return 1 if epoch >= _EPOCH_MAX else epoch + 1
