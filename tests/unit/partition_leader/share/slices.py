"""Makes every fetch wide and every slice minimal, so that other tasks run between any two steps (CM-97)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from partition_leader.share import codec, deferred_work, partitions, requests, wide_fetch


@contextmanager
def narrow() -> Iterator[None]:
    """Make every fetch wide and every slice minimal within this context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "WIDE", 0)
        for module, name, value in (
            (wide_fetch, "LOOK_SLICE", 1),
            (wide_fetch, "READ_SLICE", 1),
            (deferred_work, "SLICE", 0),
            (codec, "_SLICE", 1),
            (partitions, "_SLICE", 1),
        ):
            patch.setattr(module, name, value)
        yield
