"""The interface to which a share session reports records, errors and the outcome of acknowledgements."""

from __future__ import annotations

from typing import Protocol

from kip932.errors import KafkaError
from sharegroups.aio.ack_outbox import AckOwner
from sharegroups.messages import Delivered


class SessionOwner(AckOwner, Protocol):
    """What a session reports to. The session makes all calls in the client's loop."""

    def fetched(self, delivered: list[Delivered]) -> None:
        """Records arrived."""
        ...

    def failed(self, error: KafkaError) -> None:
        """An error that the application must see at its next poll."""
        ...

    def gave_up(self, error: KafkaError) -> None:
        """The member cannot read what it would be given: it must leave, and every poll raises this (CL-111)."""
        ...

    def wake(self) -> None:
        """The state of this session changed: let a waiting poll continue."""
        ...
