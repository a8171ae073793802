"""The counts that a leader's topic logs and dead letters report: once per flush, load or round, never per record
(P-6)."""

from __future__ import annotations


class LeaderMeter:
    """Receives the counts. This base class ignores them."""

    def appended(self, batches: int, records: int, size: int, elapsed_ms: int) -> None:
        """Count one confirmed flush of records. `elapsed_ms`: from its append to the confirmation."""

    def loaded(self, indexed: int, jumped: bool) -> None:
        """Count a log that was loaded. `indexed`: how many batches its snapshot did not cover; `jumped`: whether its
        end was moved up because a tail may be lost (CM-47)."""

    def end_raised(self, offsets: int) -> None:
        """Count the offsets by which a log end was raised to match a share-partition's stored state (CM-47)."""

    def end_not_raised(self) -> None:
        """Count a share-partition's stored state that is too far beyond the log's end to be explained by a lost tail;
        nothing was changed (CM-83)."""

    def unreadable(self, offsets: int) -> None:
        """Count further offsets that are known to be lost through damage in the store (CM-102)."""

    def refused(self, records: int) -> None:
        """Count a write of `records` records that was refused by the store, or because the store refused another; none
        is stored."""

    def refused_store_full(self, records: int) -> None:
        """Count records that were refused because the store nears its memory limit (CM-214)."""

    def letters_written(self, group_id: str, letters: int) -> None:
        """Count dead letters that are in their topic (PL-904)."""

    def letters_dropped(self, group_id: str, reason: str, letters: int) -> None:
        """Count records that were archived without a dead letter (PL-907)."""

    def letter_request(self, group_id: str, failed: bool) -> None:
        """Count a round of dead letters that was sent to a leader or appended here (PL-912)."""
