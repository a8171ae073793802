"""The application of `top`: how it begins and ends."""

from __future__ import annotations

import pytest

from .pictures import StubSource, app_of, text_of

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


@pytest.mark.rule("CT-157")
async def test_the_keys_are_named_on_request() -> None:
    async with app_of(StubSource()).run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        assert "l largest lag, o oldest" in text_of(pilot)
