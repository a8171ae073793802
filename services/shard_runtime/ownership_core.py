"""Which shards this process may claim, keeps, or must give up: the decisions of CM-3, CM-11, CM-12, CM-13. Pure.

It sends nothing and reads no clock: `ownership` carries out what it asks for and feeds every answer back. Losing an
answer, or getting it late, is an input like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from shard_runtime.placement import target
from shard_runtime.record_log import (
    ClaimAnswer,
    Claimed,
    ClaimRefused,
    ClaimRequest,
    Held,
    HistoryChanged,
    Renewal,
    Renewed,
    ShardId,
    ShardKind,
    WaitHistory,
)

_HISTORIES_KEPT: Final = 64


class Phase(StrEnum):
    """Where this process stands with one shard."""

    FREE = "free"
    CLAIMING = "claiming"
    QUEUED = "queued"
    LOADING = "loading"
    SERVING = "serving"
    RELEASING = "releasing"


HELD_PHASES: Final = frozenset({Phase.QUEUED, Phase.LOADING, Phase.SERVING, Phase.RELEASING})


@dataclass(frozen=True, slots=True)
class OwnerIdentity:
    """What this process claims as. `dead`: earlier incarnations known gone, by the name's lock file (CM-12)."""

    node_id: int
    incarnation: int
    address: str
    dead: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How shards are claimed; times in milliseconds. `lossless`: a single store node with `appendfsync always`."""

    lease_ms: int = 3_000
    lossless: bool = False
    durable: bool = True
    retry_min_ms: int = 100
    retry_max_ms: int = 30_000
    stable_ms: int = 10_000


@dataclass(slots=True)
class Tenure:
    """This process's dealings with one shard."""

    shard: ShardId
    phase: Phase = Phase.FREE
    epoch: int = 0
    deadline_ms: int = 0
    claim_history: str = ""
    lease_history: str = ""
    tail_confirmed: str = ""
    repaired: str = ""
    lossy: bool = False
    floor: int = 0
    unanswered: ClaimRequest | None = None
    next_try_ms: int = 0
    waits_for_owner: bool = False
    woken: bool = False
    cont_epoch: int = 0
    cont_until_ms: int = 0
    gained_ms: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: claims to send, shards to hand over. `forgotten` shards are neither held nor wanted any more."""

    claims: list[ClaimRequest]
    releases: list[ShardId]
    forgotten: list[ShardId]


@dataclass(frozen=True, slots=True)
class RenewalOutcome:
    """What one renewal's answer means: `drop` is the reason to drop the shard; `paused`: the lease had lapsed."""

    drop: str = ""
    deadline_ms: int = 0
    paused: bool = False


