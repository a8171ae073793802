"""The error for stored state that is further beyond a log's end than a lost tail explains (CM-83)."""

from __future__ import annotations

from kip932.errors import KafkaStorageError


class BeyondLogError(KafkaStorageError):
    """Stored state is for offsets that this log cannot have had; it is not used."""


def beyond_log(name: str, log_end: int, stored_end: int, jump_offsets: int) -> BeyondLogError:
    """Return the error for the partition `name`, with what to do."""
    return BeyondLogError(
        f"{name}: the log ends at {log_end}, but state is stored up to {stored_end}; at most "
        f"{jump_offsets} offsets can be of a tail that the store lost, so the stored state is "
        "damaged or forged. Nothing was changed. If the log did lose as much, start the leader with a larger "
        "log.lost.tail.jump.offsets; else set the group's offset anew"
    )
