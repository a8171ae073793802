"""Keeps the leases of one process, claims shards that target it, hands over those that do not (CM-3, CM-4, CM-12).

`core` decides; this module sends and waits. Hosts and leaders serve, each checking its `Lease`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from kip932.errors import RetriableError
from shard_runtime.clock import Clock
from shard_runtime.ownership.core import OwnershipCore
from shard_runtime.ownership.lease import Lease
from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity, RenewalOutcome
from shard_runtime.ownership.owner_hints import OwnHints
from shard_runtime.ownership.placement import candidates
from shard_runtime.ownership.shard_claims import ClaimPhase, ShardClaim
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.cluster_store import ClusterStore, NodeRecord
from shard_runtime.record_log.protocol import (
    Claimed,
    ClaimRefused,
    ClaimRequest,
    DamagedEntryError,
    LogError,
    RecordLog,
    Renewal,
    ShardId,
    ShardKind,
)

__all__ = ["Ownership", "OwnershipOptions", "ShardOwner"]

log = structlog.get_logger(__name__)


class ShardOwner(Protocol):
    """Serves one shard while this process owns it: a `ShardHost` or a partition leader.

    Ownership calls `gained` once per claim; then `lost`, or `releasing` and after it `lost`. Before each response the
    owner checks its lease.
    """

    @property
    def demand(self) -> int:
        """How many requests were refused because the shard is not served here; shards with the most are replayed first
        (CM-12)."""
        ...

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """After a durable claim: replay, repair a lost tail (CM-47), then serve; answer only while `lease` is valid.

        The call is cancelled when the shard is lost in the meantime. When it raises, the shard is dropped and claimed
        again later.
        """
        ...

    def lost(self, reason: str) -> None:
        """Stop serving the lost shard: from now on respond only with NOT_COORDINATOR or NOT_LEADER_OR_FOLLOWER for
        it."""
        ...

    async def releasing(self) -> None:
        """Refuse new work, finish the last flush and outgoing calls, forget the shard; return when done (CM-4)."""
        ...


@dataclass(frozen=True, slots=True)
class OwnershipOptions:
    """Bounds of ownership; times in milliseconds."""

    tick_ms: int = 1_000
    claims_max: int = 512
    """How many shards may be claimed, or being claimed, and not served yet; each needs its lease renewed (CM-88)."""
    checks_max: int = 2_000
    """How many leases are checked before other tasks get a turn."""
    renewals_max: int = 2_000
    """How many leases one call renews: a call with forty thousand would block everything else for half a second."""
    long_tick_ms: int = 5
    """A tick that takes longer than this is followed by a pause of the same length (CM-87): with very many shards each
    tick takes long, and each reply triggers another tick."""
    loads_max: int = 4
    release_timeout_ms: int = 10_000


class Renewals:
    """Renews the leases of all held shards in rounds, at most `most` per call (CM-3, CM-88); `core` judges the replies.

    Each store node (named by its history) has a round of its own, so a node that does not answer costs no leases on
    other nodes. Within a round, calls are made one after the other, so that tens of thousands of leases do not occupy
    this process or the store for long.
    """

    def __init__(
        self,
        record_log: RecordLog,
        core: OwnershipCore,
        clock: Clock,
        *,
        renewed: Callable[[Renewal, RenewalOutcome], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        most: int,
    ) -> None:
        self._log = record_log
        self._core = core
        self._clock = clock
        self._renewed = renewed
        self._spawn = spawn
        self._most = most
        self._under_way: set[str] = set()
        self._sorting = False

    def start(self) -> None:
        """Start a round for each store node whose last one has ended."""
        if not self._sorting:
            self._sorting = True
            self._spawn(self._begin(self._core.to_renew()))

    async def _begin(self, shards: Sequence[ShardId]) -> None:
        groups: defaultdict[str, list[ShardId]] = defaultdict(list)
        try:
            for first in range(0, len(shards), self._most):
                for shard in shards[first : first + self._most]:
                    groups[self._log.history_of(shard)].append(shard)
                await asyncio.sleep(0)
        finally:
            self._sorting = False
        for node in groups.keys() - self._under_way:
            self._under_way.add(node)
            self._spawn(self._round(node, groups[node]))

    async def _round(self, node: str, shards: Sequence[ShardId]) -> None:
        try:
            for first in range(0, len(shards), self._most):
                among = shards[first : first + self._most]
                await self._renew(self._core.renewals(self._log.tail_checked, among))
        except LogError as error:  # the next round starts with the leases that end first
            log.warning("lease_renewal_failed", shards=len(shards), cause=str(error))
        finally:
            self._under_way.discard(node)

    async def _renew(self, renewals: Sequence[Renewal]) -> None:
        answers = await self._log.renew(renewals)
        now_ms = self._clock.now_ms()
        for renewal, answer in zip(renewals, answers, strict=True):
            self._renewed(renewal, self._core.renewed(renewal, answer, now_ms))


class LeaseChecks:
    """Checks each of `leases`: calls `lost` for a shard that the log found lost, and counts an interruption when a
    store node becomes unavailable and again when it is back.

    With at most `checks_max` leases, all are checked at each tick. With more, they are checked once per `tick_ms`, in
    slices of `checks_max`; other tasks run between the slices (CM-88).
    """

    def __init__(
        self,
        record_log: RecordLog,
        clock: Clock,
        leases: Mapping[ShardId, Lease],
        lost: Callable[[ShardId, LogError], None],
        options: OwnershipOptions,
    ) -> None:
        self._log = record_log
        self._clock = clock
        self._leases = leases
        self._lost = lost
        self._options = options
        self._away: set[ShardId] = set()
        self._began_ms = 0
        self._running = False

    def tick(self) -> Coroutine[Any, Any, None] | None:
        """Check the leases. With very many, returns a coroutine that does so, for the caller to run."""
        now_ms, options = self._clock.now_ms(), self._options
        if len(self._leases) <= options.checks_max:
            self._check(list(self._leases))
        elif not self._running and now_ms - self._began_ms >= options.tick_ms * 9 // 10:
            self._running, self._began_ms = True, now_ms
            return self._check_in_slices(list(self._leases))
        return None

    def ended(self, shard: ShardId) -> None:
        """Forget a shard whose lease has ended."""
        self._away.discard(shard)

    async def _check_in_slices(self, shards: Sequence[ShardId]) -> None:
        try:
            for first in range(0, len(shards), self._options.checks_max):
                self._check(shards[first : first + self._options.checks_max])
                await asyncio.sleep(0)
        finally:
            self._running = False

    def _check(self, shards: Sequence[ShardId]) -> None:
        available: dict[str, bool] = {}  # at this moment, by store node; its history names the node
        for shard in shards:
            lease = self._leases.get(shard)
            if lease is None:
                continue
            failure = self._log.lost(shard)
            if failure is not None:
                self._lost(shard, failure)
                continue
            node = self._log.history_of(shard)
            if node not in available:
                available[node] = self._log.available_for(shard)
            if available[node] == (shard in self._away):
                lease.paused()
                self._away ^= {shard}


class Ownership:
    """Claims, renews and releases the shards of this process.

    `shards` lists the existing shards of the kinds this process has owners for; `owner_of` returns a shard's owner;
    `nodes` returns the nodes as last seen. `deleted` returns whether a shard's topic is known to be deleted: its
    streams are then removed instead of released (CM-21). `claimed` is called with each claim's epoch, `forgotten` with
    each shard that is no longer wanted.
    """

    def __init__(
        self,
        record_log: RecordLog,
        store: ClusterStore,
        clock: Clock,
        identity: OwnerIdentity,
        *,
        shards: Callable[[], Collection[ShardId]],
        owner_of: Callable[[ShardId], ShardOwner],
        nodes: Callable[[], Sequence[NodeRecord]],
        deleted: Callable[[ShardId], bool] = lambda shard: False,
        claimed: Callable[[ShardId, int], None] = lambda shard, epoch: None,
        forgotten: Callable[[ShardId], None] = lambda shard: None,
        terms: LeaseTerms | None = None,
        options: OwnershipOptions | None = None,
    ) -> None:
        self.core = OwnershipCore(identity, terms or LeaseTerms())
        self._log = record_log
        self._clock = clock
        self._shards = shards
        self._owner_of = owner_of
        self._nodes = nodes
        self._deleted = deleted
        self._claimed = claimed
        self._forgotten = forgotten
        self._options = options = options or OwnershipOptions()
        self._leases: dict[ShardId, Lease] = {}
        self._claims: dict[ShardId, Claimed] = {}
        self._loads: dict[ShardId, asyncio.Task[None]] = {}
        self._to_load: deque[ShardClaim] = deque()
        self._lease_checks = LeaseChecks(record_log, clock, self._leases, self._lost, options)
        self._hints = OwnHints(store, clock, identity.node_id, self._leases_to_publish, self.core.terms.lease_ms)
        self._tasks: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._claims_sent: set[asyncio.Task[None]] = set()
        self._forgetting: dict[ShardId, asyncio.Task[None]] = {}
        self._renewals = Renewals(
            record_log, self.core, clock, renewed=self._renewed, spawn=self._spawn, most=options.renewals_max
        )
        self._renewed_ms = 0
        self._woken = False
        self._wake = asyncio.Event()
        self._faults = RateLimitedLog(log, every_s=60.0)
        self._runner: asyncio.Task[None] | None = None
        self._leaving = False

    # ---- for others

    def lease(self, shard: ShardId) -> Lease | None:
        """Return the lease of a shard held here; None for any other."""
        return self._leases.get(shard)

    def serving(self) -> list[ShardId]:
        """Return the shards whose replay is done and whose owners serve them."""
        return self.core.serving()

    def settled(self, *, except_faulty: bool = False) -> bool:
        """Return whether this node serves every shard that targets it; `except_faulty`: all that it can (CM-86)."""
        return self.core.settled(self._shards(), except_faulty=except_faulty)

    def wake(self) -> None:
        """Reconcile now instead of at the next tick: a shard was released, or the metadata or the nodes changed."""
        self._woken = True
        self._wake.set()

    def start(self) -> None:
        """Start claiming and renewing."""
        self._runner = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Hand every shard over and end (CM-4). The caller must first set its node state to `leaving`."""
        self._leaving = True
        self._release_all()
        while under_way := self._releases | self._claims_sent:  # a claim that still succeeds is handed over, too
            await asyncio.wait(under_way)
        if self._runner is not None:
            self._runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._runner
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shard in list(self._leases):
            self._drop(shard, "the process ends", continued=False)

    # ---- the loop

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            began = self._clock.now_ms()
            try:
                self._tick()
            except Exception:
                log.exception("ownership_tick_failed")
            took_ms = self._clock.now_ms() - began
            await asyncio.sleep(took_ms / 1000 if took_ms > self._options.long_tick_ms else 0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()

    def _pause_s(self) -> float:
        now_ms = self._clock.now_ms()
        next_try_ms = self.core.next_try_ms(now_ms)
        wait_ms = self._options.tick_ms if next_try_ms is None else next_try_ms - now_ms
        return min(max(wait_ms, 5), self._options.tick_ms) / 1000

    def _tick(self) -> None:
        if self._woken:
            self._woken = False
            self.core.woken()
        self._check_store()
        if self._renewals_due():
            self._renewed_ms = self._clock.now_ms()
            self._renewals.start()
        if not self._leaving:
            self._reconcile()
        self._order_loads()
        self._start_loads()
        if hints := self._hints.tick():
            self._spawn(hints)

    def _renewals_due(self) -> bool:
        return bool(self._leases) and self._clock.now_ms() - self._renewed_ms >= self._options.tick_ms * 9 // 10

    def _check_store(self) -> None:
        self.core.see_history(self._log.history, self._clock.now_ms())
        if checks := self._lease_checks.tick():
            self._spawn(checks)

    def _reconcile(self) -> None:
        nodes = self._nodes()
        if not nodes:
            return
        by_kind = {kind: candidates(nodes, kind) for kind in ShardKind}
        plan = self.core.reconcile(
            frozenset(self._shards()),
            by_kind,
            self._clock.now_ms(),
            history_of=self._log.history_of,
            claims_max=self._options.claims_max,
            demand_of=self._demand_of,
        )
        for request in plan.claims:
            task = self._spawn(self._claim(request))
            self._claims_sent.add(task)
            task.add_done_callback(self._claims_sent.discard)
        for shard in plan.releases:
            self._start_release(shard)
        for shard in plan.forgotten:
            self._forgotten(shard)
        if self.core.unfinished:
            self._wake.set()

    def _demand_of(self, shard: ShardId) -> int:
        return self._owner_of(shard).demand

    def _order_loads(self) -> None:
        """Once per tick, order the shards that wait for their replay: most demand first, those marked `faulty` last."""
        queued = self.core.queued()
        if len(queued) > 1:
            queued.sort(key=lambda claim: (claim.faulty, -self._owner_of(claim.shard).demand))
        self._to_load = deque(queued)

    def _start_loads(self) -> None:
        while self._to_load and len(self._loads) < self._options.loads_max:
            claim = self._to_load.popleft()
            if claim.phase is ClaimPhase.QUEUED:
                self.core.loading(claim.shard)
                self._loads[claim.shard] = self._spawn(self._load(claim.shard, claim.epoch))

    def _renewed(self, renewal: Renewal, outcome: RenewalOutcome) -> None:
        lease = self._leases.get(renewal.shard)
        if outcome.drop:
            self._drop(renewal.shard, outcome.drop, continued=False)
        elif outcome.deadline_ms and lease is not None and lease.epoch == renewal.epoch:
            if outcome.paused:
                log.warning("lapsed_lease_renewed", shard=renewal.shard.tag, epoch=renewal.epoch)
                lease.paused()
            lease.extend(outcome.deadline_ms)

    # ---- claim, replay

    async def _claim(self, request: ClaimRequest) -> None:
        shard = request.shard
        try:
            if forgetting := self._forgetting.get(shard):
                await asyncio.wait([forgetting])
            answer = await self._log.claim(request)
        except LogError as error:
            log.warning("claim_unanswered", shard=shard.tag, cause=str(error), effect="the claim is repeated")
            self.core.claim_unknown(shard, self._clock.now_ms())
            return
        finally:
            self._wake.set()
        if isinstance(answer, ClaimRefused):
            log.warning("claim_refused", shard=shard.tag, cause=answer.reason)
        if self.core.claim_answered(shard, answer, self._clock.now_ms()) and isinstance(answer, Claimed):
            self._gained(shard, answer)
            if self._leaving:
                self._release_all()

    def _gained(self, shard: ShardId, claimed: Claimed) -> None:
        identity = self.core.identity
        if claimed.lossy:
            log.error("shard_tail_loss_suspected", shard=shard.tag, epoch=claimed.epoch)
        self._claims[shard] = claimed
        self._leases[shard] = Lease(
            shard,
            identity.incarnation,
            claimed.epoch,
            deadline_ms=claimed.sent_ms + self.core.terms.lease_ms,
            clock=self._clock,
            give_up=partial(self._given_up, shard, claimed.epoch),
        )
        self._hints.gained(shard)
        self._claimed(shard, claimed.epoch)

    async def _load(self, shard: ShardId, epoch: int) -> None:
        try:
            await self._owner_of(shard).gained(self._claims[shard], self._leases[shard])
        except Exception as error:
            away = isinstance(error, LogError | RetriableError)  # the store is unreachable, or another process claimed
            if not away:
                self._faults.error("shard_load_failed", key=shard, shard=shard.tag, epoch=epoch, exc_info=error)
            if (lease := self._leases.get(shard)) is not None and lease.epoch == epoch:
                if self.core.load_failed(shard, faulty=not away or isinstance(error, DamagedEntryError)):
                    log.error(
                        "shard_unavailable",
                        shard=shard.tag,
                        cause=repr(error),
                        effect="it is left out; the other shards are served",
                    )
                self._drop(shard, f"not loaded: {error}", continued=True)
            return
        finally:
            if self._loads.get(shard) is asyncio.current_task():
                del self._loads[shard]
            self._start_loads()
        self.core.loaded(shard, epoch, self._clock.now_ms())
        if self.core.claims_due(self._options.claims_max):
            self._wake.set()

    # ---- endings

    def _lost(self, shard: ShardId, failure: LogError) -> None:
        self._drop(shard, str(failure), continued=True)

    def _given_up(self, shard: ShardId, epoch: int, reason: str, above_epoch: int) -> None:
        lease = self._leases.get(shard)
        if lease is not None and lease.epoch == epoch:
            self._drop(shard, reason, continued=True, above_epoch=above_epoch)

    def _drop(self, shard: ShardId, reason: str, *, continued: bool, above_epoch: int = 0) -> None:
        """Stop serving a shard now; a later reconcile may claim it again."""
        log.warning("shard_dropped", shard=shard.tag, cause=reason)
        self.core.dropped(shard, self._clock.now_ms(), continued=continued, above_epoch=above_epoch)
        self._end_lease(shard)
        self._cancel_load(shard)
        try:
            self._owner_of(shard).lost(reason)
        except Exception:  # a bug in one owner must not affect the others
            log.exception("shard_loss_handling_failed", shard=shard.tag)
        self._forgetting[shard] = self._spawn(self._forget(shard))
        self._wake.set()

    def _end_lease(self, shard: ShardId) -> None:
        lease = self._leases.pop(shard, None)
        if lease is not None:
            lease.revoke()
        self._claims.pop(shard, None)
        self._lease_checks.ended(shard)

    def _cancel_load(self, shard: ShardId) -> None:
        load = self._loads.pop(shard, None)
        if load is not None and load is not asyncio.current_task():
            load.cancel()

    async def _forget(self, shard: ShardId) -> None:
        try:
            await self._log.drop(shard)
        finally:
            self._forgetting.pop(shard, None)

    def _release_all(self) -> None:
        for shard in self.core.release_all():
            self._start_release(shard)

    def _start_release(self, shard: ShardId) -> None:
        task = self._spawn(self._release(shard))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, shard: ShardId) -> None:
        """Hand one shard over. The owner stops answering before the release is sent (CM-12)."""
        lease, owner = self._leases.get(shard), self._owner_of(shard)
        load = self._loads.get(shard)
        self._cancel_load(shard)
        if load is not None:
            await asyncio.wait([load])
        try:
            async with asyncio.timeout(self._options.release_timeout_ms / 1000):
                await owner.releasing()
        except TimeoutError:
            log.warning("shard_released_unfinished", shard=shard.tag)
        except Exception:
            log.exception("shard_release_failed", shard=shard.tag)
        if lease is not None and self._leases.get(shard) is lease:
            self._end_lease(shard)
            owner.lost("it moves to another node")
            await self._send_release(shard, lease)
        self.core.released(shard)
        self._wake.set()

    async def _send_release(self, shard: ShardId, lease: Lease) -> None:
        try:
            if self._deleted(shard):
                await self._log.delete_streams(shard)
            else:
                await self._log.renew(self.core.final_renewals(shard, self._log.tail_checked))
                await self._log.release(shard, lease.incarnation, lease.epoch)
            await self._log.drop(shard)
        except LogError as error:
            log.warning(
                "shard_release_unconfirmed",
                shard=shard.tag,
                cause=str(error),
                effect="the lease expires by itself",
            )

    def _leases_to_publish(self, among: Collection[ShardId] | None = None) -> Iterator[Lease]:
        """Return the leases among `among` to publish as hints: not those of deleted topics, whose hints are removed
        (CM-21).

        Without `among`, return all held leases, unfiltered: the caller then passes them in slices (CM-96).
        """
        if among is None:
            return iter(self._leases.values())
        return (lease for each in among if (lease := self._leases.get(each)) is not None and not self._deleted(each))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("ownership_task_failed", exc_info=error)
