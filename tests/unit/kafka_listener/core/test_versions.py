"""Which versions are offered, and to whom."""

from __future__ import annotations

import pytest

from kafka_listener.core.versions import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Range,
    common,
    is_known_software,
    may_come_first,
    offered,
)


@pytest.mark.rule("KL-10", "KL-11")
def test_what_is_served_is_offered_and_produce_from_0() -> None:
    served = {3: range(2, 14), 0: range(3, 14), 9: range(0)}
    assert offered(served) == [Range(0, 0, 13), Range(3, 2, 13)]


@pytest.mark.rule("KL-10")
def test_of_the_offered_versions_those_are_served_that_can_be_read() -> None:
    assert common(range(0, 14), range(3, 20)) == range(3, 14)
    assert common(range(2), range(3, 5)) == range(0)


@pytest.mark.rule("KL-22")
def test_before_authentication_come_sasl_and_versions_alone() -> None:
    allowed = {key for key in range(100) if may_come_first(key, authenticated=False)}
    assert allowed == {SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE}
    assert may_come_first(3, authenticated=True)


@pytest.mark.rule("KL-10")
@pytest.mark.parametrize(
    ("version", "name", "software", "known"),
    [
        (2, None, None, True),
        (3, "apache-kafka-java", "4.4.0", True),
        (3, "a", "1", True),
        (3, "", "1", False),
        (3, "a", None, False),
        (3, "-a", "1", False),
        (3, "a\nb", "1", False),
        (3, "a" * 257, "1", False),
    ],
)
def test_the_names_of_a_client_are_names(version: int, name: str | None, software: str | None, known: bool) -> None:
    assert is_known_software(version, name, software) is known
