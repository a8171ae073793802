"""The application of `top`: how it begins and ends."""

from __future__ import annotations

import pytest

from .pictures import StubSource, app_of

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("CT-157")
@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_one_key_ends_it(key: str) -> None:
    app = app_of(StubSource())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press(key)
        await pilot.pause()
    assert app.return_code == 0
