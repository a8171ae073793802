"""Carries out the decision about a job: acknowledges its record, or delays its next delivery.

Rules CL-123 and CL-165. Only this module asks for a release with a delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sharegroups.aio import ShareConsumer
from sharegroups.errors import DelayTooLongError, IllegalStateError, UnsupportedVersionError
from sharegroups.messages import AcknowledgeType
from sharegroups.worker.core.policy import Decision, Step
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import Job

log = logging.getLogger("sharegroups.worker")

#: The maximum number of records of failed jobs that are held here during their delay; further ones are released
#: immediately.
HELD_MAX: Final = 1_000
#: The maximum value of a group's sharegroups.retry.delay.max.ms, in seconds: 30 days.
DELAY_MAX_S: Final = 2_592_000
_TYPES: Final = {Step.ACCEPT: AcknowledgeType.ACCEPT, Step.REJECT: AcknowledgeType.REJECT}


class Acknowledging:
    """Acknowledges the records of jobs. `due`: called when a held record's delay is over, so that the record can be
    released."""

    def __init__(self, consumer: ShareConsumer, tally: Tally, due: Callable[[], None]) -> None:
        self._consumer = consumer
        self._tally = tally
        self._due = due
        self._held: dict[Job, asyncio.TimerHandle] = {}
        self._over: list[Job] = []
        self._warned = False

    @property
    def held(self) -> int:
        """How many records are held until their delay is over."""
        return len(self._held)

    def settle(self, job: Job, decision: Decision) -> Decision:
        """Acknowledge the job's record as decided. Call it while no poll is in progress.

        Returns what was done: the decision, or one with a shorter delay if the group does not allow such a long one.
        """
        if decision.step not in (Step.RELEASE, Step.ARCHIVE):
            self._acknowledge(job, _TYPES[decision.step], reason=decision.reason)
            return decision
        maximum_s = self.release(job, decision.delay, decision.reason)
        return decision if maximum_s is None else decision.shortened(maximum_s)

    def take_back(self, job: Job) -> None:
        """Release the record immediately, without counting this delivery (CL-145)."""
        self._acknowledge(job, AcknowledgeType.RELEASE, undelivered=True)

    def release(self, job: Job, delay_s: float | None, reason: str) -> float | None:
        """Release the record with a delay and a reason. 0: no delay; None: the delay of the group's back-off.

        If the leader does not support delays, the record is held here until the delay is over, and its lock is kept
        alive. If `delay_s` is above the group's maximum or 30 days, returns the shorter delay used instead, otherwise
        None.
        """
        capped_s = None if delay_s is None else min(delay_s, DELAY_MAX_S)
        try:
            self._acknowledge(job, AcknowledgeType.RELEASE, capped_s, reason=reason)
        except UnsupportedVersionError:  # such a leader would ignore the reason, too
            self._hold(job, capped_s or 0.0)
        except DelayTooLongError as error:
            self._acknowledge(job, AcknowledgeType.RELEASE, error.maximum, reason=reason)
            return error.maximum
        return capped_s if capped_s != delay_s else None

    def send_due(self) -> None:
        """Release the held records whose delay is over. Call it while no poll is in progress."""
        over, self._over = self._over, []
        for job in over:
            self._acknowledge(job, AcknowledgeType.RELEASE, 0)

    def release_held(self) -> int:
        """Release all held records now, because the worker is stopping. Returns how many were held."""
        held, self._held = self._held, {}
        for job, timer in held.items():
            timer.cancel()
            self._acknowledge(job, AcknowledgeType.RELEASE, 0)
        self.send_due()
        return len(held)

    def forget_held(self) -> int:
        """Forget the held records: closing the consumer will release them. Returns how many there were."""
        held, self._held, self._over = len(self._held) + len(self._over), {}, []
        return held

    def _hold(self, job: Job, delay_s: float) -> None:
        if len(self._held) >= HELD_MAX:
            if not self._warned:
                self._warned = True
                log.warning(
                    "%d failed jobs wait for their delay in this worker, as many as it holds: more are released at "
                    "once. A cluster that serves delays holds them itself",
                    HELD_MAX,
                )
            self._acknowledge(job, AcknowledgeType.RELEASE, 0)
            return
        self._held[job] = asyncio.get_running_loop().call_later(delay_s, self._delay_over, job)

    def _delay_over(self, job: Job) -> None:
        if self._held.pop(job, None) is not None:
            self._over.append(job)
            self._due()

    def _acknowledge(
        self,
        job: Job,
        kind: AcknowledgeType,
        delay_s: float | None = None,
        *,
        undelivered: bool = False,
        reason: str = "",
    ) -> None:
        """Acknowledge the job's record; log an IllegalStateError. Raises UnsupportedVersionError if the leader does not
        support the delay, and DelayTooLongError."""
        try:
            self._consumer.acknowledge(job.message, kind, delay=delay_s, undelivered=undelivered, reason=reason)
        except IllegalStateError as error:  # only a bug in the worker can cause this, and it must not end the worker
            log.warning("%s could not be acknowledged: %s", job.place, error)
