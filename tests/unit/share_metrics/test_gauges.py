"""Which series a share-partition has, and that what a scrape shows as a counter never falls."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from share_metrics.gauges import ROLLED_UP, Gauges, Key

TOPIC = "t"


def news(writes: int, *, gone: bool = False, lag: int = 0, first: Any = None, last: Any = None) -> dict[str, Any]:
    """What a batch says of one share-partition."""
    counts = dict.fromkeys(("n_accept", "n_release", "n_reject", "n_timeout", "n_limit", "poison_sightings"), writes)
    values = {"start_offset": 1, "delivery_complete_count": 0, "hwm": 1 + lag, "speo": 1, "state_epoch": 0}
    written = {"first_write": first, "last_write": last}
    return {**counts, **values, "writes": writes, "gone": gone, "anew": False, "early": {}, **written}


def series(gauges: Gauges, name: str) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["group"], sample.labels["partition"]): sample.value
        for family in gauges.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.rule("PM-38")
def test_every_series_has_the_prefix_and_two_thousand_have_one_of_their_own() -> None:
    gauges = Gauges()
    for partition in range(2_001):
        gauges._take_state(("b", TOPIC, partition), news(1))
    shown = series(gauges, "share_group_writes_total")
    assert len(shown) == 2_001
    assert shown["b", ROLLED_UP] == 1
    assert {family.name.startswith("share_group_") for family in gauges.collect()} == {True}
    assert {family.type for family in gauges.collect()} == {"gauge", "counter"}


@pytest.mark.rule("PM-38")
def test_what_is_rolled_up_stays_in_the_sum_when_it_goes() -> None:
    gauges = Gauges(series_max=1)
    for partition, writes in enumerate((5, 1_000, 7)):
        gauges._take_state(("b", TOPIC, partition), news(writes, lag=3))
    assert series(gauges, "share_group_writes_total") == {("b", "0"): 5, ("b", ROLLED_UP): 1_007}
    gauges._take_state(("b", TOPIC, 1), news(2, gone=True))
    assert series(gauges, "share_group_writes_total") == {("b", "0"): 5, ("b", ROLLED_UP): 1_009}
    assert series(gauges, "share_group_lag") == {("b", "0"): 3, ("b", ROLLED_UP): 3}


@pytest.mark.rule("PM-38")
def test_a_newcomer_takes_nobodys_series() -> None:
    gauges = Gauges(series_max=1)
    gauges._take_state(("b", TOPIC, 0), news(5))
    gauges._take_state(("b", TOPIC, 1), news(6))
    gauges._take_state(("a", TOPIC, 0), news(1))  # it sorts first
    assert series(gauges, "share_group_writes_total") == {("b", "0"): 5, ("b", ROLLED_UP): 6, ("a", ROLLED_UP): 1}
    gauges._take_state(("b", TOPIC, 0), news(0, gone=True))
    gauges._take_state(("b", TOPIC, 1), news(1))  # there is room now, but what was rolled up stays so
    gauges._take_state(("c", TOPIC, 0), news(4))
    assert series(gauges, "share_group_writes_total") == {("c", "0"): 4, ("b", ROLLED_UP): 7, ("a", ROLLED_UP): 1}


@pytest.mark.rule("PM-38")
@pytest.mark.parametrize("seed", range(5))
def test_no_counter_falls_as_long_as_it_is_shown(seed: int) -> None:
    random = Random(seed)
    gauges = Gauges(series_max=3)
    before: dict[tuple[str, str], float] = {}
    for _ in range(200):
        key: Key = (random.choice("ab"), TOPIC, random.randrange(4))
        gauges._take_state(key, news(random.randrange(9), gone=random.random() < 0.2))
        after = series(gauges, "share_group_writes_total")
        assert all(after[name] >= value for name, value in before.items() if name in after)
        assert all(name in after for name in before if name[1] == ROLLED_UP)
        assert sum(partition != ROLLED_UP for _, partition in after) <= 3
        before = after


@pytest.mark.rule("PM-34", "PM-38")
@pytest.mark.parametrize("series_max", [1, 0], ids=["alone", "rolled up"])
def test_a_write_that_comes_again_in_a_later_batch_counts_once(series_max: int) -> None:
    gauges = Gauges(series_max=series_max)
    name = ("a", "0" if series_max else ROLLED_UP)
    first = news(1) | {"write": (4, 1, 7)}
    gauges._take_state(("a", TOPIC, 0), news(3, last=(4, 1, 7)))
    gauges._take_state(("a", TOPIC, 0), news(2, first=first, last=(4, 1, 8)))
    assert series(gauges, "share_group_writes_total") == {name: 4}
    gauges._take_state(("a", TOPIC, 0), news(1, first=first | {"write": (5, 1, 8)}, last=(5, 1, 8)))
    assert series(gauges, "share_group_writes_total") == {name: 5}, "another leader's"
