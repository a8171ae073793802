"""Keeps locks alive in the background: renews the records given to `keep_alive` until they are acknowledged.

Rules CL-94 to CL-96. Unlike AcknowledgeType.RENEW (CL-27), a renewal leaves the record in the application's hands: the
application acknowledges the same message. Everything here runs on the consumer's event loop; times are in ms on its
clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kip932.armed_timer import ArmedTimer
from kip932.errors import FencedMemberEpochError, InvalidRecordStateError, KafkaError, NetworkError
from sharegroups import arguments
from sharegroups.consuming.ack_ledger import AckLedger
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.closed_sessions import has_session_ended
from sharegroups.consuming.core.membership import Membership
from sharegroups.consuming.core.renewals import NEVER_MS, Lock, halves, renewal_batches
from sharegroups.errors import IllegalStateError
from sharegroups.messages import Delivered, Message, delivered_of
from sharegroups.producing.delivery_reports import report_raised

log = logging.getLogger(__name__)

#: The interval at which the keeper checks for ended sessions and fenced members, in ms.
_CHECK_MS: Final = 1_000

_NOT_CONFIRMED: Final = "no renewal was confirmed before it expired: the process was suspended, or the leader silent"

OnLost = Callable[[list[Message]], None]


class Kept:
    """Records whose locks are kept alive. The application gets it from the block that `keep_alive` returns.

    `on_lost` is called in the consumer's loop with the messages whose lock was lost, once for each message.
    """

    def __init__(self, messages: Message | Iterable[Message], on_lost: OnLost | None = None) -> None:
        instead = "keep_alive(message) or keep_alive(messages)"
        given = [messages] if isinstance(messages, Message) else messages
        self.messages: list[Message] = arguments.items("keep_alive", given, "messages of poll()", Message, instead)
        self.error: KafkaError | None = None
        #: True while the block is being executed.
        self.is_open = False
        self._on_lost = on_lost
        self._lost: list[tuple[Delivered, frozenset[int]]] = []
        self._renewing: dict[Delivered, _Renewing] = {}
        self._clock: Callable[[], float] | None = None
        #: Records whose job this application began in an earlier delivery, and what to call when this one does not
        #: count. Add them before the block begins.
        self.continued: list[tuple[Message, Callable[[], None]]] = []

    @property
    def lost(self) -> bool:
        """True once a lock was lost: that record is delivered again, and its acknowledgement is refused."""
        return self.error is not None or any(map(self._has_ended, self.messages))

    def is_lost(self, message: Message) -> bool:
        """Return whether the lock of this record was lost. May be called in any thread. This depends on the clock
        alone, so it is correct even if the consumer's loop has not run yet, for example after the process was
        suspended."""
        part, offset = delivered_of(message), message.offset()
        return self._has_ended(message) or self.has_lost(part, offset)

    def check(self) -> None:
        """Raise an error if a lock was lost. Call it between the steps of a long job."""
        if self.error is not None:
            raise self.error
        for message in filter(self._has_ended, self.messages):
            place = f"{delivered_of(message).place} offset {message.offset()}"
            raise InvalidRecordStateError(f"the lock of {place} is lost: {_NOT_CONFIRMED}")

    def kept_by(self, part: Delivered, renewing: _Renewing, clock: Callable[[], float]) -> None:
        """Store the locks and the clock that show when these records' locks end. The keeper calls it."""
        self._renewing[part] = renewing
        self._clock = clock

    def has_lost(self, part: Delivered, offset: int) -> bool:
        """Return whether the keeper has marked this record's lock as lost."""
        return any(lost is part and offset in offsets for lost, offsets in self._lost)

    def _has_ended(self, message: Message) -> bool:
        """Return whether, by the clock, the lock of a kept and unacknowledged record has ended."""
        part, offset = delivered_of(message), message.offset()
        renewing = self._renewing.get(part)
        if renewing is None or self._clock is None:
            return False
        lock = renewing.locks.get(offset)
        if lock is None or int(self._clock() * 1000) < lock.ends_ms:
            return False
        return self in renewing.owners.get(offset, ()) and part.delivery.in_flight(offset)

    def forget(self, message: Message) -> None:
        """Stop keeping this record without notifying the leader: it was delivered again, and only that delivery
        matters."""
        delivered_of(message).delivery.drop(message.offset())

    def mark(self, part: Delivered, offsets: set[int]) -> None:
        """Mark these locks as lost. The keeper calls it, and `lose` next."""
        self._lost.append((part, frozenset(offsets)))

    def lose(self, part: Delivered, offsets: set[int], error: KafkaError) -> None:
        """Notify the application. An exception in its function must not prevent other work."""
        self.error = self.error or error
        if self._on_lost is None:
            return
        lost = [one for one in self.messages if delivered_of(one) is part and one.offset() in offsets]
        try:
            self._on_lost(lost)
        except BaseException as raised:
            report_raised(f"on_lost of keep_alive for {len(lost)} records of {part.place}", raised)


