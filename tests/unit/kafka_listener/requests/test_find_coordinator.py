"""FindCoordinator: one key up to version 3, many from version 4 on."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import Broker
from kafka_listener.requests import find_coordinator
from kip932.acls import Operation, ResourceType
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorResponse
from kip932.errors import CoordinatorNotAvailableError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedCluster, ScriptedConnection, allow, answered

REQUEST = api("FindCoordinator").request
answer = partial(answered, "FindCoordinator")


def found(*nodes: int) -> FindCoordinatorResponse:
    response = FindCoordinatorResponse()
    for number, node in enumerate(nodes):
        response.coordinators.add(key=f"g{number}", node_id=node, host="internal", port=1)
    return response


@pytest.mark.rule("KL-46")
@pytest.mark.parametrize("version", range(4))
@virtual
async def test_a_group_has_the_node_with_the_address_of_its_listener(version: int) -> None:
    connection = ScriptedConnection(find_coordinator=found(2))
    got = await answer(version, REQUEST(key="g0", key_type=0), connection, find_coordinator.answer)
    assert list(connection.request.coordinator_keys) == ["g0"]
    assert (got.error_code, got.node_id, got.host, got.port) == (0, 2, "two.example", 9093)


@pytest.mark.rule("KL-46")
@pytest.mark.parametrize("version", range(4, 7))
@virtual
async def test_many_groups_have_an_entry_each(version: int) -> None:
    response = found(1, 3)
    response.coordinators.add(key="g2", node_id=-1, port=-1, error_code=15, error_message="no owner")
    connection = ScriptedConnection(find_coordinator=response)
    asked = REQUEST(key_type=0, coordinator_keys=["g0", "g1", "g2"])
    got = await answer(version, asked, connection, find_coordinator.answer)
    assert [(each.key, each.error_code, each.node_id, each.port) for each in got.coordinators] == [
        ("g0", 0, 1, 9092),
        ("g1", 15, -1, -1),
        ("g2", 15, -1, -1),
    ]
    assert "kafka.listen.port" in got.coordinators[1].error_message
    assert got.coordinators[2].error_message == "no owner"


@pytest.mark.rule("KL-101")
@virtual
async def test_a_transactional_id_has_the_asked_node_for_a_caller_that_may_describe_it() -> None:
    allowed = [allow(Operation.DESCRIBE, "mine", ResourceType.TRANSACTIONAL_ID)]
    connection = ScriptedConnection(allowed)
    asked = REQUEST(key_type=1, coordinator_keys=["mine", "theirs"])
    got = await answer(6, asked, connection, find_coordinator.answer)
    assert [(each.error_code, each.node_id, each.port) for each in got.coordinators] == [(0, 1, 9092), (53, -1, -1)]
    assert connection.calls == []


@pytest.mark.rule("KL-101")
@virtual
async def test_a_node_that_is_not_listed_yet_is_no_coordinator() -> None:
    connection = ScriptedConnection()
    connection.cluster = ScriptedCluster([Broker(2, "two.example", 9093)])
    got = await answer(6, REQUEST(key_type=1, coordinator_keys=["t"]), connection, find_coordinator.answer)
    assert [(each.error_code, each.node_id) for each in got.coordinators] == [(15, -1)]


@pytest.mark.rule("KL-48")
@pytest.mark.parametrize("version", range(1, 6))
@virtual
async def test_clients_without_kip_890_get_no_coordinator_of_transactions_and_words_that_say_why(version: int) -> None:
    asked = REQUEST(key="mine", key_type=1, coordinator_keys=["mine"])
    got = await answer(version, asked, ScriptedConnection(), find_coordinator.answer)
    one = got.coordinators[0] if version >= 4 else got
    assert (one.error_code, one.node_id) == (31, -1)
    assert "leave out transactional.id" in one.error_message


@pytest.mark.rule("KL-46")
@pytest.mark.parametrize(("version", "key_type"), [(2, 2), (6, 2), (6, 7), (3, 7)])
@virtual
async def test_other_types_of_keys_are_refused(version: int, key_type: int) -> None:
    connection = ScriptedConnection()
    asked = REQUEST(key="k", key_type=key_type, coordinator_keys=["k"])
    got = await answer(version, asked, connection, find_coordinator.answer)
    one = got.coordinators[0] if version >= 4 else got
    assert (one.error_code, one.node_id) == (42, -1)
    assert connection.calls == []


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_key() -> None:
    connection = ScriptedConnection(find_coordinator=CoordinatorNotAvailableError("later"))
    got = await answer(5, REQUEST(coordinator_keys=["a", "b"]), connection, find_coordinator.answer)
    assert [(each.key, each.error_code) for each in got.coordinators] == [("a", 15), ("b", 15)]
