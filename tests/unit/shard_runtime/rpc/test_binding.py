"""A service has the RPCs that the table has for its port, and each RPC that is bound has a row."""

from __future__ import annotations

import pytest

from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.rpc.transport import service_methods
from shard_runtime.rpc import binding
from shard_runtime.rpc.binding import bind, check_whole, snake_case
from shard_runtime.rpc.table import RPCS, Port

SERVICE = service_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"]
UNSERVED = "WriteTxnMarkers"


class Leader:
    """A service with a method for each of these RPCs."""

    def __init__(self, names: set[str]) -> None:
        for name in names:
            setattr(self, snake_case(name), object())


@pytest.mark.rule("CL-88")
def test_what_a_service_lacks_or_has_beyond_the_table_is_named() -> None:
    served = {*service_methods(SERVICE)} - {UNSERVED}
    check_whole(SERVICE, Leader(served), Port.CLIENTS)
    for names, wrong in ((served - {"ShareFetch"}, "ShareFetch"), (served | {UNSERVED}, UNSERVED)):
        text = f"Leader and shard_runtime.rpc.table disagree about [^,]*/{wrong} at the port for CLIENTS;"
        with pytest.raises(TypeError, match=text):
            check_whole(SERVICE, Leader(names), Port.CLIENTS)


# Covers of CM-80 which RPCs are served where: (a), and that no port for clients serves RPCs meant only for nodes. The
# listeners and their addresses, (b) and (c), and what the port for clients responds, (d) and (e), are covered by
# test_internal.py and tests/attack/test_internal_services.py.
@pytest.mark.rule("CM-80")
def test_each_port_has_the_rpcs_that_its_callers_may_call_and_no_others() -> None:
    for_nodes = {row.path.removeprefix("/kip932.") for row in RPCS.values() if Port.NODES in row.ports}
    both = {row.path.removeprefix("/kip932.") for row in RPCS.values() if row.ports == Port.CLIENTS | Port.NODES}
    internal = {path for path in for_nodes if path.startswith("internal.")}
    leader = "api.v1.PartitionLeaderService"
    assert both == {"api.v1.ClusterService/FindCoordinator", f"{leader}/Produce", f"{leader}/ListOffsets"}
    assert for_nodes == {*internal, *both, f"{leader}/WriteTxnMarkers"}
    assert not [row.path for row in RPCS.values() if ".internal." in row.service and row.ports != Port.NODES]
    called = {"Produce", "ListOffsets", UNSERVED}
    check_whole(SERVICE, Leader(called), Port.NODES)
    with pytest.raises(TypeError, match=r"disagree about [^,]*/ShareFetch at the port for NODES;"):
        check_whole(SERVICE, Leader(called | {"ShareFetch"}), Port.NODES)


def test_an_rpc_without_a_row_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/{SERVICE.full_name}/Fetch"
    monkeypatch.setattr(binding, "RPCS", {other: row for other, row in RPCS.items() if other != path})
    with pytest.raises(TypeError, match=f"{path} has no row in shard_runtime.rpc.table"):
        bind(SERVICE, Leader({"Fetch"}))
