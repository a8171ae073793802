"""The loop of a worker: fetches the records that its handlers can process, runs their jobs, acknowledges the outcomes.

Rules CL-120 to CL-128. Only one task uses the consumer; a finished job wakes it from its poll.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kip932.telemetry import own_context_of
from sharegroups.aio import ShareConsumer
from sharegroups.connection.core.missing_rights import may_not_work
from sharegroups.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    WakeupError,
)
from sharegroups.messages import Message, Messages, TopicIdPartition, delivered_of
from sharegroups.worker.acknowledging import Acknowledging
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.isolation import PARKED_S, Isolation, runs_alone
from sharegroups.worker.core.policy import Kind, Step, Verdict, archived, decide
from sharegroups.worker.core.prefetch import Prefetch
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import Job, JobInfo, JobSpec
from sharegroups.worker.outcome_log import OutcomeLog
from sharegroups.worker.pools import Finished, Pool, WorkerError
from sharegroups.worker.processes import ProcessPool
from sharegroups.worker.tasks import TaskPool
from sharegroups.worker.threads import ThreadPool
from sharegroups.worker.watching import UNWATCHED, JobWatch

if TYPE_CHECKING:
    from sharegroups.consuming.lock_renewals import Kept

log = logging.getLogger("sharegroups.worker")

#: The longest poll, in seconds. Held jobs and waiting records are checked between polls.
_POLL_S: Final = 1.0
#: How long acknowledgements are collected while other records wait for a handler, in seconds.
_GATHER_S: Final = 0.002
#: A record that has waited for a handler this long, in seconds, or this fraction of its lock if that is shorter, is
#: released, so that another member gets it. It was requested because its job was expected to start within 0.1 s.
_WAIT_S: Final = 2.0
_WAIT_OF_LOCK: Final = 3
#: How long acknowledging and leaving the group may take when the worker stops, in seconds.
_CLOSE_S: Final = 5.0
_LOCK_S: Final = 30.0
#: How long the confirmation of earlier jobs' outcomes may take before a job that runs alone starts, in seconds.
_COMMIT_S: Final = 5.0
#: The maximum number of successful jobs that are remembered until the cluster confirms them; the oldest are forgotten
#: first.
REMEMBERED_JOBS_MAX: Final = 10_000
_DONE_BEFORE: Final = "its job succeeded here before, but the cluster did not accept that; it is not run a second time"

#: The topic id, partition and offset of a record.
_Place = tuple[bytes, int, int]


class UnacknowledgedJobs:
    """The jobs that are waiting, are running, or have ended and are not acknowledged yet, by the position of their
    record.

    If the lock was lost, for example because a server was restarted or this process was suspended, a record may be
    delivered again while this worker still has its job, or after the job succeeded. Its handler may still be running or
    has ended; it is not started a second time (CL-126a, CL-126b).
    """

    def __init__(self) -> None:
        self._by_place: dict[_Place, Job] = {}
        #: The identities of records whose jobs succeeded and whose acknowledgement is not confirmed yet.
        self._ended: OrderedDict[_Place, int] = OrderedDict()

    def add(self, job: Job) -> None:
        """Add a job that this worker will run."""
        self._by_place[_place(job.message)] = job

    def all(self) -> Iterable[Job]:
        """Return all of them."""
        return self._by_place.values()

    def remove(self, job: Job) -> None:
        """Remove a job that is acknowledged, or whose record goes back to the group."""
        place = _place(job.message)
        if self._by_place.get(place) is job:
            del self._by_place[place]

    def take_over(self, message: Message, kept: Kept) -> bool:
        """Return whether the worker already has the record's job. If so, this delivery replaces the previous one."""
        job = self._by_place.get(_place(message))
        if job is None or not _is_same_record(job.message, message):
            return False
        job.kept.forget(job.message)
        log.warning(
            "%s was redelivered (delivery %d) while %s is still working on it: the job is not started a second time, "
            "and its outcome is that of this delivery",
            job.place, message.delivery_count(), job.spec.name,
        )  # fmt: skip
        before = job.delivery_count
        job.deliver(message, kept)
        if job.delivery_count > before:
            kept.continued.append((message, partial(job.continue_delivery, message)))
        return True

    def remember(self, message: Message) -> None:
        """Note that the record's job succeeded and that its acknowledgement is about to be sent."""
        place = _place(message)
        self._ended[place] = _record_identity(message)
        self._ended.move_to_end(place)
        if len(self._ended) > REMEMBERED_JOBS_MAX:
            self._ended.popitem(last=False)

    def confirmed(self, partition: TopicIdPartition, offsets: Iterable[int]) -> None:
        """Forget records whose acknowledgement the cluster has confirmed: if one is delivered again, a user has
        requested that."""
        for offset in offsets:
            self._ended.pop((partition.topic_id, partition.partition, offset), None)

    def has_succeeded(self, message: Message) -> bool:
        """Return whether the record's job succeeded here, but its acknowledgement was refused or lost."""
        return bool(self._ended) and self._ended.get(_place(message)) == _record_identity(message)


