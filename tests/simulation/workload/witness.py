"""Records in the history what one client process saw; workloads write to it only through this class."""

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
    """A call by a client; `error` is the name of the error that ended it, "" for none."""

    def __init__(self) -> None:
        self.error = ""


class Witness:
    """The client process `process` in a simulated world."""

    def __init__(self, world: World, process: str) -> None:
        self.world = world
        self.process = process

    def saw(self, kind: type[Event], *details: Any) -> None:
        """Record an event of this client, now."""
        self.world.history.add(kind(self.world.now_ms(), self.process, *details))

    @contextmanager
    def trying(self, call: str) -> Iterator[Attempt]:
        """Record as ClientFailed the errors that an application must expect; any other error is a bug."""
        attempt = Attempt()
        try:
            yield attempt
        except (KafkaError, TransportError) as error:
            attempt.error = error_text(error)
            self.saw(ClientFailed, call, attempt.error)


def error_text(error: Exception) -> str:
    """Return Kafka's name of an error, or gRPC's if the call had no response."""
    if isinstance(error, KafkaError):
        return error.name
    return error.status.value if isinstance(error, TransportError) else type(error).__name__
