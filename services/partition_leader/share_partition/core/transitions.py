"""The table of record states (PL-102): what each trigger makes of a record in each state, and by which rule.

Owns `TRANSITIONS`, the mapping, and the byte tables made from it. Never reads a record: batches do that.

A record's code is one byte: a STATE_* id, plus PENDING while the write that makes it durable is outstanding. Each
trigger has a table of 256 codes, so a run of records changes with one `bytes.translate`. A code that the mapping does
not name for a trigger becomes ILLEGAL in that table. Code that applies a table must check the result for ILLEGAL and
raise `TransitionTable.refusal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from kip932.ids import (
    ACK_ACCEPT,
    ACK_GAP,
    ACK_REJECT,
    ACK_RELEASE,
    ACK_RENEW,
    STATE_ACKNOWLEDGED,
    STATE_ACQUIRED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    STATE_AVAILABLE,
)

PENDING: Final = 8
STATE_MASK: Final = 7
# In an array of acknowledge types: the request does not name this offset. The byte without the mark is its code.
UNTOUCHED: Final = 64
# Available, but not before an instant (PL-932). In memory only: the stored state is Available with the instant
# (PL-934).
DELAYED: Final = 16
# A table's entry for a code that its trigger must never meet. No record has this code.
ILLEGAL: Final = 255

PENDING_AVAILABLE: Final = PENDING | STATE_AVAILABLE
PENDING_DELAYED: Final = PENDING | DELAYED
PENDING_ACKNOWLEDGED: Final = PENDING | STATE_ACKNOWLEDGED
PENDING_ARCHIVING: Final = PENDING | STATE_ARCHIVING
PENDING_ARCHIVED: Final = PENDING | STATE_ARCHIVED

TERMINAL_CODES: Final = bytes([STATE_ACKNOWLEDGED, STATE_ARCHIVED])
PENDING_CODES: Final = bytes(
    [PENDING_AVAILABLE, PENDING_ACKNOWLEDGED, PENDING_ARCHIVING, PENDING_ARCHIVED, PENDING_DELAYED]
)
# Terminal, or on its way to the dead-letter queue: never delivered again (PL-915).
LEAVING_CODES: Final = TERMINAL_CODES + bytes([STATE_ARCHIVING])
# Records that are neither held nor deliverable now; PL-935 counts all the others.
SETTLED_CODES: Final = LEAVING_CODES + bytes([DELAYED])
# Terminal, or terminal once the outstanding write commits (PL-125).
CLOSING_CODES: Final = TERMINAL_CODES + bytes([PENDING_ACKNOWLEDGED, PENDING_ARCHIVED])
KNOWN_STATES: Final = frozenset({STATE_AVAILABLE, STATE_ACQUIRED, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED})
KNOWN_CODES: Final = bytes([*sorted(KNOWN_STATES), DELAYED]) + PENDING_CODES


class Trigger(StrEnum):
    """An event that happens to a record, in the words of PL-102; errors use these words.

    `dc` is the delivery count, `limit` the group's delivery limit (PL-104), DLQ the group's dead-letter queue, SPSO the
    start offset.
    """

    ACQUIRED = "acquired again"
    ACCEPT = "ACCEPT"
    RELEASE = "RELEASE, dc < limit"
    RELEASE_DELAYED = "RELEASE with a delay, dc < limit"
    RELEASE_AT_LIMIT = "RELEASE, dc ≥ limit, DLQ off"
    RELEASE_AT_LIMIT_DLQ = "RELEASE, dc ≥ limit, DLQ on"
    REJECT = "REJECT, DLQ off"
    REJECT_DLQ = "REJECT, DLQ on"
    GAP = "GAP"
    RENEW = "RENEW"
    LOCK_EXPIRED = "lock expired, dc < limit"
    LOCK_EXPIRED_DELAYED = "lock expired, dc < limit, back-off"
    LOCK_EXPIRED_AT_LIMIT = "lock expired, dc ≥ limit, DLQ off"
    LOCK_EXPIRED_AT_LIMIT_DLQ = "lock expired, dc ≥ limit, DLQ on"
    LOCK_EXPIRED_BELOW_START = "lock expired while offset < SPSO"
    SESSION_CLOSED = "share session closed, dc < limit"
    SESSION_CLOSED_AT_LIMIT = "share session closed, dc ≥ limit, DLQ off"
    SESSION_CLOSED_AT_LIMIT_DLQ = "share session closed, dc ≥ limit, DLQ on"
    SESSION_CLOSED_BELOW_START = "share session closed while offset < SPSO"
    DELAY_ENDED = "delay ended"
    DLQ_DONE = "dead letter written, or given up"
    LOG_START_MOVED = "LOG_START moved past it"
    COMPACTED = "log no longer has the whole cached range"
    ABORTED = "belongs to an aborted transaction"
    PERSISTED = "write persisted"
    REQUEST_FAILED = "request failed"
    PERSIST_FAILED = "persist failed"
    FAILED_UNLOCKED = "persist failed after the lock expired, dc < limit"
    LOCK_GONE_DELAYED = "persist failed after the lock expired, dc < limit, back-off"
    LOCK_GONE_AT_LIMIT = "persist failed after the lock expired, dc ≥ limit, DLQ off"
    LOCK_GONE_AT_LIMIT_DLQ = "persist failed after the lock expired, dc ≥ limit, DLQ on"
    LOCK_GONE_BELOW_START = "persist failed while offset < SPSO"
    STORED_AVAILABLE = "read back as Available"
    STORED_DELAYED = "read back as Available with a delay"
    STORED_ACKNOWLEDGED = "read back as Acknowledged"
    STORED_ARCHIVING = "read back as Archiving"
    STORED_ARCHIVED = "read back as Archived"


class Transition(NamedTuple):
    """The code that a record gets, and the rule for it."""

    code: int
    rule: str


_Rows = dict[tuple[int, Trigger], Transition]


def _any_pending(trigger: Trigger, code: int, rule: str) -> _Rows:
    """Return the rows of PL-102 for "any pending"."""
    return {(pending, trigger): Transition(code, rule) for pending in PENDING_CODES}


def _stays(trigger: Trigger, rule: str, *codes: int) -> _Rows:
    """Return the rows of records that the trigger may meet and leaves as they are."""
    return {(code, trigger): Transition(code, rule) for code in codes}


#: (state, trigger) → (next state, rule). A pair that is not here is refused. T1 and T2 create records, so they have no
#: row.
TRANSITIONS: Final[Mapping[tuple[int, Trigger], Transition]] = {
    (STATE_AVAILABLE, Trigger.ACQUIRED): Transition(STATE_ACQUIRED, "T3"),
    # An acknowledgement, or a closed session, takes effect when its write is durable: pending until then.
    (STATE_ACQUIRED, Trigger.ACCEPT): Transition(PENDING_ACKNOWLEDGED, "T4"),
    (STATE_ACQUIRED, Trigger.RELEASE): Transition(PENDING_AVAILABLE, "T5"),
    (STATE_ACQUIRED, Trigger.RELEASE_DELAYED): Transition(PENDING_DELAYED, "PL-932"),
    (STATE_ACQUIRED, Trigger.RELEASE_AT_LIMIT): Transition(PENDING_ARCHIVED, "T6"),
    (STATE_ACQUIRED, Trigger.RELEASE_AT_LIMIT_DLQ): Transition(PENDING_ARCHIVING, "T7"),
    (STATE_ACQUIRED, Trigger.REJECT): Transition(PENDING_ARCHIVED, "T8"),
    (STATE_ACQUIRED, Trigger.REJECT_DLQ): Transition(PENDING_ARCHIVING, "T9"),
    (STATE_ACQUIRED, Trigger.GAP): Transition(PENDING_ARCHIVED, "T10"),
    (STATE_ACQUIRED, Trigger.RENEW): Transition(STATE_ACQUIRED, "T11"),
    # An expired lock takes effect at once.
    (STATE_ACQUIRED, Trigger.LOCK_EXPIRED): Transition(STATE_AVAILABLE, "T12"),
    (STATE_ACQUIRED, Trigger.LOCK_EXPIRED_DELAYED): Transition(DELAYED, "PL-936"),
    (STATE_ACQUIRED, Trigger.LOCK_EXPIRED_AT_LIMIT): Transition(STATE_ARCHIVED, "T12"),
    (STATE_ACQUIRED, Trigger.LOCK_EXPIRED_AT_LIMIT_DLQ): Transition(STATE_ARCHIVING, "T12"),
    (STATE_ACQUIRED, Trigger.SESSION_CLOSED): Transition(PENDING_AVAILABLE, "T13"),
    (STATE_ACQUIRED, Trigger.SESSION_CLOSED_AT_LIMIT): Transition(PENDING_ARCHIVED, "T13"),
    (STATE_ACQUIRED, Trigger.SESSION_CLOSED_AT_LIMIT_DLQ): Transition(PENDING_ARCHIVING, "T13"),
    (STATE_ACQUIRED, Trigger.LOCK_EXPIRED_BELOW_START): Transition(STATE_ARCHIVED, "T14"),
    (STATE_ACQUIRED, Trigger.SESSION_CLOSED_BELOW_START): Transition(PENDING_ARCHIVED, "T14"),
    (DELAYED, Trigger.DELAY_ENDED): Transition(STATE_AVAILABLE, "PL-932"),
    (STATE_ARCHIVING, Trigger.DLQ_DONE): Transition(STATE_ARCHIVED, "T15"),
    **_stays(Trigger.DLQ_DONE, "PL-904", STATE_ARCHIVED),  # it was sent twice, and this is the second answer
    # The log no longer has the record. Holders keep theirs; a pending release becomes Archived too, and stays so.
    (STATE_AVAILABLE, Trigger.LOG_START_MOVED): Transition(STATE_ARCHIVED, "T16"),
    (DELAYED, Trigger.LOG_START_MOVED): Transition(STATE_ARCHIVED, "T16"),
    (PENDING_AVAILABLE, Trigger.LOG_START_MOVED): Transition(STATE_ARCHIVED, "PL-103"),
    (PENDING_DELAYED, Trigger.LOG_START_MOVED): Transition(STATE_ARCHIVED, "PL-103"),
    **_stays(Trigger.LOG_START_MOVED, "PL-622", STATE_ACQUIRED, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED),
    **_stays(Trigger.LOG_START_MOVED, "PL-622", PENDING_ACKNOWLEDGED, PENDING_ARCHIVING, PENDING_ARCHIVED),
    (STATE_AVAILABLE, Trigger.COMPACTED): Transition(STATE_ARCHIVED, "T17"),
    (DELAYED, Trigger.COMPACTED): Transition(STATE_ARCHIVED, "T17"),
    (PENDING_AVAILABLE, Trigger.COMPACTED): Transition(STATE_ARCHIVED, "PL-103"),
    (PENDING_DELAYED, Trigger.COMPACTED): Transition(STATE_ARCHIVED, "PL-103"),
    **_stays(Trigger.COMPACTED, "PL-226", STATE_ACQUIRED, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED),
    **_stays(Trigger.COMPACTED, "PL-226", PENDING_ACKNOWLEDGED, PENDING_ARCHIVING, PENDING_ARCHIVED),
    (STATE_ACQUIRED, Trigger.ABORTED): Transition(STATE_ARCHIVED, "T18"),
    # The write is durable. Records that the log lost meanwhile (T16, T17) are Archived already.
    (PENDING_AVAILABLE, Trigger.PERSISTED): Transition(STATE_AVAILABLE, "PL-412"),
    (PENDING_DELAYED, Trigger.PERSISTED): Transition(DELAYED, "PL-933"),
    (PENDING_ACKNOWLEDGED, Trigger.PERSISTED): Transition(STATE_ACKNOWLEDGED, "PL-412"),
    (PENDING_ARCHIVING, Trigger.PERSISTED): Transition(STATE_ARCHIVING, "PL-412"),
    (PENDING_ARCHIVED, Trigger.PERSISTED): Transition(STATE_ARCHIVED, "PL-412"),
    **_stays(Trigger.PERSISTED, "PL-103", STATE_ARCHIVED),
    # The write, or the request, failed: back to the holder while the lock runs.
    **_any_pending(Trigger.REQUEST_FAILED, STATE_ACQUIRED, "T19"),
    **_any_pending(Trigger.PERSIST_FAILED, STATE_ACQUIRED, "T19"),
    **_any_pending(Trigger.FAILED_UNLOCKED, STATE_AVAILABLE, "PL-307"),
    **_any_pending(Trigger.LOCK_GONE_DELAYED, DELAYED, "PL-307"),
    **_any_pending(Trigger.LOCK_GONE_AT_LIMIT, STATE_ARCHIVED, "PL-307"),
    **_any_pending(Trigger.LOCK_GONE_AT_LIMIT_DLQ, STATE_ARCHIVING, "PL-307"),
    **_any_pending(Trigger.LOCK_GONE_BELOW_START, STATE_ARCHIVED, "PL-307"),
    # The write's outcome was unknown: what the coordinator has stored decides.
    **_any_pending(Trigger.STORED_AVAILABLE, STATE_AVAILABLE, "PL-707"),
    **_any_pending(Trigger.STORED_DELAYED, DELAYED, "PL-707"),
    **_any_pending(Trigger.STORED_ACKNOWLEDGED, STATE_ACKNOWLEDGED, "PL-707"),
    **_any_pending(Trigger.STORED_ARCHIVING, STATE_ARCHIVING, "PL-707"),
    **_any_pending(Trigger.STORED_ARCHIVED, STATE_ARCHIVED, "PL-707"),
}


class IllegalTransitionError(Exception):
    """A record met a trigger that PL-102 has no row for: memory is wrong about it. Nothing of its batch has changed.

    The share-partition's object must be dropped (`SharePartition.give_up`); the next one loads the stored state.
    """

    def __init__(self, offset: int, code: int, trigger: Trigger) -> None:
        legal = {state for state, of in TRANSITIONS if of is trigger}
        states = ["pending"] if legal.issuperset(PENDING_CODES) else []
        states += [code_name(state) for state in sorted(legal) if not (states and state & PENDING)]
        super().__init__(
            f'offset {offset} is {code_name(code)}, and "{trigger}" is for records that are {" or ".join(states)}'
        )
        self.offset = offset
        self.code = code
        self.trigger = trigger


class TransitionTable(bytes):
    """The code that one trigger gives to each code; ILLEGAL for those that TRANSITIONS does not name."""

    trigger: Trigger

    def refusal(self, first: int, codes: bytes | bytearray) -> IllegalTransitionError:
        """Return the error for `codes`, those of the offsets from `first` on, one of which this table maps to
        ILLEGAL."""
        at = codes.translate(self).index(ILLEGAL)
        return IllegalTransitionError(first + at, codes[at], self.trigger)


def code_name(code: int) -> str:
    """Describe a code in words."""
    name = _NAMES.get(code & ~PENDING, "an unknown state")
    if code not in KNOWN_CODES:
        return f"in an unknown state (code {code})"
    return f"{name} (pending)" if code & PENDING else name


_NAMES: Final = {
    STATE_AVAILABLE: "Available",
    DELAYED: "Delayed",
    STATE_ACQUIRED: "Acquired",
    STATE_ACKNOWLEDGED: "Acknowledged",
    STATE_ARCHIVING: "Archiving",
    STATE_ARCHIVED: "Archived",
}


def _codes(rows: Iterable[tuple[int, int]]) -> bytes:
    codes = bytearray([ILLEGAL]) * 256
    for source, target in rows:
        codes[source] = target
    return bytes(codes)


def _table(trigger: Trigger) -> TransitionTable:
    table = TransitionTable(_codes((state, to.code) for (state, of), to in TRANSITIONS.items() if of is trigger))
    table.trigger = trigger
    return table


# The tables. Those of a family are keyed by the state that the record is changing to.
ACQUIRE: Final = _table(Trigger.ACQUIRED)
RELEASE: Final = {
    STATE_AVAILABLE: _table(Trigger.RELEASE),
    DELAYED: _table(Trigger.RELEASE_DELAYED),
    STATE_ARCHIVED: _table(Trigger.RELEASE_AT_LIMIT),
    STATE_ARCHIVING: _table(Trigger.RELEASE_AT_LIMIT_DLQ),
}
#: Keyed by whether there is a dead-letter queue, then by acknowledge type; RELEASE is for records below the limit.
ACKNOWLEDGE: Final = {
    dlq: {
        ACK_GAP: _table(Trigger.GAP),
        ACK_ACCEPT: _table(Trigger.ACCEPT),
        ACK_RELEASE: RELEASE[STATE_AVAILABLE],
        ACK_REJECT: _table(Trigger.REJECT_DLQ if dlq else Trigger.REJECT),
        ACK_RENEW: _table(Trigger.RENEW),
    }
    for dlq in (False, True)
}
EXPIRE: Final = {
    STATE_AVAILABLE: _table(Trigger.LOCK_EXPIRED),
    DELAYED: _table(Trigger.LOCK_EXPIRED_DELAYED),
    STATE_ARCHIVED: _table(Trigger.LOCK_EXPIRED_AT_LIMIT),
    STATE_ARCHIVING: _table(Trigger.LOCK_EXPIRED_AT_LIMIT_DLQ),
}
EXPIRE_BELOW_START: Final = _table(Trigger.LOCK_EXPIRED_BELOW_START)
CLOSE_SESSION: Final = {
    STATE_AVAILABLE: _table(Trigger.SESSION_CLOSED),
    STATE_ARCHIVED: _table(Trigger.SESSION_CLOSED_AT_LIMIT),
    STATE_ARCHIVING: _table(Trigger.SESSION_CLOSED_AT_LIMIT_DLQ),
}
CLOSE_SESSION_BELOW_START: Final = _table(Trigger.SESSION_CLOSED_BELOW_START)
END_DELAY: Final = _table(Trigger.DELAY_ENDED)
DLQ_DONE: Final = _table(Trigger.DLQ_DONE)
LOG_START_MOVED: Final = _table(Trigger.LOG_START_MOVED)
COMPACTED: Final = _table(Trigger.COMPACTED)
ABORTED: Final = _table(Trigger.ABORTED)
COMMIT: Final = _table(Trigger.PERSISTED)
REVERT: Final = _table(Trigger.REQUEST_FAILED)
ROLL_BACK: Final = _table(Trigger.PERSIST_FAILED)
ROLL_BACK_EXPIRED: Final = {
    STATE_AVAILABLE: _table(Trigger.FAILED_UNLOCKED),
    DELAYED: _table(Trigger.LOCK_GONE_DELAYED),
    STATE_ARCHIVED: _table(Trigger.LOCK_GONE_AT_LIMIT),
    STATE_ARCHIVING: _table(Trigger.LOCK_GONE_AT_LIMIT_DLQ),
}
ROLL_BACK_BELOW_START: Final = _table(Trigger.LOCK_GONE_BELOW_START)
TAKE_STORED: Final = {
    STATE_AVAILABLE: _table(Trigger.STORED_AVAILABLE),
    DELAYED: _table(Trigger.STORED_DELAYED),
    STATE_ACKNOWLEDGED: _table(Trigger.STORED_ACKNOWLEDGED),
    STATE_ARCHIVING: _table(Trigger.STORED_ARCHIVING),
    STATE_ARCHIVED: _table(Trigger.STORED_ARCHIVED),
}


def released_state(delivery_count: int, limit: int, dlq_enabled: bool) -> int:
    """Return the next state of a released record: T5 below the limit, else T6 or, with a dead-letter queue, T7
    (PL-107)."""
    if delivery_count < limit:
        return STATE_AVAILABLE
    return STATE_ARCHIVING if dlq_enabled else STATE_ARCHIVED


# For arrays of acknowledge types with marked codes between them. These are other encodings of a code, not transitions.
_UNMARKED: Final = [(UNTOUCHED | code, code) for code in KNOWN_CODES]
#: Acknowledge type → code of an Acquired record below the limit, marked code → code; ILLEGAL for an unknown type.
TYPE_CODES: Final = {
    dlq: _codes([*((ack_type, table[STATE_ACQUIRED]) for ack_type, table in tables.items()), *_UNMARKED])
    for dlq, tables in ACKNOWLEDGE.items()
}
MARK_UNTOUCHED: Final = _codes((code, marked) for marked, code in _UNMARKED)
IS_TOUCHED: Final = bytes(code < UNTOUCHED for code in range(256))
#: A code without its pending mark.
STATE_OF: Final = _codes((code, code & STATE_MASK) for code in KNOWN_CODES)
