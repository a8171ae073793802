"""The message in which a producer sends groups of batches."""

from __future__ import annotations

import pytest

from kip932.ids import TopicPartition
from sharegroups.config import PRODUCER, Config
from sharegroups.producing.core.open_transaction import Transaction
from sharegroups.producing.core.produce_lane import Batch, Group, ProducerIdentity
from sharegroups.producing.core.unconfirmed_batches import Meaning
from sharegroups.producing.produced import ProducedRecord
from sharegroups.producing.sender import _stream_message

PARTITION = TopicPartition("t", 1)


def group(*, after_given_up: bool) -> Group[ProducedRecord, None]:
    record: ProducedRecord = (None, b"v", [], 5)
    batches = [
        Batch[ProducedRecord, None]([record], identity=ProducerIdentity(7, 0), base_sequence=number)
        for number in (3, 4)
    ]
    return Group(PARTITION, batches, after_given_up=after_given_up)


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize("after_given_up", [False, True])
@pytest.mark.parametrize("transaction", [None, Transaction("id", 60_000)])
def test_the_first_batch_says_that_it_follows_batches_given_up_but_not_in_a_transaction(
    after_given_up: bool, transaction: Transaction | None
) -> None:
    config = Config(PRODUCER, {"bootstrap.servers": "127.0.0.1:1"})
    sent = [group(after_given_up=after_given_up)]
    message = _stream_message(sent, {"t": Meaning(b"i" * 16, 1)}, config, -1, transaction)
    (part,) = message.request.topic_data[0].partition_data
    assert [batch.after_given_up for batch in part.batches] == [after_given_up and transaction is None, False]
