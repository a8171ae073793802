"""The number of records that a topic log has appended."""

from __future__ import annotations


class AppendedRecords:
    """How many records a topic log has appended since it was loaded. It outlives the log (PL-955)."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records = 0
