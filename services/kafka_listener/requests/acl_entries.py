"""The shape of an access control entry, and of a filter, which the ACL requests share (KL-63)."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.acl_pb2 import AclBinding, AclFilter


def filter_of(asked: Any) -> AclFilter:
    """Return the node's filter. Null matches all names, principals or hosts."""
    return AclFilter(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        resource_pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )


def binding_of(creation: Any) -> AclBinding:
    """Return the node's entry for one to create."""
    return AclBinding(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        resource_pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )
