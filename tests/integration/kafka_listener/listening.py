"""A Kafka listener alone, on a port of this machine, whose handlers the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kafka_listener.limits import Limits
from kafka_listener.listener import KafkaListener, ListenerOptions
from kafka_listener.messages.apis import api
from kafka_listener.offers import Offers
from kafka_listener.ports import Connection
from kafka_listener.requests.table import Answer, Handler
from kip932.scram import Credentials
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.budget import Budget
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.passwords import Passwords
from shard_runtime.rpc.server import RpcServer
from tests.unit.kafka_listener.requests.share_connections import Brokers

#: Short enough for a test; checks come every second.
SHORT = Limits(partial_s=0.5, idle_s=1.0, unread_bytes=4 * 1024 * 1024, unread_s=1.0)


class Listening:
    """A listener and what it is made of."""

    def __init__(self, listener: KafkaListener, server: RpcServer, passwords: Passwords) -> None:
        self.listener = listener
        self.server = server
        self.passwords = passwords

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.listener.port

    @property
    def held(self) -> int:
        """How many bytes of the node's budget are taken."""
        return self.server.budget.used_bytes

    @property
    def refused(self) -> dict[str, int]:
        """How many connections were closed, or not taken, by the reason."""
        return self.listener.counts.refused

    async def idle(self) -> None:
        """Wait until no connection is open, and nothing is held."""
        async with asyncio.timeout(20):
            while self.listener.connections or self.held:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(
    answers: Mapping[str, Answer] | None = None,
    *,
    limits: Limits | None = None,
    connections_max: int = 1_000,
    certificates: NodeCertificates | None = None,
    client_required: bool = False,
    users: Credentials | None = None,
    access: Access | None = None,
    authentication: Authentication | None = None,
    budget_bytes: int = 64 * 1024 * 1024,
) -> AsyncIterator[Listening]:
    """Run a listener with these handlers, by the names of their APIs."""
    passwords = Passwords()
    passwords.follow(users or {})
    checked = authentication or Authentication()
    checked.take_passwords(passwords.check, lambda: passwords.version)
    passwords.subscribe(checked.changed)
    server = RpcServer(
        "127.0.0.1", 0, None, certificates, budget=Budget(budget_bytes), access=access, authentication=checked
    )
    handlers = {api(name).key: Handler(name, api(name).versions, answer) for name, answer in (answers or {}).items()}
    options = ListenerOptions(
        "127.0.0.1", 0, connections_max, client_required=client_required, limits=limits or Limits()
    )
    listener = KafkaListener(options, server, Brokers(), passwords, certificates, offers=Offers(handlers))
    listener.listen()
    listener.start()
    try:
        yield Listening(listener, server, passwords)
    finally:
        await listener.drain(0.1)
        await server.drain(0)
        passwords.close()


async def at_once(request: Any, version: int, connection: Connection) -> Any:
    """Answer DeleteGroups or Metadata without delay."""
    return api("Metadata").response(cluster_id="c")
