"""Finds which epoch wrote an offset, from a log's epoch→start list, which is rebuilt by reading from claim to claim
(CM-40).

The batch with offset X, written in epoch e, is the first entry at or after id `<e>-<X+1>`. If an epoch wrote nothing,
the next one starts at the same offset, which belongs to the last epoch that starts there. A hole belongs to the epoch
that skipped it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class EpochStarts:
    """The epochs of one log, each with the log's end when it started; both ascend."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in starts:
            self.begin(epoch, start)

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def newest(self) -> int:
        """The newest known epoch; 0 when there is none."""
        return self._epochs[-1] if self._epochs else 0

    def begin(self, epoch: int, start: int) -> None:
        """Start a new epoch at `start`. Raises ValueError if the epoch or the start would decrease."""
        if self._epochs and (epoch <= self._epochs[-1] or start < self._starts[-1]):
            raise ValueError(
                f"epoch {epoch} at offset {start} cannot follow epoch {self._epochs[-1]} at offset {self._starts[-1]}"
            )
        self._epochs.append(epoch)
        self._starts.append(start)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch whose entries contain `offset`, or would contain it; 0 if no epoch is known."""
        if not self._epochs:
            return 0
        return self._epochs[max(bisect_right(self._starts, offset) - 1, 0)]

    def position(self, offset: int) -> tuple[int, int]:
        """Return (epoch, seq) such that the batch with `offset` is the first entry with a higher id."""
        return self.epoch_at(offset), offset

    def trim(self, log_start: int) -> None:
        """Forget epochs without offsets at or above `log_start`; the newest epoch always stays."""
        drop = max(bisect_right(self._starts, log_start) - 1, 0)
        if drop:
            del self._epochs[:drop]
            del self._starts[:drop]

    def as_list(self) -> list[tuple[int, int]]:
        """Return (epoch, start) pairs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))


def rebuild(ends: dict[int, int]) -> tuple[EpochStarts, int]:
    """Return the list and the log's end, computed from each epoch's last `seq` (0: the epoch has only its claim)."""
    starts = EpochStarts()
    end = 0
    for epoch in sorted(ends):
        starts.begin(epoch, end)
        end = max(end, ends[epoch])
    return starts, end
