"""When an answer is held back."""

from __future__ import annotations

import pytest

from kafka_listener.core.pacing import PAUSE_MS, bounded_ms


@pytest.mark.rule("KL-16")
def test_a_delay_has_bounds() -> None:
    assert [bounded_ms(delay_ms) for delay_ms in (-1, 0, 50, PAUSE_MS, 60_000)] == [0, 0, 50, 200, 200]
