"""The table of record states (PL-102), written down as code tables.

A record's state is one byte: a STATE_* id, plus PENDING while the write that shall make it so is outstanding. Each
trigger is a 256-byte table from code to code, so a run of records changes with one `bytes.translate`. A code that a
table does not name stays: that is what "skipped" and PL-002 ("pending blocks every other transition") mean.
"""

from __future__ import annotations

from typing import Final

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
# In an array of acknowledge types: nothing is said about this offset, whose code stands below the mark.
UNTOUCHED: Final = 64

TERMINAL_CODES: Final = bytes([STATE_ACKNOWLEDGED, STATE_ARCHIVED])
PENDING_CODES: Final = bytes(
    PENDING | state for state in (STATE_AVAILABLE, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED)
)
# Terminal, or terminal once the outstanding write commits (PL-125).
CLOSING_CODES: Final = TERMINAL_CODES + bytes(PENDING | state for state in TERMINAL_CODES)
KNOWN_STATES: Final = frozenset({STATE_AVAILABLE, STATE_ACQUIRED, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED})


def _table(*rows: tuple[int, int]) -> bytes:
    codes = bytearray(range(256))
    for source, target in rows:
        codes[source] = target
    return bytes(codes)


ACQUIRE: Final = _table((STATE_AVAILABLE, STATE_ACQUIRED))  # T3
# T4 … T10, T13: Acquired begins to leave; it is there only when the write is durable.
BEGIN: Final = {code & STATE_MASK: _table((STATE_ACQUIRED, code)) for code in PENDING_CODES}
COMMIT: Final = _table(*((code, code & STATE_MASK) for code in PENDING_CODES))
ROLL_BACK: Final = _table(*((code, STATE_ACQUIRED) for code in PENDING_CODES))  # T19, PL-414
# PL-307: rolled back after its lock expired, or behind the start offset.
ROLL_BACK_TO: Final = {
    state: _table(*((code, state) for code in PENDING_CODES))
    for state in (STATE_AVAILABLE, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED)
}
# T12, T14: an expired lock takes effect at once.
EXPIRE_TO: Final = {
    state: _table((STATE_ACQUIRED, state)) for state in (STATE_AVAILABLE, STATE_ARCHIVING, STATE_ARCHIVED)
}
# T16, T17: the log no longer has it. Forced, so a pending release goes too and stays Archived (PL-103).
REMOVED_FROM_LOG: Final = _table((STATE_AVAILABLE, STATE_ARCHIVED), (PENDING | STATE_AVAILABLE, STATE_ARCHIVED))
ABORTED: Final = _table((STATE_ACQUIRED, STATE_ARCHIVED))  # T18
DLQ_DONE: Final = _table((STATE_ARCHIVING, STATE_ARCHIVED))  # T15


def released_state(delivery_count: int, limit: int, dlq_enabled: bool) -> int:
    """Where a released record goes: T5 below the limit, else T6 or, with a dead-letter queue, T7 (PL-107)."""
    if delivery_count < limit:
        return STATE_AVAILABLE
    return STATE_ARCHIVING if dlq_enabled else STATE_ARCHIVED


def acknowledged_state(ack_type: int, delivery_count: int, limit: int, dlq_enabled: bool) -> int:
    """Where an acknowledgement takes an Acquired record (PL-409); Acquired itself for RENEW (T11)."""
    if ack_type == ACK_RELEASE:
        return released_state(delivery_count, limit, dlq_enabled)
    return _ACKNOWLEDGED[dlq_enabled][ack_type]


_ACKNOWLEDGED: Final = {
    dlq: {
        ACK_GAP: STATE_ARCHIVED,
        ACK_ACCEPT: STATE_ACKNOWLEDGED,
        ACK_REJECT: STATE_ARCHIVING if dlq else STATE_ARCHIVED,
        ACK_RENEW: STATE_ACQUIRED,
    }
    for dlq in (False, True)
}


def _type_codes(dlq_enabled: bool) -> bytes:
    pending = {ack: PENDING | state for ack, state in _ACKNOWLEDGED[dlq_enabled].items() if ack != ACK_RENEW}
    kept = {UNTOUCHED | code: code for code in range(UNTOUCHED)}
    return _table(
        *pending.items(), *kept.items(), (ACK_RELEASE, PENDING | STATE_AVAILABLE), (ACK_RENEW, STATE_ACQUIRED)
    )


# Acknowledge type -> code of an Acquired record below the limit, for a whole array of types at once; marked codes stay.
TYPE_CODES: Final = {dlq: _type_codes(dlq) for dlq in (False, True)}
MARK_UNTOUCHED: Final = _table(*((code, UNTOUCHED | code) for code in range(UNTOUCHED)))
IS_TOUCHED: Final = bytes(code < UNTOUCHED for code in range(256))
STATE_OF: Final = _table(*((code, code & STATE_MASK) for code in PENDING_CODES))  # its pending mark left out
