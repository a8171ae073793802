"""The member of a share group that fetches, and the fields that all its ShareFetch requests have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.compression.kinds import Compression, readable
from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT, BATCH_FORMAT_KAFKA
from sharegroups.config import Config
from sharegroups.consuming.core.fetch_ahead import Ahead
from sharegroups.consuming.core.fetch_pace import Pace

#: The share.acquire.mode in which the pace determines the number of records (CL-85).
ADAPTIVE: Final = "adaptive"
_READ_BY_ALL: Final = (Compression.NONE, Compression.GZIP)


@dataclass(slots=True, eq=False)
class Member:
    """The member that fetches, and how it fetches.

    `compression_types`: the types that it can decompress but not every consumer can (PL-257). `records_cap`: the
    maximum number of records that the next ShareFetch requests, even if the pace allows more. `poll_cap`: the same for
    the current poll; 0 fetches nothing. `is_slow`: the application needs a large part of a lock for what a poll
    returns, so nothing is fetched ahead (CL-84). `hold_ms`: how long it needed for the last poll. `epoch`: its newest
    member epoch, 0 while it has none. `delivery_count_limit` and `dead_letter_topic`: the group's, as a leader last
    reported them; None before that, or if leaders do not report them (PL-258).
    """

    group_id: str
    member_id: str
    config: Config
    records_cap: int = field(init=False)
    poll_cap: int | None = field(init=False, default=None)
    compression_types: tuple[int, ...] = field(init=False)
    pace: Pace = field(init=False)
    ahead: Ahead = field(init=False)
    leaders: int = field(init=False, default=1)
    is_slow: bool = field(init=False, default=False)
    hold_ms: int = field(init=False, default=0)
    epoch: Callable[[], int] = field(init=False, default=int)
    delivery_count_limit: int | None = field(init=False, default=None)
    dead_letter_topic: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.records_cap = int(self.config["max.poll.records"])
        self.compression_types = tuple([kind for kind in readable() if kind not in _READ_BY_ALL])
        self.pace = Pace(self.records_cap, self.config["share.acquire.mode"] == ADAPTIVE)
        self.ahead = Ahead(self.records_cap)

    @property
    def max_records(self) -> int:
        """The maximum number of records that the next ShareFetch requests, at most max.poll.records; 0 if no ShareFetch
        is sent."""
        most = min(self.records_cap, self.pace.limit)
        return most if self.poll_cap is None else min(most, self.poll_cap)

    @property
    def takes_whole_batches(self) -> bool:
        """True when the next ShareFetch may return more records than it requests (batch_optimized)."""
        mode = self.config["share.acquire.mode"]
        return mode == "batch_optimized" or (
            mode == ADAPTIVE and self.pace.whole and self.max_records == self.pace.limit
        )

    @property
    def fetches_ahead(self) -> bool:
        """True when the next ShareFetch may return more records than the next poll returns (CL-138)."""
        if not self.ahead.is_on or self.poll_cap is not None or self.is_slow or not self.takes_whole_batches:
            return False
        most = int(self.config["max.poll.records"])
        return self.max_records == most < self.ahead.records(self.leaders)

    @property
    def asks_one_leader(self) -> bool:
        """True when the consumer asks one leader at a time, so that nothing is fetched ahead (CL-36, CL-84)."""
        return self.is_slow or not self.takes_whole_batches

    @property
    def acquire_mode(self) -> int:
        """The share_acquire_mode of the next ShareFetch."""
        return ACQUIRE_BATCH_OPTIMIZED if self.takes_whole_batches else ACQUIRE_RECORD_LIMIT

    def learn_limits(self, response: ShareFetchResponse | ShareAcknowledgeResponse) -> None:
        """Note the group's current configs from a leader's response (PL-258)."""
        if response.HasField("delivery_count_limit"):
            self.delivery_count_limit = response.delivery_count_limit
        if response.HasField("dead_letter_topic"):
            self.dead_letter_topic = response.dead_letter_topic

    def fetch_request(self) -> ShareFetchRequest:
        """Return a request with the fields that all ShareFetch requests of this member have in common."""
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            max_wait_ms=self.config["fetch.max.wait.ms"],
            min_bytes=self.config["fetch.min.bytes"],
            max_bytes=self.config["fetch.max.bytes"],
            compression_types=self.compression_types,
            batch_formats=[BATCH_FORMAT_KAFKA],
        )
        self.update(request)
        return request

    def update(self, request: ShareFetchRequest) -> None:
        """Set the common fields that change from one ShareFetch to the next."""
        request.batch_size = most = self.max_records
        request.max_records = self.ahead.records(self.leaders) if self.fetches_ahead else most
        request.share_acquire_mode = self.acquire_mode
        request.member_epoch = self.epoch()  # CL-38
