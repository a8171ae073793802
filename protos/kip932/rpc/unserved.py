"""The RPCs of the client-facing services that no service of this version has, and why.

One table for both sides: `shard_runtime.rpc.binding.check_whole` holds a role's services to it, and the page of the
Python API marks by it the calls that need such an RPC. A node answers UNIMPLEMENTED to them; the client raises
UnsupportedVersionError (CL-88).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ACLS: Final = "access control: every caller may do everything"
_API: Final = "/kip932.api.v1"

#: The reason by the path of the RPC.
UNSERVED: Final[Mapping[str, str]] = {
    f"{_API}.ClusterService/CreateAcls": _ACLS,
    f"{_API}.ClusterService/DescribeAcls": _ACLS,
    f"{_API}.ClusterService/DeleteAcls": _ACLS,
    f"{_API}.PartitionLeaderService/WriteTxnMarkers": "between nodes only, a producer calls EndTxn",
}
