"""The series of a share-partition, and that a counter never falls between scrapes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kip932.ids import shard_index
from share_metrics.gauges.counters import Key
from share_metrics.gauges.gauges import ROLLED_UP, Gauges, current_for_s
from share_metrics.reader.log_ends import LogEnd

TOPIC = "t"
NOW_S = 1_000_000.0


def gauges_at(now_s: float = NOW_S, series_max: int = 2_000) -> Gauges:
    return Gauges(series_max, now=lambda: now_s)


def news(writes: int, *, gone: bool = False, lag: int = 0, first: Any = None, last: Any = None) -> dict[str, Any]:
    """A batch's row about one share-partition."""
    counts = dict.fromkeys(
        ("n_accept", "n_release", "n_reject", "n_timeout", "n_limit", "n_given_back", "poison_sightings"), writes
    )
    values = {"start_offset": 1, "delivery_complete_count": 0, "hwm": 1 + lag, "speo": 1, "state_epoch": 0}
    written = {"first_write": first, "last_write": last, "hwm_s": NOW_S}
    return {**counts, **values, "writes": writes, "gone": gone, "begins": False, "early": {}, **written}


def take_state(gauges: Gauges, key: Key, row: dict[str, Any]) -> None:
    """Take a batch with one share-partition."""
    gauges._count_state(gauges._counters, key, row)
    gauges._take_state(key, row)


def series(gauges: Gauges, name: str) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["group"], sample.labels["partition"]): sample.value
        for family in gauges.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.rule("PM-38")
def test_every_series_has_the_prefix_and_two_thousand_have_one_of_their_own() -> None:
    gauges = gauges_at()
    for partition in range(2_001):
        take_state(gauges, ("b", TOPIC, partition), news(1))
    shown = series(gauges, "sharegroups_ingest_share_group_writes_total")
    assert len(shown) == 2_001
    assert shown["b", ROLLED_UP] == 1
    assert {family.name.startswith("sharegroups_ingest_") for family in gauges.collect()} == {True}
    assert {family.type for family in gauges.collect()} == {"gauge", "counter"}


@pytest.mark.rule("PM-38")
def test_what_is_rolled_up_stays_in_the_sum_when_it_goes() -> None:
    gauges = gauges_at(series_max=1)
    for partition, writes in enumerate((5, 1_000, 7)):
        take_state(gauges, ("b", TOPIC, partition), news(writes, lag=3))
    assert series(gauges, "sharegroups_ingest_share_group_writes_total") == {("b", "0"): 5, ("b", ROLLED_UP): 1_007}
    take_state(gauges, ("b", TOPIC, 1), news(2, gone=True))
    assert series(gauges, "sharegroups_ingest_share_group_writes_total") == {("b", "0"): 5, ("b", ROLLED_UP): 1_009}
    assert series(gauges, "sharegroups_ingest_share_group_lag") == {("b", "0"): 3, ("b", ROLLED_UP): 3}


@pytest.mark.rule("PM-38")
def test_a_newcomer_takes_nobodys_series() -> None:
    gauges = gauges_at(series_max=1)
    take_state(gauges, ("b", TOPIC, 0), news(5))
    take_state(gauges, ("b", TOPIC, 1), news(6))
    take_state(gauges, ("a", TOPIC, 0), news(1))  # it sorts first
    assert series(gauges, "sharegroups_ingest_share_group_writes_total") == {
        ("b", "0"): 5,
        ("b", ROLLED_UP): 6,
        ("a", ROLLED_UP): 1,
    }
    take_state(gauges, ("b", TOPIC, 0), news(0, gone=True))
    take_state(gauges, ("b", TOPIC, 1), news(1))  # there is room now, but what was rolled up stays so
    take_state(gauges, ("c", TOPIC, 0), news(4))
    assert series(gauges, "sharegroups_ingest_share_group_writes_total") == {
        ("c", "0"): 4,
        ("b", ROLLED_UP): 7,
        ("a", ROLLED_UP): 1,
    }


@pytest.mark.rule("PM-38")
@pytest.mark.parametrize("seed", range(5))
def test_no_counter_falls_as_long_as_it_is_shown(seed: int) -> None:
    random = Random(seed)
    gauges = gauges_at(series_max=3)
    before: dict[tuple[str, str], float] = {}
    for _ in range(200):
        key: Key = (random.choice("ab"), TOPIC, random.randrange(4))
        take_state(gauges, key, news(random.randrange(9), gone=random.random() < 0.2))
        after = series(gauges, "sharegroups_ingest_share_group_writes_total")
        assert all(after[name] >= value for name, value in before.items() if name in after)
        assert all(name in after for name in before if name[1] == ROLLED_UP)
        assert sum(partition != ROLLED_UP for _, partition in after) <= 3
        before = after


