"""Small limits for what the product otherwise does only where there is much: sweeps, joins, pages and wide arrays.

What a constructor takes is drawn by `small`. What is a constant of its module, for a hot path reads it, or pages of a
store are read by it, is set for a while by `set_small`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final
from unittest import mock

from partition_leader.share.core.limits import LIMITS, Limits

#: Small ones; the least most often.
SMALL: Final = (2, 2, 3, 4, 5)
_CORE: Final = "partition_leader.share.core"
_LOG: Final = "partition_leader.topic_log"
#: From which width a stretch of records counts as sparse, and is treated span by span.
WIDTHS: Final = (f"{_CORE}.spans._DENSE", f"{_CORE}.ack_stretch._WIDTH_PER_ACK")
#: How many entries of a topic log one read takes, or how many bytes. All of one row have one size.
PAGES: Final = (
    (f"{_LOG}.core.pages.PAGE_BATCHES", f"{_LOG}.reader.PAGE_BATCHES", f"{_LOG}.load._INDEX_PAGE"),
    (f"{_LOG}.load._HOP_ENTRIES",),
    (f"{_LOG}.load._CONTROL_PAGE",),
    (f"{_LOG}.reader._FIRST_PAGE", f"{_LOG}.reader._LARGEST_PAGE"),
    (f"{_LOG}.core.pages.PAGE_BYTES", f"{_LOG}.reader.PAGE_BYTES"),
    ("shard_runtime.record_log.redis.log.INDEX_CALL_BYTES",),
)


def small(rng: Random, **usual: int) -> Limits:
    """Small limits, each now and then the usual one, for a sweep may also hide what is wrong. `usual`: given ones."""
    return Limits(**{name: rng.choice((*SMALL, most)) for name, most in LIMITS._asdict().items()} | usual)


@contextmanager
def set_small(rng: Random, *rows: tuple[str, ...]) -> Iterator[None]:
    """The constants that these rows name are small; all of a row have one value."""
    with ExitStack() as stack:
        for row in rows:
            value = rng.choice(SMALL)
            for name in row:
                stack.enter_context(mock.patch(name, value))
        yield
