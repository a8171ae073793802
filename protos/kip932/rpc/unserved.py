"""The RPCs of the client-facing services that this version does not implement, and why.

One table for both sides: `shard_runtime.rpc.binding.check_whole` checks a role's services against it, and the page of
the Python API uses it to mark the calls that need such an RPC. A node answers these RPCs with UNIMPLEMENTED; the client
raises UnsupportedVersionError (CL-88).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ACLS: Final = "access control: every caller may do everything"
_API: Final = "/kip932.api.v1"

#: Maps the path of each RPC to the reason.
UNSERVED: Final[Mapping[str, str]] = {
    f"{_API}.ClusterService/CreateAcls": _ACLS,
    f"{_API}.ClusterService/DescribeAcls": _ACLS,
    f"{_API}.ClusterService/DeleteAcls": _ACLS,
    f"{_API}.PartitionLeaderService/WriteTxnMarkers": "between nodes only, a producer calls EndTxn",
}
