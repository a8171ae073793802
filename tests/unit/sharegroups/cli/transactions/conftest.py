"""Transactions on a fake cluster: one in each state that a person may look for."""

from __future__ import annotations

import pytest

from kip932.errors import KafkaStorageError
from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from transaction_coordinator.core.transaction import Identity, Transaction, ended, finished, initialised, joined

T0 = 1_767_225_600_000
#: The id with an open transaction, its identity, and an id that was used but has none open.
OPEN, IDENTITY, DONE = "orders-7", Identity(4711, 3), "orders-8"


@pytest.fixture
def transactions(fake: FakeCluster) -> FakeCluster:
    """`orders-7` open for 45 s in t:0 and t:1, `orders-8` committed, `payments-1` idle, `payments-2` committing."""
    topic_id = fake.topics["t"][0]
    both = [TopicIdPartition(topic_id, number) for number in (1, 0)]
    records = fake.transactions.records
    records[OPEN] = joined(Transaction(IDENTITY, 60_000), IDENTITY, both, T0)
    records["payments-1"] = initialised(None, None, 60_000, 4713)
    known = joined(Transaction(Identity(4712, 0), 900_000), Identity(4712, 0), both, T0 + 44_000)
    known = ended(known, known.identity, [], commit=True)
    done = finished(known, known.identity, 1)
    assert done is not None
    records[DONE], records["payments-2"] = done, known
    fake.transactions.now_ms = T0 + 45_000
    return fake


@pytest.fixture
def damaged(transactions: FakeCluster) -> FakeCluster:
    """Like `transactions`, but with an additional record that cannot be read."""
    text = "the record of transactional id 'worn' cannot be used: its checksum does not fit its bytes"
    transactions.transactions.unreadable["worn"] = KafkaStorageError(text)
    return transactions
