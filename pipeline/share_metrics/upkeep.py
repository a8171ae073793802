"""Periodic work of a job beside its queries. No row depends on it: a failure is logged and retried another time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from share_metrics.causes import cause
from share_metrics.ingest import SPARK_ERRORS
from share_metrics.reader import Kind, NoClusterError, StoreReplyError, StoreUnreachableError

Tell = Callable[[str], None]

#: A job that ends compacts if there are at least this many batches; at midnight two are enough.
COMPACT_FROM: Final = 100
_COMPACT_DAILY: Final = 2


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Upkeep:
    """Samples the logs' ends at every trigger, and compacts batches once a day (PM-18, PM-35).

    `compact` is called with a kind and from how many batches on to compact. `sample` is None if lag in seconds is not
    wanted. `trigger_s` is None for a job that runs once: then `end` is its only trigger.
    """

    def __init__(  # noqa: PLR0917 - what there is to do, and when
        self,
        kinds: Sequence[Kind],
        compact: Callable[[Kind, int], object],
        sample: Callable[[], object] | None,
        trigger_s: float | None,
        tell: Tell,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._kinds = kinds
        self._compact = compact
        self._sample = sample
        self._trigger_s = trigger_s
        self._tell = tell
        self._now = now
        self._sample_at = now()
        self._day = self._sample_at.date()

    def look(self) -> None:
        """Do what is due. Call it about every second while the queries run."""
        now = self._now()
        if self._trigger_s is not None and now >= self._sample_at:
            self._sample_at = now + timedelta(seconds=self._trigger_s)
            self._take_sample()
        if now.date() != self._day:
            self._day = now.date()
            self._put_together(_COMPACT_DAILY)

    def end(self) -> None:
        """Take a last sample and compact. Call it after the last batch."""
        self._take_sample()
        self._put_together(COMPACT_FROM)

    def _take_sample(self) -> None:
        if self._sample is not None:
            self._try("where logs end was not sampled", self._sample)

    def _put_together(self, at_least: int) -> None:
        for kind in self._kinds:
            self._try(f"{kind}: batches were not put together", partial(self._compact, kind, at_least))

    def _try(self, failed: str, do: Callable[[], object]) -> None:
        try:
            do()
        except (*SPARK_ERRORS, StoreUnreachableError, StoreReplyError, NoClusterError) as error:
            self._tell(f"{failed}, which is tried again another time: {cause(str(error))}")
