"""The interface to which a share session reports records, errors and the outcome of acknowledgements."""

from __future__ import annotations

from typing import Protocol

from kip932.errors import KafkaError
from sharegroups.consuming.ack_outbox import AckOwner
from sharegroups.messages import Delivered


class SessionOwner(AckOwner, Protocol):
    """Receives the reports of a session. The session makes all calls in the client's loop."""

    def fetched(self, delivered: list[Delivered]) -> None:
        """Receive records that arrived."""
        ...

    def failed(self, error: KafkaError) -> None:
        """Receive an error that the application must see at its next poll."""
        ...

    def gave_up(self, error: KafkaError) -> None:
        """Leave the group, since the member cannot read its records; every poll must raise this error (CL-111)."""
        ...

    def wake(self) -> None:
        """Let a waiting poll continue, because the state of this session changed."""
        ...
