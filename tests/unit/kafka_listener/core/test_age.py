"""When a connection is too old."""

from __future__ import annotations

import pytest

from kafka_listener.core.age import GRACE_MAX_S, Age, Phase


@pytest.mark.rule("KL-108")
@pytest.mark.parametrize(("part", "ends_s"), [(0.0, 820.0), (1.0, 1_000.0)])
def test_a_connection_ends_at_a_random_part_of_the_age(part: float, ends_s: float) -> None:
    age = Age.begin(7.0, 1_000.0, part)
    last_s = ends_s + 7 + GRACE_MAX_S * 0.9
    times = [ends_s + 6.9, ends_s + 7.1, last_s - 0.1, last_s + 0.1, ends_s + 7 + GRACE_MAX_S]
    assert [age.phase(each) for each in times] == [Phase.YOUNG, Phase.OLD, Phase.OLD, Phase.LAST, Phase.OVER]
    assert age.reason == ""


@pytest.mark.rule("KL-108")
def test_a_short_age_has_a_short_grace() -> None:
    age = Age.begin(0.0, 2.0, 1.0)
    assert [age.phase(each) for each in (1.9, 2.1, 3.9, 4.0)] == [Phase.YOUNG, Phase.OLD, Phase.LAST, Phase.OVER]


@pytest.mark.rule("KL-108")
@pytest.mark.parametrize(("left_s", "ends_s"), [(100.0, 100.0), (-5.0, 0.0), (5_000.0, 1_000.0)])
def test_a_connection_ends_with_the_certificate_if_that_is_sooner(left_s: float, ends_s: float) -> None:
    age = Age.begin(0.0, 1_000.0, 1.0, left_s)
    assert (age.ends_s, bool(age.reason)) == (ends_s, ends_s < 1_000)
