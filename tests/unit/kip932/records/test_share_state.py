"""State batches, reasons of failures and write statistics in messages, and what an absent field means."""

from __future__ import annotations

import pytest

from kip932.failures import Failure
from kip932.records.share_state import (
    batches_from_messages,
    batches_to_messages,
    failures_from_messages,
    failures_to_messages,
    stats_from_message,
    stats_to_message,
)
from kip932.records.v1 import state_batch_pb2
from kip932.records.v1.write_stats_pb2 import WriteStats as WriteStatsMessage
from kip932.state_batches import NO_STATS, ArchivedRange, StateBatch, WriteStats


@pytest.mark.rule("CM-17", "SC-115", "SC-117")
def test_batches_and_reasons_keep_their_order_and_every_field() -> None:
    batches = (StateBatch(7, 9, 0, 2, 9_000), StateBatch(1, 1, 4, 2**15 - 1))
    failures = (Failure(7, 9, 2, "KeyError: 'ä'\n  line 3\x1b[2J"), Failure(1, 2**62, 2**15 - 1, "x" * 1_024))
    assert batches_from_messages(batches_to_messages(batches)) == batches
    found = failures_from_messages(failures_to_messages(failures))
    assert found == failures
    assert {type(each) for each in found} == {Failure}
    assert batches_from_messages(()) == ()
    assert failures_from_messages(()) == ()


@pytest.mark.rule("CM-17", "SC-117")
def test_absent_numbers_of_a_reason_or_a_batch_are_0() -> None:
    assert failures_from_messages([state_batch_pb2.Failure(reason="x")]) == (Failure(0, 0, 0, "x"),)
    assert batches_from_messages([state_batch_pb2.StateBatch(last_offset=3)]) == (StateBatch(0, 3, 0, 0, 0),)


@pytest.mark.rule("CM-17", "PM-20")
def test_absent_statistics_are_unknown_and_a_0_is_a_0() -> None:
    stats = WriteStats(1, n_accept=0, n_reject=3, archived=(ArchivedRange(4, 6, 5, 2),))
    message = stats_to_message(stats)
    assert message is not None
    assert message.HasField("n_accept")
    assert not message.HasField("n_release")
    assert stats_from_message(message) == stats
    assert stats_to_message(NO_STATS) is None
    assert stats_from_message(WriteStatsMessage()) is NO_STATS
