"""A story that fails or hangs is ended, and the reason is reported."""

from __future__ import annotations

import asyncio

import pytest

from sharegroups.aio import ShareConsumer
from tests.scenarios.cluster import STORY_S, TOPIC, Cluster, first, on_one_node


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_story_that_fails_raises_its_error_at_once() -> None:
    seen: list[float] = []

    @on_one_node()
    async def story(cluster: Cluster) -> None:
        await cluster.produce(b"v")
        async with cluster.consumer() as c:
            await first(c)
            seen.append(cluster.world.loop.time())
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        story()
    assert seen[0] < STORY_S


def test_a_story_that_waits_for_ever_ends_and_names_the_place() -> None:
    @on_one_node()
    async def story(cluster: Cluster) -> None:
        async with cluster.consumer() as c:
            assert c.subscription() == [TOPIC]
            await _for_ever()

    place = r"test_cluster\.py:\d+ > test_cluster\.py:\d+$"
    with pytest.raises(AssertionError, match=rf"within {STORY_S} virtual seconds: .*{place}"):
        story()


def test_a_story_that_failed_and_cannot_clean_up_raises_what_it_failed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(_: ShareConsumer, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the shape of the real one
        await _for_ever()

    monkeypatch.setattr(ShareConsumer, "close", close)

    @on_one_node()
    async def story(cluster: Cluster) -> None:
        async with cluster.consumer():
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as problem:
        story()
    assert "waits at" in str(problem.value.__cause__)


def test_a_story_that_cannot_even_be_cancelled_ends() -> None:
    @on_one_node()
    async def story(cluster: Cluster) -> None:
        while cluster:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue

    with pytest.raises(AssertionError, match=f"did not end within {STORY_S} virtual seconds"):
        story()
