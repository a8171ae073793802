"""Whom a share session tells what came of it: records, errors, the fate of acknowledgements."""

from __future__ import annotations

from typing import Protocol

from kip932.errors import KafkaError
from sharegroups.aio.ack_outbox import AckOwner
from sharegroups.messages import Delivered


class SessionOwner(AckOwner, Protocol):
    """Whom a session reports to; all calls come from the client's loop."""

    def fetched(self, delivered: list[Delivered]) -> None:
        """Records arrived."""
        ...

    def failed(self, error: KafkaError) -> None:
        """An error that the application must see at its next poll."""
        ...

    def wake(self) -> None:
        """Something about this session changed."""
        ...
