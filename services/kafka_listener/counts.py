"""What the connections of Kafka's clients have counted, for metrics (KL-9)."""

from __future__ import annotations


class Counts:
    """What the connections of one listener have counted. `requests`: by the names of their APIs; `refused`: connections
    closed, or not taken, by the reason."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.malformed = 0

    def asked(self, name: str) -> None:
        """Count a request."""
        self.requests[name] = self.requests.get(name, 0) + 1

    def refuse(self, reason: str) -> None:
        """Count a connection that is closed, or was not taken."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
