"""A role's services have every RPC of their descriptor except those in the table of unserved RPCs."""

from __future__ import annotations

import pytest

from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.rpc.transport import service_methods
from shard_runtime.rpc.binding import check_whole, snake_case

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
    check_whole(SERVICE, Leader(served))
    for names, wrong in ((served - {"ShareFetch"}, "ShareFetch"), (served | {UNSERVED}, UNSERVED)):
        with pytest.raises(TypeError, match=f"Leader and kip932.rpc.unserved disagree about .*/{wrong};"):
            check_whole(SERVICE, Leader(names))
