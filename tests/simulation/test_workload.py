"""The simulator's clients: what they do in a cluster without faults, and what they record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulation import history as h
from tests.simulation.history import Place
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan
from tests.simulation.simulate import simulate
from tests.simulation.workload.asked import UNKNOWN, Asked
from tests.simulation.workload.cast import GroupRules
from tests.simulation.workload.manners import TIDY, Manners

SEEDS = (*range(1, 15), 25)  # in 25 a misbehaving member gets UNKNOWN_MEMBER_ID
HERE, THERE = Place("aa", 0, 1), Place("aa", 0, 2)


@cache
def played() -> tuple[Outcome, ...]:
    """Play some seeds without their faults."""
    return tuple(simulate(seed, replace(Plan.draw(seed), steps=())) for seed in SEEDS)


def events(*kinds: type[h.E]) -> Iterable[h.E]:
    return (event for outcome in played() for event in outcome.history.of(*kinds))


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_a_history_is_long_enough_breaks_nothing_and_ends_empty(number: int) -> None:
    outcome = played()[number]
    assert [str(violation) for violation in outcome.violations] == []
    assert outcome.operations >= 180
    last = {event.share: event.lag for event in outcome.history.of(h.LagSeen) if event.process.endswith(".drain")}
    assert set(last.values()) == {0}


def test_every_record_is_another_one_and_nearly_all_are_stored() -> None:
    for outcome in played():
        sent = [event.value for event in outcome.history.of(h.ProduceSent)]
        stored = {event.value: event.place for event in outcome.history.of(h.Produced)}
        assert len(set(sent)) == len(sent)
        assert len(set(stored.values())) == len(stored) > len(sent) * 0.8


def test_members_accept_release_reject_and_renew_and_learn_the_outcome() -> None:
    settled = Counter((event.type, event.error) for event in events(h.Settled))
    assert all(settled[kind, ""] > 10 for kind in (ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_RENEW))
    assert settled[ACK_ACCEPT, "INVALID_RECORD_STATE"] > 10  # too late, or another member's
    assert settled[ACK_ACCEPT, UNKNOWN] > 10  # killed, or without a callback


def test_records_come_again_and_poison_ends_at_the_delivery_limit() -> None:
    deliveries = Counter(event.delivery_count for event in events(h.Delivered))
    assert deliveries[1] > deliveries[2] > deliveries[3] > 0
    assert sum(map(given_up, played())) > 5


def given_up(outcome: Outcome) -> int:
    """Count records that were released and never redelivered though the group was drained, so they were archived at the
    limit. Only the topic that is never deleted counts; return 0 if records were deleted."""
    done = list(outcome.history.of(h.Administered))
    first = next(event.detail for event in done if event.call == "CreateTopics" and event.error == "")
    last: dict[tuple[str, Place], h.Event] = {}
    for event in outcome.history.of(h.Delivered, h.Settled):
        if event.place.topic_id == first:
            last[event.group_id, event.place] = event
    released = [e for e in last.values() if isinstance(e, h.Settled) and (e.type, e.error) == (ACK_RELEASE, "")]
    return 0 if any(event.call == "DeleteRecords" for event in done) else len(released)


def test_members_come_and_go_and_some_are_killed() -> None:
    killed = {event.process for event in events(h.ProcessChanged) if event.what == "killed"}
    assert any(name.startswith("g") for name in killed)
    members = Counter((number, event.group_id) for number, outcome in enumerate(played())
                      for event in outcome.history.of(h.HeartbeatAnswered) if event.sent_epoch == 0)  # fmt: skip
    assert sum(members.values()) > 4 * len(members)  # groups start with two or three; others joined later or rejoined


def test_rogues_do_what_they_should_not_and_get_the_errors_that_are_due() -> None:
    failed = Counter((event.call, event.error) for event in events(h.ClientFailed))
    for call, error in (
        ("wrong epoch", "INVALID_SHARE_SESSION_EPOCH"),
        ("fetch elsewhere", "NOT_LEADER_OR_FOLLOWER"),
        ("fetch after close", "SHARE_SESSION_NOT_FOUND"),
        ("epoch 0 again", "INVALID_REQUEST"),
        ("ShareGroupHeartbeat", "UNKNOWN_MEMBER_ID"),
        ("ShareGroupHeartbeat", "FENCED_MEMBER_EPOCH"),
        ("ShareGroupHeartbeat", "INVALID_REQUEST"),
    ):
        assert failed[call, error] > 0, (call, error)
    codes = Counter(event.code for event in events(h.AckAnswered) if event.member_id.startswith("rogue"))
    assert min(codes[0], codes[42], codes[121]) > 3


def test_an_administrator_changes_topics_and_configs_and_reads_lags() -> None:
    done = Counter(event.call for event in events(h.Administered) if event.error == "")
    assert min(done[call] for call in ("DeleteTopics", "CreatePartitions", "DeleteRecords")) > 2
    assert min(done[call] for call in ("IncrementalAlterConfigs", "DescribeShareGroupOffsets")) > 20
    for outcome in played():
        created = [e for e in outcome.history.of(h.Administered) if e.call == "CreateTopics" and e.error == ""]
        assert len({event.detail for event in created}) == len(created)


def test_who_is_left_out_changes_nothing_of_what_the_others_draw() -> None:
    plan = replace(Plan.draw(1), steps=(), work_ms=2000)
    whole = simulate(1, plan)
    alone = simulate(1, replace(plan, without=tuple(name for name in whole.crew if name != "p0")))
    assert alone.crew == whole.crew
    sent = [
        [(event.topic, event.value) for event in each.history.of(h.ProduceSent) if event.process == "p0.1"]
        for each in (whole, alone)
    ]
    both = min(map(len, sent))
    assert both > 5
    assert sent[0][:both] == sent[1][:both]
    assert {event.process.partition(".")[0] for event in alone.history.of(h.ProduceSent)} == {"p0"}


def test_a_groups_rules_and_a_members_manners_are_values_by_chance() -> None:
    assert GroupRules.draw(Random(3), "g", ("t", "u"), 2) == GroupRules.draw(Random(3), "g", ("t", "u"), 2)
    drawn = [Manners.draw(Random(seed), explicit=0.5, hasty=False) for seed in range(50)]
    assert {manners.explicit for manners in drawn} == {True, False}
    rng = Random(1)
    kinds = Counter(manners.kind(rng, poison=False) for manners in drawn for _ in range(20))
    assert kinds[ACK_ACCEPT] > kinds[ACK_RELEASE] > kinds[ACK_REJECT] > 0
    assert {manners.kind(rng, poison=True) for manners in drawn} == {ACK_RELEASE}
    assert TIDY.kind(rng, poison=False) == ACK_ACCEPT


def test_poison_is_known_by_its_number() -> None:
    rules = replace(GroupRules.draw(Random(1), "g", ("t",), 1), poison=7)
    assert [number for number in range(1, 30) if rules.poisonous(f"p0:{number}".encode())] == [7, 14, 21, 28]
    assert not replace(rules, poison=0).poisonous(b"p0:7")


def test_an_answer_settles_what_was_asked() -> None:
    asked = Asked()
    asked.note(HERE, ACK_ACCEPT)
    asked.note(THERE, ACK_REJECT)
    assert asked.answered(HERE, "") == [(ACK_ACCEPT, "")]
    assert asked.answered(HERE, "") == []
    assert asked.places("aa", 0) == [THERE]
    assert asked.rest() == [(THERE, ACK_REJECT)]
    assert asked.rest() == []


def test_answers_to_two_different_requests_for_one_place_claim_nothing() -> None:
    asked = Asked()
    asked.note(HERE, ACK_RELEASE)
    asked.note(HERE, ACK_ACCEPT)
    assert asked.answered(HERE, "") == [(ACK_RELEASE, UNKNOWN)]
    assert asked.answered(HERE, "") == [(ACK_ACCEPT, UNKNOWN)]
    asked.note(HERE, ACK_ACCEPT)
    assert asked.answered(HERE, "") == [(ACK_ACCEPT, UNKNOWN)]


def test_the_same_request_twice_is_still_clear() -> None:
    asked = Asked()
    asked.note(HERE, ACK_ACCEPT)
    asked.note(HERE, ACK_ACCEPT)
    assert asked.answered(HERE, "") == [(ACK_ACCEPT, "")]