class Runner:
    """One run of a worker. `limits`: the group's limits; `grace`: how many seconds running jobs may take to end when
    the worker stops; `cut_off_counts`: whether the delivery of a job that does not end in that time counts."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        specs: Mapping[str, JobSpec],
        *,
        concurrency: int,
        prefetch: int,
        grace: float,
        cut_off_counts: bool = True,
        limits: GroupLimits,
        tally: Tally,
        watch: JobWatch | None = None,
    ) -> None:
        self._watch = watch or UNWATCHED
        self._specs = specs
        self._group_id = str(settings["group.id"])
        self._limits = limits
        self._grace = grace
        self._cut_off_counts = cut_off_counts
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._consumer = ShareConsumer(
            {
                **settings,
                "share.acknowledgement.mode": "explicit",
                "share.acquire.mode": "record_limit",
                "max.poll.records": concurrency * 3 + prefetch,
                "fetch.max.wait.ms": 500,
            }
        )
        self._pools = self._pools_for(concurrency)
        self._tasks_begin = any(spec.is_async for spec in specs.values())
        self._prefetch = Prefetch(sum(pool.size for pool in set(self._pools.values())), prefetch)
        self._acknowledging = Acknowledging(self._consumer, tally, self._wake)
        self._outcomes = OutcomeLog(self._group_id)
        self._jobs = UnacknowledgedJobs()
        self._isolation = Isolation[Job]()
        self._finished: list[Finished] = []
        #: Once the worker stops: the jobs that no handler has started, whose records go back to the group.
        self._to_release: list[Job] = []
        self._gathering: asyncio.TimerHandle | None = None
        self._polling = False
        self._stopping = asyncio.Event()
        self._failure: WorkerError | KafkaError | None = None
        self.is_ready = False
        self._turned_s = self._loop.time()

    async def run(self) -> None:
        """Work until `stop` is called. Raises WorkerError, or the KafkaError that ended the membership."""
        cancelled: asyncio.CancelledError | None = None
        try:
            for pool in set(self._pools.values()):
                await pool.start()
            self._consumer.subscribe(list(self._specs))
            self._consumer.set_acknowledgement_commit_callback(self._acknowledged)
            try:
                while not self._stopping.is_set():
                    await self._turn()
            except KafkaError as error:
                self._failure = error
            except asyncio.CancelledError as error:
                log.info("the task that runs this worker was cancelled, so the worker stops")
                self._stopping.set()
                cancelled = error
            self.is_ready = False
            await self._finish()
        finally:
            self._outcomes.write_due(self._loop.time(), at_end=True)
            for pool in set(self._pools.values()):
                await pool.stop()
            await self._consumer.close(_CLOSE_S)
        if cancelled is not None:
            raise cancelled
        if self._failure is not None:
            raise self._failure

    @property
    def turned_s_ago(self) -> float:
        """How many seconds ago the last turn started."""
        return self._loop.time() - self._turned_s

    def stop(self) -> None:
        """Stop fetching, let running jobs end, release other records, and leave the group. `run` then returns."""
        self._stopping.set()
        self._wake()

    def give_up(self, error: WorkerError) -> None:
        """Stop because the worker cannot continue, and make `run` raise the error."""
        self._failure = self._failure or error
        self.stop()

    # One turn.

    async def _turn(self, fetch: bool = True) -> None:
        """Acknowledge the jobs that have ended, then wait for records or for the next job to end."""
        self._turned_s = self._loop.time()
        self._outcomes.write_due(self._turned_s)
        self._settle()
        self._outcomes.long(self._jobs.all(), self._turned_s)
        self._give_back()
        await self._begin_isolated()
        now = self._loop.time()
        due_s = self._isolation.due_in(self._in_pools, now)
        holds = self._isolation.holds_any
        wanted = self._prefetch.wanted(self._in_hand, self._lock_s) if fetch and not holds else 0
        self._polling = True
        try:
            messages = await self._consumer.poll(min(_POLL_S, due_s or _POLL_S), max_records=wanted)
        except WakeupError:
            return
        except SaslAuthenticationFailedError as error:  # raised once (CL-158)
            log.error("no node accepts this worker's token or password; it keeps trying: %s", error.message)
            return
        except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:  # raised once (CL-143)
            error = may_not_work(error, self._group_id, sorted(self._specs))
            log.error("this worker lacks a permission; it keeps trying: %s: %s", error.name, error.message)
            return
        finally:
            self._polling = False
            if wanted:
                self._isolation.asked(self._loop.time())
        self.is_ready = True
        self._take(messages)
        if self._tasks_begin and not messages.is_empty():
            await asyncio.sleep(0)  # asyncio handlers start now, before the next fetch is built and sent
        self._count()

    async def _begin_isolated(self) -> None:
        """Start the job of the next record that runs alone, if it is due (CL-146). The outcomes of earlier jobs are
        confirmed first, so that they are not lost if this job ends the process."""
        if self._isolation.due_in(self._in_pools, self._loop.time()) != 0:
            return
        try:
            await self._consumer.commit_sync(_COMMIT_S)
        except WakeupError:  # `stop` was called or a job ended meanwhile: the next turn handles that first
            return
        job = self._isolation.begin()
        self._pools[job.spec.topic].submit([job])

    def _is_isolated(self, job: Job) -> bool:
        """Return whether the job must run alone. A job in a separate process need not, since its crash affects no other
        job."""
        return not job.spec.in_process and runs_alone(job.delivery_count, self._group_limit)

    @property
    def _group_limit(self) -> int:
        """The group's delivery count limit from a leader's latest response, otherwise the one read at the start
        (CL-147)."""
        known = self._consumer.delivery_count_limit()
        return self._limits.deliveries if known is None else known

    @property
    def _dead_letter_topic(self) -> str:
        """The group's dead-letter topic, from the same source as `_group_limit`."""
        known = self._consumer.dead_letter_topic()
        return self._limits.letters_to if known is None else known

    @property
    def _in_pools(self) -> int:
        return sum(pool.in_hand for pool in set(self._pools.values()))

    def at_work(self) -> list[Job]:
        """Return the jobs whose handlers are running in this process, or have just ended in it."""
        running = [job for pool in set(self._pools.values()) for job in pool.at_work]
        return running + [one.job for one in self._finished]

    @property
    def _in_hand(self) -> int:
        return self._in_pools + self._isolation.waiting

    @property
    def _lock_s(self) -> float:
        known = self._consumer.acquisition_lock_timeout_ms()
        return known / 1000 if known else _LOCK_S

    def _take(self, messages: Messages) -> None:
        """Hand each record to its topic's pool of handlers, then start keeping the locks alive. In this order, a thread
        can start a job during the second step."""
        if messages.is_empty():
            return
        self._watch.refresh()
        keeping = self._consumer.keep_alive(messages, self._lost)
        kept = keeping.kept
        now = self._loop.time()
        by_pool: dict[Pool, list[Job]] = {}
        alone: list[Job] = []
        for message in kept.messages:
            topic = message.topic()
            spec = self._specs[topic]
            job = Job(spec, message, kept, now)
            if (error := message.error()) is not None:
                why = f"the record cannot be read: {error.name}: {error.message}"
                self._finished.append(Finished(job, Verdict(Kind.REJECTED, why), 0.0))
            elif self._jobs.has_succeeded(message):
                self._finished.append(Finished(job, Verdict(Kind.DONE, _DONE_BEFORE), 0.0))
            elif not self._jobs.take_over(message, kept):
                if self._isolation.is_running or self._is_isolated(job):
                    alone.append(job)
                else:
                    by_pool.setdefault(self._pools[topic], []).append(job)
        for pool, jobs in by_pool.items():
            if self._keep(jobs):
                pool.submit(jobs)
        if alone and self._keep(alone):
            self._isolation.add(alone, now)
        keeping.begin()

    def _keep(self, jobs: list[Job]) -> bool:
        """Return whether the worker runs these jobs; if it is stopping, their records go back to the group instead."""
        if self._stopping.is_set():
            self._to_release += jobs
            return False
        for job in jobs:
            self._jobs.add(job)
        return True

    def _report(self, finished: list[Finished]) -> None:
        """Note jobs that have ended. While other jobs wait for a handler, collect more ended jobs for one request."""
        self._finished += finished
        if not self._polling:
            return
        if sum(pool.waiting for pool in set(self._pools.values())):
            if self._gathering is None:
                self._gathering = self._loop.call_later(_GATHER_S, self._wake)
        else:
            self._wake()

    def _wake(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._polling:
            self._polling = False
            self._consumer.wakeup()

    def _settle(self) -> None:
        """Acknowledge the records of jobs that have ended; the next poll sends the acknowledgements."""
        self._acknowledging.send_due()
        finished, self._finished = self._finished, []
        for job, verdict, seconds in finished:
            self._prefetch.finished(seconds)
            count = job.delivery_count
            decision = decide(verdict, count, job.spec.retry, self._group_limit, random.random())
            self._jobs.remove(job)
            self._isolation.ended(job, self._loop.time())
            if self._watch.is_needed:
                self._note(job, verdict, seconds)
            if decision.step is Step.ACCEPT:
                self._jobs.remember(job.message)
            done = self._acknowledging.settle(job, decision)
            if verdict.kind is not Kind.DONE or verdict.why:
                limit, letters_to = self._group_limit, self._dead_letter_topic
                with self._watch.span_of(verdict):
                    now_s = self._loop.time()
                    self._outcomes.job(job, verdict, done, limit=limit, letters_to=letters_to, now_s=now_s)
            self._tally.job(job.spec.topic, decision.step.value, seconds)

    def _note(self, job: Job, verdict: Verdict, seconds: float) -> None:
        """Note a job's end for hooks and metrics, and its span for the acknowledgement of its record."""
        self._watch.ended(job.spec.topic, verdict, seconds)
        if verdict.kind is not Kind.DONE:
            self._watch.failed_elsewhere(partial(JobInfo.of, job), verdict)
        if verdict.note is not None and verdict.note.traceparent:
            trace = delivered_of(job.message).trace
            if trace is not None:
                trace.jobs[job.message.offset()] = own_context_of(verdict.note.traceparent)

    def _give_back(self) -> None:
        """Release records that have waited too long for a handler, because jobs have become slower. A record that runs
        alone is kept: no others are requested, so it is next."""
        wait_s = min(_WAIT_S, self._lock_s / _WAIT_OF_LOCK)
        before = self._loop.time() - wait_s
        for pool in set(self._pools.values()):
            if pool.waiting and (jobs := pool.take_back(lambda job: self._waits_too_long(job, before))):
                self._tally.events["given_back"] += len(jobs)
                log.warning(
                    "%d records waited more than %g s for a handler and are given back to the group, the first %s; "
                    "this does not count as a delivery: all %d handlers are busy with longer jobs than before",
                    len(jobs), wait_s, jobs[0].place, pool.size,
                )  # fmt: skip
                for job in jobs:
                    self._jobs.remove(job)
                    self._acknowledging.take_back(job)
                self._prefetch.stalled()

    def _count(self) -> None:
        pools = set(self._pools.values())
        self._tally.running = sum(pool.running for pool in pools)
        self._tally.waiting = sum(pool.waiting for pool in pools) + self._isolation.waiting
        self._tally.held = self._acknowledging.held

    def _lost(self, messages: list[Message]) -> None:
        self._tally.events["lost_locks"] += len(messages)

    def _acknowledged(self, offsets: Mapping[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        """Handle the outcome of acknowledgements. If an acknowledgement is refused, the record is normally
        delivered again and its job runs again. But if the job succeeded and the record comes back to this worker, it is
        accepted at once."""
        if error is None:
            for partition, found in offsets.items():
                self._jobs.confirmed(partition, found)
            return
        for partition, found in offsets.items():
            self._tally.events["refused_acknowledgements"] += len(found)
            some = ", ".join(map(str, sorted(found)[:10])) + (", …" if len(found) > 10 else "")
            log.warning(
                "%s-%d@%s: the outcome was not accepted (%s: %s). Unless it took effect anyway, or the record is "
                "archived, the record is redelivered: if its job succeeded and this worker gets it, it is accepted at "
                "once; any other job runs again",
                partition.topic, partition.partition, some, error.name, error.message,
            )  # fmt: skip

    # The end.

    async def _finish(self) -> None:
        """Let running jobs end within the grace period, and acknowledge their records.

        The other records are released without counting their delivery. The release is sent with the request that closes
        the session or, while jobs are still running, once no fetch of this worker is waiting at a leader, since such a
        fetch would acquire the records again.
        """
        back = self._to_release = [*self._to_release, *self._take_back_all()]
        deadline, release_at = self._loop.time() + self._grace, self._loop.time() + PARKED_S
        running = self._in_hand
        if running or back or self._acknowledging.held:
            text = "stopping: %d running jobs may take up to %g s more; %d records go back to the group"
            log.info(text, running, self._grace, len(back) + self._acknowledging.held)
        try:
            while self._in_hand and (left := deadline - self._loop.time()) > 0:
                timer = self._loop.call_later(min(left, max(0.0, release_at - self._loop.time()) or left), self._wake)
                await self._turn(fetch=False)
                timer.cancel()
                if self._loop.time() >= release_at:
                    self._release_back()
        finally:  # a second cancellation cuts off the jobs that are still running
            self._cut_off()
            self._tally.events["given_back"] += len(back) + self._acknowledging.forget_held()
            self._take_back_now()
            self._count()

    def _cut_off(self) -> None:
        """Stop waiting for running jobs: acknowledge those that have ended, and log the others."""
        for pool in set(self._pools.values()):
            unbegun = pool.take_back(lambda _: True)
            for job in pool.abandon():
                self._leave(job, "did not end", counts=self._cut_off_counts)
            for job in unbegun:
                self._leave(job, "did not start, as all handlers were busy,", counts=False)
        for job in self._isolation.take_back(lambda _: True):
            self._leave(job, "did not start, as it has failed often and runs alone,", counts=False)
        self._settle()

    def _leave(self, job: Job, how: str, *, counts: bool) -> None:
        """Log a job whose record goes back to the group, and release the record; at its last delivery, that archives
        it. `counts`: whether the delivery counts."""
        if not counts and not job.is_lost:
            self._acknowledging.take_back(job)
            text = "%s: %s %s within %g s; its job will run again, and this does not count as a delivery"
            log.warning(text, job.place, job.spec.name, how, self._grace)
            return
        if not job.is_lost:
            reason = f"its job {how} within {self._grace:g} s of the stop of its worker"
            self._acknowledging.release(job, 0, reason)
        count = job.delivery_count
        if count < self._group_limit or job.is_lost:
            log.warning("%s: %s %s within %g s; its job will run again", job.place, job.spec.name, how, self._grace)
            return
        letter = f"; it becomes a dead letter in {self._dead_letter_topic}" if self._dead_letter_topic else ""
        log.error(
            "%s: %s %s within %g s, and %s%s",
            job.place, job.spec.name, how, self._grace, archived(self._group_limit), letter,
        )  # fmt: skip
        self._tally.job(job.spec.topic, Step.ARCHIVE.value, self._loop.time() - job.waits_since)

    def _release_back(self) -> None:
        self._tally.events["given_back"] += len(self._to_release) + self._acknowledging.release_held()
        self._take_back_now()

    def _take_back_now(self) -> None:
        for job in self._to_release:
            self._acknowledging.take_back(job)
        self._to_release.clear()

    def _take_back_all(self) -> list[Job]:
        back = [job for pool in set(self._pools.values()) for job in pool.take_back(self._may_release)]
        back += self._isolation.take_back(self._may_release)
        for job in back:
            self._jobs.remove(job)
            self._isolation.ended(job, self._loop.time())
        return back

    def _waits_too_long(self, job: Job, before: float) -> bool:
        return job.waits_since < before and self._may_release(job) and not self._isolation.runs(job)

    def _may_release(self, job: Job) -> bool:
        """Return whether the record may be released without running its job. At its last delivery, a release could
        archive it."""
        return job.delivery_count < self._group_limit

    def _pools_for(self, concurrency: int) -> dict[str, Pool]:
        """Return the pool of each topic; handlers of one kind share a pool."""
        made: dict[str, Pool] = {}
        pools: dict[str, Pool] = {}
        for topic, spec in self._specs.items():
            kind = "task" if spec.is_async else "process" if spec.in_process else "thread"
            if kind not in made:
                made[kind] = self._pool(kind, concurrency)
            pools[topic] = made[kind]
        return pools

    def _pool(self, kind: str, size: int) -> Pool:
        if kind == "task":
            return TaskPool(size, self._report, self.give_up)
        if kind == "process":
            specs = {topic: spec for topic, spec in self._specs.items() if spec.in_process}
            return ProcessPool(size, specs, self._report, self.give_up)
        return ThreadPool(size, self._report)


def _place(message: Message) -> _Place:
    return message.topic_id(), message.partition(), message.offset()


def _is_same_record(one: Message, other: Message) -> bool:
    """Return whether both messages are the same record: a store that has lost its latest records may reuse their
    offsets."""
    return one.timestamp() == other.timestamp() and one.key() == other.key() and one.value() == other.value()


def _record_identity(message: Message) -> int:
    """Return a hash of the fields that `_is_same_record` compares."""
    return hash((message.timestamp(), message.key(), message.value()))
