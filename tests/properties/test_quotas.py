"""Quotas over long times: no more than the rate is used, and no caller can make the node forget what is owed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.quotas import MUTATION_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from shard_runtime.rpc.quotas import THROTTLE_MAX_MS, ClientQuotas, Use

#: Steps of a caller: how many ms it waits, and how much it then wants to use.
STEPS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 5_000)), min_size=1, max_size=60)


@pytest.mark.rule("CM-192")
@given(st.integers(1, 10_000), st.integers(0, 10_000), STEPS)
def test_no_more_than_the_rate_and_one_burst_and_one_request_is_used(
    rate: int, burst_ms: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever a caller does: it uses something when nothing is owed beyond the burst, and waits otherwise."""
    use, now_ms, began_ms, used, largest = Use(rate, burst_ms), 1_000, 1_000, 0, 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        if use.delay_ms(now_ms):
            continue  # it is not admitted
        use.charge(amount, now_ms)
        used += amount
        largest = max(largest, amount)
        allowed = rate * (now_ms - began_ms + burst_ms) / 1000 + largest
        assert used <= allowed * (1 + 1e-9)


@pytest.mark.rule("CM-192")
@given(st.integers(1, 10_000), STEPS)
def test_a_caller_that_waits_as_asked_is_admitted_at_once_and_loses_nothing(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    use, now_ms, used = Use(rate, 1_000), 0, 0
    for _, amount in steps:
        now_ms += use.delay_ms(now_ms)
        assert use.delay_ms(now_ms) == 0
        use.charge(amount, now_ms)
        used += amount
    assert now_ms <= used * 1000 / rate + len(steps)  # each wait is rounded up to a millisecond


@pytest.mark.rule("CM-192")
@given(st.integers(1, 1_000), st.lists(st.integers(1, 1_000), max_size=20))
def test_what_is_given_back_is_not_owed(rate: int, amounts: list[int]) -> None:
    one, other = Use(rate, 1_000), Use(rate, 1_000)
    for amount in amounts:
        one.charge(amount, 0)
        other.charge(amount, 0)
        other.charge(7, 0)
        other.give_back(7)
    assert abs(one.delay_ms(0) - other.delay_ms(0)) <= 1


@pytest.mark.rule("CM-192")
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 500)), min_size=1, max_size=200))
def test_made_up_client_ids_take_bounded_memory_and_forgive_nothing(calls: list[tuple[int, int]]) -> None:
    """Client ids beyond the bound share one quota, so a caller that makes up new ones is throttled like one."""
    now_ms = 0
    quotas = ClientQuotas(lambda: now_ms, tracked_max=5)
    quotas.follow({QuotaEntity(None, ""): {PRODUCER_BYTE_RATE: 100.0}})
    used: dict[str, int] = {}
    for name, pause_ms in calls:
        now_ms += pause_ms
        quota = quotas.of(PRODUCER_BYTE_RATE, "User:mallory", f"id{name}")
        assert quota is not None
        if quota.delay_ms() == 0:
            quota.charge(200)
            used[f"id{name}"] = used.get(f"id{name}", 0) + 200
        assert quotas.tracked <= 5
    total = sum(used.values())
    # Five quotas of their own and a shared one, all of which may begin again at most as fast as they are paid for.
    assert total <= 6 * (100 * (now_ms + 1_000) / 1000 + 200)


@pytest.mark.rule("CM-192")
def test_a_caller_that_owes_is_never_forgotten_for_others() -> None:
    now_ms = 0
    quotas = ClientQuotas(lambda: now_ms, tracked_max=2)
    quotas.follow({QuotaEntity(""): {PRODUCER_BYTE_RATE: 10.0}})
    owes = quotas.of(PRODUCER_BYTE_RATE, "User:a", "")
    assert owes is not None
    owes.charge(1_000)
    for number in range(50):
        now_ms += 500
        other = quotas.of(PRODUCER_BYTE_RATE, f"User:b{number}", "")
        assert other is not None
        other.charge(1)
    again = quotas.of(PRODUCER_BYTE_RATE, "User:a", "other-client")
    assert again is not None
    assert again.delay_ms() == 100_000 - 1_000 - now_ms
    assert again.throttle_ms() == THROTTLE_MAX_MS
    assert quotas.throttled_ms[PRODUCER_BYTE_RATE] == THROTTLE_MAX_MS


