"""Who fetches: a member of a share group, and what every ShareFetch of it says."""

from __future__ import annotations

from dataclasses import dataclass, field

from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT
from sharegroups.config import Config


@dataclass(slots=True, eq=False)
class Member:
    """Who fetches, and how. `max_records`: what the next ShareFetch asks for at most, 1 to max.poll.records."""

    group_id: str
    member_id: str
    config: Config
    max_records: int = field(init=False)

    def __post_init__(self) -> None:
        self.max_records = int(self.config["max.poll.records"])

    @property
    def acquire_mode(self) -> int:
        """share.acquire.mode as the wire has it."""
        return ACQUIRE_RECORD_LIMIT if self.config["share.acquire.mode"] == "record_limit" else ACQUIRE_BATCH_OPTIMIZED

    def fetch_request(self) -> ShareFetchRequest:
        """What every ShareFetch of this member says."""
        return ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            max_wait_ms=self.config["fetch.max.wait.ms"],
            min_bytes=self.config["fetch.min.bytes"],
            max_bytes=self.config["fetch.max.bytes"],
            max_records=self.max_records,
            batch_size=self.max_records,
            share_acquire_mode=self.acquire_mode,
        )
