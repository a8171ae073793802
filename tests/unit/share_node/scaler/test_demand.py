"""The demand of a share group: what a trigger may ask for, and the numbers computed from a backlog."""

import pytest

from share_node.scaler.demand import AGE, LAG, PartitionBacklog, Trigger, TriggerError, trigger_of, values


def test_a_trigger_may_ask_for_lag_for_age_or_for_both() -> None:
    both = trigger_of(
        {"group": "g", "lagTarget": "100", "ageTargetSeconds": "2.5", "topics": "a, b,", "scalerAddress": "x"}
    )
    assert both == Trigger("g", frozenset({"a", "b"}), {LAG: 100.0, AGE: 2.5})
    assert trigger_of({"group": "g", "ageTargetSeconds": "30"}).targets == {AGE: 30.0}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"lagTarget": "1"}, "has no group"),
        ({"group": "", "lagTarget": "1"}, "has no group"),
        ({"group": "g"}, "has no target; expected lagTarget, ageTargetSeconds or both"),
        ({"group": "g", "lagTarget": "0"}, "lagTarget='0'; expected a number above 0"),
        ({"group": "g", "lagTarget": "many"}, "lagTarget='many'"),
        ({"group": "g", "lagTarget": "nan"}, "lagTarget='nan'"),
        ({"group": "g", "lagTarget": "inf"}, "lagTarget='inf'"),
        (
            {"group": "g", "lagTagret": "5", "lagTarget": "5"},
            "has lagTagret; expected ageTargetSeconds, group, lagTarget",
        ),
    ],
)
def test_what_a_trigger_may_not_say_is_named(metadata: dict[str, str], expected: str) -> None:
    with pytest.raises(TriggerError, match=r"trigger metadata has") as refused:
        trigger_of(metadata)
    assert expected in str(refused.value)


def test_lags_add_up_and_the_oldest_record_shows_the_age() -> None:
    backlog = [PartitionBacklog(3, 7_000), PartitionBacklog(4, 9_500), PartitionBacklog(2), PartitionBacklog(0, 1_000)]
    assert values(backlog, 10_000) == {LAG: 9.0, AGE: 3.0}


def test_without_a_backlog_there_is_no_demand() -> None:
    assert values([], 10_000) == {LAG: 0.0, AGE: 0.0}


def test_a_record_from_the_future_is_not_younger_than_now() -> None:
    assert values([PartitionBacklog(1, 12_000)], 10_000)[AGE] == 0.0
