"""A fake cluster with access control entries, and nodes with settings for access control."""

from __future__ import annotations

import pytest

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.support.fake_cluster.cluster import FakeCluster

READ = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
GROUP = READ._replace(
    resource_type=ResourceType.GROUP, resource_name="work-", resource_pattern_type=PatternType.PREFIXED
)
DENIED = Acl(ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", "10.0.0.1", Operation.WRITE, Permission.DENY)
WRITE = READ._replace(principal="User:bob", operation=Operation.WRITE)


def turn_on(fake: FakeCluster, super_users: str = "", node: int = 0, *, enabled: bool = True) -> None:
    """Start a node again with settings for access control."""
    fake.flags[node] = {"access.control.enable": str(enabled).lower(), "super.users": super_users}
    fake.serve(node)


@pytest.fixture
def entries(fake: FakeCluster) -> FakeCluster:
    """Access control is on. Alice may read `orders` and the groups `work-…`, bob may write to `orders`; from 10.0.0.1
    no caller may write to a topic."""
    turn_on(fake, "User:root;User:ops")
    fake.acls.update({READ, GROUP, DENIED, WRITE})
    return fake