@dataclass(slots=True, eq=False)
class _Renewing:
    """The kept records of one delivery.

    `locks`: the delivery's locks by offset, including those of records that are no longer kept. The locks differ,
    because records are not all kept from the same time or renewed by the same request, and the group's lock duration
    may change. `owners`: by offset, all blocks that keep the record, since blocks may be nested. `due_ms`, `ends_ms`:
    lower bounds of the times at which a kept lock must be renewed and at which one ends, so that most checks need not
    visit every lock.
    """

    locks: dict[int, Lock]
    owners: dict[int, tuple[Kept, ...]] = field(default_factory=dict)
    due_ms: int = NEVER_MS
    ends_ms: int = NEVER_MS
    in_flight: bool = False
    #: Offsets to be renewed in separate requests, because a renewal of all of them was refused.
    waiting: deque[list[int]] = field(default_factory=deque)

    def keep(self, offset: int, lock: Lock) -> None:
        """Keep this record too. It has this lock, unless a renewal is known."""
        known = self.locks.setdefault(offset, lock)
        self.due_ms, self.ends_ms = min(self.due_ms, known.due_ms), min(self.ends_ms, known.ends_ms)

    def recompute(self) -> None:
        """Compute when the first kept lock must be renewed, and when the first one ends."""
        locks = {self.locks[offset] for offset in self.owners}  # many offsets share a lock, as one request renews many
        self.due_ms = min((lock.due_ms for lock in locks), default=NEVER_MS)
        self.ends_ms = min((lock.ends_ms for lock in locks), default=NEVER_MS)

    def over(self, now_ms: int) -> list[int]:
        """Return the offsets whose lock has ended."""
        return [offset for offset in self.owners if now_ms >= self.locks[offset].ends_ms]