@pytest.mark.rule("PM-34", "PM-38")
@pytest.mark.parametrize("series_max", [1, 0], ids=["alone", "rolled up"])
def test_a_write_that_comes_again_in_a_later_batch_counts_once(series_max: int) -> None:
    gauges = gauges_at(series_max=series_max)
    name = ("a", "0" if series_max else ROLLED_UP)
    first = news(1) | {"write": (4, 1, 7)}
    take_state(gauges, ("a", TOPIC, 0), news(3, last=(4, 1, 7)))
    take_state(gauges, ("a", TOPIC, 0), news(2, first=first, last=(4, 1, 8)))
    assert series(gauges, "sharegroups_ingest_share_group_writes_total") == {name: 4}
    take_state(gauges, ("a", TOPIC, 0), news(1, first=first | {"write": (5, 1, 8)}, last=(5, 1, 8)))
    assert series(gauges, "sharegroups_ingest_share_group_writes_total") == {name: 5}, "another leader's"


def partition(end: int | None, log_start: int = 0) -> LogEnd:
    return LogEnd(TOPIC, 0, log_start, end, end)


def known(gauges: Gauges) -> tuple[float | None, float]:
    """The lag, and the number of unknown lags."""
    (unknown,) = (
        sample.value for family in gauges.collect() for sample in family.samples
        if sample.name == "sharegroups_ingest_share_group_lag_unknown"
    )  # fmt: skip
    return series(gauges, "sharegroups_ingest_share_group_lag").get(("a", "0")), unknown


@pytest.mark.rule("PM-38", "PM-42")
def test_a_sample_counts_when_all_was_read_that_was_written_before_it() -> None:
    gauges = gauges_at()
    take_state(gauges, ("a", TOPIC, 0), news(1, lag=3))
    gauges.sampled(NOW_S - 20, [partition(11)])
    gauges.sampled(NOW_S - 10, [partition(5_001)])
    assert known(gauges) == (3, 0)
    gauges.read_up_to(NOW_S - 11)
    assert known(gauges) == (10, 0)
    gauges.read_up_to(NOW_S)
    assert known(gauges) == (5_000, 0)
    gauges.sampled(NOW_S, [partition(None)])
    gauges.read_up_to(NOW_S)
    assert known(gauges) == (5_000, 0), "being claimed, it shows no end, and has not become shorter"
    take_state(gauges, ("a", TOPIC, 0), news(1, lag=6_000))
    assert known(gauges) == (6_000, 0), "a write that is newer"


@pytest.mark.rule("PM-38", "PM-42")
def test_a_lag_that_was_seen_long_ago_is_unknown_even_where_a_lower_bound_is_known() -> None:
    now = [NOW_S]
    gauges = Gauges(now=lambda: now[0])
    take_state(gauges, ("a", TOPIC, 0), news(1))
    assert known(gauges) == (0, 0)
    now[0] += 181
    assert known(gauges) == (None, 1)
    gauges.sampled(now[0], [partition(1)])
    gauges.read_up_to(now[0])
    assert known(gauges) == (0, 0)
    gauges.sampled(now[0], [partition(41)])
    gauges.read_up_to(now[0])
    assert known(gauges) == (40, 0)
    now[0] += 181
    assert known(gauges) == (None, 1), "40 would stand still while the log grows"


@pytest.mark.rule("PM-38")
def test_a_sum_of_lags_of_which_one_is_unknown_is_unknown() -> None:
    gauges = gauges_at(series_max=0)
    for number in range(2):
        take_state(gauges, ("a", TOPIC, number), news(1, lag=3))
    assert series(gauges, "sharegroups_ingest_share_group_lag") == {("a", ROLLED_UP): 6}
    take_state(gauges, ("a", TOPIC, 2), news(1, lag=3) | {"hwm_s": NOW_S - 181})
    assert series(gauges, "sharegroups_ingest_share_group_lag") == {}
    assert known(gauges) == (None, 1)


