"""Calls ClusterService by method name, over the in-memory transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from kip932.api.v1 import cluster_service_pb2
from kip932.rpc.transport import Transport, service_methods
from tests.integration.runtime.harness import Process

SERVICE = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
METHODS = service_methods(SERVICE)


@dataclass
class Wire:
    process: Process
    transport: Transport

    async def call(self, name: str, **fields: Any) -> Any:
        method = METHODS[name]
        request: Message = method.request_type(**fields)
        return await self.transport.call("node:1", method, request, 5)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topics = [{"name": name, "num_partitions": partitions, "configs": given}]
        return (await self.call("CreateTopics", topics=topics)).topics[0]

    async def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None], check: bool = False) -> Any:
        configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        answer = await self.call("IncrementalAlterConfigs", resources=[resource], validate_only=check)
        return answer.responses[0]

    async def describe(self, kind: int, name: str, **fields: Any) -> Any:
        resources = [{"resource_type": kind, "resource_name": name}]
        return (await self.call("DescribeConfigs", resources=resources, **fields)).results[0]
