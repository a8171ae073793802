"""Why a transactional id is refused, in the answer and in the node's log."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kafka_listener.requests.transactional_ids import refusal
from kip932.acls import Operation, ResourceType
from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    TransactionalIdAuthorizationFailedError,
)
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, allow


@pytest.mark.rule("KL-48")
@virtual
async def test_the_log_names_the_id_and_what_to_do_once_for_each() -> None:
    with capture_logs() as lines:
        connection = ScriptedConnection()
        for name in ("pay\x1bments", "pay\x1bments", "x" * 1000):
            refused = refusal(connection, name, Operation.WRITE, known=False)
            assert isinstance(refused, ClusterAuthorizationFailedError)
    assert [(line["event"], line["transactional_id"]) for line in lines] == [
        ("kafka_transactions_refused", "pay\\x1bments"),
        ("kafka_transactions_refused", "x" * 100),
    ]
    assert "transactional.id" in lines[0]["remedy"]


@pytest.mark.rule("KL-48")
@virtual
async def test_who_may_not_use_the_id_learns_nothing_else() -> None:
    with capture_logs() as lines:
        connection = ScriptedConnection([allow(Operation.DESCRIBE, "t", ResourceType.TRANSACTIONAL_ID)])
        refused = refusal(connection, "t", Operation.WRITE, known=True)
    assert isinstance(refused, TransactionalIdAuthorizationFailedError)
    assert [line["event"] for line in lines] == ["access_refused"]
    assert isinstance(refusal(ScriptedConnection(), "", Operation.WRITE, known=True), InvalidRequestError)


@pytest.mark.rule("KL-101")
@virtual
async def test_clients_that_know_kip_890_are_not_refused_and_not_logged() -> None:
    with capture_logs() as lines:
        assert refusal(ScriptedConnection(), "t", Operation.WRITE, known=True) is None
    assert lines == []
