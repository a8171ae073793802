"""The bounds of each connection of Kafka's clients (KL-1 to KL-3, KL-14, KL-108)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of each connection. `request_bytes`: the largest request but for those with records, which may have
    `records_bytes`; `partial_s`: how long a request may take to come; `idle_s`: how long a connection may be without
    one; `unread_bytes`, `unread_s`: how many bytes of answers a client may leave unread, and for how long it may read
    nothing; `age_s`: how old it may get."""

    records_bytes: int = 8 * 1024 * 1024
    request_bytes: int = 1024 * 1024
    partial_s: float = 10.0
    idle_s: float = 600.0
    unread_bytes: int = 32 * 1024 * 1024
    unread_s: float = 60.0
    age_s: float = 1_800.0
