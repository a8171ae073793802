"""Periodic work of a job beside its queries. No row depends on it, so a failure is reported and retried later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from share_metrics.causes import cause
from share_metrics.ingest import SPARK_ERRORS
from share_metrics.reader import Kind, NoClusterError, StoreReplyError, StoreUnreachableError

Tell = Callable[[str], None]

#: A job compacts at its end if there are at least this many batches; at midnight UTC two are enough.
COMPACT_FROM: Final = 100
_COMPACT_DAILY: Final = 2


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Upkeep:
    """Runs the tasks `at_triggers` at every trigger, and compacts batches once a day (PM-18, PM-35, PM-39).

    `compact` is called with a kind and the fewest batches to compact. `at_triggers`: tasks, keyed by the message
    reported when one fails. `trigger_s`: None for a job that runs once; then `begin` and `end` are its only triggers.
    """

    def __init__(  # noqa: PLR0917 - what there is to do, and when
        self,
        kinds: Sequence[Kind],
        compact: Callable[[Kind, int], object],
        at_triggers: Mapping[str, Callable[[], object]],
        trigger_s: float | None,
        tell: Tell,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._kinds = kinds
        self._compact = compact
        self._at_triggers = at_triggers
        self._trigger_s = trigger_s
        self._tell = tell
        self._now = now
        self._trigger_at = now()
        self._day = self._trigger_at.date()

    def begin(self) -> None:
        """Run the tasks of a trigger. Call it before the queries plan, so that they read at least up to this time."""
        if self._trigger_s is not None:
            self._trigger_at = self._now() + timedelta(seconds=self._trigger_s)
        self._trigger()

    def look(self) -> None:
        """Run the tasks that are due. Call it about every second while the queries run."""
        now = self._now()
        if self._trigger_s is not None and now >= self._trigger_at:
            self._trigger_at = now + timedelta(seconds=self._trigger_s)
            self._trigger()
        if now.date() != self._day:
            self._day = now.date()
            self._put_together(_COMPACT_DAILY)

    def end(self) -> None:
        """Run the tasks of a trigger, and compact. Call it after the last batch."""
        self._trigger()
        self._put_together(COMPACT_FROM)

    def _trigger(self) -> None:
        for failed, do in self._at_triggers.items():
            self._try(failed, do)

    def _put_together(self, at_least: int) -> None:
        for kind in self._kinds:
            self._try(f"{kind}: batches were not put together", partial(self._compact, kind, at_least))

    def _try(self, failed: str, do: Callable[[], object]) -> None:
        try:
            do()
        except (*SPARK_ERRORS, StoreUnreachableError, StoreReplyError, NoClusterError) as error:
            self._tell(f"{failed}, which is tried again another time: {cause(str(error))}")
