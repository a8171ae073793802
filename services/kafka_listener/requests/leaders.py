"""The leaders that an answer names, with the addresses of their Kafka listeners (KL-42)."""

from __future__ import annotations

from typing import Any

from kafka_listener.ports import Broker, Cluster


class NamedLeaders:
    """Fills in the leaders of refused partitions, and collects their addresses. A leader without a Kafka listener is
    not named: its clients could not reach it."""

    def __init__(self, cluster: Cluster, leader_class: Any, endpoint_class: Any) -> None:
        """`leader_class`, `endpoint_class`: the structs of the response for a leader and for an address."""
        self._cluster = cluster
        self._leader_class = leader_class
        self._endpoint_class = endpoint_class
        self._named: dict[int, Broker] = {}

    def fill(self, into: Any, result: Any) -> None:
        """Set `current_leader` of a partition's answer if the node's `result` has one."""
        if not result.HasField("current_leader"):
            return
        broker = self._cluster.broker(result.current_leader.leader_id)
        if broker is None:
            return
        self._named[broker.node_id] = broker
        into.current_leader = self._leader_class(
            leader_id=broker.node_id, leader_epoch=result.current_leader.leader_epoch
        )

    def endpoints(self) -> list[Any]:
        """Return the addresses of all leaders named so far, in the order of their ids."""
        return [
            self._endpoint_class(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack or None)
            for _, each in sorted(self._named.items())
        ]
