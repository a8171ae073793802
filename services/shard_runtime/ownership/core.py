"""Which shards this process may claim, keeps, or must give up: the decisions of CM-3, CM-11, CM-12, CM-13. Pure.

It sends nothing and reads no clock: `ownership` carries out what it asks for and feeds every answer back. Losing an
answer, or getting it late, is an input like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Final

from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity, RenewalOutcome
from shard_runtime.ownership.targets import Targets
from shard_runtime.ownership.tenures import HELD_PHASES, Phase, Tenure, Tenures
from shard_runtime.record_log.protocol import (
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
#: Shards whose target is looked up in one reconcile, some 10 ms.
_LOOKS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: claims to send, shards to hand over. `forgotten` shards are neither held nor wanted any more."""

    claims: list[ClaimRequest] = field(default_factory=list)
    releases: list[ShardId] = field(default_factory=list)
    forgotten: list[ShardId] = field(default_factory=list)


class OwnershipCore:
    """The state of one process's shards."""

    def __init__(self, identity: OwnerIdentity, terms: LeaseTerms) -> None:
        self.identity = identity
        self.terms = terms
        self._tenures = Tenures()
        self._first_seen: dict[str, int] = {}
        self._claims_made = 0
        self._targets = Targets()
        self._astray: dict[ShardId, Tenure] = {}
        self._left_out = False

    # ---- what is known

    def tenure(self, shard: ShardId) -> Tenure | None:
        """The state of one shard."""
        return self._tenures.get(shard)

    def tenures(self) -> Collection[Tenure]:
        """All shards that this process holds or is to hold."""
        return self._tenures.all()

    def held(self) -> list[Tenure]:
        """Shards whose owner record was last known to be ours."""
        return self._tenures.held()

    def queued(self) -> list[Tenure]:
        """Shards that are claimed and wait for their replay."""
        return list(self._tenures.within(Phase.QUEUED))

    def serving(self) -> list[ShardId]:
        """Shards that are served."""
        return [tenure.shard for tenure in self._tenures.within(Phase.SERVING)]

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
        demand_of: Callable[[ShardId], int] = lambda shard: 0,
    ) -> Plan:
        """Claim what targets this node and is not held; release what is held and targets another live node.

        Shards that are no longer wanted (their topic is gone) are released too. At most `claims_max` shards are claimed
        and not served yet, of `demand_of` requests that wait for each (CM-88). `unfinished` tells of more to look at.
        """
        self._targets.change(wanted, nodes)
        plan = Plan()
        for shard in self._targets.look(_LOOKS_MAX):
            self._look_at(shard)
        for tenure in list(self._astray.values()):
            self._send_away(tenure, plan)
        for tenure in self._to_claim(now_ms, claims_max, demand_of):
            history = history_of(tenure.shard)
            self.see_history(history, now_ms)
            plan.claims.append(self._claim(tenure, history, now_ms))
        return plan

    @property
    def unfinished(self) -> bool:
        """Whether the last reconcile left shards to the next, which is due at once."""
        return self._targets.unfinished

    def _look_at(self, shard: ShardId) -> None:
        wanted, found = shard in self._targets.wanted, self._targets.of(shard)
        if wanted and found == self.identity.node_id:
            self._tenures.targets_here(shard)
            self._astray.pop(shard, None)
        elif (tenure := self._tenures.get(shard)) is not None:
            self._tenures.targets_elsewhere(tenure)
            if wanted and found is None:  # without a node for it, it stays where it is
                self._astray.pop(shard, None)
            else:
                self._astray[shard] = tenure

    def _send_away(self, tenure: Tenure, plan: Plan) -> None:
        """Hand over what is not to be here; of a claim under way the answer comes first."""
        self._plan_release(tenure, plan)
        if tenure.phase is not Phase.FREE:
            return
        del self._astray[tenure.shard]
        if tenure.shard not in self._targets.wanted:
            self._tenures.forget(tenure)
            plan.forgotten.append(tenure.shard)
            return
        tenure.unanswered, tenure.next_try_ms, tenure.waits_for_owner = None, 0, False
        tenure.load_failed = tenure.ill = False

    def _to_claim(self, now_ms: int, claims_max: int, demand_of: Callable[[ShardId], int]) -> list[Tenure]:
        """Of many, no more than will soon be loaded, half the bound at a time, for choosing looks at all: groups and
        share state, which each partition needs, then what is asked for most, then what has waited longest."""
        room = claims_max - self._tenures.unserved()
        self._left_out = len(self._tenures.open) > room
        if room <= 0 or (self._left_out and room < claims_max // 2):
            return []
        due = [tenure for tenure in self._tenures.open.values() if now_ms >= tenure.next_try_ms]
        self._left_out = len(due) > room
        if not self._left_out:
            return due
        return nlargest(room, due, key=lambda each: (each.shard.kind is not ShardKind.TOPIC, demand_of(each.shard)))

    def claims_due(self, claims_max: int) -> bool:
        """Whether there is room again for shards that the last reconcile left out."""
        return self._left_out and self._tenures.unserved() <= claims_max // 2

    def release_all(self) -> list[ShardId]:
        """Every shard that is held, on the way out (CM-4)."""
        plan = Plan()
        for tenure in self._tenures.held():
            self._plan_release(tenure, plan)
        return plan.releases

    def _plan_release(self, tenure: Tenure, plan: Plan) -> None:
        if tenure.phase in HELD_PHASES and tenure.phase is not Phase.RELEASING:
            self._tenures.enter(tenure, Phase.RELEASING)
            plan.releases.append(tenure.shard)

    # ---- claims

    def _claim(self, tenure: Tenure, history: str, now_ms: int) -> ClaimRequest:
        self._tenures.enter(tenure, Phase.CLAIMING)
        tenure.waits_for_owner = tenure.woken = False
        continued = tenure.cont_epoch if now_ms < tenure.cont_until_ms else 0
        waited = self.waited(history, now_ms)
        if tenure.unanswered is not None:  # the reply was lost: the same nonce finds out, or claims (CM-12)
            request = replace(tenure.unanswered, seen_history=history, waited=waited, cont_epoch=continued)
            request = replace(request, whole=self.terms.whole_before(history))
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
                whole=self.terms.whole_before(history),
            )
        tenure.unanswered = request
        return request

    def claim_answered(self, shard: ShardId, answer: ClaimAnswer, now_ms: int) -> bool:
        """Take a claim's answer in; True when the shard is ours now and its replay may be queued."""
        tenure = self._tenures.get(shard)
        if tenure is None or tenure.phase is not Phase.CLAIMING:
            return False
        tenure.unanswered = None
        self._tenures.enter(tenure, Phase.FREE)
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
        self._tenures.enter(tenure, Phase.QUEUED)
        tenure.epoch = answer.epoch
        tenure.floor = max(tenure.floor, answer.epoch + 1)
        tenure.deadline_ms = answer.sent_ms + self.terms.lease_ms
        tenure.claim_history = tenure.lease_history = answer.history
        tenure.tail_confirmed = ""  # a repeated claim may be answered under a later history than the record's
        tenure.repaired = ""
        tenure.lossy = answer.lossy
        tenure.cont_epoch = 0
        tenure.served_ms = None

    def claim_unknown(self, shard: ShardId, now_ms: int) -> None:
        """No answer came; the claim may stand. The next try repeats it under its nonce."""
        tenure = self._tenures.get(shard)
        if tenure is not None and tenure.phase is Phase.CLAIMING:
            self._tenures.enter(tenure, Phase.FREE)
            tenure.next_try_ms = now_ms + self.terms.retry_min_ms

    # ---- replay

    def loading(self, shard: ShardId) -> None:
        """The replay of a queued shard begins."""
        self._tenures.enter(self._tenures[shard], Phase.LOADING)

    def load_failed(self, shard: ShardId, *, ill: bool = False) -> bool:
        """The replay failed; the shard counts as failed until one succeeds (GC-153). `ill`: for a reason of its own,
        so that nobody need wait for it (CM-86); True when that is new."""
        tenure = self._tenures[shard]
        tenure.load_failed, news = True, ill and not tenure.ill
        tenure.ill |= ill
        return news

    def loaded(self, shard: ShardId, epoch: int, now_ms: int) -> bool:
        """The replay ended well; False when the shard was lost or is being released meanwhile.

        After a lossy claim this is the moment the tail counts as repaired, so renewals say so (CM-12 `tail_ok`).
        """
        tenure = self._tenures.get(shard)
        if tenure is None or tenure.epoch != epoch or tenure.phase is not Phase.LOADING:
            return False
        self._tenures.enter(tenure, Phase.SERVING)
        tenure.load_failed = tenure.ill = False
        tenure.served_ms = now_ms
        if tenure.lossy:
            tenure.repaired = tenure.claim_history
        return True

    # ---- renewals

    def to_renew(self) -> list[ShardId]:
        """Every held shard, the lease that ends first at the front."""
        return [tenure.shard for tenure in sorted(self._tenures.held(), key=lambda each: each.deadline_ms)]

    def renewals(self, tail_checked: Callable[[ShardId], str], among: Iterable[ShardId] | None = None) -> list[Renewal]:
        """One renewal for every held shard, or for those of them that are named."""
        named = map(self._tenures.get, self.to_renew() if among is None else among)
        return [self._renewal(each, tail_checked) for each in named if each is not None and each.phase in HELD_PHASES]

    def last_word(self, shard: ShardId, tail_checked: Callable[[ShardId], str]) -> list[Renewal]:
        """Before a shard is given up: that its tail is whole, unless the owner record says so already. A log that
        jumped just now must not jump again for want of that (CM-104)."""
        tenure = self._tenures.get(shard)
        renewals = [] if tenure is None else [self._renewal(tenure, tail_checked)]
        return [renewal for renewal in renewals if renewal.tail_ok]

    def _renewal(self, tenure: Tenure, tail_checked: Callable[[ShardId], str]) -> Renewal:
        tail_ok = tail_checked(tenure.shard) or tenure.repaired
        told = "" if tail_ok == tenure.tail_confirmed else tail_ok
        return Renewal(tenure.shard, self.identity.incarnation, tenure.epoch, self.terms.lease_ms, told)

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
        # Served for so long, not held: a replay that fails after a minute must not be begun again at once, for ever.
        stable = tenure.served_ms is not None and now_ms - tenure.served_ms >= self.terms.stable_ms
        self._tenures.enter(tenure, Phase.FREE)
        if stable:
            tenure.failures = 0
            tenure.next_try_ms = now_ms
        else:
            self._back_off(tenure, now_ms)

    def released(self, shard: ShardId) -> None:
        """The shard was handed over, whatever the store answered: this epoch is never served again (CM-12)."""
        tenure = self._tenures.get(shard)
        if tenure is not None and tenure.phase is Phase.RELEASING:
            self._tenures.enter(tenure, Phase.FREE)
            tenure.failures = 0
            tenure.next_try_ms = 0

    def woken(self) -> None:
        """A shard was released somewhere: ask again for those that another node held."""
        for tenure in self._tenures.within(Phase.CLAIMING):
            tenure.woken = True
        for tenure in self._tenures.within(Phase.FREE):
            if tenure.waits_for_owner:
                tenure.next_try_ms = 0

    def next_try_ms(self, now_ms: int) -> int | None:
        """When the next waiting claim is due, later than `now_ms`; None when none waits."""
        tries = (tenure.next_try_ms for tenure in self._tenures.open.values() if tenure.next_try_ms > now_ms)
        return min(tries, default=None)

    def settled(self, wanted: Collection[ShardId], *, but_for_ill: bool = False) -> bool:
        """Whether every shard that targets this node is served by it, as of the last reconcile.

        `but_for_ill`: leaving out those that are ill, unless nothing else is served (CM-86).
        """
        if any(not (but_for_ill and tenure.ill) for tenure in self._tenures.waiting()):
            return False  # most often, and without a look at all
        mine, served, left_out = self.identity.node_id, False, False
        for shard in wanted:
            if self._targets.of(shard, mine) != mine:
                continue
            tenure = self._tenures.get(shard)
            if tenure is not None and tenure.phase is Phase.SERVING:
                served = True
            elif tenure is None or not (but_for_ill and tenure.ill):
                return False
            else:
                left_out = True
        return served or not left_out

    def ill(self) -> list[ShardId]:
        """The shards that could not be loaded for a reason of their own, and have not been since."""
        return [tenure.shard for tenure in self._tenures.all() if tenure.ill]

    def _back_off(self, tenure: Tenure, now_ms: int) -> None:
        """The first failure is retried at once, further ones after 100 ms, doubling."""
        delay_ms = self.terms.retry_min_ms << min(tenure.failures - 1, 16) if tenure.failures else 0
        tenure.failures += 1
        tenure.next_try_ms = now_ms + min(delay_ms, self.terms.retry_max_ms)