@pytest.mark.rule("CM-191", "CM-192")
def test_who_shares_a_quota() -> None:
    quotas = ClientQuotas(lambda: 0)
    everyone = {PRODUCER_BYTE_RATE: 10.0}
    quotas.follow({QuotaEntity("a"): everyone, QuotaEntity("b", ""): everyone, QuotaEntity(None, "c"): everyone})

    def delay(user: str | None, client_id: str) -> int | None:
        found = quotas.of(PRODUCER_BYTE_RATE, user, client_id)
        return None if found is None else found.delay_ms()

    for user, client_id in (("User:a", "one"), ("User:b", "one"), ("User:d", "c")):
        quota = quotas.of(PRODUCER_BYTE_RATE, user, client_id)
        assert quota is not None
        quota.charge(20)
    assert delay("User:a", "two") == 1_000  # a user's clients share its quota
    assert delay("User:b", "one") == 1_000
    assert delay("User:b", "two") == 0  # each client of b has one of its own
    assert delay(None, "c") == 1_000  # all users with this client id share one
    assert delay(None, "other") is None
    assert quotas.of(MUTATION_RATE, "User:a", "one") is None


@pytest.mark.rule("CM-191")
def test_only_a_change_of_its_own_value_ends_what_a_caller_owes() -> None:
    """Earlier any change did, so a user who might set any quota freed all callers of theirs."""
    quotas = ClientQuotas(lambda: 0)

    def owed(user: str, rate: float | None, **others: float) -> int | None:
        values = {QuotaEntity(name): {PRODUCER_BYTE_RATE: each} for name, each in others.items()}
        quotas.follow(values if rate is None else {QuotaEntity(user): {PRODUCER_BYTE_RATE: rate}, **values})
        quota = quotas.of(PRODUCER_BYTE_RATE, f"User:{user}", "")
        return None if quota is None else quota.delay_ms()

    def charge(user: str) -> None:
        quota = quotas.of(PRODUCER_BYTE_RATE, f"User:{user}", "")
        assert quota is not None
        quota.charge(20)

    assert owed("a", 10) == 0
    charge("a")
    assert owed("a", 10) == 1_000
    assert owed("a", 10, b=5) == 1_000, "another quota was set"
    assert owed("a", 10, b=7) == 1_000, "another quota was changed"
    assert owed("a", None, b=7) is None
    assert owed("a", 10, b=7) == 1_000, "it was removed and set again"
    assert owed("a", 11) == 0, "its own value"
    charge("a")
    assert owed("a", 10) == 0


@pytest.mark.rule("CM-191", "CM-192")
def test_a_change_does_not_free_those_who_share_what_is_left_for_too_many_callers() -> None:
    quotas = ClientQuotas(lambda: 0, tracked_max=1)
    for others, expected in (({}, 0), ({QuotaEntity("x"): {MUTATION_RATE: 1.0}}, 1_000)):
        quotas.follow({QuotaEntity(""): {PRODUCER_BYTE_RATE: 10.0}, **others})
        for name in ("first", "second"):
            quota = quotas.of(PRODUCER_BYTE_RATE, f"User:{name}", "")
            assert quota is not None
            assert quota.delay_ms() == expected
            quota.charge(20)
    quotas.follow({QuotaEntity(""): {PRODUCER_BYTE_RATE: 20.0}})
    changed = quotas.of(PRODUCER_BYTE_RATE, "User:third", "")
    assert changed is not None
    assert changed.delay_ms() == 0