class OwnershipCore:
    """The state of one process's shards."""

    def __init__(self, identity: OwnerIdentity, terms: LeaseTerms) -> None:
        self.identity = identity
        self.terms = terms
        self._tenures: dict[ShardId, Tenure] = {}
        self._first_seen: dict[str, int] = {}
        self._claims_made = 0
        self._placed: dict[ShardId, int | None] = {}
        self._placed_over: Mapping[ShardKind, frozenset[int]] = {}

    # ---- what is known

    def tenure(self, shard: ShardId) -> Tenure | None:
        """The state of one shard."""
        return self._tenures.get(shard)

    def held(self) -> list[Tenure]:
        """Shards whose owner record was last known to be ours."""
        return [tenure for tenure in self._tenures.values() if tenure.phase in HELD_PHASES]

    def queued(self) -> list[Tenure]:
        """Shards that are claimed and wait for their replay."""
        return [tenure for tenure in self._tenures.values() if tenure.phase is Phase.QUEUED]

    def see_history(self, history: str, now_ms: int) -> None:
        """This process saw `history` as the store's present one (CM-11a). Histories never come back."""
        if history and history not in self._first_seen:
            self._first_seen[history] = now_ms
            while len(self._first_seen) > _HISTORIES_KEPT:
                del self._first_seen[next(iter(self._first_seen))]

    def waited(self, history: str, now_ms: int) -> bool:
        """Whether this process has seen `history` for one lease by its own clock (CM-12)."""
        seen_ms = self._first_seen.get(history)
        return seen_ms is not None and now_ms - seen_ms >= self.terms.lease_ms

    # ---- reconcile

    def reconcile(
        self,
        wanted: frozenset[ShardId],
        nodes: Mapping[ShardKind, frozenset[int]],
        now_ms: int,
        *,
        history_of: Callable[[ShardId], str],
        claims_max: int,
    ) -> Plan:
        """Claim what targets this node and is not held; release what is held and targets another live node.

        Shards that are no longer wanted (their topic is gone) are released too. At most `claims_max` claims.
        """
        plan = Plan([], [], [])
        for shard in wanted:
            tenure = self._tenures.get(shard)
            if self._target(shard, nodes) == self.identity.node_id:
                if tenure is None:
                    tenure = self._tenures[shard] = Tenure(shard)
                if tenure.phase is Phase.FREE and now_ms >= tenure.next_try_ms and len(plan.claims) < claims_max:
                    history = history_of(shard)
                    self.see_history(history, now_ms)
                    plan.claims.append(self._claim(tenure, history, now_ms))
            elif tenure is not None and self._target(shard, nodes) is not None:
                self._plan_release(tenure, plan)
                if tenure.phase is Phase.FREE:
                    tenure.unanswered, tenure.next_try_ms, tenure.waits_for_owner = None, 0, False
        for shard in [shard for shard in self._tenures if shard not in wanted]:
            if self._tenures[shard].phase is Phase.FREE:
                del self._tenures[shard]
                self._placed.pop(shard, None)
                plan.forgotten.append(shard)
            else:
                self._plan_release(self._tenures[shard], plan)
        return plan

    def release_all(self) -> list[ShardId]:
        """Every shard that is held, on the way out (CM-4)."""
        plan = Plan([], [], [])
        for tenure in self._tenures.values():
            self._plan_release(tenure, plan)
        return plan.releases

    def _plan_release(self, tenure: Tenure, plan: Plan) -> None:
        if tenure.phase in HELD_PHASES and tenure.phase is not Phase.RELEASING:
            tenure.phase = Phase.RELEASING
            plan.releases.append(tenure.shard)

    def _target(self, shard: ShardId, nodes: Mapping[ShardKind, frozenset[int]]) -> int | None:
        if nodes != self._placed_over:
            self._placed.clear()
            self._placed_over = dict(nodes)
        if shard not in self._placed:
            self._placed[shard] = target(shard, nodes.get(shard.kind, frozenset()))
        return self._placed[shard]

    # ---- claims

    def _claim(self, tenure: Tenure, history: str, now_ms: int) -> ClaimRequest:
        tenure.phase = Phase.CLAIMING
        tenure.waits_for_owner = tenure.woken = False
        continued = tenure.cont_epoch if now_ms < tenure.cont_until_ms else 0
        waited = self.waited(history, now_ms)
        if tenure.unanswered is not None:  # the reply was lost: the same nonce finds out, or claims (CM-12)
            request = replace(tenure.unanswered, seen_history=history, waited=waited, cont_epoch=continued)
        else:
            self._claims_made += 1
            request = ClaimRequest(
                shard=tenure.shard,
                node_id=self.identity.node_id,
                incarnation=self.identity.incarnation,
                address=self.identity.address,
                nonce=f"{self.identity.incarnation:016x}-{self._claims_made}",
                lease_ms=self.terms.lease_ms,
                floor=tenure.floor,
                seen_history=history,
                dead=self.identity.dead,
                waited=waited,
                lossless=self.terms.lossless,
                durable=self.terms.durable,
                cont_epoch=continued,
            )
        tenure.unanswered = request
        return request

    def claim_answered(self, shard: ShardId, answer: ClaimAnswer, now_ms: int) -> bool:
        """Take a claim's answer in; True when the shard is ours now and its replay may be queued."""
        tenure = self._tenures.get(shard)
        if tenure is None or tenure.phase is not Phase.CLAIMING:
            return False
        tenure.unanswered = None
        tenure.phase = Phase.FREE
        match answer:
            case Claimed():
                self._claimed(tenure, answer, now_ms)
                return True
            case Held():
                tenure.waits_for_owner = True
                remaining_ms = min(max(answer.remaining_ms, 1), self.terms.lease_ms)
                # The release may have overtaken this answer: the claim was sent before it (CM-4).
                tenure.next_try_ms = now_ms + (0 if tenure.woken else remaining_ms)
            case HistoryChanged():
                self.see_history(answer.history, now_ms)
                tenure.next_try_ms = now_ms
            case WaitHistory():
                self.see_history(answer.history, now_ms)
                tenure.next_try_ms = self._first_seen[answer.history] + self.terms.lease_ms
            case ClaimRefused():
                self._back_off(tenure, now_ms)
        return False

    def _claimed(self, tenure: Tenure, answer: Claimed, now_ms: int) -> None:
        tenure.phase = Phase.QUEUED
        tenure.epoch = answer.epoch
        tenure.floor = max(tenure.floor, answer.epoch + 1)
        tenure.deadline_ms = answer.sent_ms + self.terms.lease_ms
        tenure.claim_history = tenure.lease_history = answer.history
        tenure.tail_confirmed = ""  # a repeated claim may be answered under a later history than the record's
        tenure.repaired = ""
        tenure.lossy = answer.lossy
        tenure.cont_epoch = 0
        tenure.gained_ms = now_ms

    def claim_unknown(self, shard: ShardId, now_ms: int) -> None:
        """No answer came; the claim may stand. The next try repeats it under its nonce."""
        tenure = self._tenures.get(shard)
        if tenure is not None and tenure.phase is Phase.CLAIMING:
            tenure.phase = Phase.FREE
            tenure.next_try_ms = now_ms + self.terms.retry_min_ms

    # ---- replay

    def loading(self, shard: ShardId) -> None:
        """The replay of a queued shard begins."""
        self._tenures[shard].phase = Phase.LOADING

    def loaded(self, shard: ShardId, epoch: int) -> bool:
        """The replay ended well; False when the shard was lost or is being released meanwhile.

        After a lossy claim this is the moment the tail counts as repaired, so renewals say so (CM-12 `tail_ok`).
        """
        tenure = self._tenures.get(shard)
        if tenure is None or tenure.epoch != epoch or tenure.phase is not Phase.LOADING:
            return False
        tenure.phase = Phase.SERVING
        if tenure.lossy:
            tenure.repaired = tenure.claim_history
        return True

    # ---- renewals

    def renewals(self, tail_checked: Callable[[ShardId], str]) -> list[Renewal]:
        """One renewal for every held shard."""
        renewals = []
        for tenure in self.held():
            tail_ok = tail_checked(tenure.shard) or tenure.repaired
            renewals.append(
                Renewal(
                    tenure.shard,
                    self.identity.incarnation,
                    tenure.epoch,
                    self.terms.lease_ms,
                    "" if tail_ok == tenure.tail_confirmed else tail_ok,
                )
            )
        return renewals

    def renewed(self, renewal: Renewal, answer: Renewed | None, now_ms: int) -> RenewalOutcome:
        """Take one renewal's answer in (CM-3). The caller drops the shard when the outcome says so.

        A lease that had lapsed revives only under the same history: then nobody else can have claimed.
        """
        tenure = self._tenures.get(renewal.shard)
        if answer is not None:
            self.see_history(answer.history, now_ms)
        if tenure is None or tenure.epoch != renewal.epoch or tenure.phase not in HELD_PHASES or answer is None:
            return RenewalOutcome()
        if not answer.ok:
            return RenewalOutcome(drop="the owner record is not ours any more")
        lapsed = now_ms >= tenure.deadline_ms
        if lapsed and answer.history != tenure.lease_history:
            return RenewalOutcome(drop="the lease had lapsed and the store's history changed")
        tenure.deadline_ms = max(tenure.deadline_ms, answer.sent_ms + self.terms.lease_ms)
        tenure.lease_history = answer.history
        if renewal.tail_ok and renewal.tail_ok == answer.history:
            tenure.tail_confirmed = answer.history
        return RenewalOutcome(deadline_ms=tenure.deadline_ms, paused=lapsed)

    # ---- endings

    def dropped(self, shard: ShardId, now_ms: int, *, continued: bool, above_epoch: int = 0) -> None:
        """The shard was dropped; it is claimed again like anyone else's, at once unless drops follow each other.

        `continued`: the owner itself gave it up while its lease ran, so `cont_epoch` may be passed (CM-12).
        """
        tenure = self._tenures.get(shard)
        if tenure is None or tenure.phase not in HELD_PHASES or tenure.phase is Phase.RELEASING:
            return  # a hand-over under way ends by itself
        tenure.floor = max(tenure.floor, above_epoch + 1 if above_epoch else 0)
        if continued and now_ms < tenure.deadline_ms:
            tenure.cont_epoch, tenure.cont_until_ms = tenure.epoch, tenure.deadline_ms
        stable = now_ms - tenure.gained_ms >= self.terms.stable_ms
        tenure.phase = Phase.FREE
        if stable:
            tenure.failures = 0
            tenure.next_try_ms = now_ms
        else:
            self._back_off(tenure, now_ms)

    def released(self, shard: ShardId) -> None:
        """The shard was handed over, whatever the store answered: this epoch is never served again (CM-12)."""
        tenure = self._tenures.get(shard)
        if tenure is not None and tenure.phase is Phase.RELEASING:
            tenure.phase = Phase.FREE
            tenure.failures = 0
            tenure.next_try_ms = 0

    def woken(self) -> None:
        """A shard was released somewhere: ask again for those that another node held."""
        for tenure in self._tenures.values():
            if tenure.phase is Phase.CLAIMING:
                tenure.woken = True
            elif tenure.waits_for_owner:
                tenure.next_try_ms = 0

    def next_try_ms(self, now_ms: int) -> int | None:
        """When the next waiting claim is due, later than `now_ms`; None when none waits."""
        tries = (tenure.next_try_ms for tenure in self._tenures.values() if tenure.phase is Phase.FREE)
        return min((try_ms for try_ms in tries if try_ms > now_ms), default=None)

    def settled(self, wanted: Collection[ShardId]) -> bool:
        """Whether every shard that targets this node is served by it, as of the last reconcile."""
        serving = {tenure.shard for tenure in self._tenures.values() if tenure.phase is Phase.SERVING}
        mine = self.identity.node_id
        return all(shard in self._placed and (self._placed[shard] != mine or shard in serving) for shard in wanted)

    def _back_off(self, tenure: Tenure, now_ms: int) -> None:
        """The first failure is retried at once, further ones after 100 ms, doubling."""
        delay_ms = self.terms.retry_min_ms << min(tenure.failures - 1, 16) if tenure.failures else 0
        tenure.failures += 1
        tenure.next_try_ms = now_ms + min(delay_ms, self.terms.retry_max_ms)
