"""What topic logs report to metrics: once per flush, load or refusal, never per record (P-6)."""

from __future__ import annotations

from typing import Protocol

from partition_leader.topic_log.load import LoadReport


class TopicLogMeter(Protocol):
    """Counts events of topic logs; called once per flush, load or refusal, never per record."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """One flush was confirmed."""
        ...

    def loaded(self, report: LoadReport) -> None:
        """A log was loaded; `report.jumped` is the counter of CM-47."""
        ...

    def end_raised(self, offsets: int) -> None:
        """The log end was raised by `offsets` offsets, up to a share-partition's stored state (CM-47)."""
        ...

    def end_not_raised(self) -> None:
        """A share-partition's state is further beyond the log's end than a lost tail explains; nothing changed
        (CM-83)."""
        ...

    def unreadable(self, offsets: int) -> None:
        """`offsets` more offsets are known to be lost by damage in the store (CM-102)."""
        ...

    def refused(self, records: int) -> None:
        """A write of `records` records was refused, by the store or because of it; none of them is stored."""
        ...


class NoTopicLogMeter:
    """Counts nothing."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """Nothing."""

    def loaded(self, report: LoadReport) -> None:
        """Nothing."""

    def end_raised(self, offsets: int) -> None:
        """Nothing."""

    def end_not_raised(self) -> None:
        """Nothing."""

    def unreadable(self, offsets: int) -> None:
        """Nothing."""

    def refused(self, records: int) -> None:
        """Nothing."""
