"""What topic logs and dead letters of a leader count: once per flush, load or round, never per record (P-6)."""

from __future__ import annotations


class LeaderMeter:
    """Receives the counts. This one counts nothing."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """Count one confirmed flush."""

    def loaded(self, indexed: int, jumped: bool) -> None:
        """Count a log that was loaded. `indexed`: the batches that its snapshot did not have; `jumped`: its end was
        moved up, because a tail may be lost (CM-47)."""

    def end_raised(self, offsets: int) -> None:
        """Count `offsets` offsets by which the log end was raised to a share-partition's stored state (CM-47)."""

    def end_not_raised(self) -> None:
        """Count a share-partition's state that is further beyond the log's end than a lost tail explains; nothing was
        changed (CM-83)."""

    def unreadable(self, offsets: int) -> None:
        """Count `offsets` more offsets that are known to be lost by damage in the store (CM-102)."""

    def refused(self, records: int) -> None:
        """Count a write of `records` records that was refused, by the store or because of it; none is stored."""

    def letters_written(self, group_id: str, letters: int) -> None:
        """Count letters that are in their topic (PL-904)."""

    def letters_dropped(self, group_id: str, reason: str, letters: int) -> None:
        """Count records that were archived without a letter (PL-907)."""

    def letter_request(self, group_id: str, failed: bool) -> None:
        """Count a round of letters that was sent to a leader, or appended here (PL-912)."""