class Keeper:
    """The kept records of one consumer."""

    def __init__(self, ledger: AckLedger, membership: Membership) -> None:
        self._ledger = ledger
        self._membership = membership
        self._parts: dict[Delivered, _Renewing] = {}
        self._fenced = 0
        self._timer = ArmedTimer(self._check)

    def begin(self, kept: Kept) -> None:
        """Start keeping these records. Raises IllegalStateError in implicit mode, or if one is not in flight."""
        if not self._ledger.explicit:
            raise IllegalStateError(
                "keep_alive needs share.acknowledgement.mode=explicit: only then are records acknowledged individually"
            )
        for message in kept.messages:
            if not delivered_of(message).delivery.in_flight(message.offset()):
                raise IllegalStateError(
                    f"{message!r} cannot be kept alive: it is not in your hands: its acknowledgement has been sent"
                )
        if kept.is_open:
            return
        kept.is_open = True
        clock = asyncio.get_running_loop().time
        if not self._parts:
            self._fenced = self._membership.fenced
        for message in kept.messages:
            part = delivered_of(message)
            renewing = self._parts.get(part)
            if renewing is None:
                part.locks = {} if part.locks is None else part.locks
                renewing = self._parts[part] = _Renewing(part.locks)
            offset = message.offset()
            renewing.keep(offset, Lock(part.acquired_ms, part.lock_ms))
            kept.kept_by(part, renewing, clock)
            renewing.owners[offset] = (*renewing.owners.get(offset, ()), kept)
            part.kept = part.kept or {}
            part.kept[offset] = part.kept.get(offset, 0) + 1
        if kept.continued:
            self._continue(kept.continued)
        self._timer.cancel()
        self._check()

    def end(self, kept: Kept) -> None:
        """Stop keeping these records. The locks of unacknowledged records then expire, unless another block also keeps
        them."""
        if not kept.is_open:
            return
        kept.is_open = False
        for message in kept.messages:
            part = delivered_of(message)
            renewing, offset = self._parts.get(part), message.offset()
            if part.kept:
                part.kept[offset] -= 1
                if not part.kept[offset]:
                    del part.kept[offset]
            if renewing is not None and kept in (owners := renewing.owners.get(offset, ())):
                if others := tuple(owner for owner in owners if owner is not kept):
                    renewing.owners[offset] = others
                else:
                    del renewing.owners[offset]
                if not renewing.owners:
                    del self._parts[part]

    def settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        """Handle the final outcome of a renewal."""
        part = ack.delivered
        asked, lock = _note_locks(ack, error)
        renewing = self._parts.get(part)
        if renewing is None:
            return
        renewing.in_flight = False
        if error is None:
            self._renewed(part, renewing, lock)
        elif isinstance(error, InvalidRecordStateError):
            renewing.recompute()
            self._refused(part, renewing, asked, error)
        else:
            self._lose(part, asked, error)
        if renewing.waiting and part in self._parts:
            self._send(part, renewing, renewing.waiting.popleft())

    def close(self) -> None:
        """Stop all renewals."""
        self._parts.clear()
        self._timer.cancel()

    # Steps.

    def _check(self) -> None:
        """Renew locks that are due, give up on lost ones, and arm the timer while anything is kept."""
        now_ms = _now_ms()
        fenced = self._membership.fenced != self._fenced or self._membership.fatal is not None
        self._fenced = self._membership.fenced
        next_ms = now_ms + _CHECK_MS
        for part, renewing in list(self._parts.items()):
            if part not in self._parts:
                continue  # an on_lost function has ended its block
            if part.delivery.finished:
                del self._parts[part]
                renewing.owners.clear()  # breaks a reference cycle, which would keep the records' bytes in memory
            elif fenced:
                why = "the group has removed this member, or it has left; another member may hold its records by now"
                self._lose(part, list(renewing.owners), FencedMemberEpochError(why))
            elif has_session_ended(part):
                self._lose(part, list(renewing.owners), NetworkError("the connection to the partition's leader ended"))
            elif now_ms >= renewing.ends_ms:
                self._lose(part, renewing.over(now_ms), InvalidRecordStateError(_NOT_CONFIRMED))
                next_ms = now_ms  # check the delivery's other records at once
            elif not renewing.in_flight:
                if renewing.due_ms <= now_ms:
                    self._send(part, renewing, list(renewing.owners))
                else:
                    next_ms = min(next_ms, renewing.due_ms)
        if self._parts:
            self._arm(next_ms)

    def _arm(self, at_ms: int) -> None:
        self._timer.arm(at_ms, max(1, at_ms - _now_ms()) / 1000)

    def _send(self, part: Delivered, renewing: _Renewing, offsets: list[int]) -> None:
        held = sorted(offset for offset in offsets if part.delivery.in_flight(offset))
        if not held:
            return
        renewing.in_flight = True
        now_ms = _now_ms()
        # `_check` gives up on records whose lock ends earlier than the last one.
        left_ms = max(lock.since_ms + (lock.lock_ms or _CHECK_MS) for lock in map(renewing.locks.__getitem__, held))
        left_ms -= now_ms
        ack = PendingAck(part, renewal_batches(held), 0, unseen=True, on_outcome=self.settled)
        self._ledger.send([ack], max(1, left_ms), now_ms)

    def _continue(self, continued: list[tuple[Message, Callable[[], None]]]) -> None:
        """Renew these records at once and have their present delivery taken back (CL-126a). A leader that does not
        support this refuses such a renewal, which changes nothing."""
        asked: dict[Delivered, dict[int, Callable[[], None]]] = {}
        for message, confirmed in continued:
            asked.setdefault(delivered_of(message), {})[message.offset()] = confirmed
        now_ms = _now_ms()
        for part, by_offset in asked.items():
            batches = [batch._replace(undelivered=(True,)) for batch in renewal_batches(sorted(by_offset))]
            outcome = partial(self._continued, list(by_offset.values()))
            ack = PendingAck(part, batches, 0, unseen=True, on_outcome=outcome, alone=True)
            self._ledger.send([ack], max(1, part.acquired_ms + (part.lock_ms or _CHECK_MS) - now_ms), now_ms)

    def _continued(self, confirmed: list[Callable[[], None]], ack: PendingAck, error: KafkaError | None) -> None:
        _note_locks(ack, error)
        if error is None:
            for call in confirmed:
                call()

    def _renewed(self, part: Delivered, renewing: _Renewing, lock: Lock) -> None:
        """Update the delivery after a renewal. Renewed locks last from the sending of the request for the time that the
        response gives; other locks end as before."""
        delivery, locks = part.delivery, renewing.locks
        here = list(filter(delivery.in_flight, renewing.owners))
        for offset in renewing.owners.keys() - set(here):
            locks[offset] = lock  # acknowledged, so no renewal is due
        renewing.recompute()
        self._arm(renewing.due_ms)
        held = delivery.held()
        if held is not None and held[1] <= len(here):
            # For the warnings of CL-81. The application holds no other record of the delivery.
            part.acquired_ms, part.lock_ms = min((locks[offset] for offset in here), key=lambda one: one.ends_ms)

    def _refused(self, part: Delivered, renewing: _Renewing, asked: list[int], error: KafkaError) -> None:
        """Handle a refused renewal. A single offset that this member no longer holds makes the leader refuse the whole
        request. Records acknowledged meanwhile do not count as lost."""
        held = [offset for offset in asked if part.delivery.in_flight(offset)]
        if len(held) < len(asked):
            if held:
                renewing.waiting.append(held)
        elif len(held) == 1:
            self._lose(part, held, error)
        else:
            renewing.waiting.extend(halves(held))

    def _lose(self, part: Delivered, offsets: list[int], error: KafkaError) -> None:
        renewing = self._parts[part]
        by_owner: dict[Kept, set[int]] = {}
        for offset in offsets:
            if part.delivery.in_flight(offset):
                for owner in renewing.owners.get(offset, ()):
                    by_owner.setdefault(owner, set()).add(offset)
        for owner, lost in by_owner.items():
            owner.mark(part, lost)  # first, since other threads read this
        # `part.kept` still has them, so that poll() does not require a lost record to be acknowledged.
        renewing.owners = {offset: owner for offset, owner in renewing.owners.items() if offset not in offsets}
        renewing.recompute()
        if not renewing.owners:
            del self._parts[part]
        for owner, lost in by_owner.items():
            numbers = ", ".join(map(str, sorted(lost)[:10])) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
            lost_lock = type(error)(f"the lock of {part.place} offset {numbers} is lost: {error.message}")
            log.warning("%s. It may be delivered again, and the rest of its job may run twice.", lost_lock.message)
            owner.lose(part, lost, lost_lock)


def _note_locks(ack: PendingAck, error: KafkaError | None) -> tuple[list[int], Lock]:
    """Note the locks that a renewal's outcome implies. Returns its offsets and the lock that it asked for."""
    locks = ack.delivered.locks
    asked = [offset for batch in ack.batches for offset in range(batch.first, batch.last + 1)]
    lock = Lock(ack.sent_ms, ack.lock_ms or ack.delivered.lock_ms)
    assert locks is not None
    for offset in asked:
        # A lock whose renewal was refused may have been renewed anyway (PL-326), and for less time than was left.
        if error is None or (lock.ends_ms < locks[offset].ends_ms and isinstance(error, InvalidRecordStateError)):
            locks[offset] = lock
    return asked, lock


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
