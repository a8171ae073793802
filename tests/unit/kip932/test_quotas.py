"""Which quota applies to a caller, in Kafka's order, and who shares it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.quotas import AppliedQuota, QuotaEntity, applied, entity_of, quota_text, refused_value

KEY = "producer_byte_rate"
#: The places of a quota for alice's client app, in the order of precedence, and who shares a quota that is set there.
PLACES = [
    (QuotaEntity("alice", "app"), QuotaEntity("alice", "app")),
    (QuotaEntity("alice", ""), QuotaEntity("alice", "app")),
    (QuotaEntity("alice"), QuotaEntity("alice")),
    (QuotaEntity("", "app"), QuotaEntity("alice", "app")),
    (QuotaEntity("", ""), QuotaEntity("alice", "app")),
    (QuotaEntity(""), QuotaEntity("alice")),
    (QuotaEntity(None, "app"), QuotaEntity(None, "app")),
    (QuotaEntity(None, ""), QuotaEntity(None, "app")),
]
OTHERS = [QuotaEntity("bob", "app"), QuotaEntity("bob"), QuotaEntity("alice", "other"), QuotaEntity(None, "other")]


@pytest.mark.rule("CM-191")
@given(st.sets(st.sampled_from(range(len(PLACES)))), st.sets(st.sampled_from(OTHERS)), st.booleans())
def test_the_first_place_with_a_value_of_the_key_applies(where: set[int], others: set[QuotaEntity], also: bool) -> None:
    quotas = {PLACES[number][0]: {KEY: 1.0 + number} for number in where}
    if also:  # another key hides nothing
        quotas |= {place: {"consumer_byte_rate": 9.0} for place, _ in PLACES if place not in quotas}
    quotas |= {other: {KEY: 99.0} for other in others}
    found = applied(quotas, KEY, "alice", "app")
    if not where:
        assert found is None
    else:
        first = min(where)
        place, shared = PLACES[first]
        assert found == AppliedQuota(KEY, 1.0 + first, shared, place)


@pytest.mark.rule("CM-191")
def test_a_default_is_no_name() -> None:
    """A caller that has no client id, or an empty one, has the default's quota."""
    quotas = {QuotaEntity(None, ""): {KEY: 1.0}}
    assert applied(quotas, KEY, "alice", "") == AppliedQuota(KEY, 1.0, QuotaEntity(None, ""), QuotaEntity(None, ""))


@given(st.one_of(st.none(), st.text(min_size=1, max_size=9)), st.one_of(st.none(), st.text(min_size=1, max_size=9)))
def test_parts_make_the_same_entity_again(user: str | None, client: str | None) -> None:
    if user is not None and user.startswith("User:"):
        return
    parts = [("user", user), ("client-id", client)]
    entity = entity_of(parts)
    assert isinstance(entity, QuotaEntity)
    assert entity.parts == parts


@pytest.mark.parametrize("value", [1.0, 2.0**53, 1024.0])
def test_values_are_whole_numbers_of_bytes(value: float) -> None:
    assert refused_value(KEY, value) == ""
    assert quota_text(value) == str(int(value))
    assert refused_value(KEY, value / 2**54)
