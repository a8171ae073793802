"""A member of a group with an open, empty session at the leader of a topic's first partition."""

from __future__ import annotations

from typing import NamedTuple

from kip932.api.v1.metadata_pb2 import MetadataRequest
from tests.integration.scenarios.sessions import Session
from tests.support.node import unique

from .hosting import Services


class Topic(NamedTuple):
    """A topic, and the addresses of its partitions' leaders by number."""

    name: str
    id: bytes
    leaders: dict[int, str]


async def topic(services: Services, partitions: int = 1) -> Topic:
    """Create a topic and wait until it is served."""
    name = unique("t")
    topic_id = await services.create_topic(name, partitions)
    leaders = await services.leaders(name, partitions)
    return Topic(name, topic_id, {number: leader.address for number, leader in leaders.items()})


async def other_node(services: Services, place: Topic) -> str:
    """Return the address of a node that does not lead the topic's first partition."""
    nodes = [f"{node.host}:{node.port}" for node in (await services.call("Metadata", MetadataRequest())).brokers]
    return next(address for address in nodes if address != place.leaders[0])


async def member(services: Services, place: Topic, group: str = "") -> Session:
    """Return a new member of a group (by default, of a new group); its session is not open yet."""
    group = group or unique("g")
    return Session(services, group, await services.join(group, [place.name]), place.id, address=place.leaders[0])


async def opened(services: Services, place: Topic, group: str = "") -> Session:
    """Return a new member with an open session; the topic must be empty."""
    made = await member(services, place, group)
    await made.open()
    return made


async def produced(services: Services, place: Topic, count: int, partition: int = 0) -> int:
    """Produce one batch of this many records; return its base offset."""
    return await services.produce(place.id, count, partition, place.leaders[partition])
