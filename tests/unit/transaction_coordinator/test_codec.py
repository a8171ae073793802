"""Records of transactional ids as stored bytes."""

from __future__ import annotations

import pytest

from kip932.ids import TopicIdPartition
from kip932.records.v1.transaction_pb2 import TransactionRecord
from transaction_coordinator.codec import UnknownRecordError, read_record, record_bytes
from transaction_coordinator.core.transaction import Cause, Ended, Identity, State, Transaction

FULL = Transaction(
    Identity(2**63 - 1, 7),
    60_000,
    State.PREPARE_ABORT,
    Cause.SUCCESSOR,
    1_790_000_000_000,
    tuple(TopicIdPartition(bytes([topic]) * 16, number) for topic in (1, 2) for number in (0, 3)),
    (Ended(Identity(2**63 - 1, 5), True, Cause.PRODUCER), Ended(Identity(2**63 - 1, 6), False, Cause.TIMEOUT)),
)


@pytest.mark.rule("CM-151")
@pytest.mark.parametrize("value", [FULL, Transaction(Identity(1, 0), 1)])
def test_a_record_is_read_as_it_was_written_and_no_two_changes_have_the_same_bytes(value: Transaction) -> None:
    data = record_bytes("tx", value, 5)
    assert read_record(data) == value
    assert TransactionRecord.FromString(data).transactional_id == "tx"
    assert record_bytes("tx", value, 6) != data


@pytest.mark.rule("CM-151")
@pytest.mark.parametrize("data", [b"\x08\x01", b"\xff", TransactionRecord(state=9).SerializeToString()])
def test_what_this_build_does_not_know_is_not_used(data: bytes) -> None:
    with pytest.raises(UnknownRecordError):
        read_record(data)
