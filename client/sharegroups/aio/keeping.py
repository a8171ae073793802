"""Keeps locks alive in the background: renews the records that `keep_alive` was given until they are acknowledged.

Rules CL-94 to CL-96. A renewal does not take the record out of the application's hands, as AcknowledgeType.RENEW does
(CL-27): its message stays the one to acknowledge. Everything here runs in the consumer's loop; times are ms of its
clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from kip932.errors import FencedMemberEpochError, InvalidRecordStateError, KafkaError, NetworkError
from sharegroups import arguments
from sharegroups.aio.ack_ledger import AckLedger
from sharegroups.aio.ack_outbox import PendingAck
from sharegroups.aio.gone import is_gone
from sharegroups.aio.telling import report_raised
from sharegroups.core.membership import Membership
from sharegroups.core.renewals import halves, is_over, renewal_batches, renewal_due_ms
from sharegroups.errors import IllegalStateError
from sharegroups.messages import Delivered, Message, delivered_of

log = logging.getLogger(__name__)

#: How often the keeper looks for sessions that ended and for fenced members, ms.
_LOOK_MS: Final = 1_000
#: Later than any time of the clock, ms.
_NEVER_MS: Final = 1 << 62

_NOT_CONFIRMED: Final = "no renewal was confirmed before it ended: the process was suspended, or the leader silent"

OnLost = Callable[[list[Message]], None]


class Kept:
    """Records whose locks are kept alive; what `keep_alive` returns hands it to the application.

    `on_lost` is called in the consumer's loop with the messages whose lock was lost, once for each of them.
    """

    def __init__(self, messages: Message | Iterable[Message], on_lost: OnLost | None = None) -> None:
        instead = "keep_alive(message) or keep_alive(messages)"
        given = [messages] if isinstance(messages, Message) else messages
        self.messages: list[Message] = arguments.items("keep_alive", given, "messages of poll()", Message, instead)
        self.error: KafkaError | None = None
        #: Whether the block has begun and has not ended.
        self.is_open = False
        self._on_lost = on_lost
        self._lost: list[tuple[Delivered, frozenset[int]]] = []
        self._renewing: dict[Delivered, _Renewing] = {}
        self._clock: Callable[[], float] | None = None

    @property
    def lost(self) -> bool:
        """Whether a lock was lost: that record is delivered again, and its acknowledgement is refused."""
        return self.error is not None or any(map(self._has_ended, self.messages))

    def is_lost(self, message: Message) -> bool:
        """Whether the lock of this record was lost. May be asked in any thread: the clock counts, also before the
        consumer's loop has looked at it, as after a suspension of the process."""
        part, offset = delivered_of(message), message.offset()
        return self._has_ended(message) or self.has_lost(part, offset)

    def check(self) -> None:
        """Raise the error by which a lock was lost, if one was; call it between the steps of a long job."""
        if self.error is not None:
            raise self.error
        for message in filter(self._has_ended, self.messages):
            place = f"{delivered_of(message).place} offset {message.offset()}"
            raise InvalidRecordStateError(f"the lock of {place} is lost: {_NOT_CONFIRMED}")

    def kept_by(self, part: Delivered, renewing: _Renewing, clock: Callable[[], float]) -> None:
        """From now on the lock of these records ends as `renewing` says, by this clock; the keeper calls it."""
        self._renewing[part] = renewing
        self._clock = clock

    def has_lost(self, part: Delivered, offset: int) -> bool:
        """Whether the keeper has marked this record's lock as lost."""
        return any(lost is part and offset in offsets for lost, offsets in self._lost)

    def _has_ended(self, message: Message) -> bool:
        """Whether the lock has ended by the clock while the record is kept and not acknowledged."""
        part, offset = delivered_of(message), message.offset()
        renewing = self._renewing.get(part)
        if renewing is None or self._clock is None:
            return False
        locked_ms = renewing.locked_ms.get(offset)
        if locked_ms is None or not is_over(locked_ms, part.lock_ms, int(self._clock() * 1000)):
            return False
        return self in renewing.owners.get(offset, ()) and part.delivery.in_flight(offset)

    def forget(self, message: Message) -> None:
        """Give this record up without a word to the leader: it was delivered again, and that delivery counts."""
        delivered_of(message).delivery.drop(message.offset())

    def mark(self, part: Delivered, offsets: set[int]) -> None:
        """These locks are lost; the keeper calls it, and `lose` next."""
        self._lost.append((part, frozenset(offsets)))

    def lose(self, part: Delivered, offsets: set[int], error: KafkaError) -> None:
        """Tell the application. What its function raises must not keep anything else from being done."""
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
    """The kept records of one delivery. `owners`: by offset all that keep it, for blocks may be nested. `locked_ms`:
    by offset, since when it is surely locked: not all are kept from the same time on, or renewed by one request. It has
    those that are kept no longer too. `oldest_ms`: no lock of a kept one is older, so that not every look at the clock
    has to look at all of them."""

    owners: dict[int, tuple[Kept, ...]] = field(default_factory=dict)
    locked_ms: dict[int, int] = field(default_factory=dict)
    oldest_ms: int = _NEVER_MS
    in_flight: bool = False
    #: Offsets that wait to be renewed in requests of their own, since a renewal of all of them was refused.
    waiting: deque[list[int]] = field(default_factory=deque)

    def keep(self, offset: int, locked_ms: int) -> None:
        """This record is kept too; its lock surely holds since `locked_ms`, unless a renewal of it is known."""
        self.oldest_ms = min(self.oldest_ms, self.locked_ms.setdefault(offset, locked_ms))

    def look(self) -> None:
        """Find the oldest lock of those that are kept."""
        self.oldest_ms = min((self.locked_ms[offset] for offset in self.owners), default=_NEVER_MS)

    def over(self, lock_ms: int, now_ms: int) -> list[int]:
        """The offsets whose lock has ended."""
        return [offset for offset in self.owners if is_over(self.locked_ms[offset], lock_ms, now_ms)]


