"""What spans and metrics of one client have in common."""

from __future__ import annotations

import pytest

from kip932.errors import TopicAuthorizationFailedError
from sharegroups.tracing.instruments import Instruments, end, error_type, span_name
from tests.support.telemetry import telemetry


@pytest.mark.rule("CL-171")
def test_a_client_may_leave_opentelemetry_unused() -> None:
    """Shows that the setting switches it off. That a record then has no header is shown with the producer."""
    with telemetry():
        disabled = Instruments(False, "me")
        disabled.refresh()
        assert not disabled.on


@pytest.mark.rule("CL-171")
def test_without_a_provider_nothing_is_measured() -> None:
    with telemetry(set_up=False) as found:
        instruments = Instruments(True, "me", "g")
        instruments.took("poll", "receive", "t", 1.0)
        instruments.sent("t", 1, None)
        instruments.consumed("t", 1)
        instruments.processed("t", 1.0, "")
        assert not instruments.on
        found.set_up()
        assert found.points("messaging.client.operation.duration") == []
        instruments.refresh()
        assert instruments.on
        instruments.took("poll", "receive", None, 1.0)
        (point,) = found.points("messaging.client.operation.duration")
        assert point.attributes["messaging.consumer.group.name"] == "g"
        assert "messaging.destination.name" not in point.attributes


@pytest.mark.rule("CL-175")
def test_an_error_is_named_by_kafkas_name_or_by_its_class() -> None:
    assert error_type(TopicAuthorizationFailedError("no")) == "TOPIC_AUTHORIZATION_FAILED"
    assert error_type(ValueError("no")) == "ValueError"


@pytest.mark.rule("CL-171")
def test_a_single_record_has_no_count_of_records() -> None:
    """Shows two of the conventions' attributes."""
    instruments = Instruments(True, "", "g")
    assert "messaging.batch.message_count" not in instruments.attributes("poll", "receive", "t", 3)
    assert instruments.attributes("poll", "receive", "t", 3, 2) == {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "3",
        "messaging.batch.message_count": 2,
    }


def test_a_span_for_several_topics_is_named_by_its_operation() -> None:
    assert [span_name("poll", ["t"]), span_name("poll", ["t", "u"])] == ["poll t", "poll"]


def test_a_span_that_is_not_sampled_ends_with_an_error_too() -> None:
    from opentelemetry.trace import INVALID_SPAN  # noqa: PLC0415 - only here

    end(INVALID_SPAN, ValueError("no"))
