"""The log lines about records without a callback: the first at once, the rest together, none missing."""

from __future__ import annotations

from kip932.errors import MessageTooLargeError, NetworkError, TopicAuthorizationFailedError
from kip932.ids import TopicPartition
from sharegroups.producing.core.undelivered import QUIET_MS, Undelivered

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_first_failure_names_count_place_cause_and_what_to_try() -> None:
    line = Undelivered().lost(T0, NetworkError("node 1 is gone"), 3, 1_000)
    assert line is not None
    assert line.startswith("3 records were not delivered to t-0: NETWORK_EXCEPTION: node 1 is gone. ")
    for words in ("Is the cluster up", "bootstrap.servers", "delivery.timeout.ms", "on_delivery"):
        assert words in line


def test_partitions_and_causes_have_their_own_lines() -> None:
    undelivered = Undelivered()
    assert undelivered.lost(T0, NetworkError("x"), 1, 0) is not None
    assert undelivered.lost(T1, NetworkError("x"), 1, 0) is not None
    other = undelivered.lost(T0, MessageTooLargeError("big"), 1, 0)
    assert other is not None
    assert other.startswith("1 record was not delivered to t-0: MESSAGE_TOO_LARGE: big. ")
    assert "cluster" not in other


def test_what_follows_is_counted_and_reported_together() -> None:
    undelivered = Undelivered()
    undelivered.lost(T0, NetworkError("x"), 1, 0)
    assert undelivered.lost(T0, NetworkError("x"), 2, QUIET_MS - 1) is None
    line = undelivered.lost(T0, NetworkError("x"), 5, QUIET_MS)
    assert line is not None
    assert line.startswith("7 records were")
    assert undelivered.rest() == []
    assert undelivered.lost(T0, NetworkError("x"), 4, QUIET_MS + 1) is None
    assert [line.split(" not ")[0] for line in undelivered.rest()] == ["4 records were"]
    assert undelivered.rest() == []


def test_a_line_is_bounded() -> None:
    line = Undelivered().lost(T0, NetworkError("x" * 10_000), 1, 0)
    assert line is not None
    assert len(line) < 1_100


def test_a_refusal_is_logged_with_the_command_that_allows_it() -> None:
    name = "a" * 200
    text = (
        f"User:bob may not WRITE TOPIC {name!r}. An administrator can allow it: sharegroups acls add --allow-principal "
        f"User:bob --operation WRITE --topic {name} --command-config FILE"
    )
    line = Undelivered().lost(T0, TopicAuthorizationFailedError(text), 1, 0)
    assert line is not None
    assert text in line
