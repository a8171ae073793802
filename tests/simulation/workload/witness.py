"""What one client process saw, written into the history; the only way in which workloads write there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kip932.errors import KafkaError
from kip932.rpc.transport import TransportError
from tests.simulation.history import ClientFailed, Event

if TYPE_CHECKING:
    from tests.simulation.world import World


class Attempt:
    """A call of a client; `error` names what it ended with, "" while all is well."""

    def __init__(self) -> None:
        self.error = ""


class Witness:
    """The client process `process` of a world."""

    def __init__(self, world: World, process: str) -> None:
        self.world = world
        self.process = process

    def saw(self, kind: type[Event], *details: Any) -> None:
        """Record an event of this client, now."""
        self.world.history.add(kind(self.world.now_ms(), self.process, *details))

    @contextmanager
    def trying(self, call: str) -> Iterator[Attempt]:
        """Errors that an application must reckon with are recorded as ClientFailed; everything else is a bug."""
        attempt = Attempt()
        try:
            yield attempt
        except (KafkaError, TransportError) as error:
            attempt.error = error_text(error)
            self.saw(ClientFailed, call, attempt.error)


def error_text(error: Exception) -> str:
    """Kafka's name of an error, or gRPC's of a call that was not answered."""
    if isinstance(error, KafkaError):
        return error.name
    return error.status.value if isinstance(error, TransportError) else type(error).__name__