@pytest.mark.rule("PM-106")
def test_what_was_seen_before_a_time_without_reading_says_nothing_about_the_present() -> None:
    gauges = gauges_at()
    take_state(gauges, ("a", TOPIC, 0), news(1, lag=3))
    gauges.sampled(NOW_S - 20, [partition(11)])
    gauges.read_up_to(NOW_S - 20)
    gauges._of_groups_known = True
    members = "sharegroups_ingest_share_group_members"

    def shown() -> tuple[float | None, float, bool]:
        return (*known(gauges), any(one.samples for one in gauges.collect() if one.name == members))

    assert shown() == (10, 0, True)
    gauges.unknown_before(NOW_S + 1)
    assert shown() == (None, 1, False)
    assert series(gauges, "sharegroups_ingest_share_group_finished_offset") == {("a", "0"): 1}, "as last persisted"
    take_state(gauges, ("a", TOPIC, 0), news(1, lag=6))
    assert shown() == (None, 1, False), "a write of that time, which was read afterwards"
    gauges.sampled(NOW_S + 1, [partition(5_001)])
    gauges.read_up_to(NOW_S)
    assert shown() == (None, 1, False), "not everything up to then is read"
    gauges.read_up_to(NOW_S + 2)
    assert shown() == (5_000, 0, True)
    gauges.unknown_before(NOW_S + 30)
    take_state(gauges, ("a", TOPIC, 0), news(1, lag=5_007) | {"hwm_s": NOW_S + 31})
    assert shown() == (5_007, 0, False), "a write since then knows where the log ends"


@pytest.mark.rule("PM-38", "PM-42")
def test_gauges_of_a_job_that_has_ended_are_those_of_the_time_it_has_read_up_to() -> None:
    gauges = gauges_at(NOW_S + 3_600)
    take_state(gauges, ("a", TOPIC, 0), news(1))
    gauges.sampled(NOW_S, [partition(1)])
    gauges.read_up_to(NOW_S)
    assert known(gauges) == (None, 1), "it goes on, and has not read for an hour"
    gauges.read_up_to(NOW_S, last=True)
    assert known(gauges) == (0, 0)


@pytest.mark.rule("PM-38", "PM-42")
@pytest.mark.parametrize(("log_start", "expected"), [(0, (None, 1)), (7, (0, 0))])
def test_without_a_start_offset_the_lag_is_known_of_an_empty_log_alone(
    log_start: int, expected: tuple[float | None, float]
) -> None:
    gauges = gauges_at()
    unset = dict.fromkeys(("start_offset", "delivery_complete_count", "hwm", "speo", "hwm_s"))
    take_state(gauges, ("a", TOPIC, 0), news(1) | unset)
    assert known(gauges) == (None, 1)
    gauges.sampled(NOW_S, [partition(7, log_start)])
    gauges.read_up_to(NOW_S)
    assert known(gauges) == expected


@pytest.mark.rule("PM-123")
def test_share_partitions_of_a_stream_that_lost_its_tail_are_unknown_until_they_are_written() -> None:
    gauges = gauges_at()
    keys: list[Key] = [("a", TOPIC, partition) for partition in range(8)]
    for key in keys:
        take_state(gauges, key, news(1, lag=3))
    streams = [f"{{sgs:{shard}}}:log" for shard in range(2)]
    gauges.positions({}, dict.fromkeys(streams, 9))
    lost = {key for key in keys if shard_index("{}:{}:{}".format(*key), 2) == 1}
    assert 0 < len(lost) < len(keys)
    gauges._forget({streams[1]})
    shown = series(gauges, "sharegroups_ingest_share_group_lag")
    assert {("a", TOPIC, int(partition)) for _, partition in shown} == set(keys) - lost
    assert known(gauges)[1] == len(lost)
    for key in lost:
        take_state(gauges, key, news(1, lag=4))
    assert set(series(gauges, "sharegroups_ingest_share_group_lag").values()) == {3, 4}
    assert known(gauges)[1] == 0


@pytest.mark.rule("PM-38", "PM-121")
@pytest.mark.parametrize(("trigger_s", "current_s"), [(None, 90), (2, 90), (60, 180), (300, 900)])
def test_a_lag_is_current_for_three_triggers_but_at_least_for_a_minute_and_a_half(
    trigger_s: float | None, current_s: float
) -> None:
    gauges = Gauges(now=lambda: NOW_S, fresh_s=current_for_s(trigger_s))
    for age_s, lag in ((current_s + 1, None), (current_s, 9)):
        take_state(gauges, ("a", TOPIC, 0), news(1) | {"hwm_s": None})
        gauges._partitions["a", TOPIC, 0].hwm_s = 0.0
        gauges.sampled(NOW_S - age_s, [partition(10)])
        gauges.read_up_to(NOW_S)
        assert known(gauges)[0] == lag
