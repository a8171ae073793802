"""Decides which shards this process may claim, may keep, or must give up (CM-3, CM-11, CM-12, CM-13). Pure.

It sends nothing and reads no clock: `ownership` carries out its plans and passes every reply back. A lost or late reply
is an input like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import islice
from typing import Final

from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity, RenewalOutcome
from shard_runtime.ownership.placement import target
from shard_runtime.ownership.shard_claims import HELD_PHASES, ClaimPhase, ShardClaim, ShardClaims
from shard_runtime.record_log.protocol import (
    ClaimAnswer,
    Claimed,
    ClaimRefused,
    ClaimRequest,
    HistoryChanged,
    OwnedElsewhere,
    Renewal,
    Renewed,
    ShardId,
    ShardKind,
    WaitHistory,
)

_HISTORIES_MAX: Final = 64
#: The number of shards whose targets one pass computes: about 10 ms of work.
_TARGETS_MAX: Final = 1_000


class Targets:
    """The node that each wanted shard targets (CM-11). Computing it costs a hash per node, so it is computed only when
    the nodes or the wanted shards changed, for a bounded number of shards at a time (CM-88)."""

    def __init__(self) -> None:
        self.wanted: frozenset[ShardId] = frozenset()
        self._nodes: Mapping[ShardKind, frozenset[int]] = {}
        self._found: dict[ShardId, int | None] = {}
        self._due: dict[ShardId, None] = {}

    @property
    def unfinished(self) -> bool:
        """Whether targets are still to be computed."""
        return bool(self._due)

    def change(self, wanted: frozenset[ShardId], nodes: Mapping[ShardKind, frozenset[int]]) -> None:
        """Note the shards whose target may have changed: few, unless nodes joined or left."""
        if nodes != self._nodes:
            self._found.clear()
            self._nodes = dict(nodes)
            self._due = dict.fromkeys(wanted | self.wanted)
        elif wanted is not self.wanted:
            self._due.update(dict.fromkeys(wanted ^ self.wanted))
        self.wanted = wanted

    def compute(self, most: int) -> list[ShardId]:
        """Compute the targets of at most `most` of the noted shards, and return these shards."""
        shards = list(islice(self._due, most))
        for shard in shards:
            del self._due[shard]
            if shard in self.wanted:
                self._found[shard] = target(shard, self._nodes.get(shard.kind, frozenset()))
            else:
                self._found.pop(shard, None)
        return shards

    def of(self, shard: ShardId, unknown: int | None = None) -> int | None:
        """Return the node that a shard targets; None when no node can have it, `unknown` while it is not computed."""
        return self._found.get(shard, unknown)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions: claims to send, shards to hand over. `forgotten`: shards that are neither held nor wanted any
    more."""

    claims: list[ClaimRequest] = field(default_factory=list)
    releases: list[ShardId] = field(default_factory=list)
    forgotten: list[ShardId] = field(default_factory=list)


