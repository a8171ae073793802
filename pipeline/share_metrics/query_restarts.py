"""Decides when a query that ended is restarted from its checkpoint, and when the job gives up (PM-36). Pure.

Nothing is lost either way: a restarted query continues from its checkpoint.
"""

from __future__ import annotations

from typing import Final

from share_metrics.causes import PASSING, UNREACHABLE, ended_by

_BEGUN_MAX: Final = 5
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MAX_S: Final = 30.0


class Patience:
    """Decides how often and how soon one query is restarted.

    A query whose Python worker did not start in time is restarted at once, a few times in a row: Spark allows the
    worker 10 s, which cannot be changed and is too little on a very busy machine. The same holds for the worker that a
    query needs to start, and for the processes that outlive a killed job for a moment.

    A query that could not reach the store is restarted after pauses that double, until the store has not answered for
    `away_max_s`; a store's fail-over takes seconds.
    """

    def __init__(self, away_max_s: float = 0.0) -> None:
        self._away_max_s = away_max_s
        self.moved()

    def moved(self) -> None:
        """Reset the counts because the query made progress; a job may run for months."""
        self._late = 0
        self._away_since_s: float | None = None
        self._pause_s = _PAUSE_FIRST_S

    def pause_s(self, words: str, now_s: float) -> float | None:
        """How long to wait before restarting the query, s; None to give up. `words`: the text of its error."""
        if (ended := ended_by(words)) is not None:
            return self._behind_pauses(now_s) if ended.name == UNREACHABLE else None
        if not any(passing in words for passing in PASSING):
            return None
        self._late += 1
        return 0.0 if self._late < _BEGUN_MAX else None

    def _behind_pauses(self, now_s: float) -> float | None:
        since_s = now_s if self._away_since_s is None else self._away_since_s
        if now_s - since_s >= self._away_max_s:
            return None
        self._away_since_s = since_s
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _PAUSE_MAX_S)
        return min(pause_s, since_s + self._away_max_s - now_s)
