"""Schedules of claims and renewals against the pure core: late, lost and refused replies, histories that change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shard_runtime.ownership.core import OwnershipCore, Plan
from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity
from shard_runtime.ownership.placement import target
from shard_runtime.ownership.shard_claims import ClaimPhase
from shard_runtime.record_log.protocol import (
    STREAM_START,
    Claimed,
    ClaimRefused,
    ClaimRequest,
    HistoryChanged,
    OwnedElsewhere,
    OwnerRecord,
    Renewed,
    ShardId,
    ShardKind,
    WaitHistory,
)

SHARDS = frozenset(ShardId(ShardKind.GROUP, str(n)) for n in range(50))
ONE = ShardId(ShardKind.GROUP, "7")
ME, OTHER = 1, 2
OWNER = OwnerRecord(OTHER, 99, "h:1", 5, 0, False, "h", "h", STREAM_START)


class Claims:
    """A core for one shard, with short names for its claims, its renewals and the replies to them."""

    def __init__(self) -> None:
        self.core = OwnershipCore(OwnerIdentity(ME, 77, "127.0.0.1:1", frozenset({76})), LeaseTerms())
        self.history = "h"
        self.nodes = {ShardKind.GROUP: frozenset({ME})}

    def plan(self, now_ms: int, shards: frozenset[ShardId] = frozenset({ONE})) -> Plan:
        return self.core.reconcile(shards, self.nodes, now_ms, history_of=lambda _: self.history, claims_max=100)

    def request(self, now_ms: int) -> ClaimRequest:
        (request,) = self.plan(now_ms).claims
        return request

    def gain(self, now_ms: int, epoch: int = 10, lossy: bool = False) -> None:
        self.request(now_ms)
        claimed = Claimed(epoch, lossy, STREAM_START, None, self.history, now_ms)
        assert self.core.claim_answered(ONE, claimed, now_ms)
        self.core.loading(ONE)
        assert self.core.loaded(ONE, epoch, now_ms)

    def renew(
        self, now_ms: int, ok: bool = True, history: str = "h", sent_ms: int | None = None, tail: str = ""
    ) -> str:
        (renewal,) = self.core.renewals(lambda _: tail)
        answer = Renewed(ok, history, now_ms if sent_ms is None else sent_ms)
        return self.core.renewed(renewal, answer, now_ms).drop


@pytest.mark.rule("CM-11")
def test_a_node_that_joins_moves_only_its_own_share() -> None:
    before = {shard: target(shard, [1, 2]) for shard in SHARDS}
    after = {shard: target(shard, [1, 2, 3]) for shard in SHARDS}
    moved = {shard for shard in SHARDS if before[shard] != after[shard]}
    assert moved
    assert {after[shard] for shard in moved} == {3}
    assert 10 <= sum(owner == 1 for owner in before.values()) <= 40


@pytest.mark.rule("CM-11")
def test_placement_is_the_same_on_every_platform() -> None:
    assert [target(ShardId(ShardKind.GROUP, str(n)), [1, 2, 3]) for n in range(8)] == GOLDEN
    assert target(ONE, []) is None


GOLDEN = [3, 2, 3, 3, 2, 3, 1, 2]


@pytest.mark.rule("CM-12")
def test_it_claims_all_that_target_it_in_one_tick_and_nothing_else() -> None:
    claims = Claims()
    claims.nodes = {ShardKind.GROUP: frozenset({ME, OTHER})}
    plan = claims.plan(0, SHARDS)
    assert {request.shard for request in plan.claims} == {s for s in SHARDS if target(s, [ME, OTHER]) == ME}
    assert claims.plan(1, SHARDS).claims == []


@pytest.mark.rule("CM-12")
def test_a_lost_reply_is_repeated_under_its_nonce_and_a_refusal_is_not() -> None:
    claims = Claims()
    first = claims.request(0)
    claims.core.claim_unknown(ONE, 10)
    assert claims.plan(10).claims == []
    again = claims.request(200)
    assert again.nonce == first.nonce
    claims.core.claim_answered(ONE, ClaimRefused("released"), 210)
    assert claims.request(5_000).nonce != first.nonce


@pytest.mark.rule("CM-12", "CM-11a")
def test_waited_means_one_lease_with_the_present_history_by_the_own_clock() -> None:
    claims = Claims()
    assert not claims.request(1_000).waited
    claims.core.claim_answered(ONE, WaitHistory("h"), 1_001)
    assert claims.plan(3_999).claims == []
    assert claims.request(4_000).waited
    claims.core.claim_answered(ONE, HistoryChanged("h2"), 4_001)
    claims.history = "h2"
    assert not claims.request(4_001).waited
    claims.core.claim_answered(ONE, WaitHistory("h2"), 4_010)
    assert claims.request(7_001).waited


@pytest.mark.rule("CM-12")
def test_the_first_claim_may_be_what_learns_the_history() -> None:
    claims = Claims()
    claims.history = ""
    request = claims.request(0)
    assert (request.seen_history, request.waited) == ("", False)
    claims.core.claim_answered(ONE, HistoryChanged("h"), 5)
    claims.history = "h"
    assert claims.request(5).seen_history == "h"
    assert claims.core.waited("h", 3_005)


@pytest.mark.rule("CM-12")
def test_a_shard_that_another_holds_is_asked_for_when_its_lease_ends_or_at_a_wake() -> None:
    claims = Claims()
    claims.request(0)
    claims.core.claim_answered(ONE, OwnedElsewhere(OWNER, 2_000), 10)
    assert claims.plan(2_009).claims == []
    assert claims.core.next_try_ms(10) == 2_010
    claims.core.woken()
    claims.request(20)
    claims.core.claim_answered(ONE, OwnedElsewhere(OWNER, 2_000), 30)
    assert claims.request(2_030)


@pytest.mark.rule("CM-3")
def test_the_deadline_counts_from_the_sending() -> None:
    claims = Claims()
    claims.gain(1_000)
    assert claims.core.claim_of(ONE).deadline_ms == 4_000  # type: ignore[union-attr]
    assert claims.renew(2_500, sent_ms=2_000) == ""
    assert claims.core.claim_of(ONE).deadline_ms == 5_000  # type: ignore[union-attr]


@pytest.mark.rule("CM-3")
def test_a_lapsed_lease_revives_under_the_same_history_only() -> None:
    claims = Claims()
    claims.gain(0)
    assert claims.renew(9_000) == ""
    assert "history changed" in claims.renew(20_000, history="h2")


@pytest.mark.rule("CM-3")
def test_a_changed_history_within_the_lease_keeps_the_shard_and_the_new_one_counts_from_then_on() -> None:
    claims = Claims()
    claims.gain(0)
    assert claims.renew(1_000, history="h2") == ""
    assert claims.renew(9_000, history="h2") == ""


@pytest.mark.rule("CM-3")
def test_a_refused_renewal_drops_and_an_unanswered_one_does_not() -> None:
    claims = Claims()
    claims.gain(0)
    (renewal,) = claims.core.renewals(lambda _: "")
    assert claims.core.renewed(renewal, None, 500).drop == ""
    assert claims.renew(1_000, ok=False) != ""


@pytest.mark.rule("CM-3")
def test_an_answer_for_an_earlier_epoch_changes_nothing() -> None:
    claims = Claims()
    claims.gain(0, epoch=10)
    (old,) = claims.core.renewals(lambda _: "")
    claims.core.dropped(ONE, 20_000, continued=False)
    claims.gain(20_000, epoch=12)
    assert claims.core.renewed(old, Renewed(False, "h", 20_001), 20_001).drop == ""
    assert claims.core.held()[0].epoch == 12


@pytest.mark.rule("CM-12", "CM-19")
def test_tail_ok_is_sent_until_it_is_confirmed() -> None:
    claims = Claims()
    claims.gain(0)
    assert claims.renew(1_000, history="h2") == ""
    (renewal,) = claims.core.renewals(lambda _: "h2")
    assert renewal.tail_ok == "h2"
    claims.core.renewed(renewal, Renewed(True, "h2", 1_500), 1_500)
    (renewal,) = claims.core.renewals(lambda _: "h2")
    assert renewal.tail_ok == ""


@pytest.mark.rule("CM-104")
def test_the_last_word_of_an_owner_is_that_its_tail_is_whole_unless_its_record_says_so_already() -> None:
    claims = Claims()
    claims.gain(0)
    (word,) = claims.core.final_renewals(ONE, lambda _: "h2")
    assert (word.shard, word.tail_ok) == (ONE, "h2")
    claims.core.renewed(word, Renewed(True, "h2", 500), 500)
    assert claims.core.final_renewals(ONE, lambda _: "h2") == []
    assert claims.core.final_renewals(ONE, lambda _: "") == [], "or it does not know"
    assert claims.core.final_renewals(ShardId(ShardKind.GROUP, "9"), lambda _: "h2") == [], "it is not its shard"


@pytest.mark.rule("CM-12", "CM-47")
def test_after_a_lossy_claim_the_tail_counts_as_whole_only_once_the_owner_has_loaded() -> None:
    claims = Claims()
    claims.request(0)
    claims.core.claim_answered(ONE, Claimed(10, True, STREAM_START, None, "h", 0), 0)
    (renewal,) = claims.core.renewals(lambda _: "")
    assert renewal.tail_ok == ""
    claims.core.loading(ONE)
    claims.core.loaded(ONE, 10, 0)
    (renewal,) = claims.core.renewals(lambda _: "")
    assert renewal.tail_ok == "h"


@pytest.mark.rule("CM-12", "CM-13")
def test_a_shard_given_up_within_its_lease_is_continued_above_its_floor() -> None:
    claims = Claims()
    claims.gain(0, epoch=10)
    claims.core.dropped(ONE, 1_000, continued=True, above_epoch=40)
    request = claims.request(1_000)
    assert (request.cont_epoch, request.floor) == (10, 41)
    claims.core.claim_unknown(ONE, 1_100)
    assert claims.request(3_500).cont_epoch == 0


@pytest.mark.rule("CM-12")
def test_a_refused_owner_never_continues_and_never_claims_below_what_it_held() -> None:
    claims = Claims()
    claims.gain(0, epoch=10)
    claims.core.dropped(ONE, 1_000, continued=False)
    request = claims.request(1_000)
    assert (request.cont_epoch, request.floor) == (0, 11)
    assert request.dead == frozenset({76})


def test_drops_that_follow_each_other_are_claimed_at_a_slower_pace() -> None:
    claims = Claims()
    now_ms, waits = 0, []
    for epoch in range(10, 16):
        claims.gain(now_ms, epoch)
        claims.core.dropped(ONE, now_ms, continued=True)
        waits.append((claims.core.next_try_ms(now_ms) or now_ms) - now_ms)
        now_ms += waits[-1]
    assert waits == [0, 100, 200, 400, 800, 1_600]
    claims.gain(now_ms, 20)
    claims.core.dropped(ONE, now_ms + 60_000, continued=True)
    assert claims.request(now_ms + 60_000)


@pytest.mark.rule("CM-4", "CM-12")
def test_a_shard_that_targets_another_live_node_is_released_once_and_not_renewed_after() -> None:
    claims = Claims()
    claims.gain(0)
    claims.nodes = {ShardKind.GROUP: frozenset({OTHER})}
    assert claims.plan(10).releases == [ONE]
    assert claims.plan(11).releases == []
    claims.core.released(ONE)
    assert claims.core.renewals(lambda _: "") == []
    assert claims.core.claim_of(ONE).phase is ClaimPhase.FREE  # type: ignore[union-attr]


@pytest.mark.rule("CM-12")
def test_a_shard_that_is_lost_during_its_hand_over_is_not_claimed_before_that_has_ended() -> None:
    claims = Claims()
    claims.gain(0)
    claims.nodes = {ShardKind.GROUP: frozenset({OTHER})}
    assert claims.plan(10).releases == [ONE]
    claims.core.dropped(ONE, 20, continued=False)
    claims.nodes = {ShardKind.GROUP: frozenset({ME})}
    assert claims.plan(30).claims == []
    claims.core.released(ONE)
    assert len(claims.plan(40).claims) == 1


@pytest.mark.rule("CM-2")
def test_an_empty_node_list_moves_nothing() -> None:
    claims = Claims()
    claims.gain(0)
    claims.nodes = {ShardKind.GROUP: frozenset()}
    assert claims.plan(10) == Plan([], [], [])


@pytest.mark.rule("CM-21")
def test_a_shard_whose_topic_is_gone_is_released_and_forgotten() -> None:
    claims = Claims()
    claims.gain(0)
    assert claims.plan(10, frozenset()).releases == [ONE]
    claims.core.released(ONE)
    assert claims.plan(20, frozenset()).forgotten == [ONE]
    assert claims.core.claim_of(ONE) is None
    assert claims.plan(30, frozenset()).forgotten == []


def test_a_load_that_ends_after_the_shard_was_lost_counts_for_nothing() -> None:
    claims = Claims()
    claims.request(0)
    claims.core.claim_answered(ONE, Claimed(10, False, STREAM_START, None, "h", 0), 0)
    claims.core.loading(ONE)
    claims.core.dropped(ONE, 5, continued=False)
    assert not claims.core.loaded(ONE, 10, 5)


def test_an_answer_that_comes_after_the_core_moved_on_is_ignored() -> None:
    claims = Claims()
    request = claims.request(0)
    claims.core.claim_unknown(ONE, 1)
    assert not claims.core.claim_answered(ONE, Claimed(10, False, STREAM_START, None, "h", 0), 2)
    assert claims.request(200) == replace(request, waited=False)


@pytest.mark.rule("CM-86")
def test_replays_that_fail_follow_each_other_ever_later_however_long_each_takes() -> None:
    claims = Claims()
    now_ms, pauses = 0, []
    for attempt in range(14):
        claims.request(now_ms)
        claims.core.claim_answered(ONE, Claimed(10 + attempt, False, STREAM_START, None, "h", now_ms), now_ms)
        claims.core.loading(ONE)
        now_ms += 60_000  # as long as it takes to load a long stream whose last entry cannot be read
        claims.core.load_failed(ONE, faulty=True)
        claims.core.dropped(ONE, now_ms, continued=False)
        claim = claims.core.claim_of(ONE)
        assert claim is not None
        pauses.append(claim.next_try_ms - now_ms)
        now_ms = claim.next_try_ms
    assert pauses == [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000, 30_000, 30_000]


@pytest.mark.rule("CM-86")
def test_a_faulty_shard_is_news_once_and_well_again_once_it_serves() -> None:
    claims = Claims()
    claims.request(0)
    claims.core.claim_answered(ONE, Claimed(10, False, STREAM_START, None, "h", 0), 0)
    claims.core.loading(ONE)
    assert [claims.core.load_failed(ONE), claims.core.faulty()] == [False, []], "the store was away"
    assert [claims.core.load_failed(ONE, faulty=True) for _ in range(2)] == [True, False]
    assert claims.core.faulty() == [ONE]
    assert not claims.core.settled([ONE], except_faulty=True), "a node that serves nothing is not ready"
    assert claims.core.loaded(ONE, 10, 0)
    assert (claims.core.faulty(), claims.core.settled([ONE], except_faulty=True)) == ([], True)
