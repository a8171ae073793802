"""The client of sharegroups: queues for Kafka's share groups (KIP-932).

    from sharegroups import Producer, ShareConsumer

Blocking clients stand here; `sharegroups.aio` holds the same ones for asyncio. It needs grpcio and protobuf only.
"""

from kip932.ids import TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic
from sharegroups.consumer import ShareConsumer
from sharegroups.errors import (
    BufferFullError,
    ConcurrentModificationError,
    ConfigError,
    DeserializationError,
    IllegalStateError,
    KafkaError,
    RetriableError,
    WakeupError,
)
from sharegroups.messages import AcknowledgeType, Message, Messages, TopicIdPartition
from sharegroups.producer import Producer
from sharegroups.reports import DeliveryReport

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AlterConfig",
    "BufferFullError",
    "ConcurrentModificationError",
    "ConfigError",
    "ConfigResource",
    "DeliveryReport",
    "DeserializationError",
    "IllegalStateError",
    "KafkaError",
    "Message",
    "Messages",
    "NewTopic",
    "Producer",
    "RetriableError",
    "ShareConsumer",
    "TopicIdPartition",
    "TopicPartition",
    "WakeupError",
]
