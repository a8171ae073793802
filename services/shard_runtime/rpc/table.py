"""The table of RPCs: one row for each RPC of each service.

A row determines how large a request may be (`rpc.binding`), whether its response is sent even if there is no room for
it (`rpc.adapter`), at which port the RPC must be served (`check_whole`), and what docs/reference/protocol.md and api.md
say about it. A node does not start with services that differ from the table. An RPC that is served at no port is
answered UNIMPLEMENTED; the client raises UnsupportedVersionError (CL-88).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final

from kip932.acls import Operation, ResourceType
from shard_runtime.rpc.access import Needs


class Effect(Enum):
    """What an RPC does. When there is no room for the response, the caller of an RPC that only reads is asked to call
    again; the response of one that writes is always sent (CM-92)."""

    READS = "reads"
    WRITES = "writes"


class RequestSize(Enum):
    """What a request may contain, and its maximum size in bytes (CM-91)."""

    #: The number of list entries is bounded (`rpc.bounds`), and that many need fewer bytes than this. A request of this
    #: size that is full of empty entries is parsed in 20 ms, into 50 MB.
    LISTS = 1024 * 1024
    #: The numbers of state batches and of reasons of failures are bounded, too.
    STATE_BATCHES = 8 * 1024 * 1024
    #: Bounded by the server's limit for requests, `rpc.request.max.bytes`, and by each topic's.
    RECORD_BATCHES = None


class Port(Flag):
    """Where an RPC is served: `listen.port`, `internal.listen.port` (CM-80), and the port of `sharegroups scaler`."""

    CLIENTS = auto()
    NODES = auto()
    SCALER = auto()


@dataclass(frozen=True, slots=True)
class Rpc:
    """One row. `needs`: the operation that a client needs on each type of resource that its request names; what is
    needed beyond that, the handler checks (CM-61). At the port for nodes each RPC needs CLUSTER_ACTION. `unserved`:
    why an RPC of a service for clients is not served to them; empty for all others."""

    service: str
    name: str
    effect: Effect
    ports: Port
    needs: Needs
    request: RequestSize = RequestSize.LISTS
    unserved: str = ""

    @property
    def path(self) -> str:
        """The path of a call, `/package.Service/Method`."""
        return f"/{self.service}/{self.name}"


_CLUSTER: Final = "kip932.api.v1.ClusterService"
_GROUPS: Final = "kip932.api.v1.GroupCoordinatorService"
_LEADER: Final = "kip932.api.v1.PartitionLeaderService"
_CONNECTIONS: Final = "kip932.internal.v1.MemberConnectionsService"
_SESSIONS: Final = "kip932.internal.v1.MemberSessionsService"
_STATE: Final = "kip932.internal.v1.ShareCoordinatorService"
_SCALER: Final = "externalscaler.ExternalScaler"
_READS, _WRITES = Effect.READS, Effect.WRITES
_CLIENTS, _NODES = Port.CLIENTS, Port.NODES
_STATE_BATCHES, _RECORD_BATCHES = RequestSize.STATE_BATCHES, RequestSize.RECORD_BATCHES
_O, _T, _G, _C, _X = (
    Operation,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_PEER: Final[Needs] = {_C: _O.CLUSTER_ACTION}


def _each(operation: Operation, *resources: ResourceType) -> Needs:
    """The same operation on resources of several types."""
    return dict.fromkeys(resources, operation)


_ROWS: Final = (
    Rpc(_CLUSTER, "FindCoordinator", _READS, _CLIENTS | _NODES, {**_each(_O.DESCRIBE, _G, _X), **_PEER}),
    Rpc(_CLUSTER, "Metadata", _READS, _CLIENTS, {_T: _O.DESCRIBE}),
    Rpc(_CLUSTER, "DescribeCluster", _READS, _CLIENTS, {_C: _O.DESCRIBE}),
    Rpc(_CLUSTER, "CreateTopics", _WRITES, _CLIENTS, {_T: _O.CREATE, _C: _O.CREATE}),
    Rpc(_CLUSTER, "CreatePartitions", _WRITES, _CLIENTS, {_T: _O.ALTER}),
    Rpc(_CLUSTER, "DeleteTopics", _WRITES, _CLIENTS, {_T: _O.DELETE, _C: _O.DELETE}),
    Rpc(_CLUSTER, "DescribeConfigs", _READS, _CLIENTS, _each(_O.DESCRIBE_CONFIGS, _T, _G, _C)),
    Rpc(_CLUSTER, "IncrementalAlterConfigs", _WRITES, _CLIENTS, _each(_O.ALTER_CONFIGS, _T, _G, _C)),
    Rpc(_CLUSTER, "InitProducerId", _WRITES, _CLIENTS, {_C: _O.IDEMPOTENT_WRITE, _T: _O.WRITE, _X: _O.WRITE}),
    Rpc(_CLUSTER, "EndTxn", _WRITES, _CLIENTS, {_X: _O.WRITE}),
    Rpc(_CLUSTER, "ListTransactions", _READS, _CLIENTS, {_X: _O.DESCRIBE}),
    Rpc(_CLUSTER, "DescribeTransactions", _READS, _CLIENTS, {_X: _O.DESCRIBE, _T: _O.DESCRIBE}),
    Rpc(_CLUSTER, "CreateAcls", _WRITES, _CLIENTS, {_C: _O.ALTER}),
    Rpc(_CLUSTER, "DescribeAcls", _READS, _CLIENTS, {_C: _O.DESCRIBE}),
    Rpc(_CLUSTER, "DeleteAcls", _WRITES, _CLIENTS, {_C: _O.ALTER}),
    Rpc(_CLUSTER, "AlterClientQuotas", _WRITES, _CLIENTS, {_C: _O.ALTER_CONFIGS}),
    Rpc(_CLUSTER, "DescribeClientQuotas", _READS, _CLIENTS, {_C: _O.DESCRIBE_CONFIGS}),
    Rpc(_CLUSTER, "DescribeUserScramCredentials", _READS, _CLIENTS, {_C: _O.DESCRIBE}),
    Rpc(_CLUSTER, "AlterUserScramCredentials", _WRITES, _CLIENTS, {_C: _O.ALTER}),
    Rpc(_GROUPS, "ShareGroupHeartbeat", _WRITES, _CLIENTS, {_G: _O.READ, _T: _O.DESCRIBE}),
    Rpc(_GROUPS, "ShareGroupDescribe", _READS, _CLIENTS, _each(_O.DESCRIBE, _G, _T)),
    Rpc(_GROUPS, "ListGroups", _READS, _CLIENTS, _each(_O.DESCRIBE, _C, _G)),
    Rpc(_GROUPS, "DeleteGroups", _WRITES, _CLIENTS, {_G: _O.DELETE}),
    Rpc(_GROUPS, "DescribeShareGroupOffsets", _READS, _CLIENTS, _each(_O.DESCRIBE, _G, _T)),
    Rpc(_GROUPS, "AlterShareGroupOffsets", _WRITES, _CLIENTS, _each(_O.READ, _G, _T)),
    Rpc(_GROUPS, "DeleteShareGroupOffsets", _WRITES, _CLIENTS, {_G: _O.DELETE, _T: _O.READ}),
    Rpc(_LEADER, "Produce", _WRITES, _CLIENTS | _NODES, _each(_O.WRITE, _T, _X), _RECORD_BATCHES),
    Rpc(_LEADER, "ProduceStream", _WRITES, _CLIENTS, _each(_O.WRITE, _T, _X), _RECORD_BATCHES),
    Rpc(_LEADER, "Fetch", _READS, _CLIENTS, {_T: _O.READ}),
    Rpc(_LEADER, "ListOffsets", _READS, _CLIENTS | _NODES, {_T: _O.DESCRIBE, _G: _O.DESCRIBE}),
    Rpc(_LEADER, "DeleteRecords", _WRITES, _CLIENTS, {_T: _O.DELETE}),
    Rpc(_LEADER, "DescribeLogDirs", _READS, _CLIENTS, _each(_O.DESCRIBE, _C, _T)),
    Rpc(_LEADER, "ShareFetch", _WRITES, _CLIENTS, _each(_O.READ, _G, _T)),
    Rpc(_LEADER, "ShareAcknowledge", _WRITES, _CLIENTS, _each(_O.READ, _G, _T)),
    Rpc(_LEADER, "ShareStream", _WRITES, _CLIENTS, _each(_O.READ, _G, _T)),
    Rpc(_LEADER, "WriteTxnMarkers", _WRITES, _NODES, _PEER, unserved="between nodes only, a producer calls EndTxn"),
    Rpc(_LEADER, "ExplainRecord", _READS, _CLIENTS, _each(_O.DESCRIBE, _G, _T)),
    Rpc(_LEADER, "ListShareProgress", _READS, _CLIENTS, _each(_O.DESCRIBE, _G, _T)),
    Rpc(_CONNECTIONS, "ReportMemberConnections", _WRITES, _NODES, _PEER),
    Rpc(_SESSIONS, "EndMemberSessions", _WRITES, _NODES, _PEER),
    Rpc(_STATE, "InitializeShareGroupState", _WRITES, _NODES, _PEER),
    # It stores a newer leader epoch, once, so it can be repeated.
    Rpc(_STATE, "ReadShareGroupState", _READS, _NODES, _PEER),
    Rpc(_STATE, "WriteShareGroupState", _WRITES, _NODES, _PEER, _STATE_BATCHES),
    Rpc(_STATE, "DeleteShareGroupState", _WRITES, _NODES, _PEER),
    Rpc(_STATE, "ReadShareGroupStateSummary", _READS, _NODES, _PEER),
    Rpc(_STATE, "ReadTopicStartOffsets", _READS, _NODES, _PEER),
    Rpc(_STATE, "StateStream", _WRITES, _NODES, _PEER, _STATE_BATCHES),
    Rpc(_SCALER, "IsActive", _READS, Port.SCALER, _each(_O.DESCRIBE, _G, _T)),
    Rpc(_SCALER, "GetMetricSpec", _READS, Port.SCALER, _each(_O.DESCRIBE, _G, _T)),
    Rpc(_SCALER, "GetMetrics", _READS, Port.SCALER, _each(_O.DESCRIBE, _G, _T)),
)

#: The rows by the paths of their RPCs.
RPCS: Final[Mapping[str, Rpc]] = {row.path: row for row in _ROWS}
#: The RPCs of services for clients that are not served to them: the path of each, and the reason.
UNSERVED: Final[Mapping[str, str]] = {row.path: row.unserved for row in _ROWS if row.unserved}
