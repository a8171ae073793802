"""The client of sharegroups: queues for Kafka's share groups (KIP-932).

    from sharegroups import Producer, ShareConsumer

This package contains the blocking clients; `sharegroups.aio` has the same clients for asyncio. It needs only grpcio and
protobuf. Every error of `sharegroups.errors` can be imported from here.

Names other than errors are imported when they are first used. Importing gRPC takes most of a command's start-up time,
and Ctrl-C is handled cleanly only once `sharegroups.cli.run` has started.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sharegroups import errors
from sharegroups.errors import *  # noqa: F403 - every error a method may raise or return; errors.__all__ is the list

if TYPE_CHECKING:
    from kip932.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
    from kip932.ids import TopicPartition
    from kip932.quotas import QuotaEntity
    from kip932.scram import Mechanism
    from sharegroups import aio
    from sharegroups.admin import Admin
    from sharegroups.admin_values import (
        AlterConfig,
        ConfigResource,
        NewTopic,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from sharegroups.consumer import ShareConsumer
    from sharegroups.messages import AcknowledgeType, Message, Messages, TopicIdPartition
    from sharegroups.producer import Producer
    from sharegroups.reports import DeliveryReport
    from sharegroups.worker import (
        Accept,
        JobInfo,
        JobInterrupted,
        Reject,
        Release,
        Retry,
        Worker,
        WorkerError,
        current_job,
    )

__all__ = [
    "Accept",
    "AcknowledgeType",
    "Acl",
    "AclFilter",
    "Admin",
    "AlterConfig",
    "ConfigResource",
    "DeliveryReport",
    "JobInfo",
    "JobInterrupted",
    "Mechanism",
    "Message",
    "Messages",
    "NewTopic",
    "Operation",
    "PatternType",
    "Permission",
    "Producer",
    "QuotaEntity",
    "Reject",
    "Release",
    "ResourceType",
    "Retry",
    "ShareConsumer",
    "TopicIdPartition",
    "TopicPartition",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "Worker",
    "WorkerError",
    "aio",
    "current_job",
]
__all__ += errors.__all__

_HOMES: Final = {
    "Accept": "sharegroups.worker",
    "AcknowledgeType": "sharegroups.messages",
    "Acl": "kip932.acls",
    "AclFilter": "kip932.acls",
    "Admin": "sharegroups.admin",
    "AlterConfig": "sharegroups.admin_values",
    "ConfigResource": "sharegroups.admin_values",
    "DeliveryReport": "sharegroups.reports",
    "JobInfo": "sharegroups.worker",
    "JobInterrupted": "sharegroups.worker",
    "Mechanism": "kip932.scram",
    "Message": "sharegroups.messages",
    "Messages": "sharegroups.messages",
    "NewTopic": "sharegroups.admin_values",
    "Operation": "kip932.acls",
    "PatternType": "kip932.acls",
    "Permission": "kip932.acls",
    "Producer": "sharegroups.producer",
    "QuotaEntity": "kip932.quotas",
    "Reject": "sharegroups.worker",
    "Release": "sharegroups.worker",
    "ResourceType": "kip932.acls",
    "Retry": "sharegroups.worker",
    "ShareConsumer": "sharegroups.consumer",
    "TopicIdPartition": "sharegroups.messages",
    "TopicPartition": "kip932.ids",
    "UserScramCredentialDeletion": "sharegroups.admin_values",
    "UserScramCredentialUpsertion": "sharegroups.admin_values",
    "Worker": "sharegroups.worker",
    "WorkerError": "sharegroups.worker",
    "current_job": "sharegroups.worker",
}

if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name

    def __getattr__(name: str) -> Any:
        if name == "aio":
            return import_module("sharegroups.aio")
        if name not in _HOMES:
            raise AttributeError(f"module 'sharegroups' has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