class OwnershipCore:
    """The state of one process's shards."""

    def __init__(self, identity: OwnerIdentity, terms: LeaseTerms) -> None:
        self.identity = identity
        self.terms = terms
        self._shard_claims = ShardClaims()
        self._first_seen: dict[str, int] = {}
        self._claims_made = 0
        self._targets = Targets()
        self._misplaced: dict[ShardId, ShardClaim] = {}
        self._left_out = False

    # ---- what is known

    def claim_of(self, shard: ShardId) -> ShardClaim | None:
        """Return a shard's claim; None when it has none."""
        return self._shard_claims.get(shard)

    def shard_claims(self) -> Collection[ShardClaim]:
        """Return the claims of all shards that this process holds or is to hold."""
        return self._shard_claims.all()

    def held(self) -> list[ShardClaim]:
        """Return the claims of the shards that this process owned when last seen."""
        return self._shard_claims.held()

    def queued(self) -> list[ShardClaim]:
        """Return the claims of the shards that wait for their replay to start."""
        return list(self._shard_claims.within(ClaimPhase.QUEUED))

    def serving(self) -> list[ShardId]:
        """Return the shards that are served."""
        return [claim.shard for claim in self._shard_claims.within(ClaimPhase.SERVING)]

    def see_history(self, history: str, now_ms: int) -> None:
        """Note that this process saw `history` as the store's present one (CM-11a). Histories are never repeated."""
        if history and history not in self._first_seen:
            self._first_seen[history] = now_ms
            while len(self._first_seen) > _HISTORIES_MAX:
                del self._first_seen[next(iter(self._first_seen))]

    def waited(self, history: str, now_ms: int) -> bool:
        """Return whether this process has seen `history` for one lease by its own clock (CM-12)."""
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
        demand_of: Callable[[ShardId], int] = lambda shard: 0,
    ) -> Plan:
        """Claim shards that target this node and are not held; release held ones that target another live node.

        Shards no longer wanted (their topic was deleted) are released, too. At most `claims_max` shards are claimed and
        not served yet, those with the highest `demand_of` first (CM-88). If `unfinished`, reconcile again at once.
        """
        self._targets.change(wanted, nodes)
        plan = Plan()
        for shard in self._targets.compute(_TARGETS_MAX):
            self._retarget(shard)
        for claim in list(self._misplaced.values()):
            self._send_away(claim, plan)
        for claim in self._to_claim(now_ms, claims_max, demand_of):
            history = history_of(claim.shard)
            self.see_history(history, now_ms)
            plan.claims.append(self._claim(claim, history, now_ms))
        return plan

    @property
    def unfinished(self) -> bool:
        """Whether the last reconcile left targets to compute; the next one is then due at once."""
        return self._targets.unfinished

    def _retarget(self, shard: ShardId) -> None:
        wanted, found = shard in self._targets.wanted, self._targets.of(shard)
        if wanted and found == self.identity.node_id:
            self._shard_claims.targets_here(shard)
            self._misplaced.pop(shard, None)
        elif (claim := self._shard_claims.get(shard)) is not None:
            self._shard_claims.targets_elsewhere(claim)
            if wanted and found is None:  # no node may take it: keep it
                self._misplaced.pop(shard, None)
            else:
                self._misplaced[shard] = claim

    def _send_away(self, claim: ShardClaim, plan: Plan) -> None:
        """Plan to hand over a shard that belongs elsewhere; while a claim is in flight, wait for its reply first."""
        self._plan_release(claim, plan)
        if claim.phase is not ClaimPhase.FREE:
            return
        del self._misplaced[claim.shard]
        if claim.shard not in self._targets.wanted:
            self._shard_claims.forget(claim)
            plan.forgotten.append(claim.shard)
            return
        claim.unanswered, claim.next_try_ms, claim.waits_for_owner = None, 0, False
        claim.load_failed = claim.faulty = False

    def _to_claim(self, now_ms: int, claims_max: int, demand_of: Callable[[ShardId], int]) -> list[ShardClaim]:
        """Return the claims to send. When `claims_max` allows fewer than are due, groups and share state come first,
        since every partition needs them, then by demand, then by wait. Then half the bound is claimed at a time, since
        each choice goes through all due claims."""
        room = claims_max - self._shard_claims.unserved()
        self._left_out = len(self._shard_claims.open) > room
        if room <= 0 or (self._left_out and room < claims_max // 2):
            return []
        due = [claim for claim in self._shard_claims.open.values() if now_ms >= claim.next_try_ms]
        self._left_out = len(due) > room
        if not self._left_out:
            return due
        return nlargest(room, due, key=lambda each: (each.shard.kind is not ShardKind.TOPIC, demand_of(each.shard)))

    def claims_due(self, claims_max: int) -> bool:
        """Return whether there is room again for shards that the last reconcile left out; if so, reconcile now."""
        return self._left_out and self._shard_claims.unserved() <= claims_max // 2

    def release_all(self) -> list[ShardId]:
        """Return every held shard, to hand over when the process ends (CM-4)."""
        plan = Plan()
        for claim in self._shard_claims.held():
            self._plan_release(claim, plan)
        return plan.releases

    def _plan_release(self, claim: ShardClaim, plan: Plan) -> None:
        if claim.phase in HELD_PHASES and claim.phase is not ClaimPhase.RELEASING:
            self._shard_claims.enter(claim, ClaimPhase.RELEASING)
            plan.releases.append(claim.shard)

    # ---- claims

    def _claim(self, claim: ShardClaim, history: str, now_ms: int) -> ClaimRequest:
        self._shard_claims.enter(claim, ClaimPhase.CLAIMING)
        claim.waits_for_owner = claim.woken = False
        continued = claim.cont_epoch if now_ms < claim.cont_until_ms else 0
        waited = self.waited(history, now_ms)
        if claim.unanswered is not None:  # the reply was lost: the same nonce returns it, or claims (CM-12)
            request = replace(claim.unanswered, seen_history=history, waited=waited, cont_epoch=continued)
            request = replace(request, whole=self.terms.whole_before(history))
        else:
            self._claims_made += 1
            request = ClaimRequest(
                shard=claim.shard,
                node_id=self.identity.node_id,
                incarnation=self.identity.incarnation,
                address=self.identity.address,
                nonce=f"{self.identity.incarnation:016x}-{self._claims_made}",
                lease_ms=self.terms.lease_ms,
                floor=claim.floor,
                seen_history=history,
                dead=self.identity.dead,
                waited=waited,
                lossless=self.terms.lossless,
                durable=self.terms.durable,
                cont_epoch=continued,
                whole=self.terms.whole_before(history),
            )
        claim.unanswered = request
        return request

    def claim_answered(self, shard: ShardId, answer: ClaimAnswer, now_ms: int) -> bool:
        """Note the reply to a claim. Returns True when this process now owns the shard and may queue its replay."""
        claim = self._shard_claims.get(shard)
        if claim is None or claim.phase is not ClaimPhase.CLAIMING:
            return False
        claim.unanswered = None
        self._shard_claims.enter(claim, ClaimPhase.FREE)
        match answer:
            case Claimed():
                self._claimed(claim, answer, now_ms)
                return True
            case OwnedElsewhere():
                claim.waits_for_owner = True
                remaining_ms = min(max(answer.remaining_ms, 1), self.terms.lease_ms)
                # The owner may have released the shard between the claim and this reply: then try again at once (CM-4).
                claim.next_try_ms = now_ms + (0 if claim.woken else remaining_ms)
            case HistoryChanged():
                self.see_history(answer.history, now_ms)
                claim.next_try_ms = now_ms
            case WaitHistory():
                self.see_history(answer.history, now_ms)
                claim.next_try_ms = self._first_seen[answer.history] + self.terms.lease_ms
            case ClaimRefused():
                self._back_off(claim, now_ms)
        return False

    def _claimed(self, claim: ShardClaim, answer: Claimed, now_ms: int) -> None:
        self._shard_claims.enter(claim, ClaimPhase.QUEUED)
        claim.epoch = answer.epoch
        claim.floor = max(claim.floor, answer.epoch + 1)
        claim.deadline_ms = answer.sent_ms + self.terms.lease_ms
        claim.claim_history = claim.lease_history = answer.history
        claim.tail_confirmed = ""  # the reply to a repeated claim may have a later history than the owner record
        claim.repaired = ""
        claim.lossy = answer.lossy
        claim.cont_epoch = 0
        claim.served_ms = None

    def claim_unknown(self, shard: ShardId, now_ms: int) -> None:
        """Note that no reply came: the claim may have succeeded, so the next attempt repeats it with the same nonce."""
        claim = self._shard_claims.get(shard)
        if claim is not None and claim.phase is ClaimPhase.CLAIMING:
            self._shard_claims.enter(claim, ClaimPhase.FREE)
            claim.next_try_ms = now_ms + self.terms.retry_min_ms

    # ---- replay

    def loading(self, shard: ShardId) -> None:
        """Note that the replay of a queued shard starts."""
        self._shard_claims.enter(self._shard_claims[shard], ClaimPhase.LOADING)

    def load_failed(self, shard: ShardId, *, faulty: bool = False) -> bool:
        """Note a failed replay; the shard counts as failed until one succeeds (GC-153). `faulty`: the shard itself is
        at fault, so readiness does not wait for it (CM-86). Returns True when `faulty` is new."""
        claim = self._shard_claims[shard]
        claim.load_failed, news = True, faulty and not claim.faulty
        claim.faulty |= faulty
        return news

    def loaded(self, shard: ShardId, epoch: int, now_ms: int) -> bool:
        """Note a successful replay. Returns False when the shard was lost, or its release started, in the meantime.

        After a lossy claim the tail counts as repaired from now on, and renewals report it (CM-12 `tail_ok`).
        """
        claim = self._shard_claims.get(shard)
        if claim is None or claim.epoch != epoch or claim.phase is not ClaimPhase.LOADING:
            return False
        self._shard_claims.enter(claim, ClaimPhase.SERVING)
        claim.load_failed = claim.faulty = False
        claim.served_ms = now_ms
        if claim.lossy:
            claim.repaired = claim.claim_history
        return True

    # ---- renewals

    def to_renew(self) -> list[ShardId]:
        """Return every held shard, those whose leases end soonest first."""
        return [claim.shard for claim in sorted(self._shard_claims.held(), key=lambda each: each.deadline_ms)]

    def renewals(self, tail_checked: Callable[[ShardId], str], among: Iterable[ShardId] | None = None) -> list[Renewal]:
        """Return one renewal for each held shard, or only for those in `among`."""
        named = map(self._shard_claims.get, self.to_renew() if among is None else among)
        return [self._renewal(each, tail_checked) for each in named if each is not None and each.phase in HELD_PHASES]

    def final_renewals(self, shard: ShardId, tail_checked: Callable[[ShardId], str]) -> list[Renewal]:
        """Return the renewal to send before a release, to record that the tail is whole; none when the owner record
        has that already. Without it, a log whose end has just jumped would jump again at the next claim (CM-104)."""
        claim = self._shard_claims.get(shard)
        renewals = [] if claim is None else [self._renewal(claim, tail_checked)]
        return [renewal for renewal in renewals if renewal.tail_ok]

    def _renewal(self, claim: ShardClaim, tail_checked: Callable[[ShardId], str]) -> Renewal:
        tail_ok = tail_checked(claim.shard) or claim.repaired
        reported = "" if tail_ok == claim.tail_confirmed else tail_ok
        return Renewal(claim.shard, self.identity.incarnation, claim.epoch, self.terms.lease_ms, reported)

    def renewed(self, renewal: Renewal, answer: Renewed | None, now_ms: int) -> RenewalOutcome:
        """Note the reply to one renewal (CM-3). The caller drops the shard when the outcome has a `drop`.

        A lapsed lease becomes valid again only under the same history, because in that case no other process can have
        claimed.
        """
        claim = self._shard_claims.get(renewal.shard)
        if answer is not None:
            self.see_history(answer.history, now_ms)
        if claim is None or claim.epoch != renewal.epoch or claim.phase not in HELD_PHASES or answer is None:
            return RenewalOutcome()
        if not answer.ok:
            return RenewalOutcome(drop="the owner record is not ours any more")
        lapsed = now_ms >= claim.deadline_ms
        if lapsed and answer.history != claim.lease_history:
            return RenewalOutcome(drop="the lease had lapsed and the store's history changed")
        claim.deadline_ms = max(claim.deadline_ms, answer.sent_ms + self.terms.lease_ms)
        claim.lease_history = answer.history
        if renewal.tail_ok and renewal.tail_ok == answer.history:
            claim.tail_confirmed = answer.history
        return RenewalOutcome(deadline_ms=claim.deadline_ms, paused=lapsed)

    # ---- endings

    def dropped(self, shard: ShardId, now_ms: int, *, continued: bool, above_epoch: int = 0) -> None:
        """Note that the shard was dropped: claim it again at once, or after a back-off when drops follow each other.

        `continued`: this owner dropped it while its lease was valid, so the next claim may pass `cont_epoch` (CM-12).
        """
        claim = self._shard_claims.get(shard)
        if claim is None or claim.phase not in HELD_PHASES or claim.phase is ClaimPhase.RELEASING:
            return  # a hand-over is in progress, and `released` ends it
        claim.floor = max(claim.floor, above_epoch + 1 if above_epoch else 0)
        if continued and now_ms < claim.deadline_ms:
            claim.cont_epoch, claim.cont_until_ms = claim.epoch, claim.deadline_ms
        # What matters is the time served, not the time held: a replay that always fails after a minute must back off,
        # too.
        stable = claim.served_ms is not None and now_ms - claim.served_ms >= self.terms.stable_ms
        self._shard_claims.enter(claim, ClaimPhase.FREE)
        if stable:
            claim.failures = 0
            claim.next_try_ms = now_ms
        else:
            self._back_off(claim, now_ms)

    def released(self, shard: ShardId) -> None:
        """Note that the shard was handed over. This epoch is never used again, even if the release failed (CM-12)."""
        claim = self._shard_claims.get(shard)
        if claim is not None and claim.phase is ClaimPhase.RELEASING:
            self._shard_claims.enter(claim, ClaimPhase.FREE)
            claim.failures = 0
            claim.next_try_ms = 0

    def woken(self) -> None:
        """Note that some node released a shard: claim the shards that another node held again at once."""
        for claim in self._shard_claims.within(ClaimPhase.CLAIMING):
            claim.woken = True
        for claim in self._shard_claims.within(ClaimPhase.FREE):
            if claim.waits_for_owner:
                claim.next_try_ms = 0

    def next_try_ms(self, now_ms: int) -> int | None:
        """Return the earliest time after `now_ms` at which an open claim becomes due; None if there is none."""
        tries = (claim.next_try_ms for claim in self._shard_claims.open.values() if claim.next_try_ms > now_ms)
        return min(tries, default=None)

    def settled(self, wanted: Collection[ShardId], *, except_faulty: bool = False) -> bool:
        """Return whether this node serves every shard that targets it, as of the last reconcile.

        `except_faulty`: ignore shards marked `faulty` (see `load_failed`), unless no other shard is served (CM-86).
        """
        if any(not (except_faulty and claim.faulty) for claim in self._shard_claims.waiting()):
            return False  # the usual case, decided without a pass over all shards
        mine, served, left_out = self.identity.node_id, False, False
        for shard in wanted:
            if self._targets.of(shard, mine) != mine:
                continue
            claim = self._shard_claims.get(shard)
            if claim is not None and claim.phase is ClaimPhase.SERVING:
                served = True
            elif claim is None or not (except_faulty and claim.faulty):
                return False
            else:
                left_out = True
        return served or not left_out

    def faulty(self) -> list[ShardId]:
        """Return the shards whose load failed through a fault of their own and has not succeeded since."""
        return [claim.shard for claim in self._shard_claims.all() if claim.faulty]

    def _back_off(self, claim: ShardClaim, now_ms: int) -> None:
        """Schedule the next attempt: at once after the first failure, then after 100 ms, doubling."""
        delay_ms = self.terms.retry_min_ms << min(claim.failures - 1, 16) if claim.failures else 0
        claim.failures += 1
        claim.next_try_ms = now_ms + min(delay_ms, self.terms.retry_max_ms)
