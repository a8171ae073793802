"""How long a record is delayed before it is redelivered (PL-936)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_leader.share_partition.core.backoff import AT_ONCE, Retries
from shard_runtime.config.group_config import NO_BACKOFF, Backoff


def test_each_further_delivery_waits_longer_up_to_the_maximum() -> None:
    backoff = Backoff(1_000, 3.0, 10_000, 0.0)
    assert [backoff.delay_ms(count, 0.5) for count in (0, 1, 2, 3, 4, 99, 2**31)] == [
        1_000, 1_000, 3_000, 9_000, 10_000, 10_000, 10_000,
    ]  # fmt: skip


def test_without_a_policy_nothing_waits() -> None:
    assert NO_BACKOFF.delay_ms(5, 1.0) == 0
    assert AT_ONCE.delay_ms(5) == 0


@pytest.mark.parametrize(("chance", "delay_ms"), [(0.0, 1_000), (0.5, 800), (1.0, 600)])
def test_chance_takes_a_part_off_and_adds_nothing(chance: float, delay_ms: int) -> None:
    assert Backoff(1_000, 2.0, 1_000, 0.4).delay_ms(7, chance) == delay_ms


@given(
    st.integers(1, 86_400_000),
    st.floats(1, 10),
    st.integers(1, 86_400_000),
    st.floats(0, 1),
    st.integers(0, 2**31 - 1),
    st.floats(0, 1),
)
def test_a_back_off_is_never_none_and_never_above_its_maximum(  # noqa: PLR0917 - hypothesis passes them
    initial_ms: int, multiplier: float, max_ms: int, jitter: float, count: int, chance: float
) -> None:
    backoff = Backoff(initial_ms, multiplier, max_ms, jitter)
    assert 1 <= backoff.delay_ms(count, chance) <= max_ms
    assert backoff.delay_ms(count, chance) <= backoff.delay_ms(count + 1, chance)


def test_chance_is_asked_only_where_there_is_a_policy() -> None:
    asked: list[int] = []

    def chance() -> float:
        asked.append(1)
        return 0.0

    assert Retries(NO_BACKOFF, chance).delay_ms(1) == 0
    assert asked == []
    assert Retries(Backoff(50), chance).delay_ms(1) == 50
    assert asked == [1]
