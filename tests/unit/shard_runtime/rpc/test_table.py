"""The table of RPCs is that of the protocol: a row for each RPC of each service, and no other."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import kip932
from kip932.api.v1 import cluster_service_pb2
from kip932.rpc.transport import service_methods
from shard_runtime.rpc.table import RPCS, UNSERVED, Port, RequestSize


def defined() -> set[str]:
    """The paths of the RPCs of all services defined in our `.proto` files."""
    names = [one.name for one in pkgutil.walk_packages(kip932.__path__, "kip932.") if one.name.endswith("_pb2")]
    modules = [importlib.import_module(name) for name in names]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    return {method.path for service in services for method in service_methods(service).values()}


def test_every_rpc_of_the_protocol_has_a_row_and_every_row_is_an_rpc_of_it() -> None:
    assert defined() == RPCS.keys(), "add the RPC's row to shard_runtime/rpc/table.py, or remove it"
    assert "/kip932.api.v1.ClusterService/Metadata" in RPCS
    assert set(service_methods(cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"])) == {
        row.name for row in RPCS.values() if row.service.endswith(".ClusterService")
    }


@pytest.mark.rule("CL-88")
def test_an_rpc_for_clients_is_served_to_them_or_has_a_reason() -> None:
    for_clients = {row.path for row in RPCS.values() if row.service.startswith("kip932.api.")}
    assert {path for path in for_clients if Port.CLIENTS not in RPCS[path].ports} == UNSERVED.keys()
    assert all(row.ports for row in RPCS.values() if row.path not in for_clients)


@pytest.mark.rule("CM-91")
def test_a_request_has_more_than_a_mebibyte_only_when_it_brings_batches() -> None:
    larger = {row.name: row.request for row in RPCS.values() if row.request is not RequestSize.LISTS}
    assert larger == {
        "Produce": RequestSize.RECORD_BATCHES,
        "ProduceStream": RequestSize.RECORD_BATCHES,
        "WriteShareGroupState": RequestSize.STATE_BATCHES,
        "StateStream": RequestSize.STATE_BATCHES,
    }