class Keeper:
    """The kept records of one consumer."""

    def __init__(self, ledger: AckLedger, membership: Membership) -> None:
        self._ledger = ledger
        self._membership = membership
        self._parts: dict[Delivered, _Renewing] = {}
        self._fenced = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, kept: Kept) -> None:
        """Keep these records from now on. Raises IllegalStateError: implicit mode, or a record is not in flight."""
        if not self._ledger.explicit:
            raise IllegalStateError(
                "keep_alive needs share.acknowledgement.mode=explicit: only there is a record acknowledged by itself"
            )
        for message in kept.messages:
            if not delivered_of(message).delivery.in_flight(message.offset()):
                raise IllegalStateError(
                    f"{message!r} cannot be kept alive: it is not in your hands; its acknowledgement has been sent"
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
                renewing = self._parts[part] = _Renewing()
            offset = message.offset()
            renewing.keep(offset, part.acquired_ms)
            kept.kept_by(part, renewing, clock)
            renewing.owners[offset] = (*renewing.owners.get(offset, ()), kept)
            part.kept = part.kept or {}
            part.kept[offset] = part.kept.get(offset, 0) + 1
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def end(self, kept: Kept) -> None:
        """Keep these records no longer: the locks of those that are not acknowledged end in their time, unless another
        block keeps them too."""
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
        """The outcome of a renewal is final."""
        part = ack.delivered
        renewing = self._parts.get(part)
        if renewing is None:
            return
        renewing.in_flight = False
        asked = [offset for batch in ack.batches for offset in range(batch.first, batch.last + 1)]
        if error is None:
            self._renewed(part, renewing, asked, ack.sent_ms)
        elif isinstance(error, InvalidRecordStateError):
            self._refused(part, renewing, asked, error)
        else:
            self._lose(part, asked, error)
        if renewing.waiting and part in self._parts:
            self._send(part, renewing, renewing.waiting.popleft())

    def close(self) -> None:
        """Renew nothing any more."""
        self._parts.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Steps.

    def _look(self) -> None:
        """Renew what is due, give up what is lost, and come again while anything is kept."""
        self._timer = None
        now_ms = _now_ms()
        fenced = self._membership.fenced != self._fenced or self._membership.fatal is not None
        self._fenced = self._membership.fenced
        next_ms = now_ms + _LOOK_MS
        for part, renewing in list(self._parts.items()):
            if part not in self._parts:
                continue  # an on_lost has ended its block
            if part.delivery.finished:
                del self._parts[part]
                renewing.owners.clear()  # a circle, in which the records' bytes would wait for a search for garbage
            elif fenced:
                why = "the group has put this member out, or it has left; its locks may be another member's by now"
                self._lose(part, list(renewing.owners), FencedMemberEpochError(why))
            elif is_gone(part):
                self._lose(part, list(renewing.owners), NetworkError("the connection to the partition's leader ended"))
            elif is_over(renewing.oldest_ms, part.lock_ms, now_ms):
                self._lose(part, renewing.over(part.lock_ms, now_ms), InvalidRecordStateError(_NOT_CONFIRMED))
                next_ms = now_ms  # for the others of it
            elif not renewing.in_flight:
                due_ms = renewal_due_ms(renewing.oldest_ms, part.lock_ms)
                if due_ms <= now_ms:
                    self._send(part, renewing, list(renewing.owners))
                else:
                    next_ms = min(next_ms, due_ms)
        if self._parts:
            self._arm(next_ms)

    def _arm(self, at_ms: int) -> None:
        """Look at this time, unless that is done earlier anyway."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() * 1000 <= at_ms:
                return
            self._timer.cancel()
        self._timer = loop.call_later(max(1, at_ms - _now_ms()) / 1000, self._look)

    def _send(self, part: Delivered, renewing: _Renewing, offsets: list[int]) -> None:
        held = sorted(offset for offset in offsets if part.delivery.in_flight(offset))
        if not held:
            return
        renewing.in_flight = True
        now_ms = _now_ms()
        newest_ms = max(renewing.locked_ms[offset] for offset in held)  # `_look` gives the others up in their time
        left_ms = newest_ms + (part.lock_ms or _LOOK_MS) - now_ms
        ack = PendingAck(part, renewal_batches(held), 0, unseen=True, told=self.settled)
        self._ledger.send([ack], max(1, left_ms), now_ms)

    def _renewed(self, part: Delivered, renewing: _Renewing, asked: list[int], sent_ms: int) -> None:
        """These locks hold since the request was sent; what was not in it ends when it did."""
        delivery, locked_ms = part.delivery, renewing.locked_ms
        for offset in asked:
            locked_ms[offset] = max(sent_ms, locked_ms.get(offset, 0))
        here = list(filter(delivery.in_flight, renewing.owners))
        for offset in renewing.owners.keys() - set(here):
            locked_ms[offset] = sent_ms  # it is acknowledged, and no renewal is due for it
        renewing.look()
        self._arm(renewal_due_ms(renewing.oldest_ms, part.lock_ms))
        held = delivery.held()
        if held is not None and held[1] <= len(here):
            # For the warnings of CL-81, and for blocks that begin later: no other record of it is in the application's
            # hands.
            part.acquired_ms = max(part.acquired_ms, min(map(locked_ms.__getitem__, here)))

    def _refused(self, part: Delivered, renewing: _Renewing, asked: list[int], error: KafkaError) -> None:
        """One offset that is not ours has all of a request refused. What was acknowledged meanwhile is no loss."""
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
            owner.mark(part, lost)  # first of all, for other threads ask
        # `part.kept` keeps them: poll() does not ask for the acknowledgement of a record that was lost.
        renewing.owners = {offset: owner for offset, owner in renewing.owners.items() if offset not in offsets}
        renewing.look()
        if not renewing.owners:
            del self._parts[part]
        for owner, lost in by_owner.items():
            numbers = ", ".join(map(str, sorted(lost)[:10])) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
            told = type(error)(f"the lock of {part.place} offset {numbers} is lost: {error.message}")
            log.warning("%s. It may be delivered again, and what its job still does be done twice.", told.message)
            owner.lose(part, lost, told)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
