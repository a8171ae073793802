"""Small limits for code paths that normally run only at scale: sweeps, joins, pages and wide arrays.

`small` draws limits that are passed to a constructor. `set_small` temporarily sets limits that are module constants
because a hot path reads them, or because they size reads from a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final
from unittest import mock

from partition_leader.share_partition.core.limits import LIMITS, Limits

#: Small values; the smallest is the most frequent.
SMALL: Final = (2, 2, 3, 4, 5)
_CORE: Final = "partition_leader.share_partition.core"
_LOG: Final = "partition_leader.topic_log"
#: The width from which a stretch of records is treated as sparse, and handled span by span.
WIDTHS: Final = (f"{_CORE}.spans._DENSE", f"{_CORE}.acknowledge._WIDTH_PER_ACK")
#: How many entries or bytes of a topic log one read takes. All constants of a row get one size.
PAGES: Final = (
    (f"{_LOG}.core.pages.PAGE_BATCHES", f"{_LOG}.reader.PAGE_BATCHES", f"{_LOG}.load._INDEX_PAGE"),
    (f"{_LOG}.load._HOP_ENTRIES",),
    (f"{_LOG}.load._CONTROL_PAGE",),
    (f"{_LOG}.reader._FIRST_PAGE", f"{_LOG}.reader._LARGEST_PAGE"),
    (f"{_LOG}.core.pages.PAGE_BYTES", f"{_LOG}.reader.PAGE_BYTES"),
    ("shard_runtime.record_log.redis.log.INDEX_CALL_BYTES",),
)


def small(rng: Random, **usual: int) -> Limits:
    """Return small limits; each is sometimes the usual one, since a small limit may also hide an error. `usual`: fixed
    ones."""
    return Limits(**{name: rng.choice((*SMALL, most)) for name, most in LIMITS._asdict().items()} | usual)


@contextmanager
def set_small(rng: Random, *rows: tuple[str, ...]) -> Iterator[None]:
    """Make the constants named by these rows small; all constants of a row get the same value."""
    with ExitStack() as stack:
        for row in rows:
            value = rng.choice(SMALL)
            for name in row:
                stack.enter_context(mock.patch(name, value))
        yield
