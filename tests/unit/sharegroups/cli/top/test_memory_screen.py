"""What fills the memory, on the screen of `top`."""

from __future__ import annotations

import pytest

from .pictures import StubSource, app_of, compare, text_of

pytestmark = pytest.mark.asyncio

NARROW = (80, 24)


@pytest.mark.rule("CT-158")
async def test_what_fills_the_memory_is_one_key_away_and_a_key_leads_back() -> None:
    source = StubSource()
    async with app_of(source).run_test(size=NARROW) as pilot:
        await pilot.pause()
        await pilot.press("m")
        await pilot.pause()
        compare(pilot, "memory-80")
        await pilot.press("escape")
        await pilot.pause()
        assert "largest lag first" in text_of(pilot)
