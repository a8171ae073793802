"""A `Wire` whose requests go to the Kafka listener, if Kafka has them.

Each member has a connection of its own, as a session belongs to one (KL-81); all other requests to a node share
another. Requests that Kafka has not, such as those that read stored state, go over gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Final

from kafka_listener.messages.apis import Api, api
from kafka_listener.messages.headers import read_response_head, request_head
from kafka_listener.requests.table import HANDLERS
from kip932.rpc.transport import TransportError, TransportStatus
from tests.integration.scenarios.wire import CALL_S, METHODS, Wire
from tests.support.kafka_forms import TopicNames, request_bytes, response_of

#: The RPCs that are requests of Kafka's, with the newest version that a node answers.
VERSIONS: Final = {
    row.api: max(version for version in row.versions_offered if version in api(row.api).versions)
    for row in HANDLERS.values()
    if row.api in METHODS
}
CONCURRENT_TRANSACTIONS: Final = 51
_SHARE: Final = ("ShareFetch", "ShareAcknowledge")


class KafkaConnection:
    """One connection. Requests may overlap; their answers have to come in their order."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._waiting: deque[tuple[int, Api, int, asyncio.Future[bytes]]] = deque()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, address: str) -> KafkaConnection:
        """Connect to `host:port`. Raises TransportError."""
        host, _, port = address.rpartition(":")
        try:
            return cls(address, *await asyncio.open_connection(host, int(port)))
        except OSError as error:
            raise TransportError(TransportStatus.UNAVAILABLE, address, str(error)) from error

    @property
    def ended(self) -> bool:
        """Whether it takes no more requests."""
        return self._reading.done()

    async def ask(self, used: Api, version: int, body: bytes) -> bytes:
        """Send a request and return its response without the header. Raises TransportError when the node closes the
        connection."""
        self._number += 1
        data = request_head(used, version, self._number, "again") + body
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._number, used, version, answer))
        self._writer.write(len(data).to_bytes(4, "big") + data)
        async with asyncio.timeout(CALL_S):
            return await answer

    async def close(self) -> None:
        """Close it."""
        self._writer.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        error: BaseException = ConnectionError("it was closed")
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                data = await self._reader.readexactly(size)
                expected, used, version, answer = self._waiting.popleft()
                number, at = read_response_head(used, version, data)
                assert number == expected, f"answer {number} came in the place of {expected}"
                if not answer.done():
                    answer.set_result(data[at:])
        except (OSError, EOFError) as found:
            error = TransportError(TransportStatus.UNAVAILABLE, self._address, str(found))
        except AssertionError as found:
            error = found
        finally:
            for *_, answer in self._waiting:
                if not answer.done():
                    answer.set_exception(error)


class KafkaWire(Wire):
    """One client of one cluster, over Kafka's protocol. `kafka`, `grpc`, `internal`: where the cluster listens for
    Kafka's clients, for its own, and for nodes."""

    def __init__(self, kafka: str, grpc: str, internal: str) -> None:
        super().__init__(kafka, internal)
        self._grpc = grpc
        self._names = TopicNames()
        self._connections: dict[tuple[str, ...], KafkaConnection] = {}
        self._connecting = asyncio.Lock()
        self._closed = False

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        for connection in self._connections.values():
            await connection.close()
        await super().__aexit__()

    async def call(self, name: str, request: Any, address: str | None = None) -> Any:
        """Call one RPC by its name. Raises NoKafkaFormError for what Kafka's request cannot say, and TransportError
        when the connection is closed or cannot be opened."""
        if name not in VERSIONS or address == self.internal:
            return await super().call(name, request, address or self._grpc)
        used, version = api(name), VERSIONS[name]
        body = request_bytes(used, version, request, self._names)
        member = (request.group_id, request.member_id) if name in _SHARE else ()
        connection = await self._connection(address or self.bootstrap, *member)
        data = await connection.ask(used, version, body)
        response = METHODS[name].response_type()
        response_of(used, version, data, response, self._names)
        if name == "EndTxn" and response.error_code == CONCURRENT_TRANSACTIONS:
            return METHODS[name].response_type()  # the same answer of the RPC: markers are missing (KL-104)
        if name in ("CreateTopics", "Metadata"):
            self._names.see(response.topics)
        return response

    async def _connection(self, address: str, *member: str) -> KafkaConnection:
        key = (address, *member)
        async with self._connecting:
            found = self._connections.get(key)
            if found is not None and found.ended:
                await self._connections.pop(key).close()
                found = None
            if found is None:
                assert not self._closed, "its test has ended"
                found = self._connections[key] = await KafkaConnection.connect(address)
        return found
