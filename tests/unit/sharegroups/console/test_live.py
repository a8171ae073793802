"""Live pages: one poller for all viewers of a page, bounds, troubles, and what leaving viewers end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from sharegroups.console.live import EndedError, Live, TroubleError

pytestmark = pytest.mark.asyncio
KEY = ("ann", "/")


class Source:
    """A page that changes when a test says so."""

    def __init__(self) -> None:
        self.html = "one"
        self.made = 0
        self.error: Exception | None = None
        self._again = asyncio.Event()

    async def made_again(self, times: int = 3) -> None:
        """Wait until the page was made so many times more."""
        until = self.made + times
        while self.made < until:
            self._again.clear()
            await self._again.wait()

    async def render(self) -> str:
        self.made += 1
        self._again.set()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return self.html


async def event(stream: AsyncIterator[bytes]) -> tuple[str, str]:
    async with asyncio.timeout(30):
        text = (await anext(stream)).decode()
    kind, data = text.strip().split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@pytest.mark.rule("CT-168")
async def test_all_viewers_of_a_page_have_one_poller() -> None:
    live, source = Live(refresh_s=0.001), Source()
    streams = [live.watch(KEY, source.render) for _ in range(5)]
    assert [await event(stream) for stream in streams] == [("figures", "one")] * 5
    assert (live.viewers, live.pollers) == (5, 1)
    other = live.watch(("bob", "/"), source.render)
    await event(other)
    assert (live.viewers, live.pollers) == (6, 2)
    for stream in (*streams, other):
        await stream.aclose()  # type: ignore[attr-defined]
    assert (live.viewers, live.pollers) == (0, 0)
    made = source.made
    for _ in range(20):
        await asyncio.sleep(0)
    assert source.made == made


@pytest.mark.rule("CT-168")
async def test_a_page_is_sent_again_when_it_has_changed() -> None:
    live, source = Live(refresh_s=0.001), Source()
    stream = live.watch(KEY, source.render)
    assert await event(stream) == ("figures", "one")
    await source.made_again()
    source.html = "<b>\ntwo"
    assert await event(stream) == ("figures", "<b>\ntwo")


@pytest.mark.rule("CT-168")
async def test_a_fault_of_a_page_is_said_and_does_not_leave_its_viewers_with_old_figures() -> None:
    live, source = Live(refresh_s=0.001), Source()
    stream = live.watch(KEY, source.render)
    assert await event(stream) == ("figures", "one")
    source.error = ZeroDivisionError("division by zero")
    kind, text = await event(stream)
    assert kind == "trouble"
    assert "ZeroDivisionError" in text
    source.html, source.error = "two", None
    while (said := await event(stream))[0] == "trouble":
        continue
    assert said == ("figures", "two")


@pytest.mark.rule("CT-168")
async def test_trouble_is_said_with_the_age_and_ends() -> None:
    live, source = Live(refresh_s=0.001), Source()
    stream = live.watch(KEY, source.render)
    await event(stream)
    source.error = TroubleError("The cluster does not answer.")
    kind, text = await event(stream)
    assert kind == "trouble"
    assert text.startswith("The cluster does not answer. The figures below are ")
    source.error = None
    assert (await event(stream))[0] == "figures"


@pytest.mark.rule("CT-168")
async def test_so_many_viewers_and_no_more() -> None:
    live, source = Live(viewers_max=2, refresh_s=0.001), Source()
    streams = [live.watch(KEY, source.render) for _ in range(2)]
    for stream in streams:
        await event(stream)
    assert live.is_full
    assert [each async for each in live.watch(KEY, source.render)] == []
    await streams[0].aclose()  # type: ignore[attr-defined]
    assert not live.is_full


@pytest.mark.rule("CT-162", "CT-168")
async def test_viewers_go_with_their_session() -> None:
    live, source = Live(refresh_s=0.001), Source()
    stream = live.watch(KEY, source.render)
    await event(stream)
    source.error = EndedError()
    assert await event(stream) == ("ended", "")
    assert [each async for each in stream] == []
    assert (live.viewers, live.pollers) == (0, 0)
    source.error = None
    again = live.watch(KEY, source.render)
    assert await event(again) == ("figures", "one")


@pytest.mark.rule("CT-161")
async def test_all_streams_end_with_the_console() -> None:
    live, source = Live(refresh_s=0.001), Source()
    stream = live.watch(KEY, source.render)
    await event(stream)
    live.close()
    assert [each async for each in stream] == []
    assert [each async for each in live.watch(KEY, source.render)] == []


@pytest.mark.rule("CT-168")
async def test_a_slow_viewer_gets_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    live, source = Live(refresh_s=0.001), Source()
    stream = live.watch(KEY, source.render)
    await event(stream)
    for number in range(5):
        source.html = str(number)
        await source.made_again()
    assert await event(stream) == ("figures", "4")
    monkeypatch.setattr("sharegroups.console.live.BEAT_S", 0.001)
    assert await anext(stream) == b": \n\n"
