"""The leaders that responses to ShareFetch and ShareAcknowledge name for partitions led elsewhere (KL-80)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.ports import Cluster
from kip932.api.v1.common_pb2 import LeaderIdAndEpoch
from kip932.errors import FencedLeaderEpochError, NotLeaderOrFollowerError

LED_ELSEWHERE: Final = frozenset({NotLeaderOrFollowerError.code, FencedLeaderEpochError.code})
#: Kafka's number for "not known", of a leader and of its epoch.
UNKNOWN: Final = -1


class Leaders:
    """Fills in the current leaders of one response, and collects their endpoints for its end.

    `response`: the class of the response. Leaders come with the addresses of our own protocol, so an endpoint is that
    of the node's Kafka listener; a leader without one is not named, since a client could not reach it.
    """

    def __init__(self, response: Any, cluster: Cluster) -> None:
        self._response = response
        self._cluster = cluster
        self._endpoints: dict[int, Any] = {}

    def of(self, current: LeaderIdAndEpoch | None, *codes: int) -> Any:
        """Return the `current_leader` of a partition with these error codes: zeros when none of them means that another
        node leads it, as Kafka writes it. `current`: the leader in the node's own response, None if it names none."""
        if LED_ELSEWHERE.isdisjoint(codes):
            return self._response.LeaderIdAndEpoch()
        broker = None if current is None else self._cluster.broker(current.leader_id)
        if current is None or broker is None:
            return self._response.LeaderIdAndEpoch(leader_id=UNKNOWN, leader_epoch=UNKNOWN)
        self._endpoints[broker.node_id] = self._response.NodeEndpoint(
            node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack or None
        )
        return self._response.LeaderIdAndEpoch(leader_id=current.leader_id, leader_epoch=current.leader_epoch)

    @property
    def endpoints(self) -> list[Any]:
        """The endpoints of all leaders named so far."""
        return list(self._endpoints.values())
