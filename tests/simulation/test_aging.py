"""The simulated network ends old connections as gRPC does with the options that a node gives to it (CM-194)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.rpc.server import RpcOptions
from tests.simulation import determinism
from tests.simulation.aging import TOO_OLD, Aging
from tests.simulation.connection_events import ConnectionEnded, ConnectionReached
from tests.simulation.history import Event
from tests.simulation.test_network import CLUSTER, LEADER, STREAM, Net, heard, message

AGE_MS = 2_000


class OldNet(Net):
    """A network whose server's connections get two seconds old."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        super().__init__()

    def serve(self) -> None:
        options = RpcOptions(connection_age_ms=AGE_MS)
        aging = Aging.of(self.loop, self.lives["s"], options, Random(2), self.events.append)
        self.network.serve(self.lives["s"], "s:9000", CLUSTER, self.service, aging=aging)
        self.network.serve(self.lives["s"], "s:9000", LEADER, self.service, aging=aging)

    def seen(self, kind: type[Event]) -> list[Event]:
        """Return the events of this kind so far."""
        return [event for event in self.events if type(event) is kind]


def test_a_stream_goes_on_through_the_grace_and_later_calls_use_another_connection() -> None:
    async def main() -> None:
        net = OldNet()
        stream = await net.transport.open_stream("s:9000", STREAM)
        await stream.write(message(1))
        assert await heard(stream) == 1
        await net.ask()
        await asyncio.sleep(AGE_MS / 1000)
        await net.ask()
        first, second = net.service.connections
        assert first != second
        await stream.write(message(2))
        assert await heard(stream) == 2
        assert len(net.seen(ConnectionReached)) == 2
        with pytest.raises(TransportError) as failed:
            await heard(stream)
        assert failed.value.status is TransportStatus.UNAVAILABLE
        (ended,) = (each for each in net.seen(ConnectionEnded) if each.connection == first)  # type: ignore[attr-defined]
        assert ended.why == TOO_OLD  # type: ignore[attr-defined]
        assert 2 * 0.8 * AGE_MS < ended.at_ms <= 2 * AGE_MS + 10
        assert net.service.cancelled == 1, "its handler has ended, too"
        await net.transport.close()

    determinism.run(1, main)


def test_a_connection_without_calls_ends_at_its_age() -> None:
    async def main() -> None:
        net = OldNet()
        await net.ask()
        await asyncio.sleep(AGE_MS / 1000 + 0.01)
        (ended,) = net.seen(ConnectionEnded)
        assert 0.8 * AGE_MS < ended.at_ms <= AGE_MS + 10
        await net.transport.close()

    determinism.run(1, main)


def test_a_server_that_is_paused_ends_nothing_until_it_runs_again() -> None:
    async def main() -> None:
        net = OldNet()
        stream = await net.transport.open_stream("s:9000", STREAM)
        await stream.write(message(1))
        assert await heard(stream) == 1
        net.lives["s"].pause()
        await asyncio.sleep(10)
        assert not net.seen(ConnectionEnded)
        net.lives["s"].resume()
        await asyncio.sleep(AGE_MS / 1000 + 0.01)
        assert len(net.seen(ConnectionEnded)) == 1
        await net.transport.close()

    determinism.run(1, main)


def test_a_connection_that_its_client_leaves_is_closed_after_its_last_call() -> None:
    async def main() -> None:
        net = OldNet()
        stream = await net.transport.open_stream("s:9000", STREAM)
        await stream.write(message(1))
        assert await heard(stream) == 1
        stream.leave_connection()
        await net.ask()
        assert not net.seen(ConnectionEnded)
        await stream.close()
        (ended,) = net.seen(ConnectionEnded)
        assert ended.why == "closed"  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
        assert net.service.cancelled == 1, "the server has learned of the stream's end"
        await net.transport.close()

    determinism.run(1, main)
