"""Makes every fetch count as wide and every slice minimal, so that other tasks run between any two steps (CM-97)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from partition_leader.fetch import wide_fetch
from partition_leader.share_partition import partitions
from partition_leader.share_rpc import codec, requests


@contextmanager
def narrow() -> Iterator[None]:
    """Within this context, treat every fetch as wide and make every slice minimal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "WIDE", 0)
        for module, name, value in (
            (wide_fetch, "CHECK_SLICE", 1),
            (wide_fetch, "READ_SLICE", 1),
            (partitions, "DEFERRED_SLICE", 0),
            (codec, "_SLICE", 1),
            (partitions, "_WAKE_SLICE", 1),
        ):
            patch.setattr(module, name, value)
        yield
