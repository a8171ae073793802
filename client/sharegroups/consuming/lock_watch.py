"""Watches how long the application holds the records of a poll, warns before their locks expire, and paces the fetches.

Rules CL-81 to CL-85. Times are in ms on the event loop's clock. The client measures a lock from when it *sent* the
request, so it never assumes a longer lock than the leader does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from kip932.errors import InvalidRecordStateError, KafkaError
from sharegroups.consuming.ack_ledger import AckLedger
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.core.acknowledgements import record_ranges
from sharegroups.consuming.core.lock_warnings import Hold, LockWarnings
from sharegroups.consuming.member import Member
from sharegroups.messages import Delivered

log = logging.getLogger(__name__)

#: An application that holds records for a quarter of their lock or more is slow: records that other leaders send in the
#: meantime would wait too long.
_SLOW: Final = 4
#: The interval at which records that are kept alive are checked again, in ms, in case they are no longer kept.
_KEPT_MS: Final = 1_000
_NEVER_MS: Final = 2**62
_HOWTO: Final = "docs/howto/jobs.md says more."


class HoldWatch:
    """Measures how long the application holds records. Belongs to one consumer and runs on its event loop. `ledger`
    knows which records the application holds."""

    def __init__(self, ledger: AckLedger, member: Member) -> None:
        self._ledger = ledger
        self._member = member
        self._warnings = LockWarnings(_advice(member))
        self._records = 0
        self._since_ms = 0
        #: True when records of the last poll that are not kept alive may still be held.
        self._may_hold_last = False
        self._lock_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        #: No record that the application holds has used half of its lock's duration before this time.
        self._check_at_ms = _NEVER_MS

    def handed(self, delivered: Iterable[Delivered], now_ms: int) -> None:
        """Note the records that a poll returns."""
        self._since_ms, self._may_hold_last = now_ms, True
        for part in delivered:
            self._records += part.records
            self._lock_ms = part.lock_ms or self._lock_ms
            if part.lock_ms:
                self._check_at_ms = min(self._check_at_ms, _half_used_ms(part))
        if self._timer is None and self._lock_ms:
            self._arm((self._lock_ms + 1) // 2)

    def taken_back(self, delivered: Iterable[Delivered]) -> None:
        """Note that a poll was interrupted, so that the application did not receive these records."""
        self._records -= sum([part.records for part in delivered])
        self._may_hold_last = False

    def over(self, now_ms: int, *, polls: bool) -> None:
        """Call this after acknowledgements were taken for sending. If the application holds no more records, note how
        long it took.

        `polls`: the next poll has begun, so that only records that are kept alive can be left from the last one.
        """
        if not self._records:
            return
        held_ms = now_ms - self._since_ms
        if self._ledger.holds_any:
            self._member.ahead.unknown(held_ms if self._may_hold_last else 0)
            self._may_hold_last = self._may_hold_last and not polls
            return
        self._member.pace.held(self._records, held_ms, self._lock_ms)
        self._member.ahead.held(held_ms)
        self._member.hold_ms = held_ms
        self._member.is_slow = bool(self._lock_ms) and held_ms * _SLOW >= self._lock_ms
        self._records = 0

    def check(self, now_ms: int) -> None:
        """Warn about records whose lock is half over."""
        if now_ms < self._check_at_ms:
            return
        self._check_at_ms = _NEVER_MS
        for part in self._ledger.in_hand():
            if part.is_warned or not part.lock_ms:
                continue
            half_ms = _half_used_ms(part)
            if now_ms < half_ms or part.is_kept:
                self._check_at_ms = min(self._check_at_ms, half_ms if now_ms < half_ms else now_ms + _KEPT_MS)
            elif (held := part.delivery.held()) is not None:
                part.is_warned = True
                _warn(self._warnings.held(_hold(part, now_ms), *held, now_ms))

    def settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        """Receive the final outcome of acknowledgements, and log a failure that is not reported to the application
        (CL-81)."""
        if error is None or ack.unseen:
            return
        part, now_ms = ack.delivered, _now_ms()
        ranges = record_ranges(ack.batches)
        if not ranges:
            return
        if isinstance(error, InvalidRecordStateError) and part.is_lost(now_ms) and not part.is_kept:
            _warn(self._warnings.refused(_hold(part, now_ms), ranges, now_ms))
        elif ack.commit is None and self._ledger.callback is None:
            _warn(self._warnings.failed(part.place, ranges, error, now_ms))

    def expired(self, part: Delivered) -> None:
        """Warn that records were dropped because their lock expired before the application polled for them (CL-83)."""
        now_ms = _now_ms()
        _warn(self._warnings.expired(_hold(part, now_ms), part.delivery.ranges, now_ms))

    def log_unaccepted(self) -> None:
        """When the consumer closes in implicit mode, log which records of the last poll will be delivered again
        (CL-28)."""
        held = [(part, held) for part in self._ledger.in_hand() if (held := part.delivery.held()) is not None]
        if held:
            part, (first, _) = held[0]
            log.warning(
                "group %s: the consumer is closed with %d records of the last poll that were not accepted, the first "
                "%s offset %d: they are delivered again. The next poll() accepts what a poll returned, and so does "
                "commit_sync(); call that before close() when they are done",
                self._member.group_id, sum(count for _, (_, count) in held), part.place, first,
            )  # fmt: skip

    def close(self) -> None:
        """Log the warnings that were only counted, and stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        for line in self._warnings.rest():
            log.warning("%s", line)

    def _arm(self, delay_ms: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(delay_ms, 1) / 1000, self._due)

    def _due(self) -> None:
        """Check the records, and arm the timer for when the next lock will be half over."""
        self._timer = None
        now_ms = _now_ms()
        self.check(now_ms)
        waits = [_half_used_ms(part) - now_ms for part in self._ledger.in_hand() if not part.is_warned]
        if waits:  # negative waits belong to records that are kept alive
            self._arm(min(wait if wait > 0 else _KEPT_MS for wait in waits))


def _half_used_ms(part: Delivered) -> int:
    """Return when its lock is half over."""
    return part.acquired_ms + (part.lock_ms + 1) // 2


def _hold(part: Delivered, now_ms: int) -> Hold:
    return Hold(part.place, now_ms - part.acquired_ms, part.lock_ms)


def _warn(line: str | None) -> None:
    if line is not None:
        log.warning("%s", line)


def _advice(member: Member) -> str:
    config = member.config
    few = config["share.acquire.mode"] == "record_limit" and config["max.poll.records"] == 1
    hints = [] if few else ["share.acquire.mode=record_limit with max.poll.records=1 or a few"]
    hints += [
        "a longer share.record.lock.duration.ms for the group",
        "AcknowledgeType.RENEW in explicit mode",
    ]
    return f"What helps: {', or '.join(hints)}. {_HOWTO}"


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
